"""Scores of tokenised pairs during training, with the shared layers computed once.

The layers below the boundary are frozen, so their output for a row never changes: it is kept from the first pass on, as
long as it fits, and later passes, and other members of an ensemble, run the top alone. Without shared layers rows go
through the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.models.heads import head_scores
from trimtab.models.roles import ScalarModel, last_hidden
from trimtab.models.tokens import right_pad
from trimtab.preference.dropout import Dropout

__all__ = ["CACHE_BYTES", "PairScores", "TrunkCache"]

CACHE_BYTES = 2**30
"""Most memory that is spent on kept activations."""

Row = list[int]


class TrunkCache:
    """Output of the shared layers by row, as much as there is room for."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}
        self._room = CACHE_BYTES

    def find(self, index: Sequence[int]) -> Tensor | None:
        """[B, L, D] padded output for these rows, if all of them were kept."""
        if not all(i in self._kept for i in index):
            return None
        return torch.nn.utils.rnn.pad_sequence([self._kept[i] for i in index], batch_first=True)

    def keep(self, i: int, hidden: Tensor) -> None:
        """Keep a row's output [L, D] if there is room."""
        size = hidden.numel() * hidden.element_size()
        if i not in self._kept and size <= self._room:
            self._kept[i] = hidden.clone()
            self._room -= size


class PairScores:
    """Differentiable scores of (chosen, rejected) rows by index.

    Args:
        model: the preference model in training.
        rows: tokenised chosen and rejected response of every pair.
        pad_id: what fills short rows.
        cache: of the shared layers' output, from another model on the same trunk and rows; None: a new one.
        dropout: what is dropped where the caller has it on.
        once: a response that stands in several pairs of a batch is computed once.
    """

    def __init__(
        self,
        model: ScalarModel,
        rows: Sequence[tuple[Row, Row]],
        pad_id: int,
        *,
        cache: TrunkCache | None = None,
        dropout: Dropout | None = None,
        once: bool = False,
    ) -> None:
        self._model, self._pad_id, self._dropout, self._once = model, pad_id, dropout, once
        self._rows = [row for pair in rows for row in pair]
        self._cache = cache or TrunkCache()
        self._first = _first_of_each(self._rows) if once else []

    def __call__(self, pairs: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Scores of the chosen and of the rejected responses of these pairs, float32 [P] each."""
        chosen, rejected = self.heads(pairs)
        return chosen[:, 0], rejected[:, 0]

    def heads(self, pairs: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Scores of the same by every head of the model, float32 [P, H] each."""
        index = [2 * i for i in pairs] + [2 * i + 1 for i in pairs]
        if not self._once:
            chosen, rejected = self._scores(index).chunk(2)
            return chosen, rejected
        index = [self._first[i] for i in index]
        place = {row: at for at, row in enumerate(dict.fromkeys(index))}
        scores = self._scores(list(place))
        chosen, rejected = scores[[place[row] for row in index]].chunk(2)
        return chosen, rejected

    def _scores(self, index: Sequence[int]) -> Tensor:
        model = self._model
        ids, mask = right_pad([self._rows[i] for i in index], self._pad_id)
        ids, mask = ids.to(model.device), mask.to(model.device)
        hidden = model.hidden(ids, mask) if model.boundary == 0 else model.top(self._trunk(index, ids, mask), mask)
        last = last_hidden(hidden, mask)
        return head_scores(model.linear, last if self._dropout is None else self._dropout.head(last))

    def _trunk(self, index: Sequence[int], ids: Tensor, mask: Tensor) -> Tensor:
        kept = self._cache.find(index)
        if kept is not None:
            return kept
        with torch.no_grad():
            hidden = self._model.trunk(ids, mask)
        for place, i in enumerate(index):
            self._cache.keep(i, hidden[place, : len(self._rows[i])])
        return hidden


def _first_of_each(rows: Sequence[Row]) -> list[int]:
    first: dict[tuple[int, ...], int] = {}
    return [first.setdefault(tuple(row), i) for i, row in enumerate(rows)]
