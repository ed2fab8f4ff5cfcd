"""Robust statistics against hand values, slow re-derivations and scipy, and their invariances."""

from __future__ import annotations

import math
import time
from statistics import NormalDist, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from trimtab.doctor import trends

FLOATS = st.lists(st.floats(-100, 100).map(lambda v: round(v, 3)), min_size=4, max_size=40)


def series(values: list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(values, float), np.arange(len(values), dtype=float)


def wander(n: int, seed: int, slope: float = 0.0, keep: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    out = np.empty(n)
    last = 0.0
    for i in range(n):
        last = keep * last + math.sqrt(1 - keep * keep) * rng.standard_normal()
        out[i] = last + slope * i
    return out


# slope


def test_the_slope_of_four_points_by_hand() -> None:
    # pair slopes of 0, 2, 1, 9: 2, .5, 3, -1, 3.5, 8; their median is 2.5
    assert trends.theil_sen(*series([0, 2, 1, 9])).slope == 2.5


@given(FLOATS)
def test_the_slope_is_the_median_of_all_pair_slopes(values: list[float]) -> None:
    slow = median((values[j] - values[i]) / (j - i) for i in range(len(values)) for j in range(i + 1, len(values)))
    found = trends.theil_sen(*series(values))
    assert found.slope == pytest.approx(0.0 if len(set(values)) == 1 else slow, abs=1e-9)


@given(FLOATS.filter(lambda v: len(set(v)) == len(v)))
def test_without_autocorrelation_slope_and_interval_are_scipys(values: list[float]) -> None:
    found = trends.theil_sen(*series(values), correct=False)
    theirs = scipy_stats.theilslopes(values, np.arange(len(values)), 0.95)
    assert found.slope == pytest.approx(theirs.slope, abs=1e-9)
    assert found.low == pytest.approx(theirs.low_slope, abs=1e-9)
    assert found.high == pytest.approx(theirs.high_slope, abs=1e-9)


@given(FLOATS, st.floats(0.1, 50), st.floats(-1000, 1000))
def test_slope_and_p_go_with_an_affine_change(values: list[float], scale: float, shift: float) -> None:
    v, at = series(values)
    plain, changed = trends.theil_sen(v, at, correct=False), trends.theil_sen(scale * v + shift, at, correct=False)
    assert changed.slope == pytest.approx(scale * plain.slope, abs=1e-6 * scale)


def test_one_outlier_hardly_moves_the_slope() -> None:
    v, at = series([float(i) for i in range(50)])
    v[25] = 1e6
    assert trends.theil_sen(v, at).slope == pytest.approx(1, abs=1e-9)


def test_the_change_is_the_slope_over_the_whole_range() -> None:
    found = trends.theil_sen(np.array([1.0, 3, 5, 7, 9]), np.array([0.0, 10, 20, 30, 40]))
    assert (found.slope, found.change) == (0.2, 8.0)


def test_few_values_show_no_trend() -> None:
    found = trends.theil_sen(*series([1, 2, 3]))
    assert (found.p, found.low, found.high) == (1.0, -math.inf, math.inf)


def test_the_interval_of_a_rising_series_lies_above_zero_and_of_a_flat_one_holds_it() -> None:
    at = np.arange(100.0)
    assert trends.theil_sen(wander(100, 1, 0.05), at).rises
    flat = trends.theil_sen(wander(100, 1), at)
    assert not flat.rises
    assert not flat.falls


# Mann and Kendall


def test_p_of_five_rising_values_by_hand() -> None:
    # S = 10, Var S = 5 * 4 * 15 / 18 = 16.67, z = 9 / 4.082
    z = 9 / math.sqrt(50 / 3)
    assert trends.mann_kendall(np.arange(5.0), correct=False) == pytest.approx(2 * (1 - NormalDist().cdf(z)), rel=1e-12)


@given(FLOATS)
def test_p_is_that_of_the_counted_signs(values: list[float]) -> None:
    n = len(values)
    s = sum((values[j] > values[i]) - (values[j] < values[i]) for i in range(n) for j in range(i + 1, n))
    ties = [values.count(v) for v in set(values)]
    var = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    z = (abs(s) - 1) / math.sqrt(var) if s and var > 0 else 0.0
    p = trends.mann_kendall(np.array(values), correct=False)
    assert p == pytest.approx(2 * (1 - NormalDist().cdf(z)), abs=1e-12)


def test_p_is_close_to_kendalls_tau() -> None:
    v = wander(60, 3, 0.01)
    assert trends.mann_kendall(v, correct=False) == pytest.approx(
        scipy_stats.kendalltau(np.arange(60), v).pvalue, abs=0.01
    )


@given(FLOATS)
def test_p_depends_on_order_alone(values: list[float]) -> None:
    v = np.array(values)
    assert trends.mann_kendall(np.exp(v / 50), correct=False) == trends.mann_kendall(v, correct=False)


def test_correlated_noise_is_taken_for_a_trend_only_without_the_correction() -> None:
    runs = [wander(120, seed, keep=0.8) for seed in range(120)]
    plain = sum(trends.mann_kendall(v, correct=False) < 0.05 for v in runs)
    corrected = sum(trends.mann_kendall(v) < 0.05 for v in runs)
    assert plain > 40
    assert corrected < 0.5 * plain


def test_white_noise_is_taken_for_a_trend_as_often_as_p_says() -> None:
    hits = sum(trends.mann_kendall(wander(60, seed)) < 0.05 for seed in range(300))
    assert scipy_stats.binomtest(hits, 300, 0.05).pvalue > 0.001


# levels and noise


def test_robust_sigma_by_hand() -> None:
    # median 3, deviations 2 1 0 1 97, their median 1
    assert trends.robust_sigma(np.array([1.0, 2, 3, 4, 100])) == pytest.approx(1.4826022, rel=1e-6)


@given(FLOATS)
def test_robust_sigma_is_scipys(values: list[float]) -> None:
    theirs = scipy_stats.median_abs_deviation(values, scale="normal")
    assert trends.robust_sigma(np.array(values)) == pytest.approx(theirs, abs=1e-9)


def test_noise_does_not_see_a_trend() -> None:
    v = wander(4000, 5)
    assert trends.noise(v) == pytest.approx(1.0, rel=0.06)
    assert trends.noise(v + 0.5 * np.arange(4000)) == pytest.approx(trends.noise(v), rel=0.05)


def test_ends_are_the_medians_of_the_first_and_last_fifth() -> None:
    assert trends.ends(np.arange(20.0)) == (1.5, 17.5)
    assert trends.ends(np.array([5.0])) == (5.0, 5.0)
    assert trends.ends(np.array([1.0, 2, 9, 10])) == (1.5, 9.5)


@given(FLOATS, st.sampled_from([3, 5, 7]))
def test_running_median_is_that_of_each_window(values: list[float], width: int) -> None:
    half = width // 2
    slow = [median(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]
    assert trends.running_median(np.array(values), width) == pytest.approx(slow, abs=1e-12)


@given(FLOATS)
def test_ranks_are_scipys(values: list[float]) -> None:
    assert trends.rank(np.array(values)) == pytest.approx(scipy_stats.rankdata(values) - 1)


# autocorrelation


def test_autocorrelation_by_hand() -> None:
    # of 1 2 3 4: deviations -1.5 -.5 .5 1.5, squares 5, products at lag 1: .75 - .25 + .75
    assert trends.autocorrelation(np.array([1.0, 2, 3, 4]), 2) == pytest.approx([0.25, -0.3])


def test_lag_1_of_differences_tells_noise_from_a_walk_and_from_a_sawtooth() -> None:
    white = wander(3000, 2)
    assert trends.lag1_of_differences(white) == pytest.approx(-0.5, abs=0.05)
    assert trends.lag1_of_differences(np.cumsum(white)) == pytest.approx(0, abs=0.06)
    assert trends.lag1_of_differences(np.tile([0.0, 1.0], 50)) == pytest.approx(-1, abs=0.03)


# onsets and changes


def test_the_onset_is_the_first_of_a_lasting_run() -> None:
    v = np.array([0, 9, 0, 9, 9, 0, 9, 9, 9, 9.0])
    assert trends.onset(v, v > 5, 3) == 6
    assert trends.onset(v, v > 5, 2) == 3
    assert trends.onset(v, v > 10, 1) is None
    assert trends.onset(v[:2], v[:2] > 5, 3) is None


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 5))
def test_the_onset_is_what_a_plain_search_finds(mask: list[bool], run: int) -> None:
    run = min(run, len(mask))
    slow = next((i for i in range(len(mask) - run + 1) if all(mask[i : i + run])), None)
    assert trends.onset(np.zeros(len(mask)), np.array(mask), run) == slow


def test_a_change_of_level_is_found_where_it_is() -> None:
    v = np.concatenate([wander(100, 1), wander(100, 2) + 3])
    found = trends.change_point(v)
    assert found is not None
    assert abs(found.at - 100) <= 2
    assert found.size == pytest.approx(3, abs=0.4)
    assert found.p < 1e-6


def test_p_of_a_change_is_kolmogorovs() -> None:
    v = wander(80, 7)
    found = trends.change_point(v)
    assert found is not None
    x = np.clip((v - np.median(v)) / trends.noise(v), -4, 4)
    height = max(abs(sum(x[: k + 1] - x.mean())) for k in range(79)) / math.sqrt(80)
    assert found.p == pytest.approx(float(scipy_stats.kstwobign.sf(height)), abs=1e-9)


def test_noise_without_a_change_seldom_shows_one() -> None:
    found = [trends.change_point(wander(150, seed)) for seed in range(200)]
    hits = sum(f is not None and f.p < 0.01 for f in found)
    assert hits <= 10


@given(FLOATS.filter(lambda v: len(v) >= 8), st.floats(0.5, 20), st.floats(-50, 50))
def test_a_change_is_where_it_is_in_any_unit(values: list[float], scale: float, shift: float) -> None:
    plain, changed = (trends.change_point(v) for v in (np.array(values), scale * np.array(values) + shift))
    assert (plain is None) == (changed is None)
    if plain is not None and changed is not None:
        assert changed.p == pytest.approx(plain.p, abs=1e-6)


def test_falls_are_counted_with_their_depth() -> None:
    v = np.array([0, 5, 1, 6, 5, 6, 2, 3.0])
    falls = trends.drawdowns(v, 3)
    assert [(f.peak, f.trough, f.depth, f.recovered) for f in falls] == [(1, 2, 4.0, True), (5, 6, 4.0, False)]


# long series


def test_blocks_are_their_medians() -> None:
    v, at = trends.thin(np.array([1.0, 5, 3, 9, 8, 7, 2]), np.arange(7.0), 3)
    assert list(v) == [3, 8]
    assert list(at) == [0, 3]


def test_a_short_series_is_left_alone() -> None:
    v, at = np.arange(10.0), np.arange(10.0)
    assert trends.thin(v, at, 10)[0] is v


def test_a_curve_keeps_its_spikes_and_its_length() -> None:
    v = np.zeros(10_000)
    v[1234] = 7
    drawn = trends.curve(v)
    assert len(drawn) == 60
    assert max(drawn) == 7
    assert trends.curve(np.array([1.0, 2.0])) == (1.0, 2.0)


def test_a_million_values_take_no_time() -> None:
    v = np.random.default_rng(0).standard_normal(1_000_000)
    start = time.process_time()
    trends.theil_sen(v, np.arange(1e6))
    trends.mann_kendall(v)
    assert time.process_time() - start < 0.5
