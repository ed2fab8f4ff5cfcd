"""Lines with a Python dict (transformers, TRL, OpenRLHF, slime and many more)."""

from __future__ import annotations

from itertools import pairwise

from trimtab.doctor.importers.consoles.bars import Bar
from trimtab.doctor.importers.consoles.rows import Rows, step_before
from trimtab.doctor.importers.dict_lines import dicts_in
from trimtab.doctor.importers.table import Table

__all__ = ["DictReader"]


class DictReader:
    """Dicts with numbers in them. The step is the one named before the dict, else that of the progress bar."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._rows = Rows("console-dicts")
        self._bars: list[tuple[int, int] | None] = []

    def feed(self, line: str, line_number: int) -> bool:
        """Take the dicts of a line."""
        if "{" not in line or ":" not in line:
            return False
        self._rows.cut = None
        found, cut = dicts_in(line)
        if cut:
            self._rows.cut = line_number
        for at, values in found:
            step, planned = step_before(line[:at]) if at else (None, None)
            before = len(self._rows.rows)
            self._rows.add(values, line_number, step)
            if planned:
                self._rows.planned = planned
            if len(self._rows.rows) > before:
                self._bars.append(self._bar.now)
        return bool(found)

    def finish(self) -> Table | None:
        """The rows; steps of the main progress bar where no line names its own."""
        rows = self._rows.rows
        main = self._bar.main
        if main is not None and rows and all(row.step is None for row in rows):
            steps = [b[0] if b is not None and b[1] == main else None for b in self._bars]
            named = any("step" in row.values or "global_step" in row.values for row in rows)
            seen = [s for s in steps if s is not None]
            if not named and len(seen) == len(rows) and all(a <= b for a, b in pairwise(seen)):
                for row, step in zip(rows, seen, strict=True):
                    row.step = step
        if self._rows.planned is None:
            self._rows.planned = main
        return self._rows.table()
