"""Intervals: Wilson, bootstrap, clustered and paired."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.stats.intervals import bootstrap_mean, paired_bootstrap, wilson


def test_wilson_by_hand() -> None:
    # z = 1.959964, z^2 = 3.841459; share .8, n 10: centre (.8 + .192073) / 1.384146 = .716740
    # half 1.959964 / 1.384146 * sqrt(.016 + .009604) = 1.416010 * .160011 = .226577
    interval = wilson(8, 10)
    assert interval == pytest.approx((0.8, 0.490162, 0.943318, 10), abs=2e-6)
    # at 0 of n the upper end is z^2 / (n + z^2) = 3.841459 / 13.841459
    assert wilson(0, 10) == pytest.approx((0.0, 0.0, 0.277533, 10), abs=1e-6)
    assert wilson(10, 10)[1:3] == pytest.approx((0.722467, 1.0), abs=1e-6)
    assert wilson(0, 10).low == 0.0
    assert wilson(7, 7).high == 1.0


@given(st.integers(1, 200), st.floats(0, 1), st.sampled_from([(0.9, 1.6448536269514722), (0.99, 2.5758293035489004)]))
def test_wilson_ends_are_where_the_score_test_turns(n, fraction, level) -> None:
    """The ends solve |share - p| = z sqrt(p (1 - p) / n): found by bisection on either side of the share."""
    k = fraction * n
    share = k / n
    interval = wilson(k, n, level[0])

    def rejected(p):
        return abs(share - p) > level[1] * math.sqrt(p * (1 - p) / n)

    for outer, found in ((0.0, interval.low), (1.0, interval.high)):
        inside, outside = share, outer
        if share == outer or not rejected(outer):
            assert found == pytest.approx(outer, abs=1e-12)
            continue
        for _ in range(60):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if rejected(middle) else (middle, outside)
        assert found == pytest.approx(inside, abs=1e-9)


@given(st.integers(1, 50), st.integers(0, 50))
def test_wilson_mirrors_and_narrows(n, k) -> None:
    k = min(k, n)
    interval, mirrored, more = wilson(k, n), wilson(n - k, n), wilson(4 * k, 4 * n)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((interval.low, interval.high), abs=1e-12)
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1
    assert more.high - more.low < interval.high - interval.low


def test_wilson_of_nothing_knows_nothing() -> None:
    interval = wilson(0, 0)
    assert math.isnan(interval.mean)
    assert interval[1:] == (0.0, 1.0, 0)
    for k, n in ((3, 2), (-1, 2)):
        with pytest.raises(TrimtabError, match=f"{k} successes"):
            wilson(k, n)
    with pytest.raises(TrimtabError, match="level 95"):
        wilson(1, 2, level=95)


def exact_quantiles(values, counts, level):
    """Of the mean over all equally likely draws of len(values) groups, by enumeration."""
    draws = itertools.product(range(len(values)), repeat=len(values))
    means = [sum(values[i] for i in drawn) / sum(counts[i] for i in drawn) for drawn in draws]
    return np.quantile(sorted(means), [0.5 - level / 2, 0.5 + level / 2])


def test_bootstrap_by_hand_and_by_enumeration() -> None:
    # values 0, 1: means 0, 1/2, 1/2, 1, each with probability 1/4: the middle .4 is 1/2, the middle .9 is all
    assert bootstrap_mean([0, 1], level=0.4) == (0.5, 0.5, 0.5, 2)
    assert bootstrap_mean([0, 1], level=0.9) == (0.5, 0.0, 1.0, 2)
    values = [0.3, -1.2, 2.5, 0.9, 4.0]
    # the ends of a level that falls between the atoms of 5^5 draws
    interval = bootstrap_mean(values, resamples=40_000, level=0.9)
    low, high = exact_quantiles(values, [1] * 5, 0.9)
    assert interval.mean == pytest.approx(1.3)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.03)


def test_clusters_by_enumeration() -> None:
    # groups of 1, 2, 3 and 2 values: sums and counts are drawn together
    values, groups = [5.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 9.0], list("abbcccdd")
    sums, counts = [5.0, 3.0, 3.0, 13.0], [1, 2, 3, 2]
    interval = bootstrap_mean(values, groups, resamples=40_000, level=0.8)
    low, high = exact_quantiles(sums, counts, 0.8)
    assert interval.mean == pytest.approx(3.0)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.03)
    assert interval.n == 8


def test_copies_of_a_value_are_no_news_when_they_share_a_group() -> None:
    values = np.random.default_rng(1).normal(size=30)
    single = bootstrap_mean(values, seed=4)
    grouped = bootstrap_mean(np.repeat(values, 5), np.repeat(np.arange(30), 5), seed=4)
    assert (grouped.low, grouped.high) == pytest.approx((single.low, single.high), abs=1e-12)
    naive = bootstrap_mean(np.repeat(values, 5), seed=4)
    # sqrt(5) = 2.24 times too narrow
    assert naive.high - naive.low < 0.55 * (single.high - single.low)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12), st.sampled_from([0.5, 4.0]), st.floats(-3, 3))
def test_bootstrap_moves_with_shift_and_scale(values, scale, shift) -> None:
    x = np.array(values)
    plain, moved = bootstrap_mean(x, resamples=200), bootstrap_mean(scale * x + shift, resamples=200)
    assert moved[:3] == pytest.approx([scale * v + shift for v in plain[:3]], abs=1e-9)
    assert x.min() - 1e-12 <= plain.low <= plain.high <= x.max() + 1e-12


def test_bootstrap_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        interval = bootstrap_mean(rng.normal(size=40), resamples=400, seed=1)
        hits += interval.low <= 0 <= interval.high
    # .95, less the known optimism of percentiles at n = 40; the standard error is .013
    assert 0.90 <= hits / 300 <= 0.98


def test_the_seed_decides_and_chunks_do_not(monkeypatch) -> None:
    values = np.arange(20.0)
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3)
    assert bootstrap_mean(values, seed=3) != bootstrap_mean(values, seed=4)
    whole = bootstrap_mean(values, resamples=500)
    monkeypatch.setattr("trimtab.stats.intervals._CHUNK_ELEMENTS", 60)
    assert bootstrap_mean(values, resamples=500) == whole


def test_pairs_cancel_what_they_share() -> None:
    # differences 1, 1, 3, 3 in two groups: the mean is 1, 2, 3 with probability 1/4, 1/2, 1/4, so the middle .6 is all;
    # drawn one by one, the lowest fifth would end at 1.5
    first, second = np.array([101.0, 51.0, 33.0, 13.0]), np.array([100.0, 50.0, 30.0, 10.0])
    groups = ["x", "x", "y", "y"]
    assert paired_bootstrap(first, second, groups, level=0.6) == (2.0, 1.0, 3.0, 4)
    assert paired_bootstrap(second, first, groups, level=0.6) == (-2.0, -3.0, -1.0, 4)
    with pytest.raises(TrimtabError, match="equal lengths"):
        paired_bootstrap([1, 2], [1])


def test_a_single_group_says_nothing_about_its_spread() -> None:
    interval = bootstrap_mean([1.0, 3.0], ["a", "a"])
    assert interval.mean == 2.0
    assert math.isnan(interval.low)
    assert math.isnan(interval.high)


def test_what_cannot_be_used_is_refused() -> None:
    for values in ([], [math.nan, 1.0], [[1.0], [2.0]]):
        with pytest.raises(TrimtabError, match="bootstrap of values"):
            bootstrap_mean(values)
    with pytest.raises(TrimtabError, match="2 values but 1 groups"):
        bootstrap_mean([1, 2], ["a"])
    with pytest.raises(TrimtabError, match="0 resamples"):
        bootstrap_mean([1, 2], resamples=0)
    with pytest.raises(TrimtabError, match="level"):
        bootstrap_mean([1, 2], level=1.0)
