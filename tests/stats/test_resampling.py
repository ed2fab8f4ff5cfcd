"""The bootstrap of sums, and the score interval of clustered shares."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.stats.intervals import clustered_share, wilson
from trimtab.stats.resampling import bootstrap_sums, group_sums, percentile_interval


def test_groups_are_summed():
    np.testing.assert_array_equal(group_sums([[1, 10], [2, 20], [4, 40]], np.array([5, 2, 5])), [[2, 20], [5, 50]])


@pytest.mark.parametrize("kinds", [2, 500])
def test_resampled_sums_have_the_moments_of_drawing_with_replacement(kinds):
    # both ways of drawing: few distinct groups by multinomial counts, many by index
    rng = np.random.default_rng(0)
    x = rng.integers(0, kinds, 500) + (rng.random(500) if kinds > 2 else 0)
    drawn = bootstrap_sums(np.stack([x, np.ones(500)], 1), None, 4000, 1)
    assert (drawn[:, 1] == 500).all()
    assert drawn[:, 0].mean() == pytest.approx(x.sum(), rel=0.02)
    assert drawn[:, 0].std() == pytest.approx(math.sqrt(500) * x.std(), rel=0.05)


def test_whole_groups_are_drawn():
    values = np.ones((12, 1))
    groups = np.repeat([0, 1, 2], [1, 3, 8])
    drawn = bootstrap_sums(values, groups, 500, 0)[:, 0]
    possible = {a + b + c for a in (1, 3, 8) for b in (1, 3, 8) for c in (1, 3, 8)}
    assert set(drawn.tolist()) <= possible
    assert len(set(drawn.tolist())) == len(possible)


def test_the_same_seed_draws_the_same():
    x = np.random.default_rng(0).random((90, 2))
    np.testing.assert_array_equal(bootstrap_sums(x, None, 50, 3), bootstrap_sums(x, None, 50, 3))
    assert (bootstrap_sums(x, None, 50, 3) != bootstrap_sums(x, None, 50, 4)).any()


def test_percentiles_leave_out_what_is_not_defined():
    assert percentile_interval(np.array([1.0, 2, 3, 4, math.nan]), 0.5) == (1.75, 3.25)
    assert all(math.isnan(x) for x in percentile_interval(np.array([1.0, math.nan, math.nan])))


def test_nothing_to_draw_is_refused():
    with pytest.raises(TrimtabError):
        bootstrap_sums(np.empty((0, 2)))
    with pytest.raises(TrimtabError):
        bootstrap_sums(np.ones((2, 1)), None, 0)
    with pytest.raises(TrimtabError, match="3 rows but 2 groups"):
        group_sums(np.ones((3, 1)), np.zeros(2, dtype=int))


def test_single_trials_have_nearly_wilsons_interval():
    x = np.array([1.0] * 30 + [0.0] * 70)
    found, wanted = clustered_share(x), wilson(30, 100)
    assert found.mean == 0.3
    # one trial more of scatter, and the n - 1
    assert found.low == pytest.approx(wanted.low, abs=0.002)
    assert found.high == pytest.approx(wanted.high, abs=0.002)


def test_copies_in_a_group_add_nothing():
    x = np.random.default_rng(1).integers(0, 2, 60).astype(float)
    alone = clustered_share(x)
    copied = clustered_share(np.repeat(x, 10), np.repeat(np.arange(60), 10))
    assert (copied.low, copied.high) == pytest.approx((alone.low, alone.high), abs=1e-9)
    assert copied.n == 600


def test_groups_that_cancel_out_are_known_better_but_never_for_certain():
    # one success and one failure in every group: the share is .5 whatever is drawn
    found = clustered_share(np.tile([1.0, 0.0], 50), np.repeat(np.arange(50), 2))
    assert 0.45 < found.low < 0.5 < found.high < 0.55


@given(k=st.integers(0, 20), n=st.integers(2, 20))
def test_intervals_hold_the_share_within_bounds(k, n):
    x = np.array([1.0] * min(k, n) + [0.0] * (n - min(k, n)))
    found = clustered_share(x)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.high - found.low > 0.1


def test_extremes_and_single_groups():
    assert clustered_share([1.0] * 30).high == 1
    assert clustered_share([1.0] * 30).low == pytest.approx(wilson(30, 30).low, abs=1e-12)
    assert clustered_share([1.0, 0.0], np.zeros(2, dtype=int))[1:3] == (0.0, 1.0)
    assert math.isnan(clustered_share([]).mean)
    with pytest.raises(TrimtabError):
        clustered_share([2.0])
    with pytest.raises(TrimtabError):
        clustered_share([1.0], np.zeros(2, dtype=int))


def test_clustered_intervals_cover():
    missed = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        p = np.clip(0.7 + 0.2 * rng.normal(size=40), 0, 1)
        truth = 0.6941  # .7 less the expected excess over 1
        x = (rng.random((40, 5)) < p[:, None]).astype(float)
        found = clustered_share(x.ravel(), np.repeat(np.arange(40), 5))
        missed += not found.low <= truth <= found.high
    assert missed <= 27
