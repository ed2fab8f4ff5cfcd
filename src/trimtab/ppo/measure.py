"""What an iteration looked like, as signals."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.core.kl import kl_estimate
from trimtab.core.masked import explained_variance, masked_mean, masked_sum, masked_var
from trimtab.ppo.experience import Experience, LogProbs
from trimtab.ppo.rollout import Rollout
from trimtab.training.probe import text_signals

__all__ = ["iteration_signals", "peak_gib"]


def iteration_signals(
    rollout: Rollout, experience: Experience, logprobs: LogProbs, scores: Tensor, shaped: Tensor
) -> dict[str, float]:
    """The signals of one iteration that need no model: scores, rewards, KL, advantages, values, text."""
    mask, lengths = rollout.response_mask, rollout.lengths.float()
    texts = [response.text for response in rollout.responses]
    k1 = kl_estimate(logprobs.old, logprobs.reference, "k1")
    totals = masked_sum(experience.rewards, mask, dim=-1)
    return {
        **_moments("score", scores, ("mean", "std", "min", "max")),
        **_moments("score/shaped", shaped, ("mean", "std"), joint="_"),
        **_moments("reward", totals, ("mean", "std")),
        **_moments("response/length", lengths, ("mean", "std", "max"), joint="_"),
        "kl/reference": float(masked_sum(k1, mask, dim=-1).mean()),
        "kl/reference_per_token": float(masked_mean(k1, mask)),
        "kl/reference_k3_per_token": float(masked_mean(kl_estimate(logprobs.old, logprobs.reference, "k3"), mask)),
        "advantage/mean": float(masked_mean(experience.raw_advantages, mask)),
        "advantage/std": float(masked_var(experience.raw_advantages, mask).sqrt()),
        "response/finished_fraction": float(rollout.finished.float().mean()),
        "memory/peak_gib": peak_gib(),
        **_value_signals(experience),
        **text_signals(texts),
        "batch/duplicate_fraction": 1 - len(set(texts)) / len(texts),
        **_group_signals(rollout, scores),
    }


def _moments(name: str, x: Tensor, which: Sequence[str], joint: str = "/") -> dict[str, float]:
    x = x.double()
    figures = {"mean": x.mean(), "std": x.std(correction=0), "min": x.min(), "max": x.max()}
    return {f"{name}{joint}{key}": float(figures[key]) for key in which}


def _value_signals(experience: Experience) -> dict[str, float]:
    if experience.values is None or experience.returns is None:
        return {}
    values, returns = experience.values, experience.returns
    mask = experience.response_mask if values.dim() == 2 else torch.ones_like(values, dtype=torch.bool)
    return {
        "value/explained_variance": float(explained_variance(values, returns, mask)),
        "value/mean": float(masked_mean(values, mask)),
        "value/return_mean": float(masked_mean(returns, mask)),
        "value/return_std": float(masked_var(returns, mask).sqrt()),
    }


def _group_signals(rollout: Rollout, scores: Tensor) -> dict[str, float]:
    k = len(rollout.groups) // (int(rollout.groups.max()) + 1)
    if k < 2:
        return {}
    spread = scores.view(-1, k).std(-1, correction=0)
    return {"group/zero_std_fraction": float((spread < 1e-8).float().mean())}


def peak_gib() -> float:
    """Most memory that this process has held so far, in GiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**30 if sys.platform == "darwin" else peak / 2**20
