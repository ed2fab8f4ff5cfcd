"""Learning-rate schedules."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.core.schedules import learning_rate_factor
from trimtab.errors import TrimtabError


def factors(total, schedule, warmup):
    return [learning_rate_factor(step, total, schedule, warmup) for step in range(total + 2)]


def test_schedules_by_hand() -> None:
    # 2 of 10 updates warm up: 1/3, 2/3, then 1 at update 2
    constant = [1 / 3, 2 / 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    assert factors(10, "constant", 0.2) == pytest.approx(constant)
    # down in eighths
    linear = [1 / 3, 2 / 3, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0, 0]
    assert factors(10, "linear", 0.2) == pytest.approx(linear)
    # (1 + cos(pi / 4)) / 2 = .853553 after a quarter, 1/2 after a half
    cosine = factors(10, "cosine", 0.2)
    assert (cosine[2], cosine[4], cosine[6], cosine[8], cosine[10]) == pytest.approx(
        (1, 0.853553, 0.5, 0.146447, 0), abs=1e-6
    )
    # no warm-up
    assert factors(4, "linear", 0.0) == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0])
    assert learning_rate_factor(0, 1, "cosine") == 1.0


def test_a_fraction_of_an_update_is_rounded_up_but_not_a_rounding_error() -> None:
    # .05 * 10 = 1/2 update: one warms up
    assert factors(10, "constant", 0.05)[:2] == [0.5, 1.0]
    # .07 * 100 is 7.000000000000001
    assert learning_rate_factor(6, 100, "constant", 0.07) == 7 / 8
    assert learning_rate_factor(7, 100, "constant", 0.07) == 1.0


@given(st.integers(1, 60), st.floats(0, 1), st.sampled_from(["constant", "linear", "cosine"]))
def test_factors_equal_a_slow_derivation(total, warmup, schedule) -> None:
    warm = next(w for w in range(total + 1) if w >= warmup * total - 1e-9)
    for step in range(total + 3):
        if step < warm:
            expected = (step + 1) / (warm + 1)
        elif schedule == "constant":
            expected = 1.0
        elif step >= total:
            expected = 0.0
        elif schedule == "linear":
            expected = (total - step) / (total - warm)
        else:
            # half the angle: (1 + cos x) / 2 = cos^2(x / 2)
            expected = math.cos(math.pi / 2 * (step - warm) / (total - warm)) ** 2
        assert learning_rate_factor(step, total, schedule, warmup) == pytest.approx(expected, abs=1e-12)


@given(st.integers(2, 60), st.floats(0, 0.9), st.sampled_from(["constant", "linear", "cosine"]))
def test_factors_rise_then_never_rise_again_and_no_update_is_wasted(total, warmup, schedule) -> None:
    values = [learning_rate_factor(step, total, schedule, warmup) for step in range(total)]
    top = values.index(max(values))
    assert values[: top + 1] == sorted(values[: top + 1])
    assert values[top:] == sorted(values[top:], reverse=True)
    assert all(0 < v <= 1 for v in values)


def test_what_makes_no_sense_is_refused() -> None:
    for arguments in ((-1, 10, "linear", 0.0), (0, 0, "linear", 0.0), (0, 10, "linear", 1.5), (0, 10, "linear", -0.1)):
        with pytest.raises(TrimtabError, match="out of range"):
            learning_rate_factor(*arguments)
    with pytest.raises(TrimtabError, match="polynomial"):
        learning_rate_factor(0, 10, "polynomial")
