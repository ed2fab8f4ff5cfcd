"""Folds by prompt, figures over all of them, and what a learning curve is said to mean."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from preference_training import CONFIG, base, polite_pairs
from trimtab.errors import TrimtabError
from trimtab.models.tokens import TextCodec
from trimtab.preference.folds import FoldScores, Measured, fold_of_prompts, measure, train_fold
from trimtab.preference.learning_curve import forecast
from trimtab.stats.intervals import Interval
from trimtab.worlds.model import build_tokenizer


def test_all_pairs_of_a_prompt_are_in_one_fold_and_folds_are_even():
    pairs = [p for p in polite_pairs(20) for _ in range(3)]
    folds = fold_of_prompts(pairs, 4, 1)
    assert np.bincount(folds).tolist() == [15] * 4
    for i in range(0, 60, 3):
        assert len(set(folds[i : i + 3])) == 1
    assert (fold_of_prompts(pairs, 4, 2) != folds).any()
    with pytest.raises(TrimtabError, match="11 folds of 60 pairs over 20 prompts"):
        fold_of_prompts(pairs, 11, 1)


def test_a_fold_is_scored_by_a_model_that_did_not_see_its_prompts(monkeypatch):
    seen = []
    real = pytest.importorskip("trimtab.preference.folds").train

    def spying(config, start, codec, training, **rest):
        seen.append({p.prompt.messages for p in training})
        return real(config, start, codec, training, **rest)

    monkeypatch.setattr("trimtab.preference.folds.train", spying)
    pairs, codec = polite_pairs(40), TextCodec(build_tokenizer())
    folds = fold_of_prompts(pairs, 4, 1)
    whole = train_fold(CONFIG, base(1), codec, pairs, folds, 2, seed=1)
    half = train_fold(CONFIG, base(1), codec, pairs, folds, 2, share=0.5, seed=1)
    quarter = train_fold(CONFIG, base(1), codec, pairs, folds, 2, share=0.25, seed=1)
    left_out = {pairs[i].prompt.messages for i in range(40) if folds[i] == 2}
    assert [len(prompts) for prompts in seen] == [30, 15, 8]
    assert seen[2] < seen[1] < seen[0]
    assert not seen[0] & left_out
    assert whole.index == np.flatnonzero(folds == 2).tolist()
    assert (whole.trained_on, half.trained_on, quarter.trained_on) == (30, 15, 8)
    assert FoldScores.from_dict(whole.as_dict()) == whole


def test_figures_over_folds_by_hand():
    pairs = polite_pairs(4)
    pairs = [replace(p, p_chosen=q) for p, q in zip(pairs, (None, 0.5, 1.0, 0.75), strict=True)]
    third = math.log(3)
    found = [FoldScores(1, [3, 0], [-third, third], 10, 1.5), FoldScores(0, [1, 2], [0.0, third], 20, 2.0)]
    got = measure(pairs, found)
    # margins by pair: ln 3, 0, ln 3, -ln 3
    assert got.wins.tolist() == [1.0, 0.5, 1.0, 0.0]
    assert got.accuracy.mean == pytest.approx(0.625)
    losses = [-math.log(0.75), -math.log(0.5), -math.log(0.75), -(0.75 * math.log(0.25) + 0.25 * math.log(0.75))]
    assert got.log_loss.mean == pytest.approx(sum(losses) / 4)
    # both orders: bin of .75 holds labels 1, 1, .25 (mean .75); bin of .5 holds .5 twice
    assert got.ece == pytest.approx(0.0)
    assert (got.pairs, got.seconds, got.trained_on) == (4, 3.5, 15.0)


# what a curve means


def curve(accuracies, n: int, seed: int = 0) -> list[Measured]:
    """Measurements whose pairs are won by a common luck, so that sizes differ by what the accuracies say."""
    luck = np.random.default_rng(seed).random(n)
    points = []
    for i, accuracy in enumerate(accuracies):
        wins = (luck < accuracy).astype(float)
        points.append(
            Measured(n, Interval(float(wins.mean()), 0, 1, n), Interval(0, 0, 0, n), 0.0, 1.0, 100.0 * 2**i, wins)
        )
    return points


@pytest.mark.parametrize(
    ("accuracies", "n", "verdict"),
    [
        ([0.60, 0.66, 0.71, 0.75], 4000, "worth it"),
        ([0.70, 0.7, 0.7, 0.7], 4000, "little"),
        ([0.60, 0.69, 0.7, 0.7], 4000, "little"),
        ([0.60, 0.7, 0.58, 0.63], 60, "cannot tell"),
    ],
)
def test_a_forecast_says_whether_more_is_worth_it_and_when_it_cannot_tell(accuracies, n, verdict):
    told = forecast(curve(accuracies, n), list(range(n)), [i % 5 for i in range(n)], resamples=200)
    assert told.verdict == verdict
    assert told.gain.low <= told.gain.high
    assert told.pairs == 800


def test_the_gain_is_that_of_the_law():
    # 1 - 4 n^-.5 at 100 to 800: exactly on a law of exponent 1/2
    n = 20_000
    accuracies = [1 - 4 * (100 * 2**i) ** -0.5 for i in range(4)]
    told = forecast(curve(accuracies, n), list(range(n)), [i % 5 for i in range(n)], resamples=100)
    assert told.gain.mean == pytest.approx(4 * (800**-0.5 - 1600**-0.5), abs=0.01)
    assert told.gain.low < 4 * (800**-0.5 - 1600**-0.5) < told.gain.high


def test_draws_of_whole_folds_and_prompts_make_the_interval():
    """Pairs of one prompt are one observation: three copies of each must not look three times as sure."""
    points = curve([0.55, 0.62, 0.66, 0.69], 300)
    single = forecast(points, list(range(300)), [i % 5 for i in range(300)], resamples=300)
    tripled = [replace(p, wins=np.repeat(p.wins, 3)) for p in points]
    copies = forecast(tripled, np.repeat(range(300), 3).tolist(), np.repeat([i % 5 for i in range(300)], 3).tolist(),
                      resamples=300)  # fmt: skip
    assert copies.gain.high - copies.gain.low == pytest.approx(single.gain.high - single.gain.low, rel=1e-9)
