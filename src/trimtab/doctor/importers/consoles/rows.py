"""Rows that a console reader found, and the choice of those that are metrics and no noise."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trimtab.doctor.importers.dialects import meaning_of, recognise
from trimtab.doctor.importers.numbers import flatten, number
from trimtab.doctor.importers.table import Table, TableBuilder

__all__ = ["ConsoleReader", "Row", "Rows", "step_before"]

_STEP = re.compile(
    r"(?:global[ _]?step|training[ _]step|step|iter(?:ation)?|rollout|update|episode)\s*[:=#]?\s*\[?\s*(\d{1,12})"
    r"(?:\s*/\s*(\d{1,12}))?",
    re.IGNORECASE,
)
_CONFIG_LIKE = 0.3
_METRIC = re.compile(r"loss|reward|score|kl\b|acc", re.IGNORECASE)


class ConsoleReader(Protocol):
    """Takes the lines of a console log one by one."""

    def feed(self, line: str, line_number: int) -> bool:
        """Look at a line (cleaned, without its end; numbers count from 1); whether it is of this form."""

    def finish(self) -> Table | None:
        """The table of what was found; None where nothing was."""


def step_before(text: str) -> tuple[int | None, int | None]:
    """The step that the text before some metrics names, and the number of steps planned."""
    found = None
    for match in _STEP.finditer(text[-200:]):
        found = match
    if found is None:
        return None, None
    return int(found.group(1)), int(found.group(2)) if found.group(2) else None


@dataclass(slots=True)
class Row:
    """Numbers (and texts) of one line; `step` where the line or a progress bar before it told."""

    line: int
    values: dict[str, Any]
    step: int | None = None


@dataclass(slots=True)
class Rows:
    """All rows of one kind."""

    form: str
    rows: list[Row] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    planned: int | None = None
    cut: int | None = None

    def add(self, values: dict[str, Any], line: int, step: int | None = None) -> None:
        """Keep a row; one with many texts is a print of settings."""
        if all(type(v) is float for v in values.values()):
            if values:
                self.rows.append(Row(line, values, step))
            return
        flat = dict(flatten(values))
        texts = sum(number(v) is None for v in flat.values())
        if texts > _CONFIG_LIKE * len(flat) and not any(_METRIC.search(k) for k in flat):
            if len(self.config) < 500:
                self.config.update({k: _setting(v) for k, v in flat.items()})
        elif texts < len(flat):
            self.rows.append(Row(line, flat, step))

    def table(self) -> Table | None:
        """The rows that hold a known quantity, or come again and again."""
        if not self.rows:
            return None
        shapes = Counter(frozenset(row.values) for row in self.rows)
        names = frozenset(name for row in self.rows for name in row.values)
        dialect = recognise(names)
        known = {n for n in names if (m := meaning_of(n, dialect)) is not None and m.key}
        kept = [r for r in self.rows if shapes[frozenset(r.values)] >= 3 or not known.isdisjoint(r.values)]
        if not kept or (not known and len(kept) < 3):
            return None
        builder = TableBuilder(self.form)
        steps = _rising([row.step for row in kept])
        for i, row in enumerate(kept):
            builder.add(row.values, row.line, step=steps[i] if steps else None)
        if self.cut is not None:
            builder.skips.add("half a record at the end of the file", self.cut)
            builder.truncated = True
        builder.config, builder.planned_steps = self.config, self.planned
        table = builder.table()
        table.lines = np.array([row.line for row in kept], np.int64)
        return table


def _setting(value: Any) -> Any:
    """A setting as it was meant: whole numbers are whole."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _rising(steps: list[int | None]) -> list[int] | None:
    """The steps if every row has one and they do not all stand still; else None."""
    if len(steps) < 1 or any(s is None for s in steps):
        return None
    whole = [s for s in steps if s is not None]
    return whole if len(whole) == 1 or len(set(whole)) > len(whole) // 3 else None
