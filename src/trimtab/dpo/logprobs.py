"""Log-probabilities of the responses of tokenised pairs, from as few computed tokens as may be.

A pair's two rows begin with the same prompt: it is computed once where the model can be run layer by layer (see
`models.packing`). What the frozen layers below the boundary give is kept from the first pass on (`models.kept`). Logits
are never there for all tokens at once (`models.chosen`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.dpo.rows import TokenPair
from trimtab.models.kept import SharedLayers
from trimtab.models.logprobs import hidden_logprobs
from trimtab.models.packing import Batch, cut, plan
from trimtab.models.roles import CausalModel

__all__ = ["PairLogprobs"]


class PairLogprobs:
    """Differentiable log-probabilities of whole responses, by index of the pair.

    Args:
        model: the policy; before its first update it is the reference.
        pairs: tokenised.
        pad_id: what fills short rows.
    """

    def __init__(self, model: CausalModel, pairs: Sequence[TokenPair], pad_id: int) -> None:
        self._model, self._pairs, self._pad_id = model, pairs, pad_id
        self._rows = [row for pair in pairs for row in (pair.chosen, pair.rejected)]
        self._packs = model.backbone.takes_pairwise_mask
        self._width = int(model.hf.config.get_text_config().hidden_size)
        self._shared = SharedLayers(model, self._rows, pad_id, packs=self._packs) if model.boundary else None
        self.computed = 0
        """Tokens that went through the model so far, padding included."""

    def __call__(self, pairs: Sequence[int]) -> Tensor:
        """Sums over the tokens of the chosen and of the rejected responses, float32 [P, 2], in nats."""
        index = [row for i in pairs for row in (2 * i, 2 * i + 1)]
        rows = [self._rows[i] for i in index]
        keys = [i // 2 for i in index] if self._packs else None
        batches = plan(rows, keys, self._width, self._pad_id, self._model.device)
        self.computed += sum(batch.ids.numel() for batch in batches)
        sums = torch.cat([self._sums(index, batch) for batch in batches])
        order = [span.row for batch in batches for span in batch.spans]
        return sums[sorted(range(len(order)), key=order.__getitem__)].view(-1, 2)

    def parts(self, pairs: Sequence[int], size: int | None) -> list[list[int]]:
        """Places in `pairs` in parts of at most `size`, pairs of like length together."""
        return cut([self._pairs[i].width for i in pairs], None, size)

    def needed(self, pairs: Sequence[int]) -> int:
        """Tokens of these pairs, each response with its prompt."""
        return sum(len(self._pairs[i].chosen) + len(self._pairs[i].rejected) for i in pairs)

    def _sums(self, index: Sequence[int], batch: Batch) -> Tensor:
        """[R] of the rows of a batch, in the order of its spans."""
        model = self._model
        trunk = None if self._shared is None else self._shared.output(index, batch)
        hidden = model.hidden(batch.ids, batch.mask, batch.positions, trunk=trunk)
        places: list[Tensor] = []
        columns: list[Tensor] = []
        targets: list[int] = []
        for span in batch.spans:
            row, prompt = self._rows[index[span.row]], self._pairs[index[span.row] // 2].prompt
            at = torch.arange(prompt - 1, len(row) - 1)  # each position predicts the token after it
            columns.append(torch.where(at < span.shared, at, span.start + at - span.shared))
            places.append(torch.full_like(at, span.place))
            targets += row[prompt:]
        states = hidden[torch.cat(places).to(hidden.device), torch.cat(columns).to(hidden.device)]
        wanted = torch.tensor(targets, device=hidden.device)
        logprobs = hidden_logprobs(model, states[None], wanted[None], 1.0).logprobs[0]
        return torch.stack([part.sum() for part in logprobs.split([len(at) for at in columns])])
