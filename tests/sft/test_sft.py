"""Supervised fine-tuning: its loss, what it moves, and where it goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch

from trimtab import sft
from trimtab.config.schema import SFTConfig
from trimtab.data.demonstrations import Demonstration
from trimtab.data.records import Message, Prompt
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.runs.run import Run
from trimtab.training.checkpoint import latest_checkpoint, load_checkpoint
from trimtab.worlds.model import build_model, build_tokenizer
from trimtab.worlds.tiny import prompts


@pytest.fixture
def codec() -> TextCodec:
    return TextCodec(build_tokenizer())


def base(boundary: int = 0) -> CausalModel:
    model = CausalModel(build_model(0), boundary)
    model.requires_grad_(False)
    return model


def shown(n: int) -> list[Demonstration]:
    return [Demonstration(p, "dear friend thanks" if i % 2 else "gladly") for i, p in enumerate(prompts(n, 2))]


def test_the_loss_is_the_mean_negative_log_likelihood_of_response_tokens(codec, tmp_path):
    demonstrations = [
        Demonstration(Prompt("a", (Message("user", "small leaf"),)), "dear friend"),
        Demonstration(Prompt("b", (Message("user", "good"),)), "please"),
    ]
    run = Run.create(tmp_path, "r", config={}, seed=0)
    run.begin_stage("sft", "f")
    sft.train(SFTConfig(batch_size=2), base().fork(True), codec, demonstrations, run=run)
    # one token at a time, without padding, in float64, EOS included; prompt tokens do not count
    model, total, count = build_model(0).double(), 0.0, 0
    for d in demonstrations:
        context = list(codec.tokenizer(d.prompt.text).input_ids)
        for token in [*codec.tokenizer(d.response).input_ids, codec.eos_id]:
            logits = model(torch.tensor([context])).logits[0, -1]
            total -= float(logits.log_softmax(-1)[token].detach())
            count += 1
            context.append(token)
    row = run.metrics("sft")[0]
    assert row["loss/train"] == pytest.approx(total / count, abs=2e-5)
    assert row["tokens"] == count == 5


def test_it_learns_the_demonstrations(codec):
    model = base().fork(True)
    sft.train(SFTConfig(epochs=16, batch_size=16, learning_rate=5e-3), model, codec, shown(64))
    from trimtab.sampling.responses import sample_responses

    said = sample_responses(
        model, codec, [d.prompt for d in shown(64)], max_new_tokens=5, temperature=0.5, batch_size=64,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert sum(r.text in ("dear friend thanks", "gladly") and r.finished for r in said) >= 60


def test_shared_layers_are_not_trained(codec):
    model = base(1).fork(True)
    before = {k: v.clone() for k, v in model.hf.state_dict().items()}
    sft.train(SFTConfig(batch_size=8, learning_rate=1e-2), model, codec, shown(16))
    moved = {k for k, v in model.hf.state_dict().items() if not torch.equal(v, before[k])}
    assert moved
    assert not any("embed" in k or "layers.0." in k for k in moved)


def test_a_killed_stage_goes_on_to_the_same_weights(codec, tmp_path):
    config = SFTConfig(epochs=2, batch_size=8, learning_rate=1e-3, checkpoint_every=3)
    straight = sft.train(config, base().fork(True), codec, shown(32), seed=4)
    run = Run.create(tmp_path, "r", config={}, seed=4)
    run.begin_stage("sft", "f")
    log = run.log

    def dying(stage, step, signals):
        if step == 5:
            raise KeyboardInterrupt
        log(stage, step, signals)

    run.log = dying
    with pytest.raises(KeyboardInterrupt):
        sft.train(config, base().fork(True), codec, shown(32), seed=4, run=run)
    run.log = log
    resumed = sft.train(config, base().fork(True), codec, shown(32), seed=4, run=run)
    for name, weight in straight.own_state().items():
        assert torch.equal(resumed.own_state()[name], weight), name
    assert [row["step"] for row in run.metrics("sft")] == list(range(1, 9))
    assert len(list(run.checkpoint_dir("sft").iterdir())) == 1


def test_tokens_are_counted_on_across_updates_and_a_kill(codec, tmp_path):
    config = SFTConfig(epochs=2, batch_size=8, checkpoint_every=2)
    whole = Run.create(tmp_path, "whole", config={}, seed=0)
    whole.begin_stage("sft", "f")
    sft.train(config, base().fork(True), codec, shown(16), run=whole)
    counts = [row["tokens"] for row in whole.metrics("sft")]
    # sixteen responses of 3 and 1 words with their EOS, twice
    assert counts[-1] == 2 * (8 * 4 + 8 * 2)
    killed = Run.create(tmp_path, "killed", config={}, seed=0)
    killed.begin_stage("sft", "f")
    die_at(killed, 3, lambda: sft.train(config, base().fork(True), codec, shown(16), run=killed))
    sft.train(config, base().fork(True), codec, shown(16), run=killed)
    assert [row["tokens"] for row in killed.metrics("sft")] == counts


def die_at(run: Run, step: int, work: Callable[[], object]) -> None:
    """Let the stage be interrupted when it logs `step`."""
    log = run.log

    def dying(stage, at, signals):
        if at == step:
            raise KeyboardInterrupt
        log(stage, at, signals)

    run.log = dying
    with pytest.raises(KeyboardInterrupt):
        work()
    run.log = log


# validation and early stopping


def test_the_validation_loss_is_that_of_the_held_out_prompts_token_by_token(codec, tmp_path):
    demonstrations = shown(20)
    training, held_out = sft.split_by_prompt(demonstrations, 0.25, 3)
    assert (len(training), len(held_out)) == (15, 5)
    run = Run.create(tmp_path, "r", config={}, seed=3)
    run.begin_stage("sft", "f")
    config = SFTConfig(batch_size=2, learning_rate=1e-9, validation_fraction=0.25, checkpoint_every=4)
    sft.train(config, base().fork(True), codec, demonstrations, run=run, seed=3)
    model, total, count = build_model(0).double(), 0.0, 0
    for d in held_out:
        context = list(codec.tokenizer(d.prompt.text).input_ids)
        for token in [*codec.tokenizer(d.response).input_ids, codec.eos_id]:
            total -= float(model(torch.tensor([context])).logits[0, -1].log_softmax(-1)[token].detach())
            count += 1
            context.append(token)
    steps, losses = run.signal("loss/validation", "sft")
    assert steps.tolist() == [0, 4, 8]
    assert losses == pytest.approx([total / count] * 3, abs=2e-5)
    assert run.metrics("sft")[-1]["tokens"] == sum(len(d.response.split()) + 1 for d in training)


def test_all_demonstrations_of_a_prompt_lie_on_one_side():
    twice = [*shown(10), *shown(10)]
    training, held_out = sft.split_by_prompt(twice, 0.3, 0)
    assert (len(training), len(held_out)) == (14, 6)
    assert not {d.prompt.messages for d in training} & {d.prompt.messages for d in held_out}
    assert sft.split_by_prompt(twice, 0.0, 0) == (twice, [])
    assert sft.split_by_prompt(twice, 0.3, 1) != (training, held_out)
    assert len(sft.split_by_prompt(shown(2), 0.01, 0)[1]) == 1
    assert len(sft.split_by_prompt(shown(2), 0.99, 0)[0]) == 1
    with pytest.raises(TrimtabError, match="2 demonstrations of one prompt cannot be split"):
        sft.split_by_prompt([*shown(1), *shown(1)], 0.5, 0)


OVERFITS = SFTConfig(
    epochs=60, batch_size=4, learning_rate=3e-3, checkpoint_every=2, validation_fraction=0.5, patience=3
)


def noise(n: int) -> list[Demonstration]:
    """Responses that have nothing to do with their prompts: what is learned of them does not carry over."""
    said = prompts(n, 99)
    return [Demonstration(p, said[i].text) for i, p in enumerate(prompts(n, 2))]


def test_training_stops_when_the_validation_loss_rises_and_ends_with_its_best_weights(codec, tmp_path):
    run = Run.create(tmp_path, "r", config={}, seed=1)
    run.begin_stage("sft", "f")
    model = sft.train(OVERFITS, base().fork(True), codec, noise(16), run=run, seed=1)
    rows = [row for row in run.metrics("sft") if row["step"] > 0 and "loss/validation" in row]
    losses = [row["loss/validation"] for row in rows]
    best = losses.index(min(losses))
    assert rows[-1]["step"] < 120
    assert best == len(losses) - 4
    # the weights are those that a training of exactly so many of the same updates had
    whole = SFTConfig(**OVERFITS.model_dump() | {"patience": None})
    other = Run.create(tmp_path, "other", config={}, seed=1)
    other.begin_stage("sft", "f")
    until = base().fork(True)
    die_at(other, rows[best]["step"] + 1, lambda: sft.train(whole, until, codec, noise(16), run=other, seed=1))
    state = load_checkpoint(latest_checkpoint(other.checkpoint_dir("sft")))
    assert state["step"] == rows[best]["step"]
    for name, weight in model.own_state().items():
        assert torch.equal(weight, state["model"][name]), name


@pytest.mark.parametrize("dies", [3, 9])
def test_early_stopping_goes_on_after_a_kill_as_if_nothing_had_been(codec, tmp_path, dies):
    runs = [Run.create(tmp_path, name, config={}, seed=1) for name in ("whole", "killed")]
    for run in runs:
        run.begin_stage("sft", "f")
    straight = sft.train(OVERFITS, base().fork(True), codec, noise(16), run=runs[0], seed=1)
    die_at(runs[1], dies, lambda: sft.train(OVERFITS, base().fork(True), codec, noise(16), run=runs[1], seed=1))
    resumed = sft.train(OVERFITS, base().fork(True), codec, noise(16), run=runs[1], seed=1)
    assert [row["step"] for row in runs[0].metrics("sft")] == [row["step"] for row in runs[1].metrics("sft")]
    # one that is killed after it stopped does not begin again
    again = sft.train(OVERFITS, base().fork(True), codec, noise(16), run=runs[1], seed=1)
    for name, weight in straight.own_state().items():
        assert torch.equal(resumed.own_state()[name], weight), name
        assert torch.equal(again.own_state()[name], weight), name


def test_patience_without_validation_and_a_share_without_revisions_are_refused():
    with pytest.raises(ValueError, match="patience watches loss/validation"):
        SFTConfig(patience=2)
    for broken in ({}, {"data": "d.jsonl"}, {"source": "constitution"}):
        with pytest.raises(ValueError, match="demonstration_share mixes"):
            SFTConfig(demonstration_share=0.5, **broken)


# mixing


@pytest.mark.parametrize(("share", "expected"), [(0.5, 10), (0.2, 2), (0.75, 30), (0.8, 40), (None, 12)])
def test_demonstrations_are_mixed_in_by_their_share(share, expected):
    revisions, demonstrations = noise(10), shown(12)
    mixed = sft.mix(revisions, demonstrations, share, 0)
    assert mixed[:10] == revisions
    assert len(mixed) == 10 + expected
    counts = Counter(d.prompt.id for d in mixed[10:])
    assert max(counts.values()) - min([*counts.values(), *([0] if len(counts) < 12 else [])]) <= 1
    assert sft.mix(revisions, demonstrations, share, 0) == mixed
    assert (sft.mix(revisions, demonstrations, share, 1) == mixed) == (expected % 12 == 0)


def test_there_is_nothing_to_mix_where_one_side_is_empty():
    assert sft.mix([], shown(3), 0.5, 0) == shown(3)
    assert sft.mix(shown(3), [], 0.5, 0) == shown(3)


def test_a_demonstration_must_fit_the_context_with_its_eos(codec, tmp_path):
    model = base().fork(True)
    prompt = Prompt("long", (Message("user", "small leaf"),))
    fits = Demonstration(prompt, " ".join(["dear"] * (model.context_length - 3)))
    over = Demonstration(prompt, fits.response + " dear")
    run = Run.create(tmp_path, "r", config={}, seed=0)
    run.begin_stage("sft", "f")
    length = model.context_length
    what = rf'"long": {length + 1} tokens \(2 of the prompt, {length - 1} of .*context holds {length}'
    with pytest.raises(TrimtabError, match=what) as caught:
        sft.train(SFTConfig(), model, codec, [*shown(2), over], run=run)
    assert caught.value.kind is ErrorKind.DATA
    assert run.metrics("sft") == []
    sft.train(SFTConfig(), model, codec, [fits], run=run)
    assert len(run.metrics("sft")) == 1


def test_no_demonstrations(codec):
    with pytest.raises(TrimtabError, match="nothing to train on"):
        sft.train(SFTConfig(), base().fork(True), codec, [])
