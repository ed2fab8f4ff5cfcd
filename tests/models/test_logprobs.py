"""Log-probabilities of responses against a float64 re-derivation from the plain forward's logits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimtab.models import chosen
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel

S = 6


@pytest.fixture
def full(batch):
    ids, mask = batch
    responses = torch.randint(0, 40, (5, 4), generator=torch.Generator().manual_seed(9))
    lengths = torch.tensor([4, 1, 2, 4, 3])
    return torch.cat([ids, responses], 1), torch.cat([mask, torch.arange(4) < lengths[:, None]], 1)


def slow(hf, row, temperature):
    """One unpadded row through the plain model, in float64: log-probs, entropies, logits at every position."""
    with torch.no_grad():
        logits = hf.double()(row[None]).logits[0] / temperature
    logp = logits - logits.exp().sum(-1, keepdim=True).log()
    return logp, -(logp.exp() * logp).sum(-1), logits


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.6])
@pytest.mark.parametrize(("kind", "k"), [("llama", 0), ("llama", 2), ("gpt2", 0)])
def test_against_float64_row_by_row_without_padding(build, full, kind, k, temperature):
    ids, mask = full
    got = response_logprobs(CausalModel(build(kind), k), ids, mask, S, temperature, want_entropy=True, want_logits=True)
    assert got.logprobs.dtype == got.entropy.dtype == got.logits.dtype == torch.float32
    logprobs = got.logprobs.detach()
    for row in range(5):
        real = ids[row][mask[row]]
        n, prompt = len(real), int(mask[row, :S].sum())
        logp, entropy, logits = slow(build(kind).eval(), real, temperature)
        for t in range(n - prompt):
            assert float(logprobs[row, t]) == pytest.approx(float(logp[prompt + t - 1, real[prompt + t]]), abs=2e-5)
            assert float(got.entropy[row, t]) == pytest.approx(float(entropy[prompt + t - 1]), abs=2e-5)
            torch.testing.assert_close(got.logits[row, t].detach().double(), logits[prompt + t - 1], rtol=0, atol=5e-5)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(left=st.integers(0, 5), right=st.integers(0, 5), filler=st.integers(0, 39))
def test_padding_of_any_width_and_content_changes_nothing(build, full, left, right, filler):
    ids, mask = full
    model = CausalModel(build(), 1)
    pad = torch.nn.functional.pad
    wide_ids, wide_mask = pad(ids, (left, right), value=filler), pad(mask, (left, right))
    with torch.no_grad():
        a = response_logprobs(model, ids, mask, S, 1.0).logprobs
        b = response_logprobs(model, wide_ids, wide_mask, S + left, 1.0).logprobs[:, :4]
    counted = mask[:, S:]
    torch.testing.assert_close(a[counted], b[counted], rtol=0, atol=1e-5)


def test_the_padding_token_has_its_own_probability(build, full):
    ids, mask = full
    model = CausalModel(build())
    got = response_logprobs(model, ids, mask, S, 1.0, want_logits=True)
    total = got.logits.softmax(-1).sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total))
    ids[0, S] = 0
    swapped = response_logprobs(model, ids, mask, S, 1.0)
    torch.testing.assert_close(swapped.logprobs[0, 0], got.logits[0, 0].log_softmax(-1)[0], rtol=0, atol=1e-5)
    assert swapped.logprobs[0, 0] > -30


def test_chunks_give_what_one_piece_gives(build, full, monkeypatch):
    model = CausalModel(build())
    with torch.no_grad():
        one = response_logprobs(model, *full, S, 1.0, want_entropy=True)
        monkeypatch.setattr(chosen, "CHUNK_LOGITS", 40 * 3)
        many = response_logprobs(model, *full, S, 1.0, want_entropy=True)
    torch.testing.assert_close(one.logprobs, many.logprobs, rtol=0, atol=1e-6)
    torch.testing.assert_close(one.entropy, many.entropy, rtol=0, atol=1e-6)


def test_gradient_equals_that_of_the_plain_formula(build, full):
    ids, mask = full
    model = CausalModel(build()).fork(trainable=True)
    weights = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)) * mask[:, S:]
    (response_logprobs(model, ids, mask, S, 0.7).logprobs * weights).sum().backward()
    hf = build().eval()
    positions = (mask.long().cumsum(-1) - 1).clamp(min=0)
    logp = (hf(ids, attention_mask=mask, position_ids=positions).logits / 0.7).log_softmax(-1)[:, S - 1 : -1]
    (logp.gather(-1, ids[:, S:, None]).squeeze(-1) * weights).sum().backward()
    plain = dict(hf.named_parameters())
    for name, p in model.hf.named_parameters():
        torch.testing.assert_close(p.grad, plain[name].grad, rtol=1e-4, atol=1e-5)
