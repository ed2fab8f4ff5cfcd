"""Pairs of responses to be labeled: two samples of one model, or one each under a principle's reading and its opposite.

Work is cut into chunks of fixed content, each with a random stream of its own, so that a run that was interrupted and
goes on gives the pairs of one that was not. A pair whose two texts are equal teaches nothing: both are drawn again, a
few times, and after that the pair is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from trimtab.config.schema import SampleConfig
from trimtab.constitution import Constitution, Principle
from trimtab.data.records import CandidatePair, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import numpy_stream, torch_stream
from trimtab.models.tokens import TextCodec
from trimtab.sampling.responses import sample_responses

__all__ = ["MAX_REDRAWS", "SampleSummary", "sample_pairs", "summarise"]

MAX_REDRAWS = 4
"""How often a pair of equal texts is drawn again before it is left out."""


class SampleSummary(NamedTuple):
    """Counts over sampled pairs."""

    wanted: int
    """Pairs asked for: prompts times pairs_per_prompt."""
    sampled: int
    """Pairs there are."""
    dropped: int
    """Pairs left out: equal texts to the last redraw."""
    redrawn: int
    """Pairs that were drawn more than once before their texts differed."""
    finished: float
    """Share of responses that ended with an end-of-text token."""
    mean_tokens: float
    """Mean length in tokens, end-of-text token included."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """One pair to be sampled: everything about it that is decided before the model speaks."""

    id: str
    prompt: Prompt
    principle: Principle | None = None
    reading_first: bool = False

    @property
    def systems(self) -> tuple[str | None, str | None]:
        if self.principle is None:
            return None, None
        reading, opposite = self.principle.reading, self.principle.opposite
        return (reading, opposite) if self.reading_first else (opposite, reading)

    def origin(self, redraws: int) -> dict[str, Any]:
        if self.principle is None:
            return {"source": "samples", "redraws": redraws}
        first, second = ("reading", "opposite") if self.reading_first else ("opposite", "reading")
        return {
            "source": "contrast",
            "principle": self.principle.id,
            "first": first,
            "second": second,
            "reading": self.principle.reading,
            "opposite": self.principle.opposite,
            "redraws": redraws,
        }


def sample_pairs(
    model: CausalModel,
    codec: TextCodec,
    prompts: Sequence[Prompt],
    constitution: Constitution | None,
    config: SampleConfig,
    *,
    seed: int,
    done: Sequence[CandidatePair] = (),
    on_chunk: Callable[[list[CandidatePair]], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[CandidatePair]:
    """Sample `config.pairs_per_prompt` pairs for each prompt.

    Args:
        model: who responds, as a rule the reference.
        codec: its text codec.
        prompts: what to respond to.
        constitution: whose readings to contrast; needed for `source = "contrast"` only.
        config: source, temperature, lengths, batch size (part of what decides the random numbers).
        seed: of everything that is drawn.
        done: pairs of an earlier, interrupted call with the same arguments; they are kept and not sampled again.
        on_chunk: gets the new pairs of each chunk as soon as they are there, to write them down.
        progress: called with (pairs attempted, pairs in all) at the start and after every chunk.

    Returns:
        Pairs in the order of prompts, without those whose texts stayed equal (see `summarise`). `origin` tells the
        source, the redraws and, for contrast pairs, the principle, which response came from which reading, and the two
        readings themselves. Which of the two is first is drawn at random.

    Raises:
        TrimtabError: contrast without a constitution, without a chat template, or with a principle that lacks a reading
            or its opposite; `done` holds pairs that do not belong to these prompts; a prompt does not fit the context.
    """
    if config.source == "contrast":
        _check_contrast(codec, constitution)
    plans = [
        _plan(prompt, k, constitution if config.source == "contrast" else None, seed)
        for prompt in prompts
        for k in range(config.pairs_per_prompt)
    ]
    have = {pair.id: pair for pair in done}
    strangers = sorted(have.keys() - {plan.id for plan in plans})
    if strangers:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{len(strangers)} of the pairs to go on from do not belong to these prompts, first {strangers[0]!r}",
            "sample into an empty file",
        )
    size = max(1, config.batch_size // 2)
    for number, start in enumerate(range(0, len(plans), size)):
        chunk = plans[start : start + size]
        if progress is not None:
            progress(start, len(plans))
        if all(plan.id in have for plan in chunk):
            continue
        # the whole chunk is drawn again, so that the missing pairs come out as they would have the first time
        drawn = _sample_chunk(model, codec, chunk, config, torch_stream(seed, "sample", number))
        new = [pair for pair in drawn if pair.id not in have]
        have.update((pair.id, pair) for pair in new)
        if on_chunk is not None and new:
            on_chunk(new)
    if progress is not None:
        progress(len(plans), len(plans))
    return [have[plan.id] for plan in plans if plan.id in have]


def summarise(pairs: Sequence[CandidatePair], wanted: int) -> SampleSummary:
    """Counts over the pairs that `sample_pairs` returned.

    Args:
        pairs: what it returned.
        wanted: prompts times pairs_per_prompt.
    """
    responses = [r for pair in pairs for r in (pair.first, pair.second)]
    tokens = [r.tokens for r in responses if r.tokens is not None]
    return SampleSummary(
        wanted=wanted,
        sampled=len(pairs),
        dropped=wanted - len(pairs),
        redrawn=sum(pair.origin.get("redraws", 0) > 0 for pair in pairs),
        finished=sum(r.finished for r in responses) / len(responses) if responses else 0.0,
        mean_tokens=sum(tokens) / len(tokens) if tokens else 0.0,
    )


def _sample_chunk(
    model: CausalModel, codec: TextCodec, plans: list[_Plan], config: SampleConfig, generator: torch.Generator
) -> list[CandidatePair]:
    """Pairs of one chunk that came out different, in the order of the plans."""
    pairs: dict[str, CandidatePair] = {}
    open_plans = plans
    for attempt in range(MAX_REDRAWS + 1):
        responses = sample_responses(
            model,
            codec,
            [plan.prompt for plan in open_plans for _ in range(2)],
            max_new_tokens=config.max_new_tokens,
            temperature=config.temperature,
            batch_size=max(2, config.batch_size),
            generator=generator,
            systems=[system for plan in open_plans for system in plan.systems],
        )
        for i, plan in enumerate(open_plans):
            first, second = responses[2 * i], responses[2 * i + 1]
            if not _equal(first, second):
                pairs[plan.id] = CandidatePair(plan.id, plan.prompt, first, second, plan.origin(attempt))
        open_plans = [plan for plan in open_plans if plan.id not in pairs]
        if not open_plans:
            break
    return [pairs[plan.id] for plan in plans if plan.id in pairs]


def _equal(first: Response, second: Response) -> bool:
    return first.text.strip() == second.text.strip()


def _plan(prompt: Prompt, k: int, constitution: Constitution | None, seed: int) -> _Plan:
    pair_id = f"{prompt.id}#{k}"
    if constitution is None:
        return _Plan(pair_id, prompt)
    rng = numpy_stream(seed, "plan", pair_id)
    principle = constitution.sample(rng)
    return _Plan(pair_id, prompt, principle, reading_first=bool(rng.integers(2)))


def _check_contrast(codec: TextCodec, constitution: Constitution | None) -> None:
    if constitution is None:
        raise TrimtabError(
            ErrorKind.CONFIG,
            'sample.source = "contrast" needs a constitution',
            'name one, or use sample.source = "samples"',
        )
    if not codec.chat:
        raise TrimtabError(
            ErrorKind.CONFIG,
            'sample.source = "contrast" puts a reading into the system message, and this model has no chat template',
            'use sample.source = "samples", or a chat model with model.chat_template = "auto"',
        )
    lacking = [p.id for p in constitution.principles if p.weight > 0 and not (p.reading and p.opposite)]
    if lacking:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f'sample.source = "contrast" needs reading and opposite of every principle; not so {", ".join(lacking)}',
            "add `reading` and `opposite` to them in the constitution file, or remove them",
        )
