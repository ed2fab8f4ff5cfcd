"""The last layer of a decoder where only some of its outputs are read.

A score is read at one token. In the layers below, every token is seen by later ones; of the last layer the others need
nothing but its keys and values. With the queries, which come along, those are about a sixth of a Llama-like layer's
weights, so that a model of which only the last layer is trained, on a trunk whose output is known, costs a fraction of
what it does to compute the layer everywhere.

Attention modules hand their keys and values to a cache and go on with what it gives back. A first call on all tokens
ends there; a second one, on the tokens that are read, gets the keys and values of all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["last_layer"]


class _Captured(Exception):  # noqa: N818 - no error: it ends a call that has done its part
    """Keys and values are there: the rest of the call would be for nothing."""


class _Capture:
    """Stands in for a cache; remembers what it is given and ends the call."""

    def __init__(self) -> None:
        self.found: tuple[Tensor, Tensor] | None = None

    def update(self, keys: Tensor, values: Tensor, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        self.found = keys, values
        raise _Captured


class _Replay:
    """Stands in for a cache that holds the keys and values of all tokens already."""

    def __init__(self, held: tuple[Tensor, Tensor]) -> None:
        self._held = held

    def update(self, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        return self._held


def last_layer(
    layer: nn.Module,
    hidden: Tensor,
    visible: Tensor,
    rotary: tuple[Tensor, Tensor],
    positions: Tensor,
    at: Tensor,
) -> Tensor | None:
    """What `layer` puts out at some tokens.

    Args:
        layer: a decoder layer that hands its keys and values to a cache, as transformers' do.
        hidden: [B, L, D] what it reads.
        visible: [B, 1, n, L] what each of the tokens `at` sees, in the form that the model's attention wants.
        rotary: cosines and sines [B, L, d] of all tokens.
        positions: int64 [B, L].
        at: int64 [B, n] columns of the tokens that are read.

    Returns:
        [B, n, D]; None where the layer has handed nothing to the cache.
    """
    captured = _Capture()
    row = torch.arange(len(at), device=at.device)[:, None]
    common: dict[str, Any] = {"use_cache": True}
    with suppress(_Captured):
        layer(hidden, position_embeddings=rotary, position_ids=positions, cache=captured, **common)
    if captured.found is None:
        return None
    cosines, sines = (part.expand(len(at), -1, -1)[row, at] for part in rotary)
    out: Tensor = layer(
        hidden[row, at],
        attention_mask=visible,
        position_embeddings=(cosines, sines),
        position_ids=positions.expand(len(at), -1)[row, at],
        cache=_Replay(captured.found),
        **common,
    )
    return out
