"""`model.train_head`: the language-model head of a policy trained apart from the embedding that it is tied to."""

from __future__ import annotations

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM

from trimtab.config.layout import FULL, Layout, Lora
from trimtab.config.schema import Config
from trimtab.errors import TrimtabError
from trimtab.models.adapters import ADAPTER
from trimtab.models.loading import load_causal_lm, load_scalar
from trimtab.models.roles import CausalModel, ScalarModel

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
LAYOUTS = ["top:2", "lora", "lora-top:2"]


@pytest.fixture
def base_of(build, tmp_path):
    """base_of(layout, head=True) -> the frozen model in that layout, loaded from a directory where both are tied."""
    build().save_pretrained(tmp_path / "base")

    def make(layout: str, head: bool = True, dtype=torch.float32) -> CausalModel:
        return load_causal_lm(str(tmp_path / "base"), dtype, layout=Layout.parse(layout, Lora(4, 8.0), head))

    return make


def logits(model, batch):
    ids, mask = batch
    with torch.no_grad():
        return model.lm_logits(model.hidden(ids, mask))[mask]


def stepped(policy, batch):
    """One step of gradient descent on some loss."""
    ids, mask = batch
    policy.lm_logits(policy.hidden(ids, mask))[mask].square().mean().backward()
    with torch.no_grad():
        for parameter in policy.trainable_parameters():
            # adapters begin where A takes no gradient
            parameter -= 0.1 * parameter.grad + 0.01 * torch.ones_like(parameter)
    return policy


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_head_learns_and_the_embedding_stays(base_of, batch, layout):
    base = base_of(layout)
    before = logits(base, batch)
    policy = base.fork(trainable=True)
    assert torch.equal(logits(policy, batch), before)
    own = dict(policy.own_parameters())
    assert HEAD in own
    assert EMBEDDING not in own
    assert len(own) == len(dict(base_of(layout, head=False).fork(trainable=True).own_parameters())) + 1
    stepped(policy, batch)
    weights, first = dict(policy.hf.named_parameters()), dict(base.hf.named_parameters())
    assert not torch.equal(weights[HEAD], first[HEAD])
    assert weights[EMBEDDING].data_ptr() == first[EMBEDDING].data_ptr()
    assert torch.equal(first[HEAD], first[EMBEDDING])
    assert torch.equal(logits(base, batch), before)


def test_without_it_a_tied_head_stays_frozen(base_of):
    for layout in LAYOUTS:
        policy = base_of(layout, head=False).fork(trainable=True)
        assert HEAD not in dict(policy.own_parameters())
        assert policy.hf.get_output_embeddings().weight.data_ptr() == policy.hf.get_input_embeddings().weight.data_ptr()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_saved_policy_is_read_by_transformers_and_by_us(base_of, batch, tmp_path, layout):
    base = base_of(layout)
    policy = stepped(base.fork(trainable=True), batch)
    expected = logits(policy, batch)
    policy.save_pretrained(tmp_path / "saved", pad_id=0)
    ids, mask = batch
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        found = plain(ids, attention_mask=mask, position_ids=(mask.long().cumsum(-1) - 1).clamp(min=0)).logits[mask]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    asked = Layout.parse(layout, Lora(4, 8.0), True)
    again = load_causal_lm(str(tmp_path / "saved"), layout=asked, onto=base)
    assert torch.equal(logits(again, batch), expected)
    assert {n for n, _ in again.own_parameters()} == {n for n, _ in policy.own_parameters()}
    shared = {p.data_ptr() for p in base.hf.parameters()} & {p.data_ptr() for p in again.hf.parameters()}
    assert dict(base.hf.named_parameters())[EMBEDDING].data_ptr() in shared
    torch.testing.assert_close(
        logits(load_causal_lm(str(tmp_path / "saved"), layout=asked), batch), expected, rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(
        logits(load_causal_lm(str(tmp_path / "saved"), layout=FULL), batch), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("layout", ["lora", "lora-top:2"])
def test_peft_reads_adapters_and_head_onto_the_tied_model(base_of, build, batch, tmp_path, layout):
    policy = stepped(base_of(layout).fork(trainable=True), batch)
    policy.save_pretrained(tmp_path / "saved", pad_id=0)
    ids, mask = batch
    of_peft = peft.PeftModel.from_pretrained(build(), tmp_path / "saved" / ADAPTER).eval()
    with torch.no_grad():
        found = of_peft(ids, attention_mask=mask, position_ids=(mask.long().cumsum(-1) - 1).clamp(min=0)).logits[mask]
    torch.testing.assert_close(found, logits(policy, batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_in_bfloat16_a_frozen_policy_computes_in_it_and_a_trained_head_is_float32(base_of, tmp_path, layout):
    base = base_of(layout, dtype=torch.bfloat16)
    policy = base.fork(trainable=True)
    assert dict(policy.own_parameters())[HEAD].dtype == torch.float32
    policy.save_pretrained(tmp_path / "saved", pad_id=0)
    again = load_causal_lm(
        str(tmp_path / "saved"), torch.bfloat16, layout=Layout.parse(layout, Lora(4, 8.0), True), onto=base
    )
    assert again.hf.get_output_embeddings().weight.dtype == torch.bfloat16


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scalar_models_do_not_notice(base_of, batch, tmp_path, layout):
    base, plain = base_of(layout), base_of(layout, head=False)
    model = ScalarModel.from_causal(base, "zero")
    assert {n for n, _ in model.own_parameters()} == {
        n for n, _ in ScalarModel.from_causal(plain, "zero").own_parameters()
    }
    model.save_pretrained(tmp_path / "saved", pad_id=0)
    again = load_scalar(tmp_path / "saved", trunk_from=base)
    ids, mask = batch[0].flip(1), batch[1].flip(1)
    with torch.no_grad():
        assert torch.equal(again.score(ids, mask), model.score(ids, mask))
    assert {p.data_ptr() for p in base.backbone.body.parameters()} & {p.data_ptr() for p in again.hf.parameters()}


@pytest.mark.parametrize("layout", ["lora", "lora-top:2"])
def test_a_policy_with_a_head_is_loaded_whole_where_the_base_trains_none(base_of, batch, tmp_path, layout):
    policy = stepped(base_of(layout).fork(trainable=True), batch)
    policy.save_pretrained(tmp_path / "saved", pad_id=0)
    other = base_of(layout, head=False)
    loaded = load_causal_lm(str(tmp_path / "saved"), layout=Layout.parse(layout, Lora(4, 8.0)), onto=other)
    torch.testing.assert_close(logits(loaded, batch), logits(policy, batch), rtol=1e-5, atol=1e-5)


def test_full_training_has_no_use_for_it():
    assert Config.model_validate({"model": {"trainable": "top:2", "train_head": True}}).model.layout.head
    with pytest.raises((TrimtabError, ValueError), match="train_head = true"):
        Config.model_validate({"model": {"train_head": True}})
