"""Which tokens of a set of rows are computed, and in which batches.

Rows that begin alike (a prompt with two responses) can share a row of a batch: what they have in common stands there
once, then the rest of each, which sees the common part and itself and counts its positions on from there. In a causal
model every hidden state is then what it is in a row of its own. Rows of like width go together, so that little padding
is computed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Batch", "Span", "common_start", "cut", "plan"]

Row = Sequence[int]

_TOKENS_OF_A_BATCH = {"cpu": 128}
_TOKENS_OF_A_LAUNCH = 2048
"""How many tokens cost what one batch more does: on a CPU adding up all weights' gradients, elsewhere its launches."""


@dataclass(frozen=True, slots=True)
class Span:
    """Where a row stands in a batch: tokens 0 to `shared` - 1 of `place`, then `start` to `end` - 1."""

    row: int
    place: int
    shared: int
    start: int
    end: int

    @property
    def last(self) -> int:
        """Column of the row's last token."""
        return self.end - 1 if self.end > self.start else self.shared - 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as tensors.

    Attributes:
        ids: int64 [B, L].
        mask: bool [B, L], True = a real token; where rows share a start [B, L, L], who (dim 1) sees whom (dim 2).
        positions: int64 [B, L]; of padding arbitrary.
        spans: one for each row of the batch.
    """

    ids: Tensor
    mask: Tensor
    positions: Tensor
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Rows, by number, that stand in one row of a batch, with the first `shared` tokens once."""

    rows: tuple[int, ...]
    shared: int
    width: int


def common_start(a: Row, b: Row) -> int:
    """How many tokens two rows have in common before they first differ."""
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    return next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)


def plan(
    rows: Sequence[Row],
    keys: Sequence[Hashable] | None,
    hidden_size: int,
    pad_id: int,
    device: torch.device,
) -> list[Batch]:
    """The batches that compute `rows` in the fewest tokens.

    Args:
        rows: B rows of token ids; none is empty.
        keys: [B] rows of one key may share a row of a batch, and do where that saves tokens; None: none may.
        hidden_size: of the model: a row's attention costs more the wider it is, against the model's width.
        pad_id: what fills short rows.
        device: where the tensors are to be.
    """
    plain = [_Unit((i,), 0, len(row)) for i, row in enumerate(rows)]
    best = _batches(plain, device)
    if keys is not None:
        packed = _batches(_units(rows, keys, hidden_size), device)
        best = min((best, packed), key=lambda batches: _cost(batches, hidden_size, device))
    return [_tensors(units, rows, pad_id, device) for units in best]


def cut(widths: Sequence[int], keys: Sequence[Hashable] | None, size: int | None) -> list[list[int]]:
    """Places 0 to P - 1 in parts of at most `size`, like widths together; `size` None: one part.

    Those of one key stay together where there is room for all of them.
    """
    if size is None or len(widths) <= size:
        return [list(range(len(widths)))]
    together: dict[Hashable, list[int]] = {}
    for i in range(len(widths)):
        together.setdefault(i if keys is None else keys[i], []).append(i)
    groups = sorted(together.values(), key=lambda group: max(widths[i] for i in group))
    parts: list[list[int]] = [[]]
    for group in groups:
        for start in range(0, len(group), size):
            piece = group[start : start + size]
            if len(parts[-1]) + len(piece) > size:
                parts.append([])
            parts[-1].extend(piece)
    return parts


def _units(rows: Sequence[Row], keys: Sequence[Hashable], hidden_size: int) -> list[_Unit]:
    """Rows of one key side by side, but no more than two where that is wider than the model."""
    done: list[_Unit] = []
    open_units: dict[Hashable, _Unit] = {}
    for i, (row, key) in enumerate(zip(rows, keys, strict=True)):
        unit = open_units.get(key)
        joined = None if unit is None else _joined(unit, i, rows)
        if unit is None or joined is None or (len(joined.rows) > 2 and joined.width > hidden_size):
            if unit is not None:
                done.append(unit)
            joined = _Unit((i,), 0, len(row))
        open_units[key] = joined
    return done + list(open_units.values())


def _joined(unit: _Unit, i: int, rows: Sequence[Row]) -> _Unit | None:
    """`unit` with one row more; None where they have nothing in common."""
    alike = common_start(rows[unit.rows[0]], rows[i])
    shared = alike if len(unit.rows) == 1 else min(unit.shared, alike)
    if shared == 0:
        return None
    members = (*unit.rows, i)
    return _Unit(members, shared, shared + sum(len(rows[j]) - shared for j in members))


def _batches(units: list[_Unit], device: torch.device) -> list[list[_Unit]]:
    """Units by width, a batch ended where its padding would come to cost more than a batch more."""
    allowed = _TOKENS_OF_A_BATCH.get(device.type, _TOKENS_OF_A_LAUNCH)
    batches: list[list[_Unit]] = [[]]
    tokens = 0
    for unit in sorted(units, key=lambda unit: unit.width):
        held = batches[-1]
        if unit.width * (len(held) + 1) - (tokens + unit.width) > allowed:
            batches.append([])
            tokens = 0
        batches[-1].append(unit)
        tokens += unit.width
    return batches


def _cost(batches: list[list[_Unit]], hidden_size: int, device: torch.device) -> float:
    """In tokens; attention over a row as wide as twice the model costs about what the rest of a layer does."""
    computed = [(len(units) * units[-1].width, units[-1].width) for units in batches]
    more = (len(batches) - 1) * _TOKENS_OF_A_BATCH.get(device.type, _TOKENS_OF_A_LAUNCH)
    return more + sum(tokens * (1 + width / (2 * hidden_size)) for tokens, width in computed)


def _tensors(units: Sequence[_Unit], rows: Sequence[Row], pad_id: int, device: torch.device) -> Batch:
    width = max(unit.width for unit in units)
    ids = torch.full((len(units), width), pad_id)
    positions = torch.zeros(len(units), width, dtype=torch.int64)
    part = torch.full((len(units), width), -1)  # 0: the shared start, 1, 2, ...: each row's rest, -1: padding
    spans = []
    for place, unit in enumerate(units):
        ids[place, : unit.shared] = torch.tensor(rows[unit.rows[0]][: unit.shared], dtype=torch.int64)
        positions[place, : unit.shared] = torch.arange(unit.shared)
        part[place, : unit.shared] = 0
        start = unit.shared
        for number, i in enumerate(unit.rows, 1):
            end = start + len(rows[i]) - unit.shared
            ids[place, start:end] = torch.tensor(rows[i][unit.shared :], dtype=torch.int64)
            positions[place, start:end] = torch.arange(unit.shared, len(rows[i]))
            part[place, start:end] = number
            spans.append(Span(i, place, unit.shared, start, end))
            start = end
    ids, positions, part = ids.to(device), positions.to(device), part.to(device)
    mask = _visible(part) if any(len(unit.rows) > 1 for unit in units) else part >= 0
    return Batch(ids, mask, positions, tuple(spans))


def _visible(part: Tensor) -> Tensor:
    """[B, L] -> bool [B, L, L]: a token sees the shared start and its own part, up to itself; padding sees itself, too.

    A row of the mask without any True would give attention nothing to average.
    """
    seer, seen = part[:, :, None], part[:, None, :]
    allowed = (seen == 0) | (seen == seer)
    return torch.tril(allowed)
