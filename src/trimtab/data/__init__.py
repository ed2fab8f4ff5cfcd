"""Prompts, pairs and demonstrations: records, and the files that they are read from and written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.data.demonstrations import Demonstration, read_demonstrations, write_demonstrations
    from trimtab.data.pairs import read_candidates, read_pairs, write_candidates, write_pairs
    from trimtab.data.prompts import read_prompts, write_prompts
    from trimtab.data.records import CandidatePair, Message, Pair, Prompt, Response

__all__ = [
    "CandidatePair",
    "Demonstration",
    "Message",
    "Pair",
    "Prompt",
    "Response",
    "read_candidates",
    "read_demonstrations",
    "read_pairs",
    "read_prompts",
    "write_candidates",
    "write_demonstrations",
    "write_pairs",
    "write_prompts",
]

_HOMES = {
    "Demonstration": "demonstrations",
    "read_candidates": "pairs",
    "read_demonstrations": "demonstrations",
    "read_pairs": "pairs",
    "read_prompts": "prompts",
    "write_candidates": "pairs",
    "write_demonstrations": "demonstrations",
    "write_pairs": "pairs",
    "write_prompts": "prompts",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'records')}"), name)
