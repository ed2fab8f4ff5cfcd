"""Advantages, with a value model (GAE, prompt-only value) or against other responses to the prompt (RLOO, GRPO).

All results are targets: no gradient flows through them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.masked import Number, keep, require_counted, require_prefix
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["Advantages", "gae", "grpo", "prompt_value_advantages", "rloo"]

_GRPO_EPSILON = 1e-6


class Advantages(NamedTuple):
    """Advantages and the value model's targets, both [B, T], not whitened, 0 where the mask is False."""

    advantages: Float[Tensor, "B T"]
    returns: Float[Tensor, "B T"]


def _discounted_sums(terms: Float[Tensor, "B T"], factor: Number) -> Float[Tensor, "B T"]:
    """sum over s >= t of factor^(s - t) terms_s; zeros after the last token carry nothing back."""
    running = torch.zeros_like(terms[:, 0])
    columns = []
    for term in terms.flip(1).unbind(1):
        running = term + factor * running
        columns.append(running)
    return torch.stack(columns[::-1], dim=1)


def gae(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    gamma: Number,
    lam: Number,
) -> Advantages:
    """Generalised advantage estimation over response tokens.

        delta_t = r_t + gamma V_{t+1} - V_t,    A_t = sum over s >= t of (gamma lam)^(s - t) delta_s,    G_t = A_t + V_t

    The state after the last token is terminal: V there is 0, also where the response was cut off. lam = 0 gives the
    one-step error, lam = 1 the discounted reward-to-go less V. Source: Schulman et al., arXiv 1506.02438.

    Args:
        rewards: [B, T] reward for the token at t.
        values: [B, T] value of the state before the token at t.
        mask: [B, T], right-padded.
        gamma: discount a token, in [0, 1].
        lam: in [0, 1].

    Returns:
        Advantages; whiten them later and leave the returns alone.

    Raises:
        TrimtabError: the mask is False everywhere, or not right-padded.
    """
    require_counted(mask)
    require_prefix(mask)
    values = keep(values.detach(), mask)
    next_values = torch.nn.functional.pad(values[:, 1:], (0, 1))
    deltas = keep(rewards.detach(), mask) + gamma * next_values - values
    advantages = _discounted_sums(deltas, gamma * lam)
    return Advantages(advantages, advantages + values)


def prompt_value_advantages(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, " B"],
    mask: Bool[Tensor, "B T"],
    gamma: Number,
) -> Advantages:
    """Advantages against a value of the prompt alone: every token has A = R - V(x), R the discounted sum of rewards.

    Args:
        rewards: [B, T] reward for the token at t.
        values: [B] value of the prompt.
        mask: [B, T], right-padded.
        gamma: discount a token, in [0, 1].

    Returns:
        Advantages; `returns` holds the discounted reward-to-go G_t, and `returns[:, 0]` = R is the target of V(x).

    Raises:
        TrimtabError: the mask is False everywhere, or not right-padded.
    """
    require_counted(mask)
    require_prefix(mask)
    returns = _discounted_sums(keep(rewards.detach(), mask), gamma)
    advantages = (returns[:, 0] - values.detach().float()).unsqueeze(1).expand_as(returns)
    return Advantages(keep(advantages, mask), returns)


def _centred(scores: Tensor, groups: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores less their group's mean, the [B, B] same-group relation, and the group sizes [B]."""
    same = groups.unsqueeze(1) == groups.unsqueeze(0)
    size = same.sum(dim=1)
    mean = torch.where(same, scores.unsqueeze(0), 0.0).sum(dim=1) / size
    return scores - mean, same, size


def rloo(scores: Float[Tensor, " B"], groups: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Score less the mean score of the other responses to the same prompt (REINFORCE leave-one-out).

    Source: Kool et al. (2019); Ahmadian et al., arXiv 2402.14740.

    Args:
        scores: [B].
        groups: [B] responses with the same number answer the same prompt; any order.

    Returns:
        [B] one advantage a response, for all its tokens; each group sums to 0.

    Raises:
        TrimtabError: a group of one, which leaves nothing to compare with.
    """
    centred, _, size = _centred(scores.detach().float(), groups)
    alone = size < 2
    if bool(alone.any()):
        raise TrimtabError(
            ErrorKind.FAILED,
            f"rloo: group {int(groups[alone][0])} has a single response",
            "leave-one-out needs at least two responses to every prompt",
        )
    # s - (sum - s) / (K - 1) = (s - mean) K / (K - 1), without the cancellation between two large sums
    return centred * size / (size - 1)


def grpo(scores: Float[Tensor, " B"], groups: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Score standardised within its group: (s - mean) / (population std + 1e-6).

    Source: Shao et al., arXiv 2402.03300.

    Args:
        scores: [B].
        groups: [B] responses with the same number answer the same prompt; any order.

    Returns:
        [B] one advantage a response, for all its tokens; 0 where the scores of a group are equal.
    """
    centred, same, size = _centred(scores.detach().float(), groups)
    variance = torch.where(same, centred.square().unsqueeze(0), 0.0).sum(dim=1) / size
    return centred / (variance.sqrt() + _GRPO_EPSILON)
