"""Dropout that is there during a training pass and nowhere else.

Roles have none for good (a policy's ratio and KL would never be 1 and 0), and a score must be the same each time it is
asked for. What is dropped is drawn from (seed, member, update), so that a resumed training drops the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import EncoderScalar, ScoreModel
from trimtab.models.seeds import stream_seed

__all__ = ["Dropout"]


class Dropout:
    """Inverted dropout: a kept number is divided by the share that is kept, so that means stay what they are.

    Args:
        model: the model in training.
        layers: share that is dropped of what each layer above the shared ones adds to the hidden state.
        head: share that is dropped of the head's inputs.
        names: seed and member.

    Raises:
        TrimtabError: the layers of the model cannot be found.
    """

    def __init__(self, model: ScoreModel, layers: float, head: float, *names: int) -> None:
        self._share, self._head, self._names = layers, head, names
        self._layers = _layers(model) if layers else []
        self._generator = torch.Generator(device=model.device)
        self.step = 0
        """The update that is made; its number seeds what is dropped."""
        self.part = 0
        """The part of the update that is in memory; it seeds, too."""

    @contextmanager
    def on(self) -> Iterator[None]:
        """Drop inside; without a trace outside."""
        seed, *names = self._names
        part = ("part", self.part) if self.part else ()
        self._generator.manual_seed(stream_seed(seed, "pm", "dropout", *names, self.step, *part))
        hooks = [layer.register_forward_hook(self._thin) for layer in self._layers]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def head(self, hidden: Tensor) -> Tensor:
        """The head's inputs [..., D], thinned out."""
        return hidden if self._head == 0 else hidden * self._mask(hidden, self._head)

    def _thin(self, _: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        before = inputs[0]
        after = output[0] if isinstance(output, tuple) else output
        added = after - before
        thinned = before + added * self._mask(added, self._share)
        return (thinned, *output[1:]) if isinstance(output, tuple) else thinned

    def _mask(self, like: Tensor, share: float) -> Tensor:
        kept = torch.rand(like.shape, generator=self._generator, device=like.device) >= share
        return kept.to(like.dtype) / (1 - share)


def _layers(model: ScoreModel) -> list[nn.Module]:
    if isinstance(model, EncoderScalar):
        body, count = model.hf.base_model, model.layer_count
    else:
        body, count = model.backbone.body, model.backbone.layer_count
    for module in body.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return list(module)[model.boundary :]
    raise TrimtabError(
        ErrorKind.MODEL,
        f"preference.dropout: {type(model.hf).__name__} has no list of its {count} layers",
        "set preference.head_dropout instead",
    )
