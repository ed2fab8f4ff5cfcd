"""Ensembles: how members differ, how their scores are combined, what is saved, and what a pass over the trunk costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from preference_training import CONFIG, base, die_at, noise, polite_pairs, same_weights, started
from trimtab import ppo, preference
from trimtab.config.schema import PPOConfig
from trimtab.errors import TrimtabError
from trimtab.models.roles import ScalarModel
from trimtab.models.tokens import TextCodec
from trimtab.preference.ensemble import combined, figures_of_margins, load_preference, member_figures
from trimtab.runs.files import read_json, write_json
from trimtab.runs.run import Run
from trimtab.scoring import MixtureScorer, RuleScorer, disagreement
from trimtab.training.precision import Precision
from trimtab.training.supervised import fit
from trimtab.worlds.model import build_tokenizer

SOME = CONFIG.model_copy(update={"epochs": 1, "members": 3})


@pytest.fixture
def codec() -> TextCodec:
    return TextCodec(build_tokenizer())


def trained(codec, boundary: int = 1, **changes):
    return preference.train(SOME.model_copy(update=changes), base(boundary), codec, polite_pairs(40), seed=2)


# training


def test_the_first_member_is_the_model_that_would_be_trained_alone_and_the_others_differ(codec):
    ensemble = trained(codec)
    alone = trained(codec, members=1)
    assert isinstance(ensemble, preference.PreferenceEnsemble)
    assert not isinstance(alone, preference.PreferenceEnsemble)
    assert same_weights(ensemble.models[0], alone.model)
    assert not same_weights(ensemble.models[0], ensemble.models[1])
    assert not same_weights(ensemble.models[1], ensemble.models[2])
    trunks = [model.backbone.body.layers[0] for model in ensemble.models]
    assert trunks[0] is trunks[1] is trunks[2]


def test_the_shared_layers_see_each_response_once_for_all_members(codec, monkeypatch):
    rows = []
    trunk = ScalarModel.trunk

    def counting(self, ids, mask, positions=None):
        rows.append(len(ids))
        return trunk(self, ids, mask, positions)

    # without validation: the training rows, and one pass over them to centre the scores
    monkeypatch.setattr("trimtab.preference.training.pair_metrics", lambda *_: pytest.fail("not at this step"))
    monkeypatch.setattr("trimtab.training.supervised._Best.note", lambda *_: None)
    monkeypatch.setattr(ScalarModel, "trunk", counting)
    with pytest.raises(pytest.fail.Exception):
        trained(codec)
    one_member = sum(rows)
    monkeypatch.undo()
    monkeypatch.setattr(ScalarModel, "trunk", counting)
    ensemble = trained(codec)
    rows.clear()
    pairs = polite_pairs(10)
    ensemble.score([p.prompt for p in pairs], [p.chosen for p in pairs])
    ensemble.disagreement([p.prompt for p in pairs], [p.chosen for p in pairs])
    assert sum(rows) == 10
    assert one_member == 30  # training pairs, each read in one row


@pytest.mark.parametrize("patience", [None, 1])
def test_killed_in_a_later_member_it_goes_on_to_the_same_models_and_the_same_lines(codec, tmp_path, patience):
    config = CONFIG.model_copy(
        update={"members": 3, "bootstrap": True, "head_dropout": 0.1, "checkpoint_every": 2, "patience": patience}
    )
    whole, killed = started(tmp_path, "whole"), started(tmp_path, "killed")
    straight = preference.train(config, base(1), codec, noise(40), run=whole, seed=1)
    for member, step in ((0, 3), (1, 3), (2, 1)):
        key = f"member/{member}/loss/train" if member else "loss/train"
        work = lambda: preference.train(config, base(1), codec, noise(40), run=killed, seed=1)  # noqa: E731
        die_at(killed, step, work, key)
    resumed = preference.train(config, base(1), codec, noise(40), run=killed, seed=1)
    assert all(same_weights(a, b) for a, b in zip(straight.models, resumed.models, strict=True))
    assert resumed.offsets == straight.offsets
    lines = [[{k: v for k, v in row.items() if k != "time"} for row in r.metrics("pm")] for r in (whole, killed)]
    assert lines[0] == lines[1]
    assert {"member/1/accuracy/validation", "member/2/loss/train", "loss/validation"} <= set(lines[0][2])


def test_members_learn_from_prompts_drawn_with_replacement(codec, monkeypatch):
    drawn = []
    lesson = preference.training._Lesson
    plain = lesson._drawn
    monkeypatch.setattr(lesson, "_drawn", lambda self, number: (drawn.append(plain(self, number)), drawn[-1])[1])
    pairs = [p for p in polite_pairs(40) for _ in range(2)]
    config = SOME.model_copy(update={"bootstrap": True, "group_by_prompt": True})
    preference.train(config, base(1), codec, pairs, seed=2)
    assert drawn[0][0] == list(range(60))
    for at, draws in drawn[1:]:
        prompts = np.array(at) // 2
        assert len(at) == 60
        assert 12 <= len(set(prompts)) <= 26  # of thirty, about 63 % are drawn
        for draw in set(draws):  # a prompt comes with both of its pairs
            assert sorted(np.array(at)[np.array(draws) == draw] % 2) == [0, 1]
    assert drawn[1][0] != drawn[2][0]


# scores


def test_combinations_by_hand():
    scores = np.array([[1.0, -2.0], [3.0, 0.0], [5.0, 2.0]])
    spread = np.sqrt(8 / 3)
    np.testing.assert_allclose(combined(scores, "mean", 9.0), [3, 0])
    np.testing.assert_allclose(combined(scores, "min", 9.0), [1, -2])
    np.testing.assert_allclose(combined(scores, "lower_bound", 0.5), [3 - spread / 2, -spread / 2])


@given(
    st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=3), min_size=2, max_size=6), st.floats(0, 4),
    st.floats(-9, 9),
)  # fmt: skip
def test_combinations_lie_below_the_mean_and_move_with_the_scores(rows, pessimism, shift):
    scores = np.array(rows)
    for how in ("mean", "min", "lower_bound"):
        value = combined(scores, how, pessimism)
        assert (value <= scores.mean(0) + 1e-9).all()
        np.testing.assert_allclose(combined(scores + shift, how, pessimism), value + shift, atol=1e-9)
        np.testing.assert_allclose(combined(scores[::-1], how, pessimism), value, atol=1e-9)


def test_a_number_added_to_all_scores_of_a_member_is_no_disagreement(codec):
    ensemble = trained(codec)
    pairs = polite_pairs(30)
    training = preference.split_by_prompt(polite_pairs(40), CONFIG.validation_fraction, 2)[0]
    of = [p.prompt for p in training] * 2
    both = [p.chosen for p in training] + [p.rejected for p in training]
    np.testing.assert_allclose(ensemble.member_scores(of, both).mean(1), 0, atol=1e-6)
    raw = ensemble.member_scores([p.prompt for p in pairs], [p.chosen for p in pairs])
    alone = preference.PreferenceModel(ensemble.models[1], codec).score(
        [p.prompt for p in pairs], [p.chosen for p in pairs]
    )
    np.testing.assert_allclose(raw[1], alone - ensemble.offsets[1], atol=1e-6)
    spread = ensemble.disagreement([p.prompt for p in pairs], [p.chosen for p in pairs])
    np.testing.assert_allclose(spread, raw.std(0))
    assert spread.mean() > 1e-3


def test_an_ensemble_of_whole_models_scores_by_each_of_them(codec):
    ensemble = trained(codec, boundary=0)
    pairs = polite_pairs(5)
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    for k, model in enumerate(ensemble.models):
        alone = preference.PreferenceModel(model, codec).score(of, said)
        np.testing.assert_allclose(ensemble.member_scores(of, said)[k], alone - ensemble.offsets[k], atol=1e-6)


# saved


def test_each_member_loads_in_plain_transformers_and_all_of_them_as_one(codec, tmp_path):
    trunk = base(1)
    ensemble = preference.train(SOME, trunk, codec, polite_pairs(40), seed=2)
    ensemble.save(tmp_path / "pm", held_out_accuracy=0.5)
    assert read_json(tmp_path / "pm" / "trimtab.json")["held_out_accuracy"] == 0.5
    pairs = polite_pairs(4)
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    members = ensemble.member_scores(of, said)
    for k in range(3):
        place = tmp_path / "pm" if k == 0 else tmp_path / "pm" / f"member-{k}"
        plain = AutoModelForSequenceClassification.from_pretrained(place).eval()
        assert len(AutoTokenizer.from_pretrained(place)) == len(codec.tokenizer)
        ids = torch.tensor([ensemble.token_ids(of[0], said[0])])
        assert float(plain(ids).logits.detach()) - ensemble.offsets[k] == pytest.approx(members[k, 0], abs=1e-5)
    loaded = load_preference(tmp_path / "pm", Precision("float32"), trunk, combine="lower_bound", pessimism=2.0)
    np.testing.assert_array_equal(loaded.member_scores(of, said), members)
    np.testing.assert_allclose(loaded.score(of, said), members.mean(0) - 2 * members.std(0))
    assert loaded.models[2].backbone.body.layers[0] is trunk.backbone.body.layers[0]
    first = preference.PreferenceModel.load(tmp_path / "pm", Precision("float32"), trunk)
    np.testing.assert_allclose(first.score(of, said) - ensemble.offsets[0], members[0], atol=1e-6)
    card = read_json(tmp_path / "pm" / "trimtab.json")
    write_json(tmp_path / "pm" / "trimtab.json", card | {"members": 4})
    with pytest.raises(TrimtabError, match="a list of 4 numbers"):
        load_preference(tmp_path / "pm", Precision("float32"), trunk)


def test_a_single_model_loads_as_one(codec, tmp_path):
    trained(codec, members=1).save(tmp_path / "pm")
    assert type(load_preference(tmp_path / "pm", Precision("float32"), base(1))) is preference.PreferenceModel


# figures


def test_figures_of_members_by_hand():
    # two members with the same mistake, one with another: phi is 1 and twice -1/3; the mean margins' mistake is pair 0
    margins = np.array([[-1.0, 1, 1, 1], [-1, 1, 1, 1], [0.5, -1, 1, 1]])
    figures = figures_of_margins(margins, 0.25)
    assert figures.accuracy == (0.75, 0.75, 0.75)
    assert figures.shared_mistakes == pytest.approx((1 - 2 / 3) / 3)
    # spreads: pair 0 .71, pair 1 .94, the others 0
    assert figures.warns == pytest.approx(2 / 3)
    assert figures.as_dict()["disagreement"] == 0.25
    perfect = figures_of_margins(np.ones((2, 3)), 0.0)
    assert (perfect.shared_mistakes, perfect.warns) == (None, None)


def test_figures_of_an_ensemble(codec):
    ensemble, pairs = trained(codec), polite_pairs(30)
    figures = member_figures(ensemble, pairs)
    of = [p.prompt for p in pairs]
    chosen, rejected = (ensemble.member_scores(of, [getattr(p, s) for p in pairs]) for s in ("chosen", "rejected"))
    assert figures.accuracy == pytest.approx((chosen > rejected).mean(1))
    assert figures.disagreement == pytest.approx(np.concatenate([chosen, rejected], 1).std(0).mean())


def test_disagreement_in_a_mixture_is_in_units_of_the_mixture(codec):
    ensemble, pairs = trained(codec), polite_pairs(6)
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    rule = RuleScorer("rule:length")
    assert disagreement(rule, of, said) is None
    assert disagreement(MixtureScorer([(rule, 1.0)]), of, said) is None
    mixed = disagreement(MixtureScorer([(rule, 1.0), (ensemble, -2.0)]), of, said)
    np.testing.assert_allclose(mixed, 2 * ensemble.disagreement(of, said))


def test_ppo_logs_the_disagreement(codec, tmp_path):
    trunk = base(1)
    ensemble = preference.train(SOME, trunk, codec, polite_pairs(40), seed=2)
    run = Run.create(tmp_path, "r", config={}, seed=0)
    run.begin_stage("ppo", "f")
    config = PPOConfig(iterations=2, batch_size=4, max_new_tokens=5, minibatches=1, epochs=1)
    ppo.train(
        config, trunk.fork(trainable=True), codec, [p.prompt for p in polite_pairs(6)], ensemble,
        preference=ensemble.model, run=run, seed=0,
    )  # fmt: skip
    _, spread = run.signal("score/disagreement")
    assert len(spread) == 2
    assert (spread > 0).all()


def test_lines_of_a_later_member_stay_when_the_first_had_stopped_before_them(tmp_path):
    run = started(tmp_path)
    recipe = CONFIG.model_copy(update={"epochs": 6, "batch_size": 2, "checkpoint_every": 2})
    told = iter(range(1, 99))

    def both() -> None:
        for member, direction in ((0, 1.0), (1, -1.0)):
            model = ScalarModel.from_causal(base(1), head_std="zero")
            weight = model.hf.score.weight
            fit(
                "pm", model, lambda _, w=weight: ((w - 1).square().mean(), {}), 4, recipe, seed=0, run=run,
                precision=Precision("float32"), patience=1, member=member,
                validate=lambda d=direction: {"loss/validation": d * next(told)},
            )  # fmt: skip

    die_at(run, 10, both, "member/1/loss/train")
    both()
    rows = run.metrics("pm")
    assert [row["step"] for row in rows if "loss/train" in row] == [1, 2, 3, 4]
    assert [row["step"] for row in rows if "member/1/loss/train" in row] == list(range(1, 13))


def test_a_calibration_speaks_of_the_combination_that_it_was_fitted_on(codec, tmp_path):
    ensemble = trained(codec)
    pairs, directory = polite_pairs(20), tmp_path / "model"
    ensemble.save(directory)
    report = preference.calibrate(ensemble, pairs, "temperature", resamples=20)
    assert report.calibration.scores == "mean of 3 members"
    margins = ensemble.score([p.prompt for p in pairs], [p.chosen for p in pairs]) - ensemble.score(
        [p.prompt for p in pairs], [p.rejected for p in pairs]
    )
    labels = [p.p_chosen or 1.0 for p in pairs]
    by_hand = preference.calibrating.calibrate_margins(margins, labels, np.arange(20), "temperature", resamples=20)
    assert report.calibration.temperature == by_hand.calibration.temperature
    report.save(directory)
    precision = Precision("float32", "cpu")
    same = load_preference(directory, precision, calibrated_score=True)
    assert same.scale == report.calibration.temperature
    assert same.calibration == report.calibration
    other = load_preference(directory, precision, combine="lower_bound", pessimism=0.5)
    assert other.calibration is None
    assert other.combination == "lower_bound of 3 members, pessimism 0.5"
    with pytest.raises(TrimtabError, match=r"fitted on mean of 3 members; the score is now min of 3 members"):
        load_preference(directory, precision, combine="min", calibrated_score=True)
