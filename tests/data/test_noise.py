"""Wrong labels and close calls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.data.noise import fit_noise, flip_posterior
from trimtab.errors import TrimtabError


def draw(seed, n=4000, spread=2.5, rate=0.1):
    """True margins, labels, and which labels were turned over."""
    rng = np.random.default_rng(seed)
    margin = rng.normal(scale=spread, size=n)
    honest = rng.random(n) < 1 / (1 + np.exp(-margin))
    turned = rng.random(n) < rate
    return margin, (honest ^ turned).astype(float), turned


def test_the_posterior_by_hand() -> None:
    # q = sigmoid(ln 3) = .75 for the first; e = .1
    # label 1: .1 * .25 / (.9 * .75 + .1 * .25) = .025 / .7 = .035714
    # label 0: .1 * .75 / (.9 * .25 + .1 * .75) = .075 / .3 = .25;  label .5: the mean of the two
    logit = math.log(3)
    found = flip_posterior([logit] * 3, [1, 0, 0.5], 0.1)
    assert found == pytest.approx([0.0357142857, 0.25, 0.1428571429], abs=1e-9)
    assert flip_posterior([0.0], [1], 0.1) == pytest.approx([0.1]), "a close call is as wrong as any label"
    assert flip_posterior([800.0, -800.0], [1, 1], 0.1) == pytest.approx([0, 1])


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(0, 1)), min_size=1, max_size=8), st.floats(0, 0.49))
def test_swapping_the_responses_changes_no_posterior(rows, rate) -> None:
    s, y = (np.array(column) for column in zip(*rows, strict=True))
    assert flip_posterior(-s, 1 - y, rate) == pytest.approx(flip_posterior(s, y, rate), abs=1e-9)


def slow_log_likelihood(margin, label, slope, rate):
    total = 0.0
    for s, y in zip(margin, label, strict=True):
        q = 1 / (1 + math.exp(-slope * s))
        p = (1 - rate) * q + rate * (1 - q)
        total += y * math.log(p) + (1 - y) * math.log(1 - p)
    return total


def test_the_fit_is_where_a_slow_search_finds_it() -> None:
    margin, label, _ = draw(3, n=400)
    fit = fit_noise(margin, label)
    grid = {
        (slope, rate): slow_log_likelihood(margin, label, slope, rate)
        for slope in np.arange(0.4, 3.0, 0.05)
        for rate in np.arange(0, 0.4, 0.01)
    }
    best = max(grid.values())
    inside = [rate for (_, rate), value in grid.items() if value >= best - 1.9207]
    assert fit.low == pytest.approx(min(inside), abs=0.011)
    assert fit.high == pytest.approx(max(inside), abs=0.011)
    without = max(value for (_, rate), value in grid.items() if rate == 0)
    assert fit.gain == pytest.approx(best - without, abs=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_rate_and_posterior_are_what_was_planted(seed) -> None:
    margin, label, turned = draw(seed, n=20_000)
    fit = fit_noise(margin, label)
    assert fit.low < 0.1 < fit.high
    assert fit.evident
    assert fit.rate == pytest.approx(0.1, abs=0.02)
    assert fit.slope == pytest.approx(1, abs=0.1)
    flagged = fit.likely()
    # what it says of the flagged labels is what the true margins and the true rate say of them
    exact = flip_posterior(margin, label, 0.1)
    assert fit.posterior[flagged].mean() == pytest.approx(exact[flagged].mean(), abs=0.05)
    assert np.corrcoef(fit.posterior, exact)[0, 1] > 0.98
    assert turned[flagged].mean() > 0.6
    everything = fit.best_f1()
    assert flagged.sum() < everything.sum() < 0.15 * len(label)
    # of the labels against the sign of the margin most are honest close calls, and are let be
    against = (margin > 0) != (label == 1)
    assert (against & ~turned).sum() > 1.5 * (against & turned).sum()
    assert flagged[against & ~turned].mean() < 0.15


def test_without_noise_no_noise_is_found() -> None:
    for seed in range(5):
        margin, label, _ = draw(seed, rate=0.0)
        fit = fit_noise(margin, label)
        assert not fit.evident
        assert fit.rate < 0.03
        assert not fit.likely().any()


def test_margins_that_say_nothing_condemn_no_label() -> None:
    _, label, _ = draw(0)
    fit = fit_noise(np.random.default_rng(9).normal(size=len(label)), label)
    assert not fit.evident
    assert fit.high > 0.3
    assert not fit.likely().any()
    assert fit_noise(np.zeros(50), np.ones(50)).posterior.max() <= 0.5


def test_a_careless_rater_is_told_from_careful_ones() -> None:
    margin, label, turned = draw(5, n=6000, rate=0.0)
    rng = np.random.default_rng(1)
    rater = rng.integers(4, size=len(label))
    turned = rng.random(len(label)) < np.array([0.4, 0.03, 0.03, 0.03])[rater]
    label = np.where(turned, 1 - label, label)
    fit = fit_noise(margin, label, [f"r{i}" for i in rater])
    assert fit.rates["r0"] == pytest.approx(0.4, abs=0.06)
    assert max(fit.rates[f"r{i}"] for i in (1, 2, 3)) < 0.09
    assert fit.rate == pytest.approx(turned.mean(), abs=0.02)
    assert turned[fit.likely()].mean() > 0.65


def test_winners_listed_first_give_the_same_answer_as_labels_of_random_order() -> None:
    margin, label, _ = draw(2)
    fit = fit_noise(margin, label)
    sorted_fit = fit_noise(np.where(label == 1, margin, -margin), np.ones(len(label)))
    assert sorted_fit.posterior == pytest.approx(fit.posterior, abs=1e-6)
    assert sorted_fit.rate == pytest.approx(fit.rate, abs=1e-6)


def test_a_preference_for_the_first_response_is_fitted_on_request() -> None:
    rng = np.random.default_rng(0)
    margin = rng.normal(scale=2, size=6000)
    label = (rng.random(6000) < 1 / (1 + np.exp(-margin - 0.8))).astype(float)
    fit = fit_noise(margin, label, intercept=True)
    assert fit.intercept == pytest.approx(0.8, abs=0.15)
    assert not fit.evident


def test_scaling_the_margins_changes_only_the_slope() -> None:
    margin, label, _ = draw(4)
    one, ten = fit_noise(margin, label), fit_noise(10 * margin, label)
    assert ten.posterior == pytest.approx(one.posterior, abs=1e-8)
    assert ten.slope == pytest.approx(one.slope / 10)


def test_what_makes_no_sense_is_named() -> None:
    with pytest.raises(TrimtabError, match="2 margins and 1 labels"):
        fit_noise([1, 2], [1])
    with pytest.raises(TrimtabError, match="margin nan is no number"):
        fit_noise([1, math.nan], [1, 0])
    with pytest.raises(TrimtabError, match=r"label 1.5 is no probability"):
        fit_noise([1, 2], [1, 1.5])
