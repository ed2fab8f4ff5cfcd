"""Decoding with adapters: other layers, the same numbers; and the model is as it was afterwards."""

from __future__ import annotations

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from trimtab.config.layout import Lora
from trimtab.models.adapters import adapted
from trimtab.models.generation import generate
from trimtab.models.lean_adapters import _Lean, lean_adapters
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_model


def _policy(dtype: str = "float32", hf=None) -> CausalModel:
    hf = (build_model(0) if hf is None else hf).to(getattr(torch, dtype))
    policy = CausalModel(hf, lora=Lora(4, 12.0, ())).fork(trainable=True)
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in policy.own_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=drawn) * 0.05)
    return policy


@torch.no_grad()
def _sample(policy: CausalModel):
    ids = torch.arange(20).view(4, 5) % 50 + 4
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, :2] = False
    found = generate(
        policy, ids, mask, max_new_tokens=8, temperature=0.8, eos_ids=[], pad_id=0,
        generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    ids, mask = torch.cat([ids, found.tokens], 1), torch.cat([mask, found.mask], 1)
    return found, response_logprobs(policy, ids, mask, 5, 0.8).logprobs


def _gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=2, n_positions=32))


@pytest.mark.parametrize("make", [lambda: None, _gpt2], ids=["linear", "transposed with a bias"])
def test_the_sampler_and_peft_agree_in_float32(make):
    policy = _policy(hf=make())
    found, logprobs = _sample(policy)
    assert float((found.logprobs - logprobs).abs().max()) < 1e-5
    # and the adapters matter: without them the log-probabilities are others
    with torch.no_grad():
        for _, layer in adapted(policy.hf):
            layer.lora_B["default"].weight.zero_()
    assert float((found.logprobs - _sample(policy)[1]).abs().max()) > 1e-2


def test_small_adapters_are_not_rounded_away_in_bfloat16():
    # what they add is less than half of the last digit of almost every weight
    policy = _policy("bfloat16")
    with torch.no_grad():
        for _, layer in adapted(policy.hf):
            layer.lora_B["default"].weight.mul_(0.01)
    name, layer = adapted(policy.hf)[0]
    x = torch.randn(512, layer.in_features, generator=torch.Generator().manual_seed(1)).bfloat16()
    exact = (x.float() @ layer.lora_A["default"].weight.T) @ layer.lora_B["default"].weight.T * 3.0
    with lean_adapters(policy.hf, torch.bfloat16):
        lean = policy.hf.get_submodule(name)
        assert isinstance(lean, _Lean)
        added = ((x @ lean.a) @ lean.b).detach().float()
    kept = float((added * exact).sum() / (exact * exact).sum())
    assert kept == pytest.approx(1, abs=0.01)
    with Precision("bfloat16").autocast():
        found, logprobs = _sample(policy)
    assert float((found.logprobs - logprobs).abs().mean()) < 0.01


def test_nothing_is_left_of_it_even_after_an_error():
    policy = _policy()
    before = [(name, id(module)) for name, module in policy.hf.named_modules()]
    names = [name for name, _ in policy.own_parameters()]

    def fails() -> None:
        with lean_adapters(policy.hf, torch.float32):
            assert not adapted(policy.hf)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert [(name, id(module)) for name, module in policy.hf.named_modules()] == before
    assert [name for name, _ in policy.own_parameters()] == names


def test_adapters_that_add_nothing_cost_nothing():
    policy = CausalModel(build_model(0), lora=Lora(4, 8.0, ())).fork(trainable=True)
    assert adapted(policy.hf)
    with lean_adapters(policy.hf, torch.float32):
        assert not any(isinstance(module, _Lean) for module in policy.hf.modules())
