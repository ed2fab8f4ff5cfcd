"""The preference model: what it learns, what is held out, what is saved, and that shared layers change nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from trimtab import preference
from trimtab.config.schema import PreferenceConfig
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.tokens import TextCodec
from trimtab.preference.pairs import PairScores
from trimtab.runs.run import Run
from trimtab.training.precision import Precision
from trimtab.training.targets import pair_targets
from trimtab.worlds.model import build_model, build_tokenizer
from trimtab.worlds.tiny import NEUTRAL, POLITE, RUDE, prompts

CONFIG = PreferenceConfig(epochs=3, batch_size=8, learning_rate=3e-3, validation_fraction=0.25, max_tokens=40)


@pytest.fixture
def codec() -> TextCodec:
    return TextCodec(build_tokenizer())


def base(boundary: int = 0) -> CausalModel:
    model = CausalModel(build_model(0), boundary)
    model.requires_grad_(False)
    return model


def polite_pairs(n: int, swapped: bool = False) -> list[Pair]:
    """One polite and one rude response to each prompt, the rest of the words drawn alike."""
    rng = np.random.default_rng(0)
    pairs = []
    for i, prompt in enumerate(prompts(n, 1)):
        filler = [" ".join(rng.choice(NEUTRAL, 4)) for _ in range(2)]
        polite = Response(f"{filler[0]} {rng.choice(POLITE)}")
        rude = Response(f"{filler[1]} {rng.choice(RUDE)}")
        chosen, rejected = (rude, polite) if swapped else (polite, rude)
        pairs.append(Pair(f"p{i}", prompt, chosen, rejected, p_chosen=0.9))
    return pairs


def test_it_learns_what_the_labels_say_and_the_opposite_from_swapped_ones(codec):
    pairs = polite_pairs(120)
    for swapped in (False, True):
        model = preference.train(CONFIG, base(), codec, polite_pairs(120, swapped), seed=3)
        polite, rude = ([getattr(p, side) for p in pairs] for side in ("chosen", "rejected"))
        of = [p.prompt for p in pairs]
        wins = float((model.score(of, polite) > model.score(of, rude)).mean())
        assert wins <= 0.05 if swapped else wins >= 0.95


def test_heavier_pairs_outvote_lighter_ones_of_the_opposite_opinion(codec):
    pairs = polite_pairs(120)
    heavy = [replace(p, id=f"h{p.id}", weight=20.0) for p in polite_pairs(120, swapped=True)]
    model = preference.train(CONFIG, base(), codec, [*pairs, *heavy], seed=3)
    polite, rude = ([getattr(p, side) for p in pairs] for side in ("chosen", "rejected"))
    of = [p.prompt for p in pairs]
    assert float((model.score(of, rude) > model.score(of, polite)).mean()) >= 0.95
    with pytest.raises(TrimtabError, match="all 90 training pairs have weight 0"):
        preference.train(CONFIG, base(), codec, [replace(p, weight=0.0) for p in pairs], seed=3)


def test_a_hard_label_says_who_is_better_and_a_tie_nothing():
    pair = polite_pairs(1)[0]
    labels = {p: pair_targets([replace(pair, p_chosen=p)], soft=False).item() for p in (None, 0.6, 0.5, 0.3)}
    assert labels == {None: 1.0, 0.6: 1.0, 0.5: 0.5, 0.3: 0.0}
    assert pair_targets([replace(pair, p_chosen=0.6)], soft=True).item() == pytest.approx(0.6)


def test_whole_prompts_are_held_out():
    pairs = [p for p in polite_pairs(20) for _ in range(3)]
    training, held_out = preference.split_by_prompt(pairs, 0.25, 7)
    assert len(training) == 45
    assert len(held_out) == 15
    assert not {p.prompt.messages for p in training} & {p.prompt.messages for p in held_out}
    assert preference.split_by_prompt(pairs, 0.25, 8)[1] != held_out


def test_pairs_of_one_prompt_cannot_be_split():
    pairs = polite_pairs(1) * 4
    with pytest.raises(TrimtabError, match="1 prompts cannot be split") as caught:
        preference.split_by_prompt(pairs, 0.25, 0)
    assert caught.value.kind == ErrorKind.DATA


def test_a_pair_longer_than_allowed_is_named(codec):
    long = Pair("long", Prompt("the-prompt", (Message("user", "please"),)), Response("dear " * 45), Response("fool"))
    with pytest.raises(TrimtabError, match="'the-prompt' with its response has 47 tokens"):
        preference.train(CONFIG, base(), codec, [*polite_pairs(4), long, long], seed=0)


def test_cut_off_responses_are_read_at_an_eos_too(codec):
    model = preference.PreferenceModel(ScalarModel.from_causal(base()), codec)
    prompt = prompts(1, 1)[0]
    assert model.token_ids(prompt, Response("dear friend", finished=False))[-1] == codec.eos_id
    assert model.score([prompt], [Response("", finished=True)]).shape == (1,)


def test_scores_come_in_the_order_asked(codec):
    model = preference.PreferenceModel(ScalarModel.from_causal(base()), codec, batch_size=3)
    pairs = polite_pairs(10)
    responses = [Response(p.chosen.text + " dear" * (i % 4)) for i, p in enumerate(pairs)]
    together = model.score([p.prompt for p in pairs], responses)
    alone = [float(model.score([p.prompt], [r])[0]) for p, r in zip(pairs, responses, strict=True)]
    np.testing.assert_allclose(together, alone, rtol=0, atol=2e-6)


@pytest.mark.parametrize("boundary", [1, 2])
def test_kept_activations_give_the_same_scores_and_gradients(codec, boundary):
    pairs = polite_pairs(6)
    model = ScalarModel.from_causal(base(boundary), generator=torch.Generator().manual_seed(0))
    pm = preference.PreferenceModel(model, codec)
    rows = [(pm.token_ids(p.prompt, p.chosen), pm.token_ids(p.prompt, p.rejected)) for p in pairs]
    scores = PairScores(model, rows, codec.pad_id)
    expected = pm.score_ids([chosen for chosen, _ in rows])

    def gradient(index):
        chosen, rejected = scores(index)
        (chosen - rejected).sum().backward()
        found = [p.grad.clone() for p in model.trainable_parameters()]
        model.zero_grad()
        return chosen.detach().numpy(), found

    first, grads = gradient([4, 1, 3])
    again, kept = gradient([4, 1, 3])
    np.testing.assert_allclose(first, expected[[4, 1, 3]], rtol=0, atol=2e-6)
    np.testing.assert_array_equal(first, again)
    assert all(torch.equal(a, b) for a, b in zip(grads, kept, strict=True))
    mixed, _ = gradient([0, 4])  # one row kept, one not
    np.testing.assert_allclose(mixed, expected[[0, 4]], rtol=0, atol=2e-6)


def test_a_killed_training_goes_on_to_the_same_model(codec, tmp_path):
    pairs = polite_pairs(40)
    config = CONFIG.model_copy(update={"checkpoint_every": 3})
    straight = preference.train(config, base(), codec, pairs, seed=1)
    run = Run.create(tmp_path, "r", config={}, seed=1)
    run.begin_stage("pm", "f")
    log = run.log

    def dying(stage, step, signals):
        if step == 5:
            raise KeyboardInterrupt
        log(stage, step, signals)

    run.log = dying
    with pytest.raises(KeyboardInterrupt):
        preference.train(config, base(), codec, pairs, seed=1, run=run)
    run.log = log
    resumed = preference.train(config, base(), codec, pairs, seed=1, run=run)
    for name, weight in straight.model.own_state().items():
        assert torch.equal(resumed.model.own_state()[name], weight), name
    assert [row["step"] for row in run.metrics("pm")] == list(range(13))


def test_saved_and_loaded_it_scores_the_same_on_its_trunk(codec, tmp_path):
    trunk = base(1)
    model = preference.PreferenceModel(ScalarModel.from_causal(trunk), codec, max_tokens=40)
    pairs = polite_pairs(5)
    model.save(tmp_path / "pm")
    loaded = preference.PreferenceModel.load(tmp_path / "pm", Precision("float32"), trunk)
    of, responses = [p.prompt for p in pairs], [p.chosen for p in pairs]
    np.testing.assert_array_equal(loaded.score(of, responses), model.score(of, responses))
    assert loaded.max_tokens == 40
    other = CausalModel(build_model(1), 1)
    with pytest.raises(TrimtabError) as caught:
        preference.PreferenceModel.load(tmp_path / "pm", Precision("float32"), other)
    assert caught.value.kind == ErrorKind.MODEL


def test_metrics_by_hand():
    class Fixed:
        name = "fixed"

        def score(self, prompts, responses):
            return np.array([float(r.text) for r in responses])

    def pair(i, chosen, rejected, p=None):
        return Pair(
            str(i), Prompt(f"q{i}", (Message("user", f"q{i}"),)), Response(chosen), Response(rejected), p_chosen=p
        )

    # margins ln 3, -ln 3, 0: right (p = .75), wrong (p = .25), tie (one half)
    third = str(np.log(3))
    metrics = preference.evaluate(Fixed(), [pair(0, third, "0"), pair(1, "0", third), pair(2, "1", "1", 0.5)])
    assert metrics.accuracy.mean == pytest.approx(0.5)
    # Brier: ((.25)^2 + (.75)^2 + 0) / 3, in both orders alike
    assert metrics.brier == pytest.approx((0.0625 + 0.5625) / 3)
    assert metrics.log_loss == pytest.approx((-np.log(0.75) - np.log(0.25) - np.log(0.5)) / 3)
    assert metrics.mean_margin == pytest.approx(0.0)
    assert metrics.pairs == 3
    assert metrics.prompts == 3


def test_no_pairs_to_evaluate_on():
    with pytest.raises(TrimtabError, match="no pairs"):
        preference.evaluate(None, [])
