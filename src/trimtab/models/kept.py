"""The output of frozen layers, kept by the tokens that they read.

What lies below the boundary of a model never changes, so neither does its output for a row: members of an ensemble, the
passes over the pairs, the folds of a study, and combinations of settings that share the boundary, all ask for the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from trimtab.models.packing import Batch, plan
from trimtab.models.roles import Role

__all__ = ["CACHE_BYTES", "KeptStates", "SharedLayers", "TrunkCache", "first_of_each"]

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


class SharedLayers:
    """Output of a model's shared layers for packed batches of rows, each row's computed once where there is room.

    Args:
        model: its layers below the boundary are run.
        rows: token rows 2 i and 2 i + 1 belong to pair i.
        pad_id: what fills short rows.
        cache: with what other models on the same trunk left there; None: a new one.
        packs: read a pair's two rows with what they begin with once.
    """

    def __init__(
        self, model: Role, rows: Sequence[list[int]], pad_id: int, cache: KeptStates | None = None, *, packs: bool
    ) -> None:
        self._model, self._rows, self._pad_id, self._packs = model, rows, pad_id, packs
        self._cache = cache or TrunkCache()
        self._width = int(model.hf.config.get_text_config().hidden_size)
        self.first = first_of_each(rows)
        """For each row the first one with the same tokens."""

    def output(self, index: Sequence[int], batch: Batch) -> Tensor:
        """[B, L, D] for a batch of the rows `index`, put together from that for each row."""
        read: dict[int, Tensor] = {}
        hidden: Tensor | None = None
        for span in batch.spans:
            i = self.first[index[span.row]]
            known = self._cache.find(self._rows[i])
            if known is None:
                if i not in read:
                    read |= self._read(i // 2)
                known = read[i]
            if hidden is None:
                hidden = known.new_zeros(*batch.ids.shape, known.shape[-1])
            hidden[span.place, : span.shared] = known[: span.shared]
            hidden[span.place, span.start : span.end] = known[span.shared :]
        assert hidden is not None, "a batch without rows"
        return hidden

    @torch.no_grad()
    def _read(self, pair: int) -> dict[int, Tensor]:
        """Compute and keep the output for the two rows of a pair, [L, D] by row.

        A pair is read by itself and a row always in the first pair that has it: what is kept then does not depend on
        the update that needed it first, and a resumed training goes on to the same bits.
        """
        index = [2 * pair, 2 * pair + 1]
        rows = [self._rows[i] for i in index]
        found: dict[int, Tensor] = {}
        for batch in plan(rows, [pair, pair] if self._packs else None, self._width, self._pad_id, self._model.device):
            hidden = self._model.trunk(batch.ids, batch.mask, batch.positions)
            for span in batch.spans:
                i = index[span.row]
                shared, rest = hidden[span.place, : span.shared], hidden[span.place, span.start : span.end]
                found[i] = torch.cat([shared, rest])
                if self.first[i] == i:
                    self._cache.keep(self._rows[i], found[i])
        return found


def first_of_each(rows: Sequence[Row]) -> list[int]:
    """For each row the place of the first one with the same tokens."""
    first: dict[tuple[int, ...], int] = {}
    return [first.setdefault(tuple(row), i) for i, row in enumerate(rows)]
