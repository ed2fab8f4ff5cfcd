"""Scores of tokenised pairs during training: what is computed, and what is known already.

A prompt that chosen and rejected begin with is computed once where the model can be run layer by layer and tokens are
saved by it (see `models.packing`). The layers below the boundary are frozen, so their output for a row never changes:
it is kept from the first pass on, as long as it fits, and later passes, and other members of an ensemble, run the top
alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.models.encoder import ScoreModel
from trimtab.models.heads import head_scores
from trimtab.models.kept import KeptStates, SharedLayers, first_of_each
from trimtab.models.packing import Batch, cut, plan
from trimtab.models.roles import ScalarModel
from trimtab.preference.dropout import Dropout

__all__ = ["PairScores"]

Row = list[int]


class PairScores:
    """Differentiable scores of (chosen, rejected) rows by index.

    Args:
        model: the preference model in training.
        rows: tokenised chosen and rejected response of every pair.
        pad_id: what fills short rows.
        cache: of the shared layers' output, with what other models on the same trunk left there; None: a new one.
        dropout: what is dropped where the caller has it on.
        prompts: which prompt each pair belongs to: a response that stands in several pairs of a batch is computed once,
            and a prompt once for all of its pairs; None: pairs have nothing to do with each other.
    """

    def __init__(
        self,
        model: ScoreModel,
        rows: Sequence[tuple[Row, Row]],
        pad_id: int,
        *,
        cache: KeptStates | None = None,
        dropout: Dropout | None = None,
        prompts: Sequence[int] | None = None,
    ) -> None:
        self._model, self._pad_id, self._dropout, self._prompts = model, pad_id, dropout, prompts
        self._rows = [row for pair in rows for row in pair]
        self._packs = isinstance(model, ScalarModel) and model.backbone.takes_pairwise_mask
        self._shared: SharedLayers | None = None
        if isinstance(model, ScalarModel) and model.boundary:
            self._shared = SharedLayers(model, self._rows, pad_id, cache, packs=self._packs)
        self._first = first_of_each(self._rows)
        self.computed = 0
        """Tokens that went through the model so far, padding included."""

    def __call__(self, pairs: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Scores of the chosen and of the rejected responses of these pairs, float32 [P] each."""
        chosen, rejected = self.heads(pairs)
        return chosen[:, 0], rejected[:, 0]

    def heads(self, pairs: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Scores of the same by every head of the model, float32 [P, H] each."""
        index = [2 * i for i in pairs] + [2 * i + 1 for i in pairs]
        if self._prompts is None:
            chosen, rejected = self._scores(index).chunk(2)
            return chosen, rejected
        index = [self._first[i] for i in index]
        place = {row: at for at, row in enumerate(dict.fromkeys(index))}
        scores = self._scores(list(place))
        chosen, rejected = scores[[place[row] for row in index]].chunk(2)
        return chosen, rejected

    def parts(self, pairs: Sequence[int], size: int | None) -> list[list[int]]:
        """Places in `pairs` in parts of at most `size`, pairs of like length together; see `models.packing.cut`."""
        prompts = None if self._prompts is None else [self._prompts[i] for i in pairs]
        return cut([max(len(self._rows[2 * i]), len(self._rows[2 * i + 1])) for i in pairs], prompts, size)

    def needed(self, pairs: Sequence[int]) -> int:
        """Tokens of these pairs, each response with its prompt."""
        return sum(len(self._rows[2 * i]) + len(self._rows[2 * i + 1]) for i in pairs)

    def _scores(self, index: Sequence[int]) -> Tensor:
        model = self._model
        keys = [i // 2 if self._prompts is None else self._prompts[i // 2] for i in index]
        rows = [self._rows[i] for i in index]
        batches = plan(rows, keys if self._packs else None, model.linear.in_features, self._pad_id, model.device)
        self.computed += sum(batch.ids.numel() for batch in batches)
        features = torch.cat([self._features(index, batch) for batch in batches])
        order = [span.row for batch in batches for span in batch.spans]
        features = features[sorted(range(len(order)), key=order.__getitem__)]
        return head_scores(model.linear, features if self._dropout is None else self._dropout.head(features))

    def _features(self, index: Sequence[int], batch: Batch) -> Tensor:
        """What the head reads of the rows of a batch, [R, D], in the order of its spans."""
        model = self._model
        if not isinstance(model, ScalarModel):
            return model.features(batch.ids, batch.mask)
        trunk = self._shared.output(index, batch) if self._shared is not None else None
        columns: list[list[int]] = [[] for _ in batch.ids]
        for span in batch.spans:
            columns[span.place].append(span.last)
        # every place as many: one with fewer spans has its first again
        at = torch.tensor([c + c[:1] * (max(map(len, columns)) - len(c)) for c in columns], device=model.device)
        states = model.states(batch.ids, batch.mask, at, batch.positions, trunk=trunk)
        return states[
            [span.place for span in batch.spans],
            [columns[span.place].index(span.last) for span in batch.spans],
        ]
