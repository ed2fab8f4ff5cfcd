"""Held-out prompts sampled and measured beside a training, always with the same random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from trimtab.core.kl import kl_estimate
from trimtab.core.masked import masked_sum
from trimtab.data.records import Prompt, Response
from trimtab.models.engines.protocol import GenerationEngine, NativeEngine
from trimtab.models.logprobs import response_logprobs
from trimtab.models.prompts import encode_prompts
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import torch_stream
from trimtab.models.tokens import TextCodec, left_pad
from trimtab.scoring import Scorer, checked_scores
from trimtab.stats.text import distinct_n, repetition_rate

__all__ = ["HeldOut", "Probe", "text_signals"]

GENERATION_ROWS = 128
"""Held-out responses sampled at a time."""


@dataclass(frozen=True)
class HeldOut:
    """Held-out prompts sampled every `every` iterations, and at the ends, with the same random numbers each time.

    `scorers` are independent measures: their means become the signals `eval/<name>` (`gold/mean` for `gold`). The
    responses to the first `probe_prompts` (a setting of the stage) of the prompts are kept in samples.jsonl.
    """

    prompts: Sequence[Prompt]
    scorers: Mapping[str, Scorer] = field(default_factory=dict)
    every: int = 5


class _Batch(NamedTuple):
    """Responses sampled together: ids and mask [B, L], prompts padded on the left to S; response_mask [B, T]."""

    ids: Tensor
    mask: Tensor
    prompt_width: int
    response_mask: Tensor
    responses: list[Response]


class Probe:
    """Samples and scores the held-out prompts.

    Args:
        stage: whose name the records in samples.jsonl bear.
        held_out: prompts and independent measures.
        policy: what is to be sampled from; its context says how long prompts may be.
        codec: its tokenizer.
        scorer: whose mean becomes `eval/score`, and which gives the samples' `score`; None: there is none.
        seed: of the sampling.
        temperature: of the sampling, and of the log-probabilities that the KL is made of.
        max_new_tokens: longest response.
        samples: how many of the prompts are kept with response and KL.
        engine: who samples; None: the native loop.
    """

    def __init__(
        self,
        stage: str,
        held_out: HeldOut,
        policy: CausalModel,
        codec: TextCodec,
        scorer: Scorer | None,
        seed: int,
        *,
        temperature: float,
        max_new_tokens: int,
        samples: int,
        engine: GenerationEngine | None = None,
    ) -> None:
        self._stage, self._held_out, self._codec, self._scorer, self._seed = stage, held_out, codec, scorer, seed
        self._temperature, self._max_new_tokens, self._kept = temperature, max_new_tokens, samples
        self._engine = engine or NativeEngine()
        self._encoded = encode_prompts(held_out.prompts, codec, policy.context_length, max_new_tokens)

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
        starts = range(0, len(prompts), GENERATION_ROWS)
        batches = [self._sample(policy, prompts[at : at + GENERATION_ROWS], generator) for at in starts]
        responses = [response for batch in batches for response in batch.responses]
        figures: dict[str, float] = {}
        scores: np.ndarray | None = None
        if self._scorer is not None:
            scores = checked_scores(self._scorer, prompts, responses)
            figures["eval/score"] = float(scores.mean())
        measures = {name: checked_scores(s, prompts, responses) for name, s in self._held_out.scorers.items()}
        for name, values in measures.items():
            figures["gold/mean" if name == "gold" else f"eval/{name}"] = float(values.mean())
        kl = self._sequence_kl(policy, reference, batches)
        samples = [
            {
                "stage": self._stage,
                "step": step,
                "prompt_id": prompts[i].id,
                "prompt": prompts[i].text,
                "response": responses[i].text,
                **({} if scores is None else {"score": float(scores[i])}),
                "measures": {name: float(values[i]) for name, values in measures.items()},
                "kl": kl[i],
                "length": responses[i].tokens,
                "stop_reason": "eos" if responses[i].finished else "length",
            }
            for i in range(len(kl))
        ]
        return figures, samples

    def _sample(self, policy: CausalModel, prompts: Sequence[Prompt], generator: torch.Generator) -> _Batch:
        ids, mask = left_pad([self._encoded.ids[prompt.id] for prompt in prompts], self._codec.pad_id)
        ids, mask = ids.to(policy.device), mask.to(policy.device)
        out = self._engine.generate(
            policy, ids, mask, max_new_tokens=self._max_new_tokens, temperature=self._temperature,
            eos_ids=self._codec.eos_ids, pad_id=self._codec.pad_id, generator=generator,
        )  # fmt: skip
        return _Batch(
            torch.cat([ids, out.tokens], dim=1),
            torch.cat([mask, out.mask], dim=1),
            ids.shape[1],
            out.mask,
            self._codec.responses(out.tokens, out.mask, out.finished),
        )

    def _sequence_kl(self, policy: CausalModel, reference: CausalModel, batches: Sequence[_Batch]) -> list[float]:
        """k1 of the responses that are kept, nats a sequence."""
        found: list[float] = []
        for batch in batches:
            n = min(self._kept - len(found), len(batch.responses))
            if n <= 0:
                break
            new, ref = (
                response_logprobs(m, batch.ids[:n], batch.mask[:n], batch.prompt_width, self._temperature).logprobs
                for m in (policy, reference)
            )
            found += masked_sum(kl_estimate(new, ref, "k1"), batch.response_mask[:n], dim=-1).tolist()
        return found


def text_signals(texts: Sequence[str]) -> dict[str, float]:
    """What the responses' texts look like, as signals."""
    return {
        "response/empty_fraction": sum(not text.strip() for text in texts) / len(texts),
        "response/distinct_2": distinct_n(texts, 2),
        "response/repetition": float(np.mean([repetition_rate(text) for text in texts])),
    }
