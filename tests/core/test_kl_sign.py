"""The sign of the KL penalty: a step with beta > 0 leads to the reference, as a loss and as a reward.

A toy policy of 16 prompts and 6 tokens, one token a response, sampled from the policy itself.
"""

import pytest
import torch

from trimtab.core.kl import full_kl, kl_estimate, kl_loss
from trimtab.core.losses import policy_loss
from trimtab.core.masked import masked_mean
from trimtab.core.rewards import sequence_rewards, token_rewards
from trimtab.errors import TrimtabError

BETA = 0.5
SAMPLES = 400
LEARNING_RATE = 16.0


def toy():
    """Logits of policy (a leaf) and reference [16, 6], and samples of the policy [16, SAMPLES]."""
    generator = torch.Generator().manual_seed(7)
    policy, reference = torch.randn(16, 6, generator=generator), torch.randn(16, 6, generator=generator)
    tokens = torch.multinomial(policy.softmax(-1), SAMPLES, replacement=True, generator=generator)
    return policy.requires_grad_(), reference, tokens


def distance(policy, reference):
    return full_kl(policy.detach().unsqueeze(1), reference.unsqueeze(1)).mean().item()


def step(policy, loss):
    return policy.detach() - LEARNING_RATE * torch.autograd.grad(loss, policy)[0]


def logprobs(logits, tokens):
    return logits.log_softmax(-1).gather(1, tokens)


@pytest.mark.parametrize("estimator", ["k2", "k3", "full"])
def test_a_kl_loss_brings_the_policy_nearer_to_the_reference(estimator) -> None:
    policy, reference, tokens = toy()
    if estimator == "full":
        arguments = policy.unsqueeze(1), reference.unsqueeze(1), torch.ones(16, 1, dtype=torch.bool)
    else:
        arguments = logprobs(policy, tokens), logprobs(reference, tokens), torch.ones_like(tokens, dtype=torch.bool)
    moved = step(policy, BETA * kl_loss(*arguments, estimator))
    assert distance(moved, reference) < 0.9 * distance(policy, reference)


@pytest.mark.parametrize("form", [token_rewards, sequence_rewards])
def test_a_kl_reward_brings_the_policy_nearer_to_the_reference(form) -> None:
    policy, reference, tokens = toy()
    new = logprobs(policy, tokens)
    old = new.detach()
    kl = kl_estimate(old, logprobs(reference, tokens), "k1")
    # one response of one token a sample: [16 * SAMPLES, 1]
    mask = torch.ones(tokens.numel(), 1, dtype=torch.bool)
    rewards = form(torch.zeros(tokens.numel()), kl.reshape(-1, 1), mask, BETA).view_as(tokens)
    advantages = rewards - rewards.mean(dim=1, keepdim=True)
    moved = step(policy, policy_loss(new, old, advantages, torch.ones_like(tokens, dtype=torch.bool), 0.2).loss)
    assert distance(moved, reference) < 0.9 * distance(policy, reference)


def test_the_expected_gradient_of_a_kl_reward() -> None:
    """As a reward only k1 leads to the reference.

    By enumeration of the vocabulary: the policy gradient of the reward -k1 is that of -KL(policy || reference). That of
    -k3 lacks KL(reference || policy), which near the reference is almost the same, so that next to nothing is left.
    """
    policy, reference, _ = toy()
    near = (reference + 0.05 * policy.detach()).requires_grad_()
    logp, logq = near.log_softmax(-1), reference.log_softmax(-1)

    def reward_gradient(estimator):
        reward = token_rewards_of_vocabulary(kl_estimate(logp.detach(), logq, estimator))
        return torch.autograd.grad((logp.exp() * reward).sum(), near, retain_graph=True)[0]

    def token_rewards_of_vocabulary(kl):
        mask = torch.ones(kl.numel(), 1, dtype=torch.bool)
        return token_rewards(torch.zeros(kl.numel()), kl.reshape(-1, 1), mask, 1.0).view_as(kl)

    forward = torch.autograd.grad(full_kl(near.unsqueeze(1), reference.unsqueeze(1)).sum(), near)[0]
    backward = torch.autograd.grad(full_kl(reference.unsqueeze(1), near.unsqueeze(1)).sum(), near)[0]
    torch.testing.assert_close(reward_gradient("k1"), -forward, rtol=0, atol=1e-6)
    torch.testing.assert_close(reward_gradient("k3"), -(forward - backward), rtol=0, atol=1e-6)
    assert reward_gradient("k3").norm() < 0.05 * reward_gradient("k1").norm()


def test_k1_as_a_loss_is_refused_and_would_have_gone_nowhere() -> None:
    policy, reference, tokens = toy()
    mask = torch.ones_like(tokens, dtype=torch.bool)
    new, ref = logprobs(policy, tokens), logprobs(reference, tokens)
    with pytest.raises(TrimtabError, match="k1"):
        kl_loss(new, ref, mask, "k1")
    naive = torch.autograd.grad(masked_mean(kl_estimate(new, ref, "k1"), mask), policy, retain_graph=True)[0]
    useful = torch.autograd.grad(kl_loss(new, ref, mask, "k2"), policy)[0]
    # nothing but sampling noise
    assert naive.norm() < 0.2 * useful.norm()
