"""PPO's two losses. Both take the token count of the whole minibatch, so that micro-batches add up to its gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.core.kl import MAX_LOG_RATIO, kl_estimate
from trimtab.core.masked import Number, keep, masked_average
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["PolicyLoss", "ValueLoss", "policy_loss", "value_loss"]


class PolicyLoss(NamedTuple):
    """The policy's loss (differentiable) and what to watch (detached); scalars.

    Where a denominator was given, all but `ratio_max` are sums divided by it: add them over the micro-batches.
    """

    loss: Float[Tensor, ""]
    clip_fraction: Float[Tensor, ""]
    """Share of tokens where the clipped term was chosen, and the gradient is 0."""
    dual_clip_fraction: Float[Tensor, ""]
    """Share of tokens with a negative advantage whose loss was cut off by the dual clip."""
    approx_kl: Float[Tensor, ""]
    """k3 of KL(old || new), nats a token."""
    ratio_mean: Float[Tensor, ""]
    ratio_max: Float[Tensor, ""]
    """Largest new/old probability ratio of a counted token; 0 where nothing counts."""


class ValueLoss(NamedTuple):
    """The value model's loss (differentiable) and the share of tokens where the clipped error was chosen (detached).

    Where a denominator was given, both are sums divided by it: add them over the micro-batches.
    """

    loss: Float[Tensor, ""]
    clip_fraction: Float[Tensor, ""]


def policy_loss(
    logprobs: Float[Tensor, "B T"],
    old_logprobs: Float[Tensor, "B T"],
    advantages: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    clip_range: Number,
    dual_clip: Number | None = None,
    denominator: Number | Tensor | None = None,
    importance: Float[Tensor, "B T"] | None = None,
) -> PolicyLoss:
    """Clipped surrogate: the mean of max(-A ratio, -A clip(ratio, 1 - eps, 1 + eps)), ratio = new / old probability.

    With a dual clip c > 1 the loss of a token with A < 0 is at most -A c, so that a token which has become far likelier
    than when it was sampled cannot dominate. Log-ratios are cut to +-20 before exp. Sources: Schulman et al.,
    arXiv 1707.06347; dual clip Ye et al., arXiv 1912.09729.

    Args:
        logprobs: [B, T] of the policy that is trained, in nats.
        old_logprobs: [B, T] of the policy that sampled; no gradient.
        advantages: [B, T]; no gradient.
        mask: [B, T].
        clip_range: eps, in (0, 1).
        dual_clip: c > 1; None = off.
        denominator: count of tokens of the whole minibatch, where this is a micro-batch of it; None = masked mean.
        importance: [B, T] what each token's loss is multiplied by (see `core.importance`); no gradient; None = 1. The
            other figures are not weighted.

    Returns:
        PolicyLoss.

    Raises:
        TrimtabError: nothing to average, or a clip out of its range.
    """
    _check_range("clip_range", clip_range, 0 < clip_range < 1, "in (0, 1)")
    new, old, gain = keep(logprobs, mask), keep(old_logprobs.detach(), mask), keep(advantages.detach(), mask)
    ratio = (new - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    plain = -gain * ratio
    clipped = -gain * ratio.clamp(1 - clip_range, 1 + clip_range)
    per_token = torch.maximum(plain, clipped)
    dual = torch.zeros_like(mask)
    if dual_clip is not None:
        _check_range("dual_clip", dual_clip, dual_clip > 1, "above 1")
        bound = -gain * dual_clip
        dual = (gain < 0) & (per_token > bound)
        per_token = torch.where(dual, bound, per_token)
    if importance is not None:
        per_token = per_token * keep(importance.detach(), mask)
    loss = masked_average(per_token, mask, denominator)
    with torch.no_grad():
        # the tokens were sampled by the old policy, which is therefore the first argument
        kl = kl_estimate(old, new, "k3")
        return PolicyLoss(
            loss=loss,
            clip_fraction=masked_average(clipped > plain, mask, denominator),
            dual_clip_fraction=masked_average(dual, mask, denominator),
            approx_kl=masked_average(kl, mask, denominator),
            ratio_mean=masked_average(ratio, mask, denominator),
            ratio_max=keep(ratio, mask).amax(),
        )


def value_loss(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    clip_range: Number | None = None,
    denominator: Number | Tensor | None = None,
) -> ValueLoss:
    """Mean of (V - G)^2, without a factor 1/2; clipped: of the larger of (V - G)^2 and (V_clip - G)^2.

    V_clip is V held within +- clip_range of the rollout's value. Source: Schulman's and OpenAI's PPO implementations.

    Args:
        values: [B, T] of the value model that is trained.
        old_values: [B, T] at the rollout; no gradient.
        returns: [B, T] targets; no gradient.
        mask: [B, T].
        clip_range: in units of the returns; None = no clip.
        denominator: count of tokens of the whole minibatch, where this is a micro-batch of it; None = masked mean.

    Returns:
        ValueLoss.

    Raises:
        TrimtabError: nothing to average, or a clip that is not positive.
    """
    now, target = keep(values, mask), keep(returns.detach(), mask)
    error = (now - target).square()
    if clip_range is None:
        loss = masked_average(error, mask, denominator)
        return ValueLoss(loss, torch.zeros_like(loss))
    _check_range("value_clip_range", clip_range, clip_range > 0, "positive")
    old = keep(old_values.detach(), mask)
    # a clamp to bounds leaves a value inside them as it is; old + clamp(now - old) would round, and count as a clip
    clipped_error = (now.clamp(old - clip_range, old + clip_range) - target).square()
    loss = masked_average(torch.maximum(error, clipped_error), mask, denominator)
    return ValueLoss(loss, masked_average(clipped_error > error, mask, denominator).detach())


def _check_range(key: str, value: Number, good: bool, right: str) -> None:
    if not good:
        raise TrimtabError(ErrorKind.CONFIG, f"{key} = {value} is out of range", f"it must be {right}")
