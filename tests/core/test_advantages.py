"""GAE, prompt-only value, RLOO, GRPO."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trimtab.core.advantages import gae, grpo, prompt_value_advantages, rloo
from trimtab.errors import TrimtabError

NAN = math.nan
REWARDS = torch.tensor([[0.0, 0.0, 1.0], [1.0, 2.0, NAN], [NAN, NAN, NAN]])
VALUES = torch.tensor([[0.5, 0.6, 0.7], [0.1, 0.2, NAN], [NAN, NAN, NAN]])
MASK = torch.tensor([[True, True, True], [True, True, False], [False, False, False]])


@st.composite
def rollouts(draw):
    """Rewards and values [B, T] and a right-padded mask, some rows of it empty."""
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    lengths = draw(st.lists(st.integers(0, width), min_size=rows, max_size=rows))
    mask = torch.arange(width) < torch.tensor(lengths).unsqueeze(1)
    mask[0, 0] = True
    elements = st.floats(-3, 3, width=32)
    rewards, values = (torch.from_numpy(draw(arrays(np.float32, (rows, width), elements=elements))) for _ in range(2))
    return rewards, values, mask


@st.composite
def grouped_scores(draw):
    """Scores [B] and groups of at least two, in any order."""
    sizes = draw(st.lists(st.integers(2, 4), min_size=1, max_size=4))
    groups = draw(st.permutations([10 * g for g, size in enumerate(sizes) for _ in range(size)]))
    scores = draw(arrays(np.float32, len(groups), elements=st.floats(-5, 5, width=32)))
    return torch.from_numpy(scores), torch.tensor(groups)


def slow_gae(rewards, values, gamma, lam):
    """One response, as the exponentially weighted mean of its n-step advantages."""
    length = len(rewards)
    advantages = []
    for t in range(length):
        left = length - t
        n_step = []
        for n in range(1, left + 1):
            total = math.fsum(gamma**k * rewards[t + k] for k in range(n))
            bootstrap = gamma**n * values[t + n] if t + n < length else 0.0
            n_step.append(total + bootstrap - values[t])
        weights = [(1 - lam) * lam ** (n - 1) for n in range(1, left)] + [lam ** (left - 1)]
        advantages.append(math.fsum(w * a for w, a in zip(weights, n_step, strict=True)))
    return advantages


def test_gae_by_hand() -> None:
    # gamma .9, lambda .8, so gamma lambda = .72; the value after the last token is 0
    # row 0: delta = .9*.6 - .5 = .04;  .9*.7 - .6 = .03;  1 - .7 = .3
    #        A2 = .3;  A1 = .03 + .72*.3 = .246;  A0 = .04 + .72*.246 = .21712
    # row 1: delta = 1 + .9*.2 - .1 = 1.08;  2 - .2 = 1.8.   A1 = 1.8;  A0 = 1.08 + .72*1.8 = 2.376
    advantages, returns = gae(REWARDS, VALUES, MASK, 0.9, 0.8)
    expected = torch.tensor([[0.21712, 0.246, 0.3], [2.376, 1.8, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(advantages, expected, rtol=0, atol=5e-7)
    # G = A + V
    expected = torch.tensor([[0.71712, 0.846, 1.0], [2.476, 2.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(returns, expected, rtol=0, atol=5e-7)


def test_prompt_value_by_hand() -> None:
    # gamma .9.  row 0: R = .81 less V = .5 at every token.  row 1: R = 1 + .9*2 = 2.8 less V = 3.  row 2 counts nothing
    advantages, returns = prompt_value_advantages(REWARDS, torch.tensor([0.5, 3.0, NAN]), MASK, 0.9)
    expected = torch.tensor([[0.31, 0.31, 0.31], [-0.2, -0.2, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(advantages, expected, rtol=0, atol=5e-7)
    expected = torch.tensor([[0.81, 0.9, 1.0], [2.8, 2.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(returns, expected, rtol=0, atol=5e-7)


@given(rollouts(), st.floats(0, 1), st.floats(0, 1))
def test_gae_equals_a_slow_derivation(rollout, gamma, lam) -> None:
    rewards, values, mask = rollout
    advantages, returns = gae(rewards, values, mask, gamma, lam)
    for i in range(len(rewards)):
        length = int(mask[i].sum())
        slow = slow_gae(rewards[i, :length].tolist(), values[i, :length].tolist(), gamma, lam)
        for t in range(mask.shape[1]):
            assert advantages[i, t].item() == pytest.approx(slow[t] if t < length else 0.0, abs=5e-6)
            target = slow[t] + float(values[i, t]) if t < length else 0.0
            assert returns[i, t].item() == pytest.approx(target, abs=5e-6)


@given(rollouts(), st.floats(0, 1))
def test_prompt_value_equals_a_slow_derivation(rollout, gamma) -> None:
    rewards, values, mask = rollout
    advantages, returns = prompt_value_advantages(rewards, values[:, 0], mask, gamma)
    for i in range(len(rewards)):
        length = int(mask[i].sum())
        for t in range(mask.shape[1]):
            slow = math.fsum(gamma ** (s - t) * float(rewards[i, s]) for s in range(t, length))
            assert returns[i, t].item() == pytest.approx(slow, abs=5e-6)
            whole = math.fsum(gamma**s * float(rewards[i, s]) for s in range(length))
            expected = whole - float(values[i, 0]) if t < length else 0.0
            assert advantages[i, t].item() == pytest.approx(expected, abs=5e-6)


@given(rollouts(), st.floats(0, 1))
def test_lambda_0_is_the_one_step_error_and_lambda_1_is_monte_carlo(rollout, gamma) -> None:
    rewards, values, mask = rollout
    kept, one_step = torch.where(mask, values, 0.0), gae(rewards, values, mask, gamma, 0.0)
    ahead = torch.cat([kept[:, 1:], torch.zeros(len(kept), 1)], dim=1)
    expected = torch.where(mask, rewards + gamma * ahead - values, 0.0)
    torch.testing.assert_close(one_step.advantages, expected, rtol=0, atol=2e-6)
    # the value model has no say in Monte Carlo returns
    monte_carlo = gae(rewards, values, mask, gamma, 1.0).returns
    expected = prompt_value_advantages(rewards, torch.zeros(len(rewards)), mask, gamma).returns
    torch.testing.assert_close(monte_carlo, expected, rtol=0, atol=1e-5)


@given(rollouts(), st.sampled_from([NAN, math.inf, 7.0]))
def test_padding_has_no_influence(rollout, garbage) -> None:
    rewards, values, mask = rollout
    plain = gae(rewards, values, mask, 0.97, 0.9)
    dirty_rewards, dirty_values = (
        torch.nn.functional.pad(torch.where(mask, x, garbage), (0, 2), value=garbage) for x in (rewards, values)
    )
    wide_mask = torch.nn.functional.pad(mask, (0, 2), value=False)
    wide = gae(dirty_rewards, dirty_values, wide_mask, 0.97, 0.9)
    for a, b in zip(plain, wide, strict=True):
        assert torch.equal(a, b[:, :-2])
        assert (b[:, -2:] == 0).all()
    wide = prompt_value_advantages(dirty_rewards, values[:, 0], wide_mask, 0.97)
    for a, b in zip(prompt_value_advantages(rewards, values[:, 0], mask, 0.97), wide, strict=True):
        assert torch.equal(a, b[:, :-2])


@given(rollouts(), st.sampled_from([-2.0, 0.25, 4.0]))
def test_advantages_are_linear_in_rewards_and_values(rollout, scale) -> None:
    rewards, values, mask = rollout
    one, many = gae(rewards, values, mask, 0.9, 0.8), gae(scale * rewards, scale * values, mask, 0.9, 0.8)
    # exact, because the scales are powers of two
    assert torch.equal(many.advantages, scale * one.advantages)
    assert torch.equal(many.returns, scale * one.returns)


def test_targets_carry_no_gradient() -> None:
    values = VALUES.clone().requires_grad_()
    assert not gae(REWARDS, values, MASK, 1.0, 0.95).returns.requires_grad
    assert not prompt_value_advantages(REWARDS, values[:, 0], MASK, 1.0).advantages.requires_grad
    scores = torch.tensor([1.0, 2.0]).requires_grad_()
    assert not rloo(scores, torch.tensor([0, 0])).requires_grad
    assert not grpo(scores, torch.tensor([0, 0])).requires_grad


def test_half_precision_is_computed_in_float32() -> None:
    # 256 + 1 is no bfloat16
    rewards = torch.tensor([[256.0, 1.0]], dtype=torch.bfloat16)
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert gae(rewards, torch.zeros_like(rewards), mask, 1, 1).returns.tolist() == [[257.0, 1.0]]
    assert prompt_value_advantages(rewards, rewards[:, 1], mask, 1).advantages.tolist() == [[256.0, 256.0]]
    # mean of the others 128.5
    scores = torch.tensor([0.0, 256.0, 1.0], dtype=torch.bfloat16)
    assert rloo(scores, torch.tensor([0, 0, 0]))[0].item() == pytest.approx(-128.5, rel=1e-6)
    assert grpo(scores, torch.tensor([0, 0, 0])).dtype == torch.float32


def test_masks_that_make_no_sense_are_refused() -> None:
    gap = torch.tensor([[True, False, True]])
    for function in (
        lambda m: gae(REWARDS[:1], VALUES[:1], m, 1, 1),
        lambda m: prompt_value_advantages(REWARDS[:1], VALUES[:1, 0], m, 1),
    ):
        with pytest.raises(TrimtabError, match="row 0 has a gap"):
            function(gap)
        with pytest.raises(TrimtabError, match="nothing to average"):
            function(torch.zeros_like(gap))


def test_rloo_by_hand() -> None:
    # group 3: 1, 2, 6: 1 - (2+6)/2 = -3;  2 - (1+6)/2 = -1.5;  6 - (1+2)/2 = 4.5.   group 8: 5 - 3 = 2, 3 - 5 = -2
    scores, groups = torch.tensor([1.0, 5.0, 2.0, 6.0, 3.0]), torch.tensor([3, 8, 3, 3, 8])
    torch.testing.assert_close(rloo(scores, groups), torch.tensor([-3.0, 2.0, -1.5, 4.5, -2.0]), rtol=0, atol=5e-7)


def test_grpo_by_hand() -> None:
    # group 3: mean 3, population std sqrt((4 + 1 + 9) / 3) = 2.160247: -.925820, -.462910, 1.388730.  group 8: +-1
    scores, groups = torch.tensor([1.0, 5.0, 2.0, 6.0, 3.0]), torch.tensor([3, 8, 3, 3, 8])
    expected = torch.tensor([-0.925820, 1.0, -0.462910, 1.388730, -1.0])
    torch.testing.assert_close(grpo(scores, groups), expected, rtol=0, atol=2e-6)


def test_grpo_adds_epsilon_to_the_deviation() -> None:
    # +-1e-6 has deviation 1e-6: 1e-6 / (1e-6 + 1e-6) = 1/2
    result = grpo(torch.tensor([1e-6, -1e-6]), torch.tensor([0, 0]))
    torch.testing.assert_close(result, torch.tensor([0.5, -0.5]), rtol=1e-6, atol=0)


@given(grouped_scores())
def test_groups_equal_a_slow_derivation(batch) -> None:
    scores, groups = batch
    leave_one_out, standardised = rloo(scores, groups), grpo(scores, groups)
    for i in range(len(scores)):
        members = [j for j in range(len(scores)) if groups[j] == groups[i]]
        others = [float(scores[j]) for j in members if j != i]
        assert leave_one_out[i].item() == pytest.approx(float(scores[i]) - math.fsum(others) / len(others), abs=4e-6)
        mean = math.fsum(float(scores[j]) for j in members) / len(members)
        std = math.sqrt(math.fsum((float(scores[j]) - mean) ** 2 for j in members) / len(members))
        expected = (float(scores[i]) - mean) / (std + 1e-6)
        assert standardised[i].item() == pytest.approx(expected, abs=2e-6 * (1 + 1 / (std + 1e-6)))


@given(grouped_scores(), st.randoms(use_true_random=False))
def test_groups_do_not_depend_on_order_names_or_shift(batch, random) -> None:
    scores, groups = batch
    order = list(range(len(scores)))
    random.shuffle(order)
    torch.testing.assert_close(rloo(scores[order], groups[order]), rloo(scores, groups)[order], rtol=0, atol=4e-6)
    assert torch.equal(grpo(scores, 1000 - groups), grpo(scores, groups))
    torch.testing.assert_close(rloo(scores + 64, groups), rloo(scores, groups), rtol=0, atol=1e-4)
    for group in groups.unique():
        assert rloo(scores, groups)[groups == group].sum().item() == pytest.approx(0, abs=1e-5)


def test_equal_scores_have_no_advantage() -> None:
    scores, groups = torch.full((3,), 2.5), torch.tensor([1, 1, 1])
    assert rloo(scores, groups).tolist() == [0.0, 0.0, 0.0]
    assert grpo(scores, groups).tolist() == [0.0, 0.0, 0.0]


def test_a_nan_score_stays_in_its_group() -> None:
    scores, groups = torch.tensor([NAN, 1.0, 4.0, 2.0]), torch.tensor([0, 0, 1, 1])
    assert rloo(scores, groups)[2:].tolist() == [2.0, -2.0]
    assert grpo(scores, groups)[2:].isfinite().all()


def test_a_group_of_one_is_refused_by_name() -> None:
    with pytest.raises(TrimtabError, match="group 7"):
        rloo(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4, 4, 7]))
    assert grpo(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4, 4, 7]))[2].item() == 0.0
