"""Tables and lists on a console: Stable-Baselines3's boxes, NeMo-RL's bullets."""

from __future__ import annotations

import re
from typing import Any

from trimtab.doctor.importers.consoles.rows import Rows
from trimtab.doctor.importers.numbers import number
from trimtab.doctor.importers.table import Table

__all__ = ["BoxReader", "BulletReader"]

_RULE = re.compile(r"-{8,}$")
_CELL = re.compile(r"\|\s{0,8}(\S.*?)\s*\|\s*(\S*)\s*\|$")
_HEADER = re.compile(r"=+\s*Step\s+(\d{1,12})(?:\s*/\s*(\d{1,12}))?\s*=+")
_BULLET = re.compile(r"\s*[•*]\s+([A-Za-z][\w /.()%-]{1,60}?):\s+(\S+)")


class BoxReader:
    """Boxes of `| name | number |` between rules; a name that ends with a slash heads those below it."""

    def __init__(self) -> None:
        self._rows = Rows("sb3-console")
        self._now: dict[str, Any] = {}
        self._section = ""

    def feed(self, line: str, line_number: int) -> bool:
        """Take a cell, or end a box."""
        text = line.strip()
        if text.startswith("|"):
            match = _CELL.match(text)
            if match is None:
                return False
            name, value = match.groups()
            if name.endswith("/") and not value:
                self._section = name
            elif (x := number(value)) is not None:
                self._now[self._section + name] = x
            return True
        if self._now and _RULE.match(text):
            self._rows.add(self._now, line_number)
            self._now, self._section = {}, ""
        return False

    def finish(self) -> Table | None:
        """The rows; a box that was not closed is left out."""
        return self._rows.table()


class BulletReader:
    """Lists of `• Name: number` below a line that names the step."""

    def __init__(self) -> None:
        self._rows = Rows("nemo-rl-console")
        self._now: dict[str, Any] = {}
        self._step: int | None = None
        self._line = 0

    def feed(self, line: str, line_number: int) -> bool:
        """Take a bullet, or begin a step."""
        header = _HEADER.search(line) if "Step" in line else None
        if header is not None:
            self._close()
            self._step, self._line = int(header.group(1)), line_number
            self._rows.planned = int(header.group(2)) if header.group(2) else self._rows.planned
        elif self._step is not None and ("•" in line or "*" in line):
            match = _BULLET.match(line)
            if match is not None and (x := number(match.group(2))) is not None:
                self._now[match.group(1)] = x
                return True
        return header is not None

    def finish(self) -> Table | None:
        """The rows."""
        self._close()
        return self._rows.table()

    def _close(self) -> None:
        if self._now:
            self._rows.add(self._now, self._line, self._step)
        self._now = {}
