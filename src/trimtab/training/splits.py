"""Prompts whose examples are not trained on, so that what is measured speaks of prompts that were not seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from trimtab.data.records import Prompt
from trimtab.models.seeds import numpy_stream

__all__ = ["hold_out"]


class _OfPrompt(Protocol):
    @property
    def prompt(self) -> Prompt: ...


_Example = TypeVar("_Example", bound=_OfPrompt)


def hold_out(
    examples: Sequence[_Example], fraction: float, seed: int, stage: str
) -> tuple[list[_Example], list[_Example]] | None:
    """(examples to train on, held-out ones), each in their order: all of one prompt (the same messages) on one side.

    Args:
        fraction: share of the prompts that is held out, above 0; at least one prompt is on either side.
        seed: with `stage` what the choice is derived from.
        stage: the stages that name the same one hold out the same prompts of the same examples.

    Returns:
        None where there are fewer than two prompts.
    """
    keys = list(dict.fromkeys(example.prompt.messages for example in examples))
    if len(keys) < 2:
        return None
    count = min(max(1, round(fraction * len(keys))), len(keys) - 1)
    order = numpy_stream(seed, stage, "held-out").permutation(len(keys))
    chosen = {keys[i] for i in order[:count]}
    return (
        [e for e in examples if e.prompt.messages not in chosen],
        [e for e in examples if e.prompt.messages in chosen],
    )
