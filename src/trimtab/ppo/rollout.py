"""Rollout: responses sampled from the policy, with everything needed to score and replay them.

Layout of a batch: prompts padded on the left to S columns, responses on the right to T, L = S + T. Which positions
count is told by masks made from lengths, never by comparing token ids, so a pad token that equals EOS does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from trimtab.data.records import Prompt, Response
from trimtab.models.engines.protocol import GenerationEngine, NativeEngine
from trimtab.models.generation import Generated
from trimtab.models.prompts import EncodedPrompts
from trimtab.models.roles import CausalModel
from trimtab.models.seeds import numpy_stream
from trimtab.models.tokens import TextCodec, left_pad
from trimtab.ppo.parts import sample_in_parts
from trimtab.training.memory import RowLimit
from trimtab.training.world import World

__all__ = ["PromptOrder", "Rollout", "sample_rollout"]


@dataclass(frozen=True)
class Rollout:
    """B responses. Shapes: ids, mask [B, L]; response_mask, logprobs [B, T]; groups, finished [B].

    `groups` numbers the prompt that a response belongs to; `logprobs` are the sampler's; `finished` tells the
    responses that ended with an EOS token of their own.
    """

    prompts: list[Prompt]
    responses: list[Response]
    ids: Tensor
    mask: Tensor
    prompt_width: int
    response_mask: Tensor
    logprobs: Tensor
    finished: Tensor
    groups: Tensor

    @property
    def lengths(self) -> Tensor:
        """Response tokens with EOS, int64 [B]."""
        return self.response_mask.sum(-1)

    def part(self, rows: slice) -> Rollout:
        """Some of the responses, as wide as all are; their groups keep their numbers."""
        return replace(
            self,
            prompts=self.prompts[rows],
            responses=self.responses[rows],
            ids=self.ids[rows],
            mask=self.mask[rows],
            response_mask=self.response_mask[rows],
            logprobs=self.logprobs[rows],
            finished=self.finished[rows],
            groups=self.groups[rows],
        )


class PromptOrder:
    """An endless shuffled pass over n prompts (or other examples): every pass is a new permutation, drawn from
    (seed, name, pass).

    The order is a function of the position alone, so a resumed run sees the prompts it would have seen.
    """

    def __init__(self, n: int, seed: int, name: str = "prompt-order") -> None:
        self._n, self._seed, self._name = n, seed, name
        self._pass, self._permutation = -1, [0]

    def take(self, start: int, count: int) -> list[int]:
        """Indices of the `count` prompts from position `start` on."""
        return [self._at(position) for position in range(start, start + count)]

    def _at(self, position: int) -> int:
        number, offset = divmod(position, self._n)
        if number != self._pass:
            self._pass = number
            self._permutation = numpy_stream(self._seed, self._name, str(number)).permutation(self._n).tolist()
        return self._permutation[offset]


def sample_rollout(
    policy: CausalModel,
    codec: TextCodec,
    encoded: EncodedPrompts,
    chosen: Sequence[Prompt],
    *,
    responses_per_prompt: int,
    max_new_tokens: int,
    temperature: float,
    generator: torch.Generator,
    device: torch.device,
    world: World | None = None,
    engine: GenerationEngine | None = None,
    limit: RowLimit | None = None,
) -> Rollout:
    """Sample K responses to each chosen prompt from the full softmax at `temperature`.

    Args:
        world: the processes that share the work, where the prompts can be parted equally; each gets the whole rollout.
        engine: who samples; None: the native loop.
        limit: how many responses are in memory at once, but in an engine that sees to its own memory; None: all.

    Returns:
        A rollout of B = len(chosen) * K responses; responses to one prompt stand together.
    """
    ids, mask = left_pad([encoded.ids[prompt.id] for prompt in chosen], codec.pad_id)
    ids, mask = ids.to(device), mask.to(device)
    world = world or World.single()
    own, parted = world.share(len(chosen)), world.parted(len(chosen))
    engine = engine or NativeEngine()

    def sample(ids: Tensor, mask: Tensor, k: int, part: tuple[int, int]) -> Generated:
        return engine.generate(
            policy, ids, mask, max_new_tokens=max_new_tokens, temperature=temperature, eos_ids=codec.eos_ids,
            pad_id=codec.pad_id, generator=generator, responses_per_prompt=k, part=part,
        )  # fmt: skip

    part = (world.rank, world.size) if parted else (0, 1)
    if limit is None or engine.own_weights:
        out = sample(ids[own], mask[own], responses_per_prompt, part)
    else:
        out = sample_in_parts(sample, ids[own], mask[own], responses_per_prompt, part, generator, codec.pad_id, limit)
    if parted:
        out = _together(out, codec.pad_id, world)
    ids, mask = (x.repeat_interleave(responses_per_prompt, 0) for x in (ids, mask))
    groups = torch.arange(len(chosen), device=device).repeat_interleave(responses_per_prompt)
    return Rollout(
        prompts=[prompt for prompt in chosen for _ in range(responses_per_prompt)],
        responses=codec.responses(out.tokens, out.mask, out.finished),
        ids=torch.cat([ids, out.tokens], dim=1),
        mask=torch.cat([mask, out.mask], dim=1),
        prompt_width=ids.shape[1],
        response_mask=out.mask,
        logprobs=out.logprobs,
        finished=out.finished,
        groups=groups,
    )


def _together(out: Generated, pad_id: int, world: World) -> Generated:
    """The responses of all processes."""
    fill = (0, world.largest(out.tokens.shape[1]) - out.tokens.shape[1])
    return Generated(
        world.gather(F.pad(out.tokens, fill, value=pad_id)),
        world.gather(F.pad(out.mask, fill)),
        world.gather(F.pad(out.logprobs, fill)),
        world.gather(out.finished),
    )
