"""Options of preference training: each does what it says, old settings give old numbers, and a kill changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preference_training import CONFIG, base, die_at, noise, polite_pairs, ranked, same_weights, started
from trimtab import preference
from trimtab.config.schema import PreferenceConfig
from trimtab.core.preference import bradley_terry_loss, centering_loss
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import ScalarModel
from trimtab.models.tokens import TextCodec
from trimtab.preference import training
from trimtab.preference.dropout import Dropout
from trimtab.preference.pairs import PairScores
from trimtab.worlds.model import build_tokenizer


@pytest.fixture
def codec() -> TextCodec:
    return TextCodec(build_tokenizer())


# old settings, old numbers


@pytest.mark.parametrize(
    ("boundary", "expected"),
    [
        (0, [0.8228608965873718, -0.7770253419876099, 0.842057466506958, 0.8069849014282227]),
        (1, [0.8599750995635986, 0.3657130300998688, 0.8451830744743347, 0.857759952545166]),
    ],
)
def test_with_every_option_off_scores_are_those_of_a_plain_training(codec, boundary, expected):
    """Measured with the training as it was before it had any of these options."""
    pairs = [replace(p, margin=0.1 * (i % 3), weight=1.0 + i % 2) for i, p in enumerate(polite_pairs(40))]
    config = CONFIG.model_copy(update={"label_smoothing": 0.05, "weight_decay": 0.1})
    model = preference.train(config, base(boundary), codec, pairs, seed=3)
    got = model.score([p.prompt for p in pairs[:4]], [p.chosen for p in pairs[:4]])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)


# early stopping


OVERFITS = CONFIG.model_copy(
    update={"epochs": 60, "batch_size": 4, "checkpoint_every": 2, "validation_fraction": 0.5, "patience": 3}
)


def test_it_stops_when_the_validation_loss_rises_and_keeps_the_best_weights(codec, tmp_path):
    run = started(tmp_path)
    model = preference.train(OVERFITS, base(1), codec, noise(24), run=run, seed=1)
    rows = [row for row in run.metrics("pm") if row["step"] > 0 and "loss/validation" in row]
    losses = [row["loss/validation"] for row in rows]
    best = losses.index(min(losses))
    assert rows[-1]["step"] < 180
    assert best == len(losses) - 4
    held_out = preference.split_by_prompt(noise(24), 0.5, 1)[1]
    assert preference.evaluate(model, held_out).log_loss == pytest.approx(losses[best], abs=1e-6)
    # both curves are there
    assert "accuracy/train" in rows[0]
    assert "accuracy/validation" in rows[0]


@pytest.mark.parametrize("dies", [3, 9])
def test_early_stopping_with_dropout_and_groups_goes_on_after_a_kill_as_if_nothing_had_been(codec, tmp_path, dies):
    config = OVERFITS.model_copy(
        update={"dropout": 0.2, "head_dropout": 0.1, "group_by_prompt": True, "center_coef": 0.01}
    )
    pairs = noise(24) + ranked(4)
    whole, killed = started(tmp_path, "whole"), started(tmp_path, "killed")
    straight = preference.train(config, base(1), codec, pairs, run=whole, seed=1)
    die_at(killed, dies, lambda: preference.train(config, base(1), codec, pairs, run=killed, seed=1))
    resumed = preference.train(config, base(1), codec, pairs, run=killed, seed=1)
    assert same_weights(straight.model, resumed.model)
    assert [row["step"] for row in killed.metrics("pm")] == [row["step"] for row in whole.metrics("pm")]


# centring


def test_the_centring_term_by_hand():
    chosen, rejected = torch.tensor([1.0, 3.0]), torch.tensor([2.0, -1.0])
    assert float(centering_loss(chosen, rejected)) == pytest.approx((9 + 4) / 2)
    assert float(centering_loss(chosen, rejected, torch.tensor([0.5, 1.5]))) == pytest.approx((4.5 + 6) / 2)
    with pytest.raises(TrimtabError, match="over no pairs"):
        centering_loss(torch.zeros(0), torch.zeros(0))


@given(st.lists(st.tuples(st.floats(-8, 8), st.floats(-8, 8)), min_size=1, max_size=9), st.floats(-3, 3))
def test_centring_knows_the_level_of_scores_that_the_pairs_leave_open(scores, shift):
    chosen, rejected = (torch.tensor(list(x)) for x in zip(*scores, strict=True))
    moved = bradley_terry_loss(chosen + shift, rejected + shift)
    assert float(moved) == pytest.approx(float(bradley_terry_loss(chosen, rejected)), abs=1e-5)
    slow = sum((a + b + 2 * shift) ** 2 for a, b in scores) / len(scores)
    assert float(centering_loss(chosen + shift, rejected + shift)) == pytest.approx(slow, rel=1e-4, abs=1e-4)


def test_a_centred_model_has_scores_around_zero(codec):
    pairs = polite_pairs(120)
    levels = []
    for coefficient in (0.0, 0.5):
        config = CONFIG.model_copy(update={"center_coef": coefficient})
        model = preference.train(config, base(), codec, pairs, seed=3)
        both = [p.chosen for p in pairs] + [p.rejected for p in pairs]
        scores = model.score([p.prompt for p in pairs] * 2, both)
        levels.append(np.mean((scores[:120] + scores[120:]) ** 2))
        assert (scores[:120] > scores[120:]).mean() > 0.9
    assert levels[1] < levels[0] / 4


# margins


def test_margins_count_by_their_coefficient(codec):
    """Of labels without doubt the score difference grows with the margin that is asked for; 0 leaves margins out."""
    pairs = polite_pairs(60)
    plain = preference.train(CONFIG, base(1), codec, pairs, seed=2)
    led = [replace(p, margin=1.0) for p in pairs]
    unused = preference.train(CONFIG.model_copy(update={"margin_coef": 0.0}), base(1), codec, led, seed=2)
    assert same_weights(plain.model, unused.model)
    of = [p.prompt for p in pairs]
    leads = []
    for coefficient in (1.0, 3.0):
        config = CONFIG.model_copy(update={"margin_coef": coefficient, "epochs": 12})
        model = preference.train(config, base(1), codec, led, seed=2)
        leads.append(np.mean(model.score(of, [p.chosen for p in pairs]) - model.score(of, [p.rejected for p in pairs])))
    assert leads[1] > leads[0] + 0.5


# dropout


@pytest.mark.parametrize("boundary", [0, 1])
def test_dropout_is_there_in_training_passes_only(codec, boundary):
    model = ScalarModel.from_causal(base(boundary), generator=torch.Generator().manual_seed(0))
    pm = preference.PreferenceModel(model, codec)
    pairs = polite_pairs(4)
    rows = [(pm.token_ids(p.prompt, p.chosen), pm.token_ids(p.prompt, p.rejected)) for p in pairs]
    clean = pm.score_ids([row for row, _ in rows])
    for layers, head in ((0.3, 0.0), (0.0, 0.3)):
        dropout = Dropout(model, layers, head, 0, 0)
        scores = PairScores(model, rows, codec.pad_id, dropout=dropout)

        def at(step, dropout=dropout, scores=scores):
            dropout.step = step
            with dropout.on():
                return scores([0, 1, 2, 3])[0].detach().numpy()

        assert not np.allclose(at(1), clean, atol=1e-3)
        np.testing.assert_array_equal(at(1), at(1))
        assert not np.array_equal(at(1), at(2))
        np.testing.assert_array_equal(pm.score_ids([row for row, _ in rows]), clean)


def test_dropout_keeps_means_and_spares_the_shared_layers(codec):
    model = ScalarModel.from_causal(base(1), generator=torch.Generator().manual_seed(0))
    dropout = Dropout(model, 0.4, 0.25, 0, 0)
    ones = torch.ones(200, 64)
    with dropout.on():
        kept = dropout.head(ones)
    assert set(np.unique(kept.numpy()).round(5)) == {0.0, np.float32(4 / 3).round(5)}
    assert float(kept.mean()) == pytest.approx(1.0, abs=0.02)
    ids = torch.randint(5, 20, (3, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids, dtype=torch.bool)
    trunk, clean = model.trunk(ids, mask), model.hidden(ids, mask).detach()
    passes = []
    for step in range(300):
        dropout.step = step
        with dropout.on():
            torch.testing.assert_close(model.trunk(ids, mask), trunk, rtol=0, atol=0)
            layer = model.backbone.layers(trunk, mask, torch.arange(6).expand(3, 6), 1, 2)
            passes.append(layer.detach())
    whole = model.backbone.layers(trunk, mask, torch.arange(6).expand(3, 6), 1, 2).detach()
    off = (torch.stack(passes).mean(0) - whole).abs().max() / (whole - trunk).abs().max()
    assert float(off) < 0.15
    torch.testing.assert_close(model.hidden(ids, mask).detach(), clean, rtol=0, atol=0)


def test_layers_that_cannot_be_found_are_said_to_be(codec):
    model = ScalarModel.from_causal(base(1))
    model.backbone.config.num_hidden_layers = 7
    with pytest.raises(TrimtabError, match="no list of its 7 layers") as caught:
        Dropout(model, 0.1, 0.0, 0, 0)
    assert caught.value.kind == ErrorKind.MODEL


# pairs of one prompt


def test_pairs_of_a_prompt_are_learned_together_and_each_response_is_read_once(codec, monkeypatch):
    pairs = ranked(12)
    prompt_of = [p.prompt.messages for p in preference.split_by_prompt(pairs, 0.25, 0)[0]]
    batches, read = [], []
    call, scores = training.PairScores.heads, training.PairScores._scores
    monkeypatch.setattr(training.PairScores, "heads", lambda self, at: (batches.append(list(at)), call(self, at))[1])
    monkeypatch.setattr(training.PairScores, "_scores", lambda self, at: (read.append(len(at)), scores(self, at))[1])
    preference.train(CONFIG.model_copy(update={"group_by_prompt": True}), base(1), codec, pairs, seed=0)
    for batch in batches:
        assert len(batch) <= 8
        for messages in {prompt_of[i] for i in batch}:
            assert sum(prompt_of[i] == messages for i in batch) == 3
    assert read == [len(batch) for batch in batches]  # three responses for three pairs, not six
    batches.clear()
    preference.train(CONFIG, base(1), codec, pairs, seed=0)
    assert any(sum(prompt_of[i] == prompt_of[batch[0]] for i in batch) < 3 for batch in batches)


def test_reading_a_response_once_changes_no_score_and_no_gradient(codec):
    model = ScalarModel.from_causal(base(1), generator=torch.Generator().manual_seed(0))
    pm = preference.PreferenceModel(model, codec)
    rows = [(pm.token_ids(p.prompt, p.chosen), pm.token_ids(p.prompt, p.rejected)) for p in ranked(3)]
    found = []
    for prompts in (None, [0, 0, 0, 1, 1, 1, 2, 2, 2]):
        chosen, rejected = PairScores(model, rows, codec.pad_id, prompts=prompts)([0, 1, 2, 5, 3])
        (chosen.square() - 2 * rejected).sum().backward()
        found.append((chosen.detach(), rejected.detach(), [p.grad.clone() for p in model.trainable_parameters()]))
        model.zero_grad()
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=2e-5)


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="bootstrap is about several members"):
        PreferenceConfig(bootstrap=True)
    with pytest.raises(ValueError, match='combine = "min" is about several members'):
        PreferenceConfig(combine="min")
    pair = Pair("x", Prompt("q", (Message("user", "q"),)), Response("a"), Response("b"))
    assert pair.margin is None


def test_every_update_drops_something_else(codec, monkeypatch):
    steps, on = [], Dropout.on
    monkeypatch.setattr(Dropout, "on", lambda self: (steps.append(self.step), on(self))[1])
    preference.train(CONFIG.model_copy(update={"epochs": 2, "dropout": 0.1}), base(1), codec, polite_pairs(20), seed=0)
    assert steps == [0, 1, 2, 3]
