"""JSON lines: a block of alike lines at a time where they are alike, else one by one.

A large file is read by two processes, each half of it; the second is this module run as a program, which writes the
numbers it found as raw 64-bit floats.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

import numpy as np

from trimtab.doctor.importers.json_rows import loads, salvage_line
from trimtab.doctor.importers.numbers import number
from trimtab.doctor.importers.source import PATIENCE, Source, clean
from trimtab.doctor.importers.table import Column, Table, TableBuilder
from trimtab.doctor.log import Floats, Skipped
from trimtab.errors import TrimtabError

__all__ = ["read_json_lines"]

_LARGE = 48 << 20
_SHORT = 40
_NO_RECORD = "lines that are no JSON record"
_HALF = "half a record at the end of the file"
_HALF_INSIDE = "half a record in the middle of the file (the run was killed there)"
_NO_NUMBERS = "records without a number"


def read_json_lines(source: Source) -> Table:
    """The table of a JSON-lines file."""
    if source.packed or source.size < _LARGE or (os.cpu_count() or 1) < 2 or not source.encoding.startswith("utf-8"):
        return _read(source, 0, None).table()
    middle = _line_start(source.path, source.size // 2)
    other = _start_worker(source.path, middle) if middle < source.size else None
    if other is None:
        return _read(source, 0, None).table()
    rest = None
    try:
        builder = _read(source, 0, middle)
        rest = _collect(other, builder.format)
    finally:
        if rest is None:
            other.kill()
        if other.stdout is not None:
            other.stdout.close()
        other.wait()
    builder.append(rest if rest is not None else _read(source, middle, None).table())
    return builder.table()


def _read(source: Source, start: int, end: int | None) -> TableBuilder:
    builder = TableBuilder("jsonl")
    alike = _Alike()
    line = 1
    last = b""
    for block in source.blocks(start, end):
        if not alike.take(block, builder):
            _one_by_one(block, builder, line)
        line += block.count(b"\n")
        last = block[-1:]
        if line > PATIENCE and not builder.rows:
            break
    if last != b"\n" and builder.skips.all:
        _last_line(builder, line)
    if source.broken:
        builder.skips.add(source.broken)
        builder.truncated = True
    return builder


def _last_line(builder: TableBuilder, line: int) -> None:
    """Tell half a line at the end, which every killed run leaves, from rubbish in the middle."""
    kept = [s for s in builder.skips.all if s.reason != _NO_RECORD]
    bad = next((s for s in builder.skips.all if s.reason == _NO_RECORD), None)
    if bad is None or builder.last_bad != line:
        return
    builder.skips = type(builder.skips)()
    builder.skips.merge(kept)
    if bad.count > 1:
        builder.skips.merge([Skipped(bad.reason, bad.count - 1, bad.first_line, bad.example)])
    builder.skips.add(_HALF, line, bad.example if bad.count == 1 else "")
    builder.truncated = True


class _Alike:
    """Blocks of lines that all have the same names, with numbers or the same few texts."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._size = 0
        self._get: Any = None

    def take(self, block: bytes, builder: TableBuilder) -> bool:
        """Whether the block was alike and is now in `builder`."""
        if len(block) < 1 << 14:
            return False
        try:
            rows = json.loads(b"[" + block.strip().replace(b"\n", b",") + b"]")
        except (ValueError, RecursionError):
            return False
        n = block.count(b"\n") + (not block.endswith(b"\n"))
        if len(rows) != n or not isinstance(rows[0], dict) or (self._get is None and not self._learn(rows[0])):
            return False
        try:
            if set(map(type, rows)) != {dict} or set(map(len, rows)) != {self._size} or b"null" in block:
                return False
            values: Floats = np.array(list(map(self._get, rows)), dtype=np.float64)
        except (KeyError, TypeError, ValueError, OverflowError):
            self._get = None
            return False
        builder.add_block(self._names, values.reshape(len(rows), -1))
        return True

    def _learn(self, row: dict[str, Any]) -> bool:
        names = [
            k for k, v in row.items() if isinstance(v, int | float) or (isinstance(v, str) and number(v) is not None)
        ]
        nested = any(isinstance(v, dict) for v in row.values())
        if not names or nested or any("/" in v for v in row.values() if isinstance(v, str) and len(v) < 40):
            return False
        if "value" in row and any(isinstance(v, str) for v in row.values()):
            return False  # long form: one metric a line
        self._names, self._size, self._get = names, len(row), itemgetter(*names)
        return True


def _one_by_one(block: bytes, builder: TableBuilder, line: int) -> None:
    for offset, raw in enumerate(block.split(b"\n")):
        if raw and not raw.isspace():
            for piece in raw.split(b"\r"):
                if piece and not piece.isspace():
                    _take_line(piece, builder, line + offset)


def _take_line(raw: bytes, builder: TableBuilder, line: int) -> None:
    text = raw.decode("utf-8", "replace")
    if "{" not in text and len(text) > _SHORT:  # prose: no need to try
        builder.no_record(_NO_RECORD, line, text)
        return
    try:
        value = loads(text)
    except ValueError:
        value = _mended(text, builder, line)
        if value is None:
            return
    found = value if isinstance(value, list) else [value]
    for record in found:
        if not isinstance(record, dict):
            builder.no_record(_NO_RECORD, line, text)
            return
        if not builder.add(record, line):
            builder.skips.add(_NO_NUMBERS, line, text)


def _mended(text: str, builder: TableBuilder, line: int) -> Any:
    """The value of a line after what often stands around a record is taken away; None where nothing is left."""
    trimmed = clean(text).strip().rstrip(",").strip()
    if trimmed in ("[", "]", ""):
        return None
    if trimmed != text:
        for candidate in (trimmed, trimmed.removeprefix("[").removesuffix("]")):
            try:
                return loads(candidate)
            except ValueError:
                continue
    found = salvage_line(trimmed)
    if found is None:
        builder.no_record(_NO_RECORD, line, text)
    else:
        builder.skips.add(_HALF_INSIDE, line, text)
    return found


# two processes


def _line_start(path: Path, at: int) -> int:
    """Where the first line from byte `at` on begins."""
    with path.open("rb") as file:
        file.seek(at)
        position = at
        while piece := file.read(1 << 16):
            cut = piece.find(b"\n")
            if cut >= 0:
                return position + cut + 1
            position += len(piece)
    return position


def _start_worker(path: Path, start: int) -> subprocess.Popen[bytes] | None:
    if not sys.executable:
        return None
    code = "from trimtab.doctor.importers.json_lines import _work; _work()"
    paths = os.pathsep.join(p for p in sys.path if p)
    try:
        return subprocess.Popen(
            [sys.executable, "-S", "-c", code, os.fspath(path.absolute()), str(start)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
    except OSError:
        return None


def _work() -> None:
    """What the second process does: read the file from a byte on and write the table to stdout."""
    try:
        table = _read(Source(Path(sys.argv[1])), int(sys.argv[2]), None).table()
    except TrimtabError:
        sys.exit(1)
    _write(table, sys.stdout.buffer)


def _write(table: Table, out: IO[bytes]) -> None:
    dense = {name: len(c) == table.rows for name, c in table.columns.items()}
    head = {
        "rows": table.rows, "columns": {n: [len(c), dense[n]] for n, c in table.columns.items()},
        "planned": table.planned_steps, "texts": table.texts, "truncated": table.truncated,
        "skipped": [[s.reason, s.count, None, s.example] for s in table.skipped],
    }  # fmt: skip
    data = json.dumps(head).encode()
    out.write(struct.pack("<Q", len(data)) + data)
    for name, column in table.columns.items():
        if not dense[name]:
            out.write(column.rows.astype("<i8").tobytes())
        out.write(column.values.astype("<f8").tobytes())
    out.flush()


def _collect(worker: subprocess.Popen[bytes], form: str) -> Table | None:
    """The worker's table; None where it failed."""
    stream = worker.stdout
    if stream is None or len(size := stream.read(8)) < 8:
        return None
    head = json.loads(stream.read(struct.unpack("<Q", size)[0]))
    columns: dict[str, Column] = {}
    every = np.arange(head["rows"], dtype=np.int64)
    for name, (n, dense) in head["columns"].items():
        rows = every if dense else np.frombuffer(stream.read(8 * n), "<i8")
        data = stream.read(8 * n)
        if len(data) != 8 * n:
            return None
        columns[name] = Column(rows, np.frombuffer(data, "<f8"))
    return Table(
        form, columns, head["rows"], None, head["planned"], head["texts"],
        skipped=tuple(Skipped(*item) for item in head["skipped"]), truncated=head["truncated"],
    )  # fmt: skip
