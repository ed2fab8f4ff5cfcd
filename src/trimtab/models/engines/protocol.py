"""What an engine is, and what all of them share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.generation import Generated, generate
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import right_pad

__all__ = ["GenerationEngine", "NativeEngine", "as_generated"]


class GenerationEngine(Protocol):
    """Samples responses from the full softmax at a temperature, and says how likely it found each token."""

    own_weights: bool
    """It samples from what `sync` gave it last, whichever model `generate` is handed."""

    def generate(
        self,
        model: CausalModel,
        ids: Tensor,
        mask: Tensor,
        *,
        max_new_tokens: int,
        temperature: float,
        eos_ids: Collection[int],
        pad_id: int,
        generator: torch.Generator,
        responses_per_prompt: int = 1,
        part: tuple[int, int] = (0, 1),
    ) -> Generated:
        """As `trimtab.models.generation.generate`."""
        ...

    def sync(self, model: CausalModel) -> None:
        """Take over the weights of a model; nothing to do where there are no own ones."""
        ...

    def close(self) -> None:
        """Give back what the engine holds."""
        ...


class NativeEngine:
    """Our own decoding loop: buffers of their final size, prompts read once, ended rows dropped."""

    own_weights = False
    generate = staticmethod(generate)

    def sync(self, model: CausalModel) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def as_generated(
    rows: Sequence[Sequence[int]],
    logprobs: Sequence[Sequence[float]],
    *,
    max_new_tokens: int,
    eos_ids: Collection[int],
    pad_id: int,
    device: torch.device,
) -> Generated:
    """Token ids and log-probabilities of B responses, each up to its first EOS token, as a batch.

    Args:
        rows: B responses; what follows a response's first EOS token is cut off.
        logprobs: as many numbers for each.
        max_new_tokens: length of those without an EOS token.
        eos_ids: tokens that end a response.
        pad_id: fills the positions after a response's end.
        device: where to.

    Raises:
        TrimtabError: a response stops before its end, or tokens and log-probabilities differ in number.
    """
    ends = frozenset(eos_ids)
    kept: list[list[int]] = []
    told: list[list[float]] = []
    finished = []
    for number, (tokens, values) in enumerate(zip(rows, logprobs, strict=True)):
        end = next((i + 1 for i, token in enumerate(tokens) if token in ends), None)
        length = max_new_tokens if end is None else end
        if len(tokens) < length or len(values) < length:
            raise TrimtabError(
                ErrorKind.FAILED,
                f"the engine's response {number} has {len(tokens)} tokens and {len(values)} log-probabilities, and no "
                f"end: {max_new_tokens} of both were asked for",
                "the engine cut it short: its context (max_model_len) may be too small, or it was aborted",
            )
        kept.append(list(tokens[:length]))
        told.append(list(values[:length]))
        finished.append(end is not None)
    ids, mask = right_pad(kept, pad_id)
    found = torch.zeros(ids.shape)
    found[mask] = torch.tensor([x for row in told for x in row])
    return Generated(ids.to(device), mask.to(device), found.to(device), torch.tensor(finished, device=device))
