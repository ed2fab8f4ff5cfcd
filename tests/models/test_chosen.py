"""Log-probabilities of chosen tokens without all logits: values and gradients against the plain way, in float64."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.models import chosen as module
from trimtab.models.chosen import chosen_logprobs


def _slow(hidden, weight, targets, temperature):
    """Log-probabilities and entropies from whole logits, in float64."""
    logits = hidden.double() @ weight.double().T / temperature
    logp = logits - logits.exp().sum(-1, keepdim=True).log()
    return logp[torch.arange(len(targets)), targets], -(logp.exp() * logp).sum(-1)


def _drawn(seed, rows, vocabulary, width):
    g = torch.Generator().manual_seed(seed)
    hidden, weight = (torch.randn(n, width, generator=g) for n in (rows, vocabulary))
    return hidden, weight, torch.randint(0, vocabulary, (rows,), generator=g), torch.randn(rows, generator=g)


def test_by_hand():
    # logits 2 h and 0 at temperature 2: h and 0 with h = log 3, so that p = 3/4 and 1/4
    hidden, weight = torch.tensor([[math.log(3.0)]], requires_grad=True), torch.tensor([[2.0], [0.0]])
    found = chosen_logprobs(hidden, weight, torch.tensor([1]), 2.0, want_entropy=True)
    assert found.logprobs.item() == pytest.approx(math.log(0.25))
    assert float(found.entropy) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    found.logprobs.sum().backward()
    assert float(hidden.grad) == pytest.approx((0.0 - 0.75 * 2.0) / 2.0)


@pytest.mark.parametrize("trained", ["hidden", "weight", "both"])
@pytest.mark.parametrize("way", ["kept", "again"])
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 99), rows=st.integers(1, 9), vocabulary=st.integers(2, 30), chunk=st.integers(1, 60),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
)  # fmt: skip
def test_values_and_gradients(trained, way, seed, rows, vocabulary, chunk, temperature):
    hidden, weight, targets, upstream = _drawn(seed, rows, vocabulary, 5)
    hidden.requires_grad_(trained != "weight")
    weight.requires_grad_(trained != "hidden")
    leaves = [x for x in (hidden, weight) if x.requires_grad]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_LOGITS", chunk)
        patch.setattr(module, "KEPT_LOGITS", 10**6 if way == "kept" else 0)
        found = chosen_logprobs(hidden, weight, targets, temperature, want_entropy=True)
        gradients = torch.autograd.grad(found.logprobs, leaves, upstream)
    logprobs, entropy = _slow(hidden, weight, targets, temperature)
    expected = torch.autograd.grad(logprobs, leaves, upstream.double())
    torch.testing.assert_close(found.logprobs.double(), logprobs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.entropy.double(), entropy, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_entropy_takes_no_gradient_and_is_left_out_unasked():
    hidden, weight, targets, _ = _drawn(0, 3, 7, 4)
    hidden.requires_grad_()
    assert not chosen_logprobs(hidden, weight, targets, 1.0, want_entropy=True).entropy.requires_grad
    assert chosen_logprobs(hidden, weight, targets, 1.0).entropy is None
    with torch.no_grad():
        assert not chosen_logprobs(hidden, weight, targets, 1.0).logprobs.requires_grad


def test_without_gradients_nothing_is_computed_for_them(monkeypatch):
    hidden, weight, targets, _ = _drawn(0, 3, 7, 4)
    hidden.requires_grad_()
    weight.requires_grad_()
    made = []
    plain = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **how: made.append(size) or plain(*size, **how))
    with torch.no_grad():
        chosen_logprobs(hidden, weight, targets, 1.0)
    assert (3, 7) not in made
    chosen_logprobs(hidden, weight, targets, 1.0)
    assert (3, 7) in made


@pytest.mark.parametrize("trained", ["hidden", "both"])
def test_bfloat16_is_as_near_as_its_products(trained):
    hidden, weight, targets, upstream = _drawn(3, 40, 300, 32)
    hidden, weight = hidden.bfloat16().requires_grad_(), (0.2 * weight).bfloat16().requires_grad_(trained == "both")
    found = chosen_logprobs(hidden, weight, targets, 1.0)
    plain = -torch.nn.functional.cross_entropy((hidden @ weight.T).float(), targets, reduction="none")
    torch.testing.assert_close(found.logprobs, plain, rtol=0, atol=1e-5)
    leaves = [x for x in (hidden, weight) if x.requires_grad]
    mine = torch.autograd.grad(found.logprobs, leaves, upstream)
    theirs = torch.autograd.grad(plain, leaves, upstream)
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype == torch.bfloat16
        torch.testing.assert_close(a.float(), b.float(), rtol=0.03, atol=0.03 * float(b.float().abs().max()))


def test_extreme_logits_stay_finite():
    hidden = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    weight = torch.tensor([[1.0], [0.0], [-1.0]], requires_grad=True)
    logprobs = chosen_logprobs(hidden, weight, torch.tensor([0, 0]), 1.0).logprobs
    assert logprobs.tolist() == [0.0, -2e4]
    logprobs.sum().backward()
    assert bool(hidden.grad.isfinite().all())
    assert bool(weight.grad.isfinite().all())


def test_no_more_logits_are_held_than_a_chunk(monkeypatch):
    seen = []
    plain = module._logits
    monkeypatch.setattr(module, "_logits", lambda *a: seen.append(plain(*a).numel()) or plain(*a))
    monkeypatch.setattr(module, "CHUNK_LOGITS", 50)
    monkeypatch.setattr(module, "KEPT_LOGITS", 0)
    hidden, weight, targets, upstream = _drawn(1, 20, 12, 3)
    chosen_logprobs(hidden.requires_grad_(), weight.requires_grad_(), targets, 1.0).logprobs.backward(upstream)
    assert max(seen) <= 50
    assert sum(seen) == 2 * 20 * 12
