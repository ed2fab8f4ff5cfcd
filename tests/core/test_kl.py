"""KL estimators, the full KL, KL as a loss."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trimtab.core import kl as kl_module
from trimtab.core.kl import full_kl, kl_estimate, kl_loss
from trimtab.errors import TrimtabError

LN2 = math.log(2)


@st.composite
def logit_pairs(draw):
    shape = (draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(2, 5)))
    elements = st.floats(-6, 6, width=32)
    return tuple(torch.from_numpy(draw(arrays(np.float32, shape, elements=elements))) for _ in range(2))


@st.composite
def token_pairs(draw):
    """Log-probabilities of policy and reference [B, T], and a right-padded mask."""
    rows, width = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    elements = st.floats(-9, 0, width=32)
    lengths = draw(st.lists(st.integers(0, width), min_size=rows, max_size=rows))
    mask = torch.arange(width) < torch.tensor(lengths).unsqueeze(1)
    mask[0, 0] = True
    a, b = (torch.from_numpy(draw(arrays(np.float32, (rows, width), elements=elements))) for _ in range(2))
    return a, b, mask


def slow_estimate(logp, logq, estimator):
    d = logp - logq
    return {"k1": d, "k2": d * d / 2, "k3": math.exp(-d) - 1 + d}[estimator]


def slow_full(logits, ref_logits):
    p, q = ([math.exp(v) for v in row] for row in (logits, ref_logits))
    p, q = ([v / math.fsum(row) for v in row] for row in (p, q))
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def test_estimators_by_hand() -> None:
    # policy 1/2, reference 1/4: d = ln 2.  k1 = .693147; k2 = .480453 / 2 = .240227; k3 = 1/2 - 1 + .693147 = .193147
    # policy 1/4, reference 1/2: d = -ln 2.  k1 = -.693147; k2 the same; k3 = 2 - 1 - .693147 = .306853
    logp = torch.tensor([[math.log(0.5), math.log(0.25)]])
    logq = torch.tensor([[math.log(0.25), math.log(0.5)]])
    for estimator, expected in (
        ("k1", (0.693147, -0.693147)),
        ("k2", (0.240227, 0.240227)),
        ("k3", (0.193147, 0.306853)),
    ):
        torch.testing.assert_close(kl_estimate(logp, logq, estimator), torch.tensor([expected]), rtol=0, atol=6e-7)


def test_full_kl_by_hand() -> None:
    # p = (1/2, 1/2), q = (1/4, 3/4): 1/2 ln 2 + 1/2 ln(2/3) = .346574 - .202733 = .143841
    # the other way round: 1/4 ln(1/2) + 3/4 ln(3/2) = -.173287 + .304099 = .130812
    p, q = torch.log(torch.tensor([[[0.5, 0.5]]])), torch.log(torch.tensor([[[0.25, 0.75]]]))
    assert full_kl(p, q).item() == pytest.approx(0.143841, abs=1e-6)
    assert full_kl(q, p).item() == pytest.approx(0.130812, abs=1e-6)


@given(token_pairs(), st.sampled_from(["k1", "k2", "k3"]))
def test_estimators_equal_a_slow_derivation(batch, estimator) -> None:
    logp, logq, _ = batch
    result = kl_estimate(logp, logq, estimator)
    for i, j in np.ndindex(*logp.shape):
        expected = slow_estimate(float(logp[i, j]), float(logq[i, j]), estimator)
        assert result[i, j].item() == pytest.approx(expected, rel=2e-6, abs=1e-6)


@given(logit_pairs())
def test_full_kl_equals_a_slow_derivation(pair) -> None:
    logits, ref_logits = pair
    result = full_kl(logits, ref_logits)
    for i, j in np.ndindex(*result.shape):
        assert result[i, j].item() == pytest.approx(
            slow_full(logits[i, j].tolist(), ref_logits[i, j].tolist()), abs=5e-6
        )


@given(logit_pairs())
def test_expectation_of_k1_and_of_k3_under_the_policy_is_the_full_kl(pair) -> None:
    logits, ref_logits = pair
    logp, logq = logits.log_softmax(-1), ref_logits.log_softmax(-1)
    for estimator in ("k1", "k3"):
        expectation = (logp.exp() * kl_estimate(logp, logq, estimator)).sum(-1)
        torch.testing.assert_close(expectation, full_kl(logits, ref_logits), rtol=1e-5, atol=1e-5)


@given(logit_pairs())
def test_expected_gradients_say_which_estimators_may_be_a_loss(pair) -> None:
    logits, ref_logits = pair
    logq = ref_logits.log_softmax(-1)

    def gradient(estimator):
        x = logits.clone().requires_grad_()
        logp = x.log_softmax(-1)
        if estimator == "full":
            loss = full_kl(x, ref_logits).sum()
        elif estimator == "reverse":
            loss = full_kl(ref_logits, x).sum()
        else:
            loss = (logp.detach().exp() * kl_estimate(logp, logq, estimator)).sum()
        return torch.autograd.grad(loss, x)[0]

    torch.testing.assert_close(gradient("k1"), torch.zeros_like(logits), rtol=0, atol=2e-6)
    torch.testing.assert_close(gradient("k2"), gradient("full"), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient("k3"), gradient("reverse"), rtol=1e-5, atol=1e-5)


@given(logit_pairs())
def test_full_kl_is_never_negative_and_ignores_a_shift_of_the_logits(pair) -> None:
    logits, ref_logits = pair
    result = full_kl(logits, ref_logits)
    assert (result >= -1e-6).all()
    torch.testing.assert_close(full_kl(logits + 3, ref_logits - 2), result, rtol=1e-5, atol=3e-6)
    torch.testing.assert_close(full_kl(logits, logits), torch.zeros_like(result), rtol=0, atol=0)


@given(st.floats(-1e-3, 1e-3))
def test_k3_keeps_the_digits_of_a_small_log_ratio(d) -> None:
    # d^2 / 2 - d^3 / 6; through exp(-d) - 1 a d of 1e-4 would come out with an error of some hundred per cent
    result = kl_estimate(torch.tensor([[d]]), torch.zeros(1, 1), "k3").item()
    assert result >= 0
    assert result == pytest.approx(d * d / 2 - d**3 / 6, rel=2e-4, abs=abs(d) * 1.2e-7)


def test_k3_stays_finite_and_points_back_where_the_ratio_explodes() -> None:
    logp = torch.tensor([[-200.0, 0.0]], requires_grad=True)
    result = kl_estimate(logp, torch.tensor([[0.0, -200.0]]), "k3")
    assert result.tolist() == [[pytest.approx(math.exp(20) - 21, rel=1e-6), 199.0]]
    result.sum().backward()
    # never a pull away from the reference: descending raises what is too unlikely, or leaves it
    assert logp.grad is not None
    assert logp.grad.tolist() == [[0.0, 1.0]]


def test_a_token_that_the_policy_cannot_produce_adds_nothing() -> None:
    logits = torch.tensor([[[0.0, 0.0, -math.inf]]], requires_grad=True)
    ref_logits = torch.tensor([[[0.0, 0.0, 0.0]]])
    # p = (1/2, 1/2, 0) against thirds: ln(3/2)
    result = full_kl(logits, ref_logits)
    assert result.item() == pytest.approx(math.log(1.5), rel=1e-6)
    result.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    both = full_kl(logits.detach(), torch.tensor([[[0.0, 0.0, -math.inf]]]))
    assert both.item() == 0.0


def test_chunks_change_neither_values_nor_gradients(monkeypatch) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, ref_logits = (torch.randn(3, 5, 7, generator=generator) for _ in range(2))

    def both():
        x, y = logits.clone().requires_grad_(), ref_logits.clone().requires_grad_()
        result = full_kl(x, y)
        return result, *torch.autograd.grad(result.square().sum(), (x, y))

    whole = both()
    monkeypatch.setattr(kl_module, "_CHUNK_ELEMENTS", 14)
    for chunked, expected in zip(both(), whole, strict=True):
        torch.testing.assert_close(chunked, expected, rtol=1e-6, atol=1e-7)


def test_loss_by_hand() -> None:
    # counted d = ln 2, -ln 2, 0: k2 = (.240227 + .240227 + 0) / 3 = .160151; k3 = (.193147 + .306853 + 0) / 3 = 1/6
    logp = torch.tensor([[LN2, -LN2, math.nan], [0.0, math.nan, math.nan]])
    logq = torch.tensor([[0.0, 0.0, math.nan], [0.0, math.inf, math.nan]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    assert kl_loss(logp, logq, mask, "k2").item() == pytest.approx(0.160151, abs=1e-6)
    assert kl_loss(logp, logq, mask, "k3").item() == pytest.approx(1 / 6, abs=1e-6)
    # divided by 6 tokens of the whole minibatch instead of 3
    assert kl_loss(logp, logq, mask, "k3", denominator=6).item() == pytest.approx(1 / 12, abs=1e-6)


@given(token_pairs(), st.sampled_from(["k2", "k3"]))
def test_loss_equals_a_slow_derivation_and_ignores_padding(batch, estimator) -> None:
    logp, logq, mask = batch
    terms = [slow_estimate(float(logp[i, j]), float(logq[i, j]), estimator) for i, j in mask.nonzero().tolist()]
    expected = math.fsum(terms) / len(terms)
    dirty = torch.where(mask, logp, math.nan).requires_grad_()
    loss = kl_loss(dirty, torch.where(mask, logq, -math.inf), mask, estimator)
    assert loss.item() == pytest.approx(expected, rel=3e-6, abs=1e-6)
    loss.backward()
    assert dirty.grad is not None
    assert (dirty.grad[~mask] == 0).all()
    assert dirty.grad.isfinite().all()


@given(logit_pairs(), st.data())
def test_full_loss_equals_a_slow_derivation_and_ignores_padding(pair, data) -> None:
    logits, ref_logits = pair
    mask = torch.from_numpy(data.draw(arrays(np.bool_, logits.shape[:2])))
    mask[0, 0] = True
    terms = [slow_full(logits[i, j].tolist(), ref_logits[i, j].tolist()) for i, j in mask.nonzero().tolist()]
    dirty = torch.where(mask.unsqueeze(-1), logits, math.nan).requires_grad_()
    loss = kl_loss(dirty, torch.where(mask.unsqueeze(-1), ref_logits, math.nan), mask, "full")
    assert loss.item() == pytest.approx(math.fsum(terms) / len(terms), abs=5e-6)
    loss.backward()
    assert dirty.grad is not None
    assert (dirty.grad[~mask] == 0).all()
    clean = logits.clone().requires_grad_()
    (full_kl(clean, ref_logits)[mask].sum() / len(terms)).backward()
    torch.testing.assert_close(dirty.grad, clean.grad, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("estimator", ["k2", "k3", "full"])
def test_no_gradient_reaches_the_reference(estimator) -> None:
    shape = (2, 3, 4) if estimator == "full" else (2, 3)
    policy, reference = torch.randn(shape, requires_grad=True), torch.randn(shape, requires_grad=True)
    kl_loss(policy, reference, torch.ones(2, 3, dtype=torch.bool), estimator).backward()
    assert policy.grad is not None
    assert policy.grad.abs().sum() > 0
    assert reference.grad is None


def test_bfloat16_is_computed_in_float32() -> None:
    logp = torch.tensor([[-1.0]], dtype=torch.bfloat16)
    logq = torch.tensor([[-1.0078125]], dtype=torch.bfloat16)
    # d = 2^-7, d^2 / 2 = 2^-15, exact in both types; k3 = d^2/2 - d^3/6 + d^4/24 needs more digits than bfloat16 has
    d = 2.0**-7
    for estimator in ("k1", "k2", "k3"):
        result = kl_estimate(logp, logq, estimator)
        assert result.dtype == torch.float32
        assert result.item() == pytest.approx(slow_estimate(d, 0.0, estimator), rel=3e-5)


@pytest.mark.parametrize("estimator", ["k1", "k4"])
def test_k1_is_refused_as_a_loss(estimator) -> None:
    with pytest.raises(TrimtabError, match=estimator) as caught:
        kl_loss(torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1, dtype=torch.bool), estimator)
    assert "k2" in caught.value.hint


def test_an_unknown_estimator_is_refused() -> None:
    with pytest.raises(TrimtabError, match="k9"):
        kl_estimate(torch.zeros(1, 1), torch.zeros(1, 1), "k9")


@pytest.mark.parametrize("estimator", ["k2", "full"])
def test_nothing_to_average_is_an_error_unless_a_denominator_is_given(estimator) -> None:
    shape = (2, 3, 4) if estimator == "full" else (2, 3)
    policy = torch.randn(shape, requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    with pytest.raises(TrimtabError, match="nothing to average"):
        kl_loss(policy, torch.randn(shape), nothing, estimator)
    loss = kl_loss(policy, torch.randn(shape), nothing, estimator, denominator=5)
    loss.backward()
    assert loss.item() == 0.0
    assert policy.grad is not None
    assert policy.grad.abs().sum() == 0
