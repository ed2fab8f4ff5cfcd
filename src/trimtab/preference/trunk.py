"""The output of frozen layers, kept by the tokens that they read.

What lies below the boundary of a model never changes, so neither does its output for a row: members of an ensemble, the
passes over the pairs, the folds of a study, and combinations of settings that share the boundary, all ask for the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

__all__ = ["CACHE_BYTES", "KeptStates", "TrunkCache"]

CACHE_BYTES = 2**30
"""Most memory that is spent on kept output."""

Row = Sequence[int]


class KeptStates(Protocol):
    """Where output of the shared layers is looked up, and left."""

    def find(self, row: Row) -> Tensor | None:
        """[L, D] the output for a row, if it is kept."""
        ...

    def keep(self, row: Row, hidden: Tensor) -> None:
        """Keep the output [L, D] for a row, a tensor of its own, if there is room."""
        ...


class TrunkCache:
    """`KeptStates` in memory: as much as there is room for.

    One cache belongs to one trunk: the same weights, boundary and precision.
    """

    def __init__(self, room: int = CACHE_BYTES) -> None:
        self._kept: dict[tuple[int, ...], Tensor] = {}
        self._room = room

    def find(self, row: Row) -> Tensor | None:
        return self._kept.get(tuple(row))

    def keep(self, row: Row, hidden: Tensor) -> None:
        size, key = hidden.numel() * hidden.element_size(), tuple(row)
        if key not in self._kept and size <= self._room:
            self._kept[key] = hidden
            self._room -= size
