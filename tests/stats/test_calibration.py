"""Calibration of preference probabilities."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.stats.calibration import (
    brier,
    ece,
    fit_isotonic,
    fit_platt,
    fit_temperature,
    log_loss,
    reliability,
)

P, Y = [0.1, 0.3, 0.35, 0.9], [0, 1, 0, 1]
predictions = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12)
# a grid, so that margins repeat
margin_grid = st.integers(-12, 12).map(lambda k: k / 4)
judged = st.lists(st.tuples(margin_grid, st.sampled_from([0.0, 0.5, 1.0])), min_size=1, max_size=15)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_measures_by_hand() -> None:
    # two bins: [0, .5): mean p .25, mean y 1/3, gap .083333, weight 3/4;  [.5, 1]: gap .1, weight 1/4.  .0625 + .025
    assert ece(P, Y, bins=2) == pytest.approx(0.0875, abs=1e-12)
    # one bin: mean p .4125, mean y .5
    assert ece(P, Y, bins=1) == pytest.approx(0.0875, abs=1e-12)
    # four bins: [0, .25) gap .1, weight 1/4; [.25, .5) |.325 - .5| = .175, weight 1/2; [.75, 1] gap .1, weight 1/4
    assert ece(P, Y, bins=4) == pytest.approx(0.1375, abs=1e-12)
    # (.01 + .49 + .1225 + .01) / 4
    assert brier(P, Y) == pytest.approx(0.158125, abs=1e-12)
    # -(ln .9 + ln .3 + ln .65 + ln .9) / 4 = (.105361 + 1.203973 + .430783 + .105361) / 4
    assert log_loss(P, Y) == pytest.approx(0.461369, abs=1e-6)


def test_bins_have_their_lower_edge_and_the_last_one_both() -> None:
    table = reliability([0.0, 0.5, 1.0], [0, 0, 1], bins=2)
    assert table.counts.tolist() == [1, 2]
    assert (table.mean_p[1], table.mean_y[1]) == (0.75, 0.5)
    # .29 * 100 is 28.999999999999996, and yet .29 is the lower edge of bin 29
    assert reliability([0.29], [1], bins=100).counts.argmax() == 29
    empty = reliability([0.1], [1], bins=2)
    assert np.isnan(empty.mean_p[1])
    assert np.isnan(empty.mean_y[1])


@given(predictions, st.integers(1, 12))
def test_measures_equal_a_slow_derivation(rows, bins) -> None:
    p, y = [r[0] for r in rows], [r[1] for r in rows]
    total = 0.0
    for k in range(bins):
        inside = [r for r in rows if k / bins <= r[0] and (r[0] < (k + 1) / bins or k == bins - 1)]
        total += abs(math.fsum(r[0] - r[1] for r in inside))
    assert ece(p, y, bins) == pytest.approx(total / len(rows), abs=1e-12)
    assert brier(p, y) == pytest.approx(math.fsum((a - b) ** 2 for a, b in rows) / len(rows), abs=1e-12)
    held = [(min(max(a, 1e-12), 1 - 1e-12), b) for a, b in rows]
    slow = -math.fsum(b * math.log(a) + (1 - b) * math.log(1 - a) for a, b in held) / len(rows)
    assert log_loss(p, y) == pytest.approx(slow, rel=1e-4, abs=1e-11)


@given(predictions, st.randoms(use_true_random=False))
def test_measures_do_not_depend_on_order_and_a_swap_of_sides_keeps_scores(rows, random) -> None:
    p, y = (np.array(column) for column in zip(*rows, strict=True))
    order = list(range(len(rows)))
    random.shuffle(order)
    for measure in (ece, brier, log_loss):
        assert measure(p[order], y[order]) == pytest.approx(measure(p, y), abs=1e-9)
    assert brier(1 - p, 1 - y) == pytest.approx(brier(p, y), abs=1e-12)
    assert log_loss(1 - p, 1 - y) == pytest.approx(log_loss(p, y), rel=1e-4, abs=1e-9)
    assert ece(y, y) == 0


def test_a_certain_miss_costs_a_finite_amount() -> None:
    assert log_loss([0.0], [1.0]) == pytest.approx(-math.log(1e-12), rel=1e-9)
    assert log_loss([1.0], [0.0], epsilon=1e-3) == pytest.approx(-math.log(1e-3), rel=1e-9)


def test_temperature_by_hand() -> None:
    # three of four are won at margin 2: sigmoid(2 / T) = 3/4, 2 / T = ln 3, T = 1.820478
    assert fit_temperature([2, 2, 2, 2], [1, 1, 1, 0]) == pytest.approx(2 / math.log(3), rel=1e-9)
    # half of the time: nothing is known, the upper end
    assert fit_temperature([2, 2], [1, 0]) == pytest.approx(1000)
    assert fit_temperature([2, -2], [0, 1]) == pytest.approx(1000)
    # margins that are all 0 say nothing either
    assert fit_temperature([0, 0], [1, 1]) == pytest.approx(1000)
    # always: the lower end
    assert fit_temperature([2, -2], [1, 0]) == pytest.approx(0.001)


@given(judged)
def test_temperature_equals_a_slow_search(rows) -> None:
    def loss(t):
        return math.fsum(math.log1p(math.exp(-abs(m / t))) + max(m / t, 0) - y * m / t for m, y in rows)

    temperature = fit_temperature(*zip(*rows, strict=True))
    grid = [10 ** (k / 20) for k in range(-60, 61)]
    assert loss(temperature) <= min(loss(t) for t in grid) + 1e-7


@given(judged, st.sampled_from([0.25, 3.0]))
def test_temperature_scales_with_the_margins(rows, scale) -> None:
    margins, y = (np.array(column) for column in zip(*rows, strict=True))
    temperature = fit_temperature(margins, y)
    if 0.01 < temperature < 100:
        assert fit_temperature(scale * margins, y) == pytest.approx(scale * temperature, rel=1e-6)
        assert fit_temperature(-margins, 1 - y) == pytest.approx(temperature, rel=1e-6)


def test_platt_by_hand() -> None:
    # at margin 1 won 3 of 4, at -1 won 1 of 4: 4 wins and 4 losses, targets 5/6 and 1/6
    # mean target at 1: (3 * 5/6 + 1/6) / 4 = 2/3, logit ln 2; at -1: -ln 2.  slope ln 2, intercept 0
    platt = fit_platt([1] * 4 + [-1] * 4, [1, 1, 1, 0, 1, 0, 0, 0])
    assert platt.slope == pytest.approx(math.log(2), abs=1e-9)
    assert platt.intercept == pytest.approx(0, abs=1e-9)
    assert platt([1, 0, -1]) == pytest.approx([2 / 3, 1 / 2, 1 / 3], abs=1e-9)
    # the same with all margins moved by 3: intercept -3 ln 2
    moved = fit_platt([4] * 4 + [2] * 4, [1, 1, 1, 0, 1, 0, 0, 0])
    assert moved == pytest.approx((math.log(2), -3 * math.log(2)), abs=1e-8)


@given(judged)
def test_platt_is_where_a_slow_gradient_vanishes(rows) -> None:
    platt = fit_platt(*zip(*rows, strict=True))
    wins = math.fsum(y for _, y in rows)
    high, low = (wins + 1) / (wins + 2), 1 / (len(rows) - wins + 2)
    gaps = [(m, sigmoid(platt.slope * m + platt.intercept) - (y * high + (1 - y) * low)) for m, y in rows]
    assert math.fsum(gap for _, gap in gaps) == pytest.approx(0, abs=1e-6)
    assert math.fsum(m * gap for m, gap in gaps) == pytest.approx(0, abs=1e-6)


@given(judged, st.sampled_from([0.01, 100.0]), st.sampled_from([-5.0, 5.0]))
def test_platt_gives_the_same_probabilities_in_any_unit(rows, scale, shift) -> None:
    margins, y = (np.array(column) for column in zip(*rows, strict=True))
    plain, other = fit_platt(margins, y)(margins), fit_platt(scale * margins + shift, y)(scale * margins + shift)
    assert other == pytest.approx(plain, abs=1e-6)


def test_isotonic_by_hand() -> None:
    # 1, 0 violate the order and become 1/2 each
    curve = fit_isotonic([0, 1, 2], [1, 0, 1])
    assert curve([0, 1, 2]) == pytest.approx([0.5, 0.5, 1.0])
    # between the points straight, beyond them level
    assert curve([-5, 1.5, 9]) == pytest.approx([0.5, 0.75, 1.0])
    # 0 | 1, 0, 0 -> 1/3 | 1; equal margins are one point
    assert fit_isotonic([4, 1, 2, 3, 0, 4], [1, 1, 0, 0, 0, 1]).y == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 1])


@given(judged)
def test_isotonic_equals_the_min_max_formula(rows) -> None:
    """The fit at i is the largest over a <= i of the smallest over b >= i of the mean of the points a..b."""
    points = sorted({m for m, _ in rows})
    curve = fit_isotonic(*zip(*rows, strict=True))
    assert curve.x.tolist() == points

    def mean(low, high):
        inside = [y for m, y in rows if low <= m <= high]
        return math.fsum(inside) / len(inside)

    slow = [max(min(mean(a, b) for b in points if b >= x) for a in points if a <= x) for x in points]
    assert curve.y == pytest.approx(slow, abs=1e-12)


@given(judged)
def test_isotonic_rises_and_keeps_the_mean(rows) -> None:
    margins, y = zip(*rows, strict=True)
    fitted = fit_isotonic(margins, y)(margins)
    assert (np.diff(fitted[np.argsort(margins)]) >= -1e-12).all()
    assert fitted.mean() == pytest.approx(np.mean(y), abs=1e-12)


def test_all_three_mend_an_overconfident_model() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=4000)
    y = (rng.random(4000) < 1 / (1 + np.exp(-truth))).astype(float)
    margins = 3 * truth
    before = log_loss(1 / (1 + np.exp(-margins)), y)
    temperature = fit_temperature(margins, y)
    assert temperature == pytest.approx(3, rel=0.1)
    mended = {
        "temperature": 1 / (1 + np.exp(-margins / temperature)),
        "platt": fit_platt(margins, y)(margins),
        "isotonic": fit_isotonic(margins, y)(margins),
    }
    for name, p in mended.items():
        assert log_loss(p, y) < before - 0.05, name
        assert ece(p, y) < 0.03, name


@pytest.mark.parametrize(
    ("p", "y", "named"),
    [
        ([], [], "at least one"),
        ([0.5], [1, 0], "one outcome for each"),
        ([0.5, 1.5], [1, 0], "probability 1.5 at position 1"),
        ([0.5, math.nan], [1, 0], "probability nan at position 1"),
        ([0.5, 0.5], [1, -1], "outcome -1.0 at position 1"),
    ],
)
def test_what_cannot_be_used_is_named(p, y, named) -> None:
    for measure in (ece, brier, log_loss):
        with pytest.raises(TrimtabError) as caught:
            measure(p, y)
        assert named in str(caught.value)


def test_margins_that_cannot_be_used_are_named() -> None:
    for fit in (fit_temperature, fit_platt, fit_isotonic):
        with pytest.raises(TrimtabError, match="margin inf at position 0"):
            fit([math.inf], [1])
    with pytest.raises(TrimtabError, match="0 bins"):
        ece(P, Y, bins=0)


def test_core_calibration_is_the_same_and_needs_no_torch() -> None:
    code = (
        "import sys, trimtab.core.calibration as a, trimtab.stats.calibration as b; "
        "assert a.ece is b.ece and a.__all__ == b.__all__; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
