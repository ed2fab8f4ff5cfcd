"""Architectures that scale or cap their logits: a role's log-probabilities are those of transformers' own forward."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from trimtab.errors import TrimtabError
from trimtab.models.heads import LogitScaling
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel

SIZES = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "initializer_range": 0.3,
}  # fmt: skip
KINDS = {
    "llama": {},
    "cohere": {"logit_scale": 0.25},
    "cohere2": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 4.0},
    "gemma2": {"head_dim": 8, "final_logit_softcapping": 0.5},
}
SCALINGS = {
    "llama": LogitScaling(),
    "cohere": LogitScaling(0.25),
    "cohere2": LogitScaling(0.25),
    "granite": LogitScaling(0.25),
    "gemma2": LogitScaling(1.0, 0.5),
}


def build(kind: str):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG_MAPPING[kind](**SIZES, **KINDS[kind])).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_scalings_are_read_from_the_configuration(kind):
    assert LogitScaling.of(build(kind).config) == SCALINGS[kind]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_those_of_the_whole_model(kind, temperature):
    hf = build(kind)
    ids = torch.randint(3, 60, (3, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids, dtype=torch.bool)
    model = CausalModel(hf)
    found = response_logprobs(model, ids, mask, 4, temperature, want_entropy=True)
    with torch.no_grad():
        logits = hf(input_ids=ids, use_cache=False).logits[:, 3:-1].double() / temperature
    logp = logits.log_softmax(-1)
    expected = logp.gather(-1, ids[:, 4:, None]).squeeze(-1)
    torch.testing.assert_close(found.logprobs.double(), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.entropy.double(), -(logp.exp() * logp).sum(-1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_the_whole_model(kind):
    hf = build(kind)
    ids = torch.randint(3, 60, (2, 8), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids, dtype=torch.bool)
    response_logprobs(CausalModel(hf), ids, mask, 3, 1.0).logprobs.sum().backward()
    found = [p.grad.clone() for p in hf.parameters()]
    hf.zero_grad()
    logp = hf(input_ids=ids, use_cache=False).logits[:, 2:-1].log_softmax(-1)
    logp.gather(-1, ids[:, 3:, None]).sum().backward()
    for gradient, parameter in zip(found, hf.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-5)


def test_a_model_that_does_something_else_to_its_logits_is_refused():
    hf = build("llama")

    class Doubled(type(hf)):
        def forward(self, *args, **kwargs):
            out = super().forward(*args, **kwargs)
            out.logits = out.logits * 2
            return out

    hf.__class__ = Doubled
    with pytest.raises(TrimtabError, match="does more to its logits"):
        CausalModel(hf)


def test_a_model_whose_body_gives_no_hidden_states_is_refused():
    hf = build("llama")
    body = hf.model

    class Strange(type(body)):
        def forward(self, *args, **kwargs):
            return nn.Module()

    body.__class__ = Strange
    with pytest.raises(TrimtabError, match="gives no hidden states"):
        CausalModel(hf)
