"""KL(policy || reference) in nats, from the log-probabilities of sampled tokens or from whole distributions.

With x sampled from the policy and d = log policy(x) - log reference(x):

    k1 = d                   unbiased, may be negative
    k2 = d^2 / 2             biased, never negative
    k3 = exp(-d) - 1 + d     unbiased, never negative

Source: J. Schulman, "Approximating KL divergence" (2020).

As a loss, on samples of the policy itself, k1 is useless: its gradient is the score function, whose expectation is 0.
The expected gradient of k2 is that of KL(policy || reference), that of k3 is that of KL(reference || policy); both lead
to the reference.

As a reward, a number that is not differentiated, it is the other way round: the policy gradient of -k1 is that of
-KL(policy || reference). k2 and k3 are as large for a token that has become too unlikely as for one too likely, and
push both down: the policy gradient of -k3 is that of KL(reference || policy) - KL(policy || reference), almost 0 near
the reference. The full KL at a position does not depend on the token chosen there: as a reward it only tells earlier
tokens where they lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from trimtab.core.masked import Number, keep, masked_average
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["MAX_LOG_RATIO", "full_kl", "kl_estimate", "kl_loss"]

MAX_LOG_RATIO = 20.0
"""Log-ratios are limited to this before they are exponentiated: e^20 is 5e8, e^89 overflows float32."""

_CHUNK_ELEMENTS = 1 << 24


def kl_estimate(
    logprobs: Float[Tensor, "*shape"],
    ref_logprobs: Float[Tensor, "*shape"],
    estimator: str,
) -> Float[Tensor, "*shape"]:
    """Per-token estimate of KL(policy || reference) from sampled tokens.

    Args:
        logprobs: [B, T] log-probabilities of the sampled tokens under the policy that sampled them, in nats.
        ref_logprobs: [B, T] the same tokens under the reference, at the same temperature.
        estimator: see the head of this module.

    Returns:
        [B, T] nats a token. k3 takes d as at least -20, where the exponential would swamp everything. There is no mask:
        padded positions give what stands in them.

    Raises:
        TrimtabError: an unknown estimator.
    """
    d = logprobs.float() - ref_logprobs.float()
    if estimator == "k1":
        return d
    if estimator == "k2":
        return 0.5 * d.square()
    if estimator == "k3":
        d = d.clamp(min=-MAX_LOG_RATIO)
        # expm1, because exp(-d) - 1 loses every digit of a small d, and can come out negative
        return torch.expm1(-d) + d
    raise TrimtabError(
        ErrorKind.CONFIG, f'no KL estimator "{estimator}"', 'of sampled tokens there are "k1", "k2", "k3"'
    )


def _exact_kl(logits: Tensor, ref_logits: Tensor) -> Tensor:
    logp = torch.log_softmax(logits.float(), dim=-1)
    logq = torch.log_softmax(ref_logits.float(), dim=-1)
    # a token that the policy cannot produce adds 0, not 0 * -inf
    log_ratio = torch.where(logp.isneginf(), 0.0, logp - logq)
    return (logp.exp() * log_ratio).sum(dim=-1)


def full_kl(logits: Float[Tensor, "B T V"], ref_logits: Float[Tensor, "B T V"]) -> Float[Tensor, "B T"]:
    """Exact KL(policy || reference) at every position: sum over the vocabulary of p (log p - log q).

    Args:
        logits: [B, T, V] of the policy, divided by the sampling temperature.
        ref_logits: [B, T, V] of the reference, divided by the same temperature.

    Returns:
        [B, T] nats a token, differentiable. Works through the positions in chunks and keeps no intermediate of size V
        for the backward pass: memory beyond the arguments is bounded.
    """
    return _positions_kl(logits.flatten(0, 1), ref_logits.flatten(0, 1)).view(logits.shape[:2])


def _positions_kl(logits: Float[Tensor, "M V"], ref_logits: Float[Tensor, "M V"]) -> Float[Tensor, " M"]:
    positions, vocabulary = logits.shape
    rows = max(1, _CHUNK_ELEMENTS // max(1, vocabulary))
    if positions <= rows:
        return _exact_kl(logits, ref_logits)
    # recomputing a chunk in the backward pass is cheap beside the language-model head that made its logits
    run = cast(Callable[..., Tensor], checkpoint)
    return torch.cat(
        [
            run(_exact_kl, p, q, use_reentrant=False)
            for p, q in zip(torch.split(logits, rows), torch.split(ref_logits, rows), strict=True)
        ]
    )


def kl_loss(
    logprobs: Float[Tensor, "B T *V"],
    ref_logprobs: Float[Tensor, "B T *V"],
    mask: Bool[Tensor, "B T"],
    estimator: str,
    denominator: Number | Tensor | None = None,
) -> Float[Tensor, ""]:
    """KL to the reference as a loss term: multiply by beta and **add** it to the loss.

    Args:
        logprobs: [B, T] log-probabilities of the sampled tokens under the trained policy; for "full" its logits,
            [B, T, V].
        ref_logprobs: the same of the reference; no gradient flows into it.
        mask: [B, T].
        estimator: "k2", "k3" or "full".
        denominator: count of tokens of the whole minibatch, where this is a micro-batch of it.

    Returns:
        Masked mean in nats a token, differentiable.

    Raises:
        TrimtabError: "k1" or an unknown estimator, or nothing to average.
    """
    ref_logprobs = ref_logprobs.detach()
    if estimator == "full":
        # only counted positions are computed; the others get no gradient
        per_position = _positions_kl(logprobs[mask], ref_logprobs[mask])
        return masked_average(
            torch.zeros_like(mask, dtype=torch.float32).masked_scatter(mask, per_position), mask, denominator
        )
    if estimator not in ("k2", "k3"):
        raise TrimtabError(
            ErrorKind.CONFIG,
            f'kl_estimator = "{estimator}" cannot be a loss',
            'the gradient of "k1" on on-policy samples is zero in expectation: use "k2", "k3" or "full"',
        )
    kl = kl_estimate(keep(logprobs, mask), keep(ref_logprobs, mask), estimator)
    return masked_average(kl, mask, denominator)
