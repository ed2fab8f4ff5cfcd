"""What a reader makes of a file before anybody asks what its columns mean: numbers by column and row."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.doctor.importers.numbers import flatten, fraction_of, number
from trimtab.doctor.log import Floats, Skipped

__all__ = ["Column", "Skips", "Table", "TableBuilder"]

Rows = NDArray[np.int64]
_WRAPPERS = frozenset({"data", "metrics", "logs", "log", "scalars", "values"})
_LONG_NAMES = ("tag", "metric", "name", "key", "metric_name")
_MOST_COLUMNS = 20_000


class Skips:
    """Counts what could not be read, by reason, with the first place."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int | None, str]] = {}

    def add(self, reason: str, line: int | None = None, example: str = "", count: int = 1) -> None:
        """Note one more of `reason`; of the first, line and example are kept."""
        seen = self._found.get(reason)
        first = (line, example[:160]) if seen is None else (seen[1], seen[2])
        self._found[reason] = ((seen[0] if seen else 0) + count, *first)

    def merge(self, other: Iterable[Skipped]) -> None:
        """Take over what another part of the file skipped; its lines come later."""
        for item in other:
            self.add(item.reason, item.first_line, item.example, item.count)

    @property
    def all(self) -> tuple[Skipped, ...]:
        """What was skipped so far."""
        return tuple(Skipped(reason, n, line, example) for reason, (n, line, example) in self._found.items())


@dataclass(slots=True, eq=False)
class Column:
    """Numbers of one name: `rows` [N] rising, `values` [N]."""

    rows: Rows
    values: Floats

    def __len__(self) -> int:
        return len(self.values)


@dataclass(slots=True, eq=False)
class Table:
    """The numbers of one log.

    Args:
        format: what the file was recognised as.
        columns: by the log's own names.
        rows: number of rows.
        steps: [rows] the step of each row where the file's form says it (a progress bar, an event); else None.
        planned_steps: steps that the run was to take.
        texts: values that are texts, the last of each name.
        config: settings that the file or its neighbours state.
        skipped: what could not be read.
        truncated: the file ends in the middle of a record.
        hint: name of a dialect that the form alone gives away.
        part: which of the runs in the file this is; empty for the only one.
        lines: [rows] the line of the file that each row stood in, where the reader kept it.
    """

    format: str
    columns: dict[str, Column]
    rows: int
    steps: Rows | None = None
    planned_steps: int | None = None
    texts: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    truncated: bool = False
    hint: str = ""
    part: str = ""
    lines: Rows | None = None


class _Parts:
    """A column under construction: finished blocks, then single values."""

    __slots__ = ("blocks", "rows", "values")

    def __init__(self) -> None:
        self.blocks: list[tuple[Rows, Floats]] = []
        self.rows = array("q")
        self.values = array("d")

    def flush(self) -> None:
        if self.rows:
            self.blocks.append((np.array(self.rows, np.int64), np.array(self.values, np.float64)))
            self.rows, self.values = array("q"), array("d")

    def column(self) -> Column:
        self.flush()
        if len(self.blocks) == 1:
            return Column(*self.blocks[0])
        column = Column(np.concatenate([b[0] for b in self.blocks]), np.concatenate([b[1] for b in self.blocks]))
        self.blocks = []
        return column


class TableBuilder:
    """Takes rows one at a time (`add`) or many at once (`add_block`)."""

    def __init__(self, form: str) -> None:
        self.format = form
        self.rows = 0
        self.skips = Skips()
        self.texts: dict[str, str] = {}
        self.config: dict[str, Any] = {}
        self.planned_steps: int | None = None
        self.truncated = False
        self.hint = ""
        self.last_bad = 0
        self._steps = array("q")
        self._parts: dict[str, _Parts] = {}
        self._dropped_names = False

    def add(self, record: Mapping[Any, Any], line: int | None = None, *, step: int | None = None) -> bool:
        """Add the numbers of `record` as a row; False where it has none.

        Tables inside it are flattened; a record that names a metric and gives its value becomes that metric's number.
        """
        found = False
        long = _long_form(record)
        for name, value in [long] if long else record.items():
            x = value if type(value) is float else number(value)
            if x is not None:
                self._put(name, x)
                found = True
            elif isinstance(value, dict):
                found = self._nested(name, value) or found
            else:
                self._text(name, value)
        if long and found:
            for name, value in record.items():
                if name in ("step", "epoch", "iteration") and (x := number(value)) is not None:
                    self._put(name, x)
        if not found:
            return False
        if step is not None:
            self._steps.append(step)
        self.rows += 1
        return True

    def no_record(self, reason: str, line: int, text: str) -> None:
        """Note a line that is no record; `last_bad` is the last such line."""
        self.skips.add(reason, line, text)
        self.last_bad = line

    def put(self, name: str, row: int, value: float) -> None:
        """Set one number of a row that is there already."""
        parts = self._part(name)
        if parts is not None:
            parts.rows.append(row)
            parts.values.append(value)

    def add_block(self, names: Sequence[str], values: Floats) -> None:
        """Add rows that all have the same names: `values` [rows, names]."""
        rows = np.arange(self.rows, self.rows + len(values), dtype=np.int64)
        for i, name in enumerate(names):
            parts = self._part(name)
            if parts is not None:
                parts.flush()
                parts.blocks.append((rows, np.ascontiguousarray(values[:, i])))
        self.rows += len(values)

    def append(self, table: Table) -> None:
        """Add the rows of another table below these."""
        for name, column in table.columns.items():
            parts = self._part(name)
            if parts is not None:
                parts.flush()
                parts.blocks.append((column.rows + self.rows, column.values))
        self.rows += table.rows
        self.texts.update(table.texts)
        self.skips.merge(table.skipped)
        self.truncated = self.truncated or table.truncated
        self.planned_steps = table.planned_steps or self.planned_steps

    def table(self, part: str = "") -> Table:
        """The table; the builder is used up."""
        columns = {name: parts.column() for name, parts in self._parts.items()}
        self._parts = {}
        steps = np.array(self._steps, np.int64) if len(self._steps) == self.rows > 0 else None
        return Table(
            self.format, columns, self.rows, steps, self.planned_steps, self.texts, self.config,
            self.skips.all, self.truncated, self.hint, part,
        )  # fmt: skip

    def _nested(self, name: str, record: Mapping[Any, Any]) -> bool:
        found = False
        for inner, value in flatten(record, "" if name in _WRAPPERS else f"{name}/"):
            if (x := number(value)) is not None:
                self._put(inner, x)
                found = True
            else:
                self._text(inner, value)
        return found

    def _put(self, name: str, value: float) -> None:
        parts = self._parts.get(name) or self._part(name)
        if parts is not None:
            if parts.rows and parts.rows[-1] == self.rows:
                parts.values[-1] = value
            else:
                parts.rows.append(self.rows)
                parts.values.append(value)

    def _part(self, name: str) -> _Parts | None:
        parts = self._parts.get(name)
        if parts is None:
            if len(self._parts) >= _MOST_COLUMNS or len(name) > 500:
                self.skips.add("more names than a training log has")
                return None
            parts = self._parts[name] = _Parts()
        return parts

    def _text(self, name: str, value: Any) -> None:
        """What a value that is no number says all the same: the step of `10/500`, or a text to remember."""
        if not isinstance(value, str):
            return
        if "step" in name and (parts := fraction_of(value)):
            self.planned_steps = max(parts[1], self.planned_steps or 0)
            self._put("global_step", float(parts[0]))
        elif len(self.texts) < 1_000 or name in self.texts:
            self.texts[name] = value[:500]


def _long_form(record: Mapping[Any, Any]) -> tuple[str, Any] | None:
    """The metric and value of a record in long form (`{"step": 3, "tag": "loss", "value": 0.1}`)."""
    if "value" not in record or not 2 <= len(record) <= 8:
        return None
    name = next((record[k] for k in _LONG_NAMES if isinstance(record.get(k), str)), None)
    return (name, record["value"]) if name else None
