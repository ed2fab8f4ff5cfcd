"""Importance weights of tokens that another program, or another precision, has sampled.

Responses come from a sampler q (a generation engine), the loss is written for the trainer's policy p_old with the same
weights. Rounding and other kernels make q differ from p_old; for a function f of a token drawn at a position,

    E_q[(p_old / q) f] = E_p_old[f]

so that each token's loss is multiplied by w = p_old / q. A token that q found far too unlikely would dominate:

    w = min(p_old / q, cap)

Source: F. Yao, L. Liu, D. Zhang, C. Dong, J. Shang, J. Gao, "Your Efficient RL Framework Secretly Brings You Off-Policy
RL Training" (2025), fengyao.notion.site/off-policy-rl: truncated importance sampling.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.core.kl import MAX_LOG_RATIO
from trimtab.core.masked import Number, keep
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["Importance", "truncated_importance"]


class Importance(NamedTuple):
    """What a token's policy loss is multiplied by; no gradient."""

    weights: Float[Tensor, "B T"]
    """min(p_old / q, cap); 0 where nothing counts."""
    truncated: Bool[Tensor, "B T"]
    """Counted tokens whose ratio was above the cap."""


def truncated_importance(
    logprobs: Float[Tensor, "B T"], sampler_logprobs: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], cap: Number
) -> Importance:
    """Weight of every sampled token, see the head of this module. Log-ratios are cut to +-20 before exp.

    Args:
        logprobs: [B, T] of the tokens under the trainer's policy, before the iteration's updates, in nats.
        sampler_logprobs: [B, T] of the same tokens under the sampler, at the same temperature.
        mask: [B, T].
        cap: at least 1; infinity: plain importance sampling, unbiased token by token.

    Raises:
        TrimtabError: a cap below 1.
    """
    if not cap >= 1:
        raise TrimtabError(ErrorKind.CONFIG, f"importance_cap = {cap} is out of range", "it must be at least 1")
    with torch.no_grad():
        log_ratio = keep(logprobs, mask) - keep(sampler_logprobs, mask)
        ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        return Importance(keep(ratio.clamp(max=cap), mask), mask & (ratio > cap))
