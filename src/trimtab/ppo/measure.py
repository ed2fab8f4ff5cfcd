"""What an iteration looked like, as signals; and held-out prompts measured beside the training."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimtab.config.schema import PPOConfig
from trimtab.core.kl import kl_estimate
from trimtab.core.masked import explained_variance, masked_mean, masked_sum, masked_var
from trimtab.data.records import Prompt
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import torch_stream
from trimtab.models.tokens import TextCodec
from trimtab.ppo.experience import Experience, LogProbs
from trimtab.ppo.rollout import Rollout, encode_prompts, sample_rollout
from trimtab.scoring import Scorer, checked_scores
from trimtab.stats.text import distinct_n, repetition_rate

__all__ = ["HeldOut", "Probe", "iteration_signals", "peak_gib"]

GENERATION_ROWS = 128
"""Held-out responses sampled at a time."""


@dataclass(frozen=True)
class HeldOut:
    """Held-out prompts sampled every `every` iterations, and at the ends, with the same random numbers each time.

    `scorers` are independent measures: their means become the signals `eval/<name>` (`gold/mean` for `gold`); the mean
    of the score that is trained on becomes `eval/score`. The responses to the first `ppo.probe_prompts` of the prompts
    are kept in samples.jsonl.
    """

    prompts: Sequence[Prompt]
    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    every: int = 5


class Probe:
    """Samples and scores the held-out prompts."""

    def __init__(
        self, held_out: HeldOut, config: PPOConfig, codec: TextCodec, context: int | None, scorer: Scorer, seed: int
    ) -> None:
        self._held_out, self._config, self._codec, self._scorer, self._seed = held_out, config, codec, scorer, seed
        self._encoded = encode_prompts(held_out.prompts, codec, context, config.max_new_tokens)

    def due(self, step: int, last: int) -> bool:
        """Whether the prompts are sampled after `step` iterations."""
        return step % self._held_out.every == 0 or step == last

    @torch.no_grad()
    def measure(
        self, policy: CausalModel, reference: CausalModel, step: int
    ) -> tuple[dict[str, float], list[dict[str, Any]]]:
        """Figures for the log and records for samples.jsonl."""
        generator = torch_stream(self._seed, "held-out")
        prompts = self._held_out.prompts
        rollouts = [
            sample_rollout(
                policy, self._codec, self._encoded, prompts[start : start + GENERATION_ROWS], responses_per_prompt=1,
                max_new_tokens=self._config.max_new_tokens, temperature=self._config.temperature, generator=generator,
                device=policy.device,
            )
            for start in range(0, len(prompts), GENERATION_ROWS)
        ]  # fmt: skip
        responses = [response for rollout in rollouts for response in rollout.responses]
        scores = checked_scores(self._scorer, prompts, responses)
        measures = {name: checked_scores(s, prompts, responses) for name, s in self._held_out.scorers.items()}
        figures = {"eval/score": float(scores.mean())}
        for name, values in measures.items():
            figures["gold/mean" if name == "gold" else f"eval/{name}"] = float(values.mean())
        return figures, self._samples(rollouts[0], reference, policy, step, scores, measures)

    def _samples(
        self,
        rollout: Rollout,
        reference: CausalModel,
        policy: CausalModel,
        step: int,
        scores: np.ndarray,
        measures: Mapping[str, np.ndarray],
    ) -> list[dict[str, Any]]:
        n = min(self._config.probe_prompts, len(rollout.prompts))
        if n == 0:
            return []
        kl = _sequence_kl(policy, reference, rollout, n, self._config.temperature)
        return [
            {
                "stage": "ppo",
                "step": step,
                "prompt_id": rollout.prompts[i].id,
                "prompt": rollout.prompts[i].text,
                "response": rollout.responses[i].text,
                "score": float(scores[i]),
                "measures": {name: float(values[i]) for name, values in measures.items()},
                "kl": kl[i],
                "length": rollout.responses[i].tokens,
                "stop_reason": "eos" if rollout.responses[i].finished else "length",
            }
            for i in range(n)
        ]


def _sequence_kl(
    policy: CausalModel, reference: CausalModel, rollout: Rollout, n: int, temperature: float
) -> list[float]:
    new, ref = (
        response_logprobs(model, rollout.ids[:n], rollout.mask[:n], rollout.prompt_width, temperature).logprobs
        for model in (policy, reference)
    )
    kl: list[float] = masked_sum(kl_estimate(new, ref, "k1"), rollout.response_mask[:n], dim=-1).tolist()
    return kl


def iteration_signals(
    rollout: Rollout, experience: Experience, logprobs: LogProbs, scores: Tensor, shaped: Tensor
) -> dict[str, float]:
    """The signals of one iteration that need no model: scores, rewards, KL, advantages, values, text."""
    mask, lengths = rollout.response_mask, rollout.lengths.float()
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
        **_text_signals(rollout),
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


def _text_signals(rollout: Rollout) -> dict[str, float]:
    texts = [response.text for response in rollout.responses]
    return {
        "response/empty_fraction": sum(not text.strip() for text in texts) / len(texts),
        "response/distinct_2": distinct_n(texts, 2),
        "response/repetition": float(np.mean([repetition_rate(text) for text in texts])),
        "batch/duplicate_fraction": 1 - len(set(texts)) / len(texts),
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
