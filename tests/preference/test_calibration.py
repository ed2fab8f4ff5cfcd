"""Calibration of margins: symmetric, increasing, kept as JSON, and measured on pairs that it was not fitted on."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab import preference
from trimtab.config.schema import PPOConfig
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.errors import TrimtabError
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.tokens import TextCodec
from trimtab.ppo.shaping import ScoreShaper
from trimtab.preference.calibrating import _columns, _cross_fitted, calibrate_margins
from trimtab.preference.calibration import METHODS, Calibration, fit
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_model, build_tokenizer


def drawn(n: int, factor: float, seed: int = 0):
    """Margins that are `factor` times the log-odds that the chosen response is better; who won is drawn."""
    rng = np.random.default_rng(seed)
    logit = rng.normal(0, 1.5, n)
    first_wins = rng.random(n) < 1 / (1 + np.exp(-logit))
    return factor * np.where(first_wins, logit, -logit), np.ones(n), np.arange(n) // 2


def test_a_temperature_is_found_by_hand():
    # three of four pairs of margin 2 are won: sigmoid(2 / T) = 3/4
    found = fit("temperature", [2, 2, 2, -2], [1, 1, 1, 1])
    assert found.temperature == pytest.approx(2 / math.log(3), rel=1e-9)
    assert found.probability([2.0, -2.0, 0.0]) == pytest.approx([0.75, 0.25, 0.5], rel=1e-9)


def test_isotonic_pools_by_hand_and_is_never_certain():
    # margins 1 (won half) and 2 (won half) pool to 1/2; 3 is always won, and then worth (n + 1) / (n + 2)
    margins = [1, -1, 2, -2, 3, 3]
    found = fit("isotonic", margins, np.ones(6))
    assert found.probability([1.0, 2.0, 3.0, 9.0, -3.0]) == pytest.approx([0.5, 0.5, 7 / 8, 7 / 8, 1 / 8])


@given(
    st.lists(st.tuples(st.floats(-8, 8), st.floats(0, 1)), min_size=2, max_size=40),
    st.sampled_from(METHODS),
    st.lists(st.floats(-20, 20), min_size=2, max_size=10),
)
@settings(max_examples=60, deadline=None)
def test_no_map_reverses_an_order_and_each_is_odd(pairs, method, asked):
    found = fit(method, [m for m, _ in pairs], [y for _, y in pairs])
    x = np.sort(asked)
    p = found.probability(x)
    assert (np.diff(p) >= 0).all()
    assert p + found.probability(-x) == pytest.approx(np.ones(len(x)), abs=1e-12)
    assert (np.sign(np.round(p - 0.5, 12)) * np.sign(x) >= 0).all()  # margins of 0 alone leave every probability at .5


@pytest.mark.parametrize("method", METHODS)
def test_margins_that_point_the_wrong_way_keep_their_order(method):
    found = fit(method, -np.abs(np.linspace(0.1, 3, 50)), np.ones(50))
    p = found.probability([-1.0, 1.0])
    assert p[0] <= p[1]
    assert p == pytest.approx([0.5, 0.5], abs=0.01)


@pytest.mark.parametrize("method", METHODS)
def test_it_is_kept_as_json_and_read_back_the_same(tmp_path, method):
    margins, labels, _ = drawn(60, 2.0)
    found = fit(method, margins, labels)
    assert found.save(tmp_path, {"any": 1}).name == "calibration.json"
    read = Calibration.load(tmp_path)
    assert read == found
    assert Calibration.load(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "magic"}, "method among temperature, platt, isotonic"),
        ({"temperature": -1}, "temperature is -1"),
        ({"slope": "a"}, "slope is 'a'"),
        ({"points": [2, 1], "heights": [0.6, 0.7]}, "no increasing curve"),
        ({"points": [1, 2], "heights": [0.7, 0.6]}, "no increasing curve"),
        ({"points": [1], "heights": [0.4]}, "no increasing curve"),
        ({"points": 3}, "no increasing curve"),
        ({"format": 7}, "no calibration of format 1"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path, change, message):
    good = {"format": 1, "method": "isotonic", "temperature": 1.0, "slope": 1.0, "points": [1], "heights": [0.7]}
    (tmp_path / "calibration.json").write_text(json.dumps(good | change))
    with pytest.raises(TrimtabError, match=message) as caught:
        Calibration.load(tmp_path)
    assert "calibration.json" in caught.value.message


@pytest.mark.parametrize("method", ["auto", "temperature", "platt", "isotonic"])
def test_overconfident_margins_are_mended_on_pairs_that_were_not_fitted_on(method):
    report = calibrate_margins(*drawn(600, 4.0), method, resamples=200)
    assert report.calibration.temperature == pytest.approx(4.0, rel=0.2)
    assert report.change["log_loss"].high < -0.1
    assert report.change["ece"].high < 0
    assert report.after["ece"].mean < 0.06
    assert (report.calibration.pairs, report.calibration.prompts) == (600, 300)


def test_good_margins_are_left_about_as_they_are():
    report = calibrate_margins(*drawn(600, 1.0), resamples=200)
    assert report.calibration.temperature == pytest.approx(1.0, rel=0.2)
    assert abs(report.change["log_loss"].mean) < 0.01


def test_what_is_reported_was_not_fitted_on():
    # noise: isotonic on its own pairs finds a gain, cross-fitted it loses
    rng = np.random.default_rng(1)
    margins, labels = rng.normal(size=80), np.ones(80)
    report = calibrate_margins(margins, labels, np.arange(80), "isotonic", resamples=50)
    own = -np.log(report.calibration.probability(margins)).mean()
    assert own < math.log(2) < report.after["log_loss"].mean
    # and a prompt's pairs are never on both sides
    groups = np.repeat(np.arange(8), 10)
    p = _cross_fitted(margins, labels, groups, "temperature", 8, 0)
    for k in range(8):
        alone = fit("temperature", margins[groups != k], labels[groups != k])
        assert p[groups == k] == pytest.approx(alone.probability(margins[groups == k]), rel=1e-12)


def test_the_figures_equal_a_slow_derivation():
    margins, labels, groups = drawn(50, 3.0)
    labels = np.where(np.arange(50) % 3 == 0, 0.7, labels)
    report = calibrate_margins(margins, labels, groups, "temperature", resamples=20)
    p = [1 / (1 + math.exp(-m)) for m in margins]
    rows = [*zip(p, labels, strict=True)] + [(1 - q, 1 - y) for q, y in zip(p, labels, strict=True)]
    ece = 0.0
    for b in range(10):
        inside = [(q, y) for q, y in rows if b / 10 <= q < (b + 1) / 10]
        ece += abs(sum(q for q, _ in inside) - sum(y for _, y in inside)) / len(rows)
    assert report.before["ece"].mean == pytest.approx(ece, rel=1e-12)
    assert report.before["brier"].mean == pytest.approx(np.mean([(q - y) ** 2 for q, y in rows]), rel=1e-12)
    losses = [-(y * math.log(q) + (1 - y) * math.log(1 - q)) for q, y in rows]
    assert report.before["log_loss"].mean == pytest.approx(np.mean(losses), rel=1e-9)
    assert _columns(np.array(p), labels).shape == (50, 12)
    assert json.loads(json.dumps(report.as_dict()))["before"]["ece"]["mean"] == pytest.approx(ece)


def test_auto_takes_isotonic_only_where_a_curve_is_needed():
    rng = np.random.default_rng(0)
    size = rng.uniform(0, 4, 1500)
    won = rng.random(1500) < np.where(size > 2, 0.55, 0.95)  # large margins are worth less than small ones
    margins = np.where(won, size, -size)
    report = calibrate_margins(margins, np.ones(1500), np.arange(1500), resamples=20)
    assert report.calibration.method == "isotonic"
    assert calibrate_margins(*drawn(1500, 2.0), resamples=20).calibration.method == "temperature"


def test_margins_that_say_nothing_say_so():
    rng = np.random.default_rng(0)
    report = calibrate_margins(-np.abs(rng.normal(size=60)), np.ones(60), np.arange(60), resamples=20)
    assert report.says_nothing
    assert report.accuracy == 0.0


@pytest.mark.parametrize("groups", [[], [0, 0, 0]])
def test_one_prompt_cannot_be_calibrated(groups):
    with pytest.raises(TrimtabError, match="cannot be calibrated"):
        calibrate_margins(np.ones(len(groups)), np.ones(len(groups)), np.array(groups, dtype=int))


# with the model


class Lengths:
    name = "lengths"

    def score(self, prompts, responses):
        return np.array([float(len(r.text.split())) for r in responses])


def some_pairs(n: int = 12) -> list[Pair]:
    return [
        Pair(
            f"p{i}",
            Prompt(f"q{i}", (Message("user", f"please {i}"),)),
            Response("dear friend now" if i % 4 else "now"),
            Response("fool you" if i % 3 else "fool"),
        )
        for i in range(n)
    ]


def test_any_scorer_can_be_calibrated():
    report = preference.calibrate(Lengths(), some_pairs(), resamples=20)
    assert report.calibration.prompts == 12
    with pytest.raises(TrimtabError, match="no pairs to calibrate"):
        preference.calibrate(Lengths(), [])


@pytest.fixture
def saved(tmp_path):
    base = CausalModel(build_model(0), 0)
    scorer = preference.PreferenceModel(
        ScalarModel.from_causal(base, generator=torch.Generator().manual_seed(0)), TextCodec(build_tokenizer())
    )
    scorer.save(tmp_path / "model")
    return scorer, tmp_path / "model"


def test_a_saved_model_takes_its_calibration_along_and_transformers_does_not_mind(saved):
    from transformers import AutoModelForSequenceClassification

    scorer, directory = saved
    pairs = some_pairs()
    asked = [p.prompt for p in pairs], [p.chosen for p in pairs]
    raw = scorer.score(*asked)
    Calibration("temperature", 4.0, 0.25).save(directory)
    loaded = preference.PreferenceModel.load(directory, Precision("float32", "cpu"))
    np.testing.assert_array_equal(loaded.score(*asked), raw)
    assert loaded.probability(np.array([[4.0]])).tolist() == [[pytest.approx(1 / (1 + math.exp(-1)))]]
    hf = AutoModelForSequenceClassification.from_pretrained(directory)
    assert hf.config.num_labels == 1

    scaled = preference.PreferenceModel.load(directory, Precision("float32", "cpu"), calibrated_score=True)
    np.testing.assert_allclose(scaled.score(*asked), raw / 4, rtol=1e-12)
    margin = raw[0] - raw[1]
    assert scaled.probability(margin / 4) == pytest.approx(loaded.probability(margin), rel=1e-12)

    scorer.save(directory)  # other weights: what was fitted on the old ones goes
    assert preference.PreferenceModel.load(directory, Precision("float32", "cpu")).calibration is None
    with pytest.raises(TrimtabError, match="has no calibration"):
        preference.PreferenceModel.load(directory, Precision("float32", "cpu"), calibrated_score=True)


def test_evaluate_uses_the_calibration_and_the_accuracy_stays(saved):
    scorer, _ = saved
    before = preference.evaluate(scorer, some_pairs())
    scorer.calibration = Calibration("temperature", 1e-3, 1e3)
    after = preference.evaluate(scorer, some_pairs())
    assert after.accuracy == before.accuracy
    assert after.log_loss > before.log_loss + 0.01


def test_ppo_turns_margins_into_win_probabilities_by_the_calibration():
    config = PPOConfig(score_transform="win_probability")
    prompts = [Prompt("a", (Message("user", "x"),)), Prompt("b", (Message("user", "y"),))]
    scores, lengths = torch.tensor([3.0, 0.0]), torch.ones(2, dtype=torch.long)

    def shaped(probability):
        shaper = ScoreShaper(config, lambda ps, n: np.tile([[1.0, -1.0]], (len(ps), 1)), probability)
        return shaper.shape(scores, prompts, lengths, lengths > 0).tolist()

    logistic = lambda m: 1 / (1 + math.exp(-m))  # noqa: E731
    expected = {t: [(logistic(2 / t) + logistic(4 / t)) / 2, 0.5] for t in (1, 4)}
    assert shaped(None) == pytest.approx(expected[1], abs=1e-6)
    assert shaped(Calibration("temperature", 4.0, 0.25).probability) == pytest.approx(expected[4], abs=1e-6)
