"""Figures of shaped scores by hand, and which way is advised."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.preference.shaping_preview import Shaped, Shaping, advise, figures_of, histogram, pairs_within

GROUPS = np.array([0, 0, 0, 1, 1, 2])
RAW = np.array([0.0, 1.0, 2.0, 5.0, 4.0, 3.0])


def shaped(scores, repeats=None, slope=None, clipped=None) -> Shaped:
    x = np.asarray(scores, dtype=float)
    flat = np.ones(len(x)) if slope is None else np.asarray(slope, dtype=float)
    cut = np.zeros(len(x), dtype=bool) if clipped is None else np.asarray(clipped)
    return Shaped("way", {}, x, None if repeats is None else np.asarray(repeats, dtype=float), flat, cut, 1)


def test_pairs_stand_within_prompts():
    first, second = pairs_within(GROUPS)
    assert sorted(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2), (3, 4)]


def test_figures_by_hand():
    found = figures_of(
        RAW, shaped([0, 1, 1, 4, 5, 3], slope=[1, 0.05, 0.05, 1, 1, 1], clipped=[0, 1, 1, 0, 0, 0]), GROUPS
    )
    # of four pairs one is tied, one turned, two are as before
    assert (found.ties, found.kept) == (0.25, 0.5)
    assert found.saturated == pytest.approx(1 / 3)
    assert found.clipped == pytest.approx(1 / 3)
    assert (found.low, found.high, found.mean) == (0, 5, pytest.approx(14 / 6))
    # squares within: 2/3 + 1/2 on 6 - 3 degrees of freedom
    assert found.within == pytest.approx(math.sqrt((2 / 3 + 1 / 2) / 3))
    assert math.isnan(found.signal)


def test_signal_is_the_spread_within_prompts_over_that_between_scorings():
    found = figures_of(RAW, shaped(RAW, repeats=RAW + np.array([1, -1, 1, -1, 1, -1])), GROUPS)
    # the two scorings differ by one: each has a variance of one half
    assert found.signal == pytest.approx(found.within / math.sqrt(0.5))
    assert figures_of(RAW, shaped(RAW, repeats=RAW), GROUPS).signal == math.inf


def test_pairs_that_were_tied_before_do_not_count():
    raw = np.array([1.0, 1.0, 0.0])
    found = figures_of(raw, shaped([3, 2, 1]), np.zeros(3, int))
    assert (found.ties, found.kept) == (0, 1)


def test_outliers_are_counted_by_a_deviation_that_they_do_not_move():
    x = np.r_[np.linspace(-1, 1, 99), 100]
    assert figures_of(x, shaped(x), np.zeros(100, int)).outliers == 0.01


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=30), st.floats(0.1, 5), st.floats(-3, 3))
def test_scale_and_place_keep_every_order(values, factor, offset):
    raw = np.round(np.array(values), 3)
    groups = np.arange(len(raw)) % 3
    found = figures_of(raw, shaped(raw * factor + offset), groups)
    assert math.isnan(found.kept) or found.kept == 1
    assert math.isnan(found.ties) or found.ties == 0


def test_a_histogram_shows_the_shape_and_loses_nothing():
    assert histogram(np.array([0.0, 0, 0, 0, 0, 0, 0, 0, 1]), bins=4) == "█  ▁"
    assert histogram(np.ones(5), bins=5).strip() == "█"
    assert len(histogram(np.random.default_rng(0).normal(size=50))) == 24


# advice

GOOD = Shaping("raw", {}, 0.0, 1.0, -2.0, 2.0, 0.0, 0.0, 0.0, 1.0, 0.8, 5.0, 0.0, "")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ({"sd": 8.0}, "a deviation of 8"),
        ({"sd": 0.1}, "a deviation of 0.1"),
        ({"outliers": 0.02}, "2.0% outliers"),
    ],
)
def test_what_the_raw_scores_have_against_them_is_the_reason(harm, said):
    raw, normal = replace(GOOD, **harm), replace(GOOD, name="reference")
    best, why = advise([(raw, 0), (normal, 1), (replace(GOOD, name="other"), 2)])
    assert best.name == "reference"
    assert said in why


def test_good_scores_are_left_alone():
    best, why = advise([(GOOD, 0), (replace(GOOD, name="reference"), 1)])
    assert best.name == "raw"
    assert "need no shaping" in why


@pytest.mark.parametrize("harm", [{"kept": 0.9}, {"saturated": 0.3}, {"signal": 3.0}, {"outliers": 0.1}])
def test_a_way_that_does_harm_is_passed_over(harm):
    raw = replace(GOOD, sd=8.0)
    best, _ = advise([(raw, 0), (replace(GOOD, name="bad", **harm), 1), (replace(GOOD, name="good"), 2)])
    assert best.name == "good"
