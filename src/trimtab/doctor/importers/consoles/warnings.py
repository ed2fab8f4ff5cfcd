"""Numbers that stand in no record but in a warning: TRL's PPO tells an impossible KL and a wild ratio in a sentence."""

from __future__ import annotations

import re

import numpy as np

from trimtab.doctor.importers.numbers import number_of_text
from trimtab.doctor.importers.table import Column, Table, TableBuilder

__all__ = ["WarningReader"]

_N = r"\s*\(?\s*([+-]?(?:\d[\d.]*(?:[eE][+-]?\d+)?|inf|nan))"
_SENTENCES = (
    ("objective/kl", re.compile(r"KL divergence is starting to become negative:?" + _N), 0.5),
    ("ppo/policy/ratio", re.compile(r"average ratio of batch" + _N), 0.02),
)
"""Name, sentence, and the share of the records that has to be warned of: nothing is known of the others but that they
were not, and a KL that is below -1 now and then may be noise."""
_DEEP = -10.0  # nats a sequence: no noise


class WarningReader:
    """Keeps what warnings say, for the record that comes next."""

    def __init__(self) -> None:
        self._found: dict[str, list[tuple[int, float]]] = {}

    def feed(self, line: str, line_number: int) -> bool:
        """Take the number of a warning."""
        if "KL divergence" not in line and "average ratio" not in line:
            return False
        for name, sentence, _ in _SENTENCES:
            match = sentence.search(line)
            x = None if match is None else number_of_text(match.group(1).rstrip("."))
            if x is not None:
                self._found.setdefault(name, []).append((line_number, x))
                return True
        return False

    def added_to(self, table: Table | None) -> Table | None:
        """`table` with a column for each kind of warning that it has no numbers of its own for; alone where it is None.

        A warning belongs to the first record that is printed after it, the last ones to the last record; several of
        one record count as their mean.
        """
        if not self._found:
            return table
        if table is None:
            builder = TableBuilder("console-warnings")
            builder.hint = "trl-ppo-legacy"
            for line, name, x in sorted((line, name, x) for name, all in self._found.items() for line, x in all):
                builder.add({name: x}, line)
            return builder.table()
        if table.lines is None or not len(table.lines):
            return table
        for name, _, share in _SENTENCES:
            found = self._found.get(name, [])
            if not found or name in table.columns:
                continue
            at = np.searchsorted(table.lines, [line for line, _ in found])
            rows, which = np.unique(np.minimum(at, len(table.lines) - 1), return_inverse=True)
            values = np.bincount(which, weights=[x for _, x in found]) / np.bincount(which)
            if len(rows) >= share * len(table.lines) or float(values.min()) < _DEEP:
                table.columns[name] = Column(rows.astype(np.int64), values)
        return table
