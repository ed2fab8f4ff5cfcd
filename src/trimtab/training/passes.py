"""The order of a training: what belongs to each update, from (seed, stage, pass) alone.

A resumed training asks for the same update and gets the same examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.models.seeds import numpy_stream

__all__ = ["Passes"]


class Passes:
    """Which examples each update of a training has.

    Args:
        stream: seed and stage, which the order is derived from.
        member: of an ensemble; each has an order of its own.
        examples: how many there are.
        size: examples an update; the last of a pass may have fewer.
        epochs: passes.
        groups: [examples] those of one group are in one update, alone where there are more than `size`; None: each
            stands alone.
    """

    def __init__(
        self,
        stream: tuple[int, str],
        member: int,
        examples: int,
        size: int,
        epochs: int,
        groups: Sequence[int] | None = None,
    ) -> None:
        self._seed = stream[0]
        self._names = (stream[1], "order", *(() if member == 0 else ("member", member)))
        self._examples, self._size = examples, size
        self._members: list[list[int]] | None = None
        if groups is not None:
            together: dict[int, list[int]] = {}
            for i, group in enumerate(groups):
                together.setdefault(group, []).append(i)
            self._members = list(together.values())
        # Where groups do not fill the updates alike, passes differ in length: the schedule has to know all of them.
        lengths = [
            -(-examples // self._size) if groups is None else len(self._grouped(epoch)) for epoch in range(epochs)
        ]
        self._ends = np.cumsum(lengths)
        self._open: tuple[int, list[list[int]]] = (-1, [])

    @property
    def total(self) -> int:
        """Updates in all passes."""
        return int(self._ends[-1])

    def update(self, step: int) -> list[int]:
        """The examples of the update after `step` others."""
        epoch = int(np.searchsorted(self._ends, step, side="right"))
        if self._open[0] != epoch:
            self._open = (epoch, self._plain(epoch) if self._members is None else self._grouped(epoch))
        return self._open[1][step - (int(self._ends[epoch - 1]) if epoch else 0)]

    def _plain(self, epoch: int) -> list[list[int]]:
        order = self._order(epoch, self._examples)
        return [order[start : start + self._size] for start in range(0, self._examples, self._size)]

    def _grouped(self, epoch: int) -> list[list[int]]:
        assert self._members is not None
        updates: list[list[int]] = []
        for group in (self._members[i] for i in self._order(epoch, len(self._members))):
            if updates and len(updates[-1]) + len(group) <= self._size:
                updates[-1].extend(group)
            else:
                updates.append(list(group))
        return updates

    def _order(self, epoch: int, count: int) -> list[int]:
        order: list[int] = numpy_stream(self._seed, *self._names, epoch).permutation(count).tolist()
        return order
