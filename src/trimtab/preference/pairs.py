"""Scores of tokenised pairs during training, with the shared layers computed once.

The layers below the boundary are frozen, so their output for a row never changes: it is kept from the first pass on, as
long as it fits, and later passes run the top alone. Without shared layers rows go through the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.models.roles import ScalarModel, last_hidden
from trimtab.models.tokens import right_pad

__all__ = ["CACHE_BYTES", "PairScores"]

CACHE_BYTES = 2**30
"""Most memory that is spent on kept activations."""

Row = list[int]


class PairScores:
    """Differentiable scores of (chosen, rejected) rows by index.

    Args:
        model: the preference model in training.
        rows: tokenised chosen and rejected response of every pair.
        pad_id: what fills short rows.
    """

    def __init__(self, model: ScalarModel, rows: Sequence[tuple[Row, Row]], pad_id: int) -> None:
        self._model, self._pad_id = model, pad_id
        self._rows = [row for pair in rows for row in pair]
        self._kept: dict[int, Tensor] = {}
        self._room = CACHE_BYTES if model.boundary else 0

    def __call__(self, pairs: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Scores of the chosen and of the rejected responses of these pairs, float32 [P] each."""
        index = [2 * i for i in pairs] + [2 * i + 1 for i in pairs]
        ids, mask = right_pad([self._rows[i] for i in index], self._pad_id)
        ids, mask = ids.to(self._model.device), mask.to(self._model.device)
        if self._model.boundary == 0:
            scores = self._model.score(ids, mask)
        else:
            hidden = self._trunk(index, ids, mask)
            scores = self._model.scalars(last_hidden(self._model.top(hidden, mask), mask))
        chosen, rejected = scores.float().chunk(2)
        return chosen, rejected

    def _trunk(self, index: Sequence[int], ids: Tensor, mask: Tensor) -> Tensor:
        if all(i in self._kept for i in index):
            rows = [self._kept[i] for i in index]
            return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        with torch.no_grad():
            hidden = self._model.trunk(ids, mask)
        for place, i in enumerate(index):
            kept = hidden[place, : len(self._rows[i])].clone()
            size = kept.numel() * kept.element_size()
            if i not in self._kept and size <= self._room:
                self._kept[i] = kept
                self._room -= size
        return hidden
