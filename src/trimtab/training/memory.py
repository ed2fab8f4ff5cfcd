"""Work done as many rows at a time as memory holds: halved when it runs out, or estimated from a budget beforehand.

Linux hands out more memory than there is and kills whoever uses it, so that on a CPU the halving alone does not help:
there a budget is held against what a pass keeps for its backward pass, which is counted by running one.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.training.world import World

__all__ = ["RowLimit", "RowMemory", "is_out_of_memory", "kept_for_backward", "machine_bytes"]

T = TypeVar("T")

_SIGNS = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "alloc_failed")
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: torch has a class for it on a GPU, on a CPU a `RuntimeError` says so."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in _SIGNS)


class RowLimit:
    """How many rows of a kind of work are in memory at once.

    Args:
        what: the work, as in "memory ran out in ...".
        rows: at most so many; None: all of them.
        adapts: halve when memory runs out; else that is an error.
        world: processes that do this work at the same time: where one runs out, all halve, and they stay equal.
        instead: what helps where it does not adapt, for the message.
    """

    def __init__(
        self, what: str, rows: int | None, *, adapts: bool, world: World | None = None, instead: str = ""
    ) -> None:
        self.rows = rows
        self._what, self._adapts, self._instead = what, adapts, instead
        self._world = world or World.single()

    def of(self, count: int) -> int:
        """Rows at once where there are `count`, at least 1."""
        return max(1, count if self.rows is None else min(self.rows, count))

    def run(self, work: Callable[[int], T], count: int, undo: Callable[[], None] | None = None) -> T:
        """Do the work; where memory runs out undo what was done of it, halve the rows and do it again.

        Args:
            work: is told how many rows to take at once, and talks to no other process where there are several.
            count: of all rows; at least 1.
            undo: makes as if `work` had not begun; None: it changes nothing but what it returns.

        Raises:
            TrimtabError: it runs out with one row, or with a number that was asked for.
        """
        while True:
            rows, found, why = self.of(count), None, ""
            try:
                found = work(rows)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                why = str(error).strip().partition("\n")[0] or type(error).__name__
            # outside the handler the error is gone, and with it the frames that hold what has to be freed
            if not self._adapts:
                if why:
                    raise self._refusal(rows, why)
            elif self._world.size > 1:
                whys = self._world.hear(why)
                why = next((one for one in whys if one), "")
            if not why:
                return found  # type: ignore[return-value]  # `work` has returned it
            found = None
            if undo is not None:
                undo()
            _free()
            if rows == 1:
                raise self._refusal(rows, why)
            self.rows = rows // 2

    def _refusal(self, rows: int, why: str) -> TrimtabError:
        return TrimtabError(
            ErrorKind.FAILED,
            f"memory ran out in {self._what} with {rows} {'response' if rows == 1 else 'responses'} at once: {why}",
            f"{self._instead}shorten them (ppo.max_new_tokens, prompts.max_tokens), train fewer layers or adapters "
            "(model.trainable), set ppo.recompute = true, or compute in bfloat16 (model.dtype); the last checkpoint "
            "is intact",
        )


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@dataclass(frozen=True)
class RowMemory:
    """Bytes of a pass over n rows: fixed + n * per_row."""

    fixed: int
    per_row: int

    def rows(self, budget: float) -> int:
        """How many fit into `budget` bytes; at least 1."""
        return max(1, math.floor((budget - self.fixed) / max(self.per_row, 1)))


def kept_for_backward(forward: Callable[[int], Any], weights: Iterable[Tensor]) -> RowMemory:
    """What a forward pass keeps for its backward pass, counted over passes of one and of two rows.

    Not counted: the weights, and what is needed only for a moment.

    Args:
        forward: runs the pass with gradients over so many rows of equal size; what it returns holds the graph.
        weights: of the model.
    """
    own = {w.untyped_storage().data_ptr() for w in weights}

    def count(rows: int) -> int:
        # Held, so that no storage is freed and its address taken by another. The storages, not the tensors, and the
        # graph gets nothing: a tensor leads to the graph that it is kept in, and neither would ever be freed.
        held: dict[int, torch.UntypedStorage] = {}

        def pack(x: Tensor) -> None:
            storage = x.untyped_storage()
            held.setdefault(storage.data_ptr(), storage)

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, _never):
            graph = forward(rows)
        total = sum(storage.nbytes() for at, storage in held.items() if at not in own)
        del graph
        return total

    one, two = count(1), count(2)
    per_row = max(two - one, 0)
    return RowMemory(max(one - per_row, 0), per_row)


def _never(_: object) -> Tensor:
    raise RuntimeError("a pass that was only counted has no backward pass")


def machine_bytes(environment: Mapping[str, str] | None = None) -> float:
    """Memory of this machine, or of the container, that falls to this process; infinite where it cannot be told."""
    limits = [math.inf]
    with suppress(ValueError, OSError, AttributeError):  # not on every system
        limits.append(float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(float(Path(path).read_text("ascii")))
    variables = os.environ if environment is None else environment
    local = variables.get("LOCAL_WORLD_SIZE", "1")
    return min(limits) / max(int(local) if local.isdigit() else 1, 1)
