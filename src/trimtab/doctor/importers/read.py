"""`read`: from a path to what the doctor looks at."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab.doctor.importers.build import build, check_mapping
from trimtab.doctor.importers.csv_rows import csv_records, looks_like_csv, read_csv
from trimtab.doctor.importers.events import is_events, read_events
from trimtab.doctor.importers.json_lines import read_json_lines
from trimtab.doctor.importers.json_rows import loads, rows_of_document, salvage_document
from trimtab.doctor.importers.settings import settings_beside
from trimtab.doctor.importers.source import Source, no_log
from trimtab.doctor.importers.table import Table, TableBuilder
from trimtab.doctor.judgments import JudgmentMaterial, from_records, from_store
from trimtab.doctor.log import Log

__all__ = ["Material", "log_of_rows", "read"]

Material = Log | JudgmentMaterial
_Attempt = Callable[[Source, Mapping[str, str]], list[Material]]
_TRIED = "JSON, JSON lines, CSV, TensorBoard events, console logs, preference data and judgments were tried."
_SAMPLE = 200
_NOTHING: Mapping[str, str] = {}


def read(path: str | os.PathLike[str], mapping: Mapping[str, str] = _NOTHING) -> list[Material]:
    """Everything that the doctor can look at in a file or directory.

    Args:
        path: a log of any known form, a file of judgments, scores or pairs, a run of ours or of another framework.
        mapping: the doctor's name (`kl/reference`, or `step`) -> the log's own, where the log's says too little.

    Returns:
        Logs and judgments, at least one.

    Raises:
        TrimtabError: there is no such path, it may not be read, nothing in it is known, or `mapping` names no quantity.
    """
    check_mapping(mapping)
    path = Path(path)
    try:
        found = _directory(path, mapping) if path.is_dir() else _file(path, mapping)
    except (OSError, ValueError) as error:  # a loop of links, a name too long, a zero in it
        what = error.strerror if isinstance(error, OSError) and error.strerror else error  # the rest of it is the path
        raise no_log(repr(str(path))[1:-1], f"cannot be read: {what}") from None
    for i, material in enumerate(found):
        if isinstance(material, Log) and (settings := settings_beside(path)):
            found[i] = replace(material, config={**settings, **material.config})
    return found


def _directory(path: Path, mapping: Mapping[str, str]) -> list[Material]:
    from trimtab.doctor.importers.directory import directory  # most paths are files

    return directory(path, mapping, _file)


def _file(path: Path, mapping: Mapping[str, str]) -> list[Material]:
    source = Source(path)
    if is_events(source.head):
        return _events([path], str(path), mapping)
    if source.head.startswith(b"SQLite format 3\x00"):
        return [from_store(str(path))]
    if source.head.startswith(b"PAR1"):
        return [_parquet(path)]
    source.refuse_binary()
    text = source.head.decode(source.encoding, "replace").lstrip("\ufeff \t\r\n\x00")
    if not text:
        raise no_log(str(path), "is empty", _TRIED)
    nothing: list[Material] = []
    for attempt in _attempts(text):
        found = attempt(source, mapping)
        if any(not isinstance(material, Log) or material.series for material in found):
            return found
        nothing = nothing or found  # a form that fits but says nothing: another one may fit better
    if nothing:
        return nothing
    raise no_log(str(path), "holds nothing that is known here", _TRIED)


def _parquet(path: Path) -> JudgmentMaterial:
    from trimtab.data.readers.parquet import parquet_records  # most logs are none

    judged = from_records([row for row in parquet_records(path) if isinstance(row, dict)], str(path))
    if judged is None:
        raise no_log(str(path), "holds no preference data or judgments", "Export a log as CSV or JSONL.")
    return judged


def _events(paths: Sequence[Path], name: str, mapping: Mapping[str, str]) -> list[Material]:
    table = read_events(paths)
    if table is None:
        raise no_log(name, "holds TensorBoard events without a single scalar")
    return [build(table, name, mapping)]


def _attempts(text: str) -> tuple[_Attempt, ...]:
    if text[0] in "{[":
        first, _, rest = text.partition("\n")
        if rest.strip() and _is_record(first):
            return (_json_lines, _document, _console)
        return (_document, _json_lines, _console)
    if looks_like_csv(text):
        return (_csv, _console, _json_lines)
    return (_console, _json_lines)


def _is_record(line: str) -> bool:
    try:
        return isinstance(loads(line), dict)
    except ValueError:
        return False


def _json_lines(source: Source, mapping: Mapping[str, str]) -> list[Material]:
    judged = _judgments(source)
    if judged is not None:
        return [judged]
    table = read_json_lines(source)
    return [build(table, str(source.path), mapping)] if table.rows else []


def _judgments(source: Source) -> JudgmentMaterial | None:
    """The file as judgments, if its first lines are some."""
    lines = source.head.decode(source.encoding, "replace").splitlines()
    if source.size > len(source.head):
        lines = lines[:-1]
    if from_records(_records(lines[:_SAMPLE]), str(source.path)) is None:
        return None
    return from_records(_records(source.document().splitlines()), str(source.path))


def _records(lines: Iterable[str]) -> list[dict[str, Any]]:
    found = []
    for line in lines:
        try:
            value = loads(line.strip()) if line.strip() else None
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _document(source: Source, mapping: Mapping[str, str]) -> list[Material]:
    text = source.document().lstrip("\ufeff\x00")
    lost = None
    try:
        records, settings, form = rows_of_document(loads(text))
    except ValueError:
        lost = salvage_document(text)
        if lost is None:
            return []
        records, settings, form = lost.records, lost.settings, "log_history" if '"log_history"' in text else "records"
    if not records:
        return []
    judged = from_records(records, str(source.path))
    if judged is not None:
        return [judged]
    table = _table(records, settings, "hf-trainer-state" if form == "log_history" else f"json-{form}", lost)
    return [build(table, str(source.path), mapping)] if table.rows else []


def _table(records: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], form: str, lost: Any) -> Table:
    builder = TableBuilder(form)
    for i, record in enumerate(records):
        if not builder.add(record):
            builder.skips.add("records without a number", i + 1)
    builder.config.update(settings)
    if lost is not None:
        builder.truncated = lost.cut
        if lost.lost:
            builder.skips.add("pieces of the file that are no record", None, count=lost.lost)
    return builder.table()


def _csv(source: Source, mapping: Mapping[str, str]) -> list[Material]:
    text = source.head.decode(source.encoding, "replace").lstrip("\ufeff \t\r\n\x00")
    separator = looks_like_csv(text)
    if from_records(csv_records(source, separator, _SAMPLE), str(source.path)) is not None:
        judged = from_records(csv_records(source, separator), str(source.path))
        if judged is not None:
            return [judged]
    return [build(table, str(source.path), mapping) for table in read_csv(source, separator) if table.rows]


def _console(source: Source, mapping: Mapping[str, str]) -> list[Material]:
    from trimtab.doctor.importers.consoles import read_console  # most files are none

    table = read_console(source)
    return [build(table, str(source.path), mapping)] if table is not None and table.rows else []


def log_of_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    path: str,
    dress: str,
    config: Mapping[str, Any] = _NOTHING,
    planned_steps: int | None = None,
    mapping: Mapping[str, str] = _NOTHING,
) -> Log:
    """The log of rows that are in memory; no file is read.

    Args:
        rows: `trimtab`: records of `metrics.jsonl` (stage, step, signals); `hf-log-history`: entries of
            `TrainerState.log_history`.
        path: what reports call it.
        dress: which of the two.
        config: settings of the run.
        planned_steps: steps that the run is to take.
        mapping: as in `read`.
    """
    if dress == "trimtab":
        from trimtab.doctor.importers.ours import rows_log

        stage = str(rows[0].get("stage", "ppo")) if rows else "ppo"
        return rows_log(rows, path, stage, config, planned_steps, mapping)
    table = _table(rows, config, dress, None)
    table.planned_steps = planned_steps
    return build(table, path, mapping)
