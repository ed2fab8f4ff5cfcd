"""Lines of names and numbers: `Epoch:[1/1](20/4292), loss: 0.66`, `Step 10 | scores:0.1 kl:0.2`, `loss=0.5 lr=1e-6`."""

from __future__ import annotations

import functools
import re

from trimtab.doctor.importers.consoles.rows import Rows, step_before
from trimtab.doctor.importers.numbers import number_of_text
from trimtab.doctor.importers.table import Table

__all__ = ["PairReader", "StepLineReader"]

_NUMBER = r"[+-]?(?:\d[\d.]*(?:[eE][+-]?\d+)?|\.\d+|[nN]a[nN]|[iI]nf(?:inity)?)"
_VALUE = re.compile(r"[:=]\s{0,20}(" + _NUMBER + r")(?=[\s,|;\])}]|$)")
_BOUNDARY = re.compile(r"[,|;()\[\]{}:=<>•]|\s-\s|\s{2,}|\t")
_WORD = re.compile(r"[A-Za-z_][\w/.@%\-]*")
_MOST_WORDS = 4
_EPOCH_STEP = re.compile(r"epoch\s*:?\s*\[\s*(\d+)\s*/\s*(\d+)\s*\]\s*\(\s*(\d+)\s*/\s*(\d+)\s*\)[,\s]*", re.IGNORECASE)
_EPOCH_COMMA_STEP = re.compile(r"epoch\s*:\s*(\d+)\s*,\s*step\s*:\s*(\d+)\s*/\s*(\d+)[,\s]*", re.IGNORECASE)
_VERL = re.compile(r"step:\s*(\d+)\s+-\s+(?=[\w./@+\-]+:)")
_MORE = re.compile(r"(?:\s*\S*\s)?\s*-\s+[\w./@+\-]+:\S")
_LONGEST = 20_000


class PairReader:
    """Lines with at least two pairs, or with one and a step."""

    def __init__(self) -> None:
        self._rows = Rows("console-pairs")

    def feed(self, line: str, line_number: int) -> bool:
        """Take the pairs of a line."""
        if len(line) > _LONGEST or (":" not in line and "=" not in line):
            return False
        step, rest = self._step(line)
        pairs = _pairs(rest)
        if len(pairs) >= 2 or (pairs and step is not None):
            self._rows.add(dict(pairs), line_number, step)
            return True
        return False

    def finish(self) -> Table | None:
        """The rows."""
        return self._rows.table()

    def _step(self, line: str) -> tuple[int | None, str]:
        match = _EPOCH_STEP.search(line)
        if match is not None:
            epoch, epochs, i, n = map(int, match.groups())
            self._rows.planned = epochs * n
            first = 0 if epoch == 0 else 1
            return (epoch - first) * n + i, line[match.end() :]
        match = _EPOCH_COMMA_STEP.search(line)
        if match is not None:
            return (int(match.group(1)) - 1) * int(match.group(3)) + int(match.group(2)), line[match.end() :]
        head = line.partition("|")[0] if "|" in line else ""
        step, planned = step_before(head)
        if step is not None and ":" not in head and "=" not in head:
            self._rows.planned = planned or self._rows.planned
            return step, line[len(head) :]
        return None, line


def _pairs(text: str) -> dict[str, float]:
    """Names and numbers of a line."""
    found: dict[str, float] = {}
    begin = 0
    for match in _VALUE.finditer(text):
        name = _name(text[max(begin, match.start() - 120) : match.start()])
        begin = match.end()
        if name and (x := number_of_text(match.group(1))) is not None:
            found[name] = x
    return found


@functools.lru_cache(4096)
def _name(before: str) -> str:
    """The name at the end of what stands before `:` or `=`: up to four words; empty without one."""
    words: list[str] = []
    for word in reversed(_BOUNDARY.split(before)[-1].split()):
        if not _WORD.fullmatch(word) or len(words) == _MOST_WORDS:
            break
        words.append(word)
    return " ".join(reversed(words))


class StepLineReader:
    """verl's lines: `step:12 - actor/pg_loss:0.09 - critic/score/mean:0.1`, also where a terminal wrapped them."""

    def __init__(self) -> None:
        self._rows = Rows("verl-console")
        self._open: tuple[int, str] | None = None

    def feed(self, line: str, line_number: int) -> bool:
        """Begin a record, go on with one, or end it."""
        match = _VERL.search(line) if "step:" in line else None
        if match is not None:
            self._close()
            self._open = line_number, line[match.start() :]
            return True
        if self._open is not None:
            if _MORE.match(line):
                number_, text = self._open
                loose = text.rstrip().endswith(" -") or line.lstrip().startswith("- ")
                self._open = number_, f"{text.rstrip()} {line.lstrip()}" if loose else text + line
                return True
            self._close()
        return False

    def finish(self) -> Table | None:
        """The rows."""
        self._close()
        return self._rows.table()

    def _close(self) -> None:
        if self._open is None:
            return
        line_number, text = self._open
        self._open = None
        values = {}
        for piece in re.split(r"\s-\s", text):
            name, _, value = piece.strip().rpartition(":")
            if name and (x := number_of_text(value)) is not None:
                values[name] = x
        step = values.get("step")
        if step is not None and len(values) > 1:
            self._rows.add(values, line_number, int(step))
