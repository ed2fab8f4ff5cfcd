"""Supervised fine-tuning: its loss, what it moves, and where it goes on."""

from __future__ import annotations

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
