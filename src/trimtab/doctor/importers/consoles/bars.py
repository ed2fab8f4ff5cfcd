"""Progress bars: where they stand, and the metrics that some trainers print behind them (OpenRLHF)."""

from __future__ import annotations

import re
from collections import Counter

from trimtab.doctor.importers.consoles.rows import Rows
from trimtab.doctor.importers.numbers import number
from trimtab.doctor.importers.table import Table

__all__ = ["Bar", "BarReader"]

_BAR = re.compile(r"(\d{1,12})/(\d{1,12})\s*\[\d*:?\d+:\d\d<")
_POSTFIX = re.compile(
    r"(\d{1,12})/(\d{1,12})\s*\[[^\]\[]{0,40}<[^\]\[]{0,40}?(?:it/s|s/it|\?)\s*,\s*([^\[\]]{3,4000})\]?"
)
_PAIR = re.compile(r"([A-Za-z_][\w/.@\-]*)=([^\s,\]]+)")
_MANY = 3


class Bar:
    """The last progress bar seen."""

    def __init__(self) -> None:
        self.now: tuple[int, int] | None = None
        self._totals: Counter[int] = Counter()

    def feed(self, line: str, number: int) -> None:
        """Note where the bars of a line stand."""
        if "/" not in line or "<" not in line:
            return
        for match in _BAR.finditer(line):
            self.now = int(match.group(1)), int(match.group(2))
            self._totals[self.now[1]] += 1

    @property
    def main(self) -> int | None:
        """The length of the longest bar that was updated more than once: that of the training."""
        often = [total for total, n in self._totals.items() if n > 1]
        return max(often, default=None)


class BarReader:
    """Metrics behind a bar: `5/50 [00:10<01:30, 2.0s/it, pg=0.1, kl=0.02]`.

    A bar that starts again and again counts the minibatches of one batch: each round is a step.
    """

    def __init__(self) -> None:
        self._rows = Rows("console-bars")
        self._at: list[tuple[int, int]] = []

    def feed(self, line: str, line_number: int) -> bool:
        """Take the pairs behind a bar; of a bar printed twice at the same place the later."""
        if "=" not in line or "<" not in line:
            return False
        taken = False
        for match in _POSTFIX.finditer(line):
            pairs = {k: x for k, v in _PAIR.findall(match.group(3)) if (x := number(v)) is not None}
            if not pairs:
                continue
            taken = True
            where = int(match.group(1)), int(match.group(2))
            if self._at and self._at[-1] == where:
                self._rows.rows[-1].values.update(pairs)
            else:
                before = len(self._rows.rows)
                self._rows.add(pairs, line_number)
                if len(self._rows.rows) > before:
                    self._at.append(where)
        return taken

    def finish(self) -> Table | None:
        """The rows with their steps."""
        if not self._at:
            return None
        resets = [i for i in range(1, len(self._at)) if self._at[i][0] < self._at[i - 1][0]]
        rounds, offset, last = 0, 0, 0
        by_round = len(resets) >= _MANY and len(self._at) > 2 * len(resets)
        for i, (row, (n, total)) in enumerate(zip(self._rows.rows, self._at, strict=True)):
            if i and n < last:
                rounds += 1
                offset += self._at[i - 1][1]
            last = n
            row.step = rounds + 1 if by_round else n + offset
            if not by_round:
                self._rows.planned = total if not resets else None
        if by_round:
            for row in self._rows.rows:
                row.values.setdefault("minibatch_row", 1.0)
        return self._rows.table()
