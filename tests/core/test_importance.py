"""Truncated importance weights, and the policy loss that they multiply."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimtab.core.importance import truncated_importance
from trimtab.core.losses import policy_loss
from trimtab.errors import TrimtabError

NAN = math.nan
TRAINER = torch.log(torch.tensor([[0.6, 0.2, NAN], [0.8, 0.1, 0.3]]))
SAMPLER = torch.log(torch.tensor([[0.4, 0.4, NAN], [0.2, 0.1, NAN]]))
MASK = torch.tensor([[True, True, False], [True, True, False]])

tokens = st.lists(
    st.tuples(st.floats(-30, 0, width=32), st.floats(-30, 0, width=32), st.booleans()), min_size=1, max_size=12
)


def columns(rows):
    trainer, sampler, mask = zip(*rows, strict=True)
    return torch.tensor([trainer]), torch.tensor([sampler]), torch.tensor([mask])


def test_weights_by_hand() -> None:
    # .6 / .4 = 1.5, .2 / .4 = .5 | .8 / .2 = 4, cut to 2, .1 / .1 = 1
    found = truncated_importance(TRAINER, SAMPLER, MASK, 2)
    torch.testing.assert_close(found.weights, torch.tensor([[1.5, 0.5, 0.0], [2.0, 1.0, 0.0]]), rtol=1e-6, atol=0)
    assert found.truncated.tolist() == [[False, False, False], [True, False, False]]


@given(tokens, st.floats(1, 100))
def test_weights_equal_a_slow_derivation(rows, cap) -> None:
    trainer, sampler, mask = columns(rows)
    found = truncated_importance(trainer, sampler, mask, cap)
    for t, (p, q, counts) in enumerate(rows):
        ratio = math.exp(min(20.0, max(-20.0, p - q)))
        expected = min(ratio, cap) if counts else 0.0
        assert found.weights[0, t].item() == pytest.approx(expected, rel=1e-5)
        if abs(ratio / cap - 1) > 1e-5:
            assert bool(found.truncated[0, t]) == (counts and ratio > cap)


@given(tokens, st.floats(1, 100), st.floats(1, 100))
def test_a_higher_cap_never_lowers_a_weight(rows, one, other) -> None:
    trainer, sampler, mask = columns(rows)
    low, high = (truncated_importance(trainer, sampler, mask, cap) for cap in sorted((one, other)))
    assert (low.weights <= high.weights).all()
    assert (low.truncated >= high.truncated).all()
    assert (low.weights <= min(one, other) * (1 + 1e-6)).all()


def test_without_a_cap_the_policy_gradient_is_unbiased_and_without_weights_it_is_not() -> None:
    """Enumerated: the sampler's expectation of the weighted gradient is the trainer's of the plain one, exactly."""
    logits = torch.tensor([0.3, -1.0, 1.2, 0.0], dtype=torch.float64)
    policy, sampler = logits.softmax(0), torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64)
    gains = torch.tensor([1.0, -2.0, 0.5, 3.0])
    mask = torch.ones(1, 1, dtype=torch.bool)

    def gradient(token: int, weights: torch.Tensor | None) -> torch.Tensor:
        leaf = logits.float().requires_grad_()
        new = leaf.log_softmax(0)[token].view(1, 1)
        old = policy.log()[token].float().view(1, 1)
        loss = policy_loss(new, old, gains[token].view(1, 1), mask, 0.2, importance=weights).loss
        return torch.autograd.grad(loss, leaf)[0].double()

    def expected(of: torch.Tensor, cap: float | None) -> torch.Tensor:
        total = torch.zeros(4, dtype=torch.float64)
        for token in range(4):
            weights = None
            if cap is not None:
                p, q = (x.log()[token].float().view(1, 1) for x in (policy, sampler))
                weights = truncated_importance(p, q, mask, cap).weights
            total += of[token] * gradient(token, weights)
        return total

    true = expected(policy, None)
    torch.testing.assert_close(expected(sampler, math.inf), true, rtol=0, atol=1e-6)
    assert (expected(sampler, None) - true).abs().max() > 0.1
    # what is cut off biases: less than without weights
    assert 1e-3 < (expected(sampler, 1.0) - true).abs().max() < (expected(sampler, None) - true).abs().max()


def test_weights_multiply_each_tokens_loss_and_nothing_else() -> None:
    gain = torch.tensor([[1.0, 1.0, NAN], [-2.0, -1.0, 5.0]])
    weights = torch.tensor([[1.5, 0.5, NAN], [2.0, 0.0, 7.0]])
    new = SAMPLER.clone().requires_grad_()
    found = policy_loss(new, SAMPLER, gain, MASK, 0.2, importance=weights)
    # ratio 1: -(1.5 + .5 - 4 + 0) / 4
    assert found.loss.item() == 0.5
    found.loss.backward()
    assert new.grad is not None
    assert new.grad.tolist() == [[-0.375, -0.125, 0.0], [1.0, 0.0, 0.0]]
    plain = policy_loss(TRAINER, SAMPLER, gain, MASK, 0.2)
    for a, b in zip(plain[1:], policy_loss(TRAINER, SAMPLER, gain, MASK, 0.2, importance=weights)[1:], strict=True):
        assert torch.equal(a, b)


def test_no_gradient_flows_into_the_weights() -> None:
    leaf = TRAINER.nan_to_num().requires_grad_()
    assert not truncated_importance(leaf, SAMPLER.nan_to_num(), MASK, 2).weights.requires_grad


@pytest.mark.parametrize("cap", [0.99, 0, -1, NAN])
def test_a_cap_below_one_is_refused(cap) -> None:
    with pytest.raises(TrimtabError, match="importance_cap"):
        truncated_importance(TRAINER, SAMPLER, MASK, cap)
