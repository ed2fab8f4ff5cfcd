"""`trimtab.models.kept.KeptStates` in a file: what frozen layers put out, also for the next process."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from trimtab.runs.files import append_jsonl, read_jsonl

__all__ = ["StatesFile"]


class StatesFile:
    """bfloat16 states in `DIR/states.bin`, what stands where in `DIR/index.jsonl`.

    Args:
        directory: of one trunk alone: weights, layers and precision.
        room: bytes that the file may have.
    """

    def __init__(self, directory: Path, room: int = 2**31) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._index = directory / "index.jsonl"
        self._places = {r["row"]: (r["offset"], r["shape"]) for r in read_jsonl(self._index).records}
        self._room = room
        self._end = max((offset + 2 * shape[0] * shape[1] for offset, shape in self._places.values()), default=0)
        self._file = os.open(directory / "states.bin", os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._file, self._end)  # a write that was cut short is in no index

    def find(self, row: Sequence[int]) -> Tensor | None:
        """[L, D] the states of a row."""
        place = self._places.get(_key(row))
        if place is None:
            return None
        offset, (length, width) = place
        data = bytearray(os.pread(self._file, 2 * length * width, offset))
        return torch.frombuffer(data, dtype=torch.bfloat16).view(length, width)

    def keep(self, row: Sequence[int], hidden: Tensor) -> None:
        """Write the states [L, D] of a row, if there is room."""
        if hidden.dtype != torch.bfloat16:
            raise TypeError(f"states of {hidden.dtype}: the file holds bfloat16")
        key, size = _key(row), 2 * hidden.numel()
        if key in self._places or self._end + size > self._room:
            return
        os.pwrite(self._file, hidden.contiguous().view(torch.int16).numpy().tobytes(), self._end)
        append_jsonl(self._index, [{"row": key, "offset": self._end, "shape": list(hidden.shape)}])
        self._places[key] = self._end, list(hidden.shape)
        self._end += size


def _key(row: Sequence[int]) -> str:
    return hashlib.sha256(str(list(row)).encode()).hexdigest()[:32]
