"""What of a model is trained, and what its roles share: the meaning of `model.trainable`.

full          every role is a whole model of its own, all of it trained
top:n         the n top layers (with norm and head); what lies below is frozen and in memory once
lora          adapters in all layers; the model itself is frozen and in memory once
lora-top:n    adapters in the n top layers; as `lora`, and what lies below is also computed once for all roles
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["FULL", "LAYOUTS", "Layout", "Lora"]

LAYOUTS = r"^(full|lora|(lora-)?top:[1-9][0-9]{0,8})$"
"""Pattern of what a layout is written as."""


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters: a linear layer W becomes W + alpha / rank * B A, and only A [rank, in], B [out, rank] learn.

    `targets`: names of the linear layers that get one, by the last part of their names; empty: all of attention and
    MLP. `head`: the language-model head is trained whole beside them. Source: Hu et al., arXiv 2106.09685.
    """

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = ()
    head: bool = False


@dataclass(frozen=True)
class Layout:
    """`top`: how many layers are trained or get adapters; None: all. `lora`: the adapters; None: whole weights.

    `head`: the language-model head is trained too where it is tied to the embedding, as a weight of its own.
    """

    top: int | None = None
    lora: Lora | None = None
    head: bool = False

    @classmethod
    def parse(cls, text: str, lora: Lora | None = None, head: bool = False) -> Self:
        """From what `model.trainable` says; `lora`: what adapters are like where there are some (None: the defaults).

        Raises:
            TrimtabError: it is no layout.
        """
        if not re.fullmatch(LAYOUTS, text):
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"model.trainable = {text!r}",
                'it must be "full", "lora", "top:<layers>" or "lora-top:<layers>", with at least one layer',
            )
        kind, _, count = text.partition(":")
        adapters = replace(lora or Lora(), head=head) if kind.startswith("lora") else None
        return cls(int(count) if count else None, adapters, head and text != "full")

    def __str__(self) -> str:
        kind = "lora" if self.lora else "full"
        return kind if self.top is None else f"{'lora-' if self.lora else ''}top:{self.top}"

    @property
    def shares(self) -> bool:
        """Whether roles have weights in common."""
        return self.top is not None or self.lora is not None

    def boundary(self, layers: int) -> int:
        """How many of a model's `layers` lie below what is trained.

        Raises:
            TrimtabError: the model has fewer layers than are to be trained.
        """
        if self.top is None:
            return 0
        if self.top > layers:
            raise TrimtabError(
                ErrorKind.CONFIG,
                f'model.trainable = "{self}": the model has {layers} layers',
                f"name 1 to {layers} layers",
            )
        return layers - self.top


FULL = Layout()
"""Everything is trained, nothing shared."""
