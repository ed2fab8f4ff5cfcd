"""CSV: Stable-Baselines3's `progress.csv`, exports of Weights & Biases, tables of one's own.

The separator is found from the header. A header that comes again in the middle (late columns) takes over from there.
A W&B export in wide form (`run - metric`, with `__MIN` and `__MAX` beside it) holds several runs.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from trimtab.doctor.importers.numbers import number
from trimtab.doctor.importers.source import Source
from trimtab.doctor.importers.table import Table, TableBuilder
from trimtab.doctor.log import Skipped

__all__ = ["csv_records", "looks_like_csv", "read_csv"]

_SEPARATORS = ",\t;|"
_LONGEST_LINE = 1 << 20
_MOST_NAMES = 10_000
_MOST_RUNS = 100
_NAME = re.compile(r"[^\d\s+\-.][^\n]{0,300}|\d[\w.%/ -]*[A-Za-z/][^\n]{0,300}")
_RUN_METRIC = re.compile(r"(.+?) - (\S.*)")
_TWIN = re.compile(r"__(?:MIN|MAX)$")


def looks_like_csv(head: str) -> str:
    """The separator if `head` begins with a header and rows under it; else an empty text."""
    lines = [line for line in head.splitlines()[:40] if line.strip()]
    if not lines or len(lines[0]) > _LONGEST_LINE:
        return ""
    best, most = "", 1
    for separator in _SEPARATORS:
        header = _cells(lines[0], separator)
        if not most < len(header) <= _MOST_NAMES or not _is_header(header):
            continue
        rows = [_cells(line, separator) for line in lines[1:]]
        lengths = {len(header), *(len(row) for row in rows if _is_header(row))}
        fitting = sum(len(row) in lengths for row in rows)
        numbers = sum(number(cell) is not None for row in rows for cell in row)
        if not rows or (fitting * 2 >= len(rows) and numbers):
            best, most = separator, len(header)
    return best


def _cells(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return []


def _is_header(cells: Sequence[str]) -> bool:
    """Whether these can be names: none a number, most of them given."""
    named = [c for c in cells if c.strip()]
    return len(named) * 2 > len(cells) and all(number(c) is None for c in named)


def _lines(source: Source) -> Iterator[str]:
    for block in source.blocks():
        text = block.decode("utf-8", "replace").replace("\x00", "")
        yield from text.splitlines(keepends=True)


def _rows(source: Source, separator: str) -> Iterator[tuple[int, list[str] | None]]:
    """Line number and cells of every row that is not blank; None for a row that is no CSV."""
    reader = csv.reader(_lines(source), delimiter=separator)
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield reader.line_num, None
            continue
        if cells and any(c.strip() for c in cells):
            yield reader.line_num, cells


def csv_records(source: Source, separator: str, limit: int | None = None) -> list[dict[str, Any]]:
    """Rows as records by the header's names, numbers as numbers; up to `limit`."""
    records: list[dict[str, Any]] = []
    header: list[str] = []
    for _, cells in _rows(source, separator):
        if cells is None:
            continue
        if not header:
            header = cells
            continue
        if limit is not None and len(records) >= limit:
            break
        row: dict[str, Any] = {}
        for name, cell in zip(header, cells, strict=False):
            x = number(cell)
            row[name] = (cell if cell else None) if x is None else x
        records.append(row)
    return records


def read_csv(source: Source, separator: str) -> list[Table]:
    """The tables of a CSV file: one, or one a run of a wide export."""
    builder = TableBuilder("csv")
    header: list[str] = []
    short: tuple[int, list[str]] | None = None
    for line, cells in _rows(source, separator):
        if cells is None:
            builder.skips.add("lines that are no CSV", line)
            continue
        if short is not None:
            _take(builder, header, short[1], short[0])
            short = None
        if not header or _again(header, cells):
            header = [name.strip() for name in cells]
        elif len(cells) < len(header):
            short = line, cells
        else:
            if len(cells) > len(header):
                builder.skips.add("cells beyond the last named column", line)
            _take(builder, header, cells, line)
    if short is not None:
        if _ends_with_newline(source):
            _take(builder, header, short[1], short[0])
        else:
            builder.skips.add("half a row at the end of the file", short[0], separator.join(short[1]))
            builder.truncated = True
    if source.broken:
        builder.skips.add(source.broken)
        builder.truncated = True
    return _runs(builder.table())


def _take(builder: TableBuilder, header: Sequence[str], cells: Sequence[str], line: int) -> None:
    if not builder.add({n: c for n, c in zip(header, cells, strict=False) if n and c}, line):
        builder.skips.add("rows without a number", line, ",".join(cells))


def _again(header: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether a row is a header that was written again."""
    return _is_header(cells) and len(set(cells) & set(header)) * 2 > min(len(header), len(cells))


def _ends_with_newline(source: Source) -> bool:
    if source.size <= len(source.head):
        return source.head.endswith((b"\n", b"\r"))
    last = b""
    for block in source.blocks():
        last = block[-1:]
    return last == b"\n"


def _runs(table: Table) -> list[Table]:
    """The table without W&B's `__MIN` and `__MAX`; one table a run where the names begin with runs'."""
    columns = {n: c for n, c in table.columns.items() if not _TWIN.search(n)}
    if len(columns) < len(table.columns):
        table.format = "wandb-csv"
    matched = {n: m for n in columns if (m := _RUN_METRIC.fullmatch(n))}
    runs = Counter(m.group(1) for m in matched.values())
    plain = [n for n in columns if n not in matched]
    if not matched or len(plain) > 2 * len(matched) + 3:
        table.columns = columns
        return [table]
    tables = []
    beyond = len(runs) - _MOST_RUNS
    if beyond > 0:
        table.skipped = (*table.skipped, Skipped(f"runs beyond the first {_MOST_RUNS} of the export", beyond))
    for run in list(runs)[:_MOST_RUNS]:
        own = {m.group(2): columns[n] for n, m in matched.items() if m.group(1) == run}
        shared = {n: columns[n] for n in plain}
        tables.append(
            Table(
                "wandb-csv",
                {**shared, **own},
                table.rows,
                skipped=table.skipped,
                truncated=table.truncated,
                part=run if len(runs) > 1 else "",
            )
        )
    return tables
