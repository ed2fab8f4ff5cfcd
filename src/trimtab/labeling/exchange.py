"""Label stores out to files and back in: JSONL always, parquet where pyarrow is installed. Nothing is lost on the way.

A file has one object (or row) a verdict, with the columns of the store's table. What comes in never takes the place of
a real verdict that says something else, unless that is asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import Order, Outcome, Verdict
from trimtab.labeling.questions import Key
from trimtab.labeling.store import LabelStore
from trimtab.labeling.store_schema import COLUMNS, VERDICT_COLUMNS, verdict_of
from trimtab.reading import refuse_special
from trimtab.runs.files import atomic_write_text, dump_json, writing

__all__ = ["Imported", "OnConflict", "export_labels", "import_labels", "records"]

OnConflict = Literal["fail", "keep", "replace"]

_WHOLE = {"sample", "seed", "prompt_tokens", "completion_tokens", "attempts"}
_REAL = {"p_first", "mass", "logprob_first", "logprob_second", "cost", "seconds", "recorded"}
_MAYBE = {"p_first", "mass", "logprob_first", "logprob_second", "prompt_tokens", "completion_tokens", "cost", "seconds"}
_SHOWN_PROBLEMS = 10


class Imported(NamedTuple):
    """What an import did.

    Args:
        read: verdicts in the file.
        added: that the store had not.
        same: that it had, saying the same.
        mended: that took the place of an error.
        kept: that said something else (or were errors), and stayed outside.
        replaced: that said something else, and took the place of what was there.
    """

    read: int
    added: int
    same: int
    mended: int
    kept: int
    replaced: int


def records(store: LabelStore) -> Iterator[dict[str, Any]]:
    """The verdicts, in the order of their keys."""
    for row in store.rows():
        yield dict(zip(COLUMNS, row, strict=True))


def export_labels(store: LabelStore, path: Path) -> int:
    """Write every verdict to a `.jsonl` or `.parquet` file; returns how many.

    Raises:
        TrimtabError: another ending, no pyarrow, or a place that cannot be written to.
    """
    if path.suffix == ".jsonl":
        lines = [dump_json(record) + "\n" for record in records(store)]
        atomic_write_text(path, "".join(lines))
        return len(lines)
    _check_suffix(path)
    arrow, parquet = _pyarrow()
    rows = list(store.rows())
    kinds = {
        name: arrow.int64() if name in _WHOLE else arrow.float64() if name in _REAL else arrow.string()
        for name in COLUMNS
    }
    columns = [
        arrow.array([row[i] for row in rows], type=kinds[name], from_pandas=False) for i, name in enumerate(COLUMNS)
    ]
    partial = path.with_name(f".{path.name}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            parquet.write_table(arrow.Table.from_arrays(columns, names=list(COLUMNS)), partial)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return len(rows)


def import_labels(store: LabelStore, path: Path, on_conflict: OnConflict = "fail") -> Imported:
    """Add the verdicts of a file that `export_labels` wrote.

    Recorded errors give way to what comes in; errors that come in give way to what is there.

    Args:
        store: where to.
        path: a `.jsonl` or `.parquet` file.
        on_conflict: where the store has a verdict that says something else: `fail` imports nothing at all, `keep` keeps
            the store's, `replace` takes the file's.

    Raises:
        TrimtabError: the file is broken (lines are named), or a verdict says something else than the store's.
    """
    rows = _read(path)
    keys = [Key(*row[: len(Key._fields)]) for row in rows]
    there = store.find(keys)
    fresh, over, counts, clashes = [], [], dict.fromkeys(Imported._fields, 0), []
    counts["read"] = len(rows)
    for key, row in zip(keys, rows, strict=True):
        mine, theirs = there.get(key), verdict_of([row[COLUMNS.index(name)] for name in VERDICT_COLUMNS])
        if mine is None:
            counts["added"] += 1
        elif mine == theirs:
            counts["same"] += 1
            continue
        elif mine.outcome is Outcome.ERROR:
            counts["mended"] += 1
        elif theirs.outcome is Outcome.ERROR or on_conflict == "keep":
            counts["kept"] += 1
            continue
        else:
            clashes.append((row, mine, theirs))
            counts["replaced"] += 1
            over.append(row)
            continue
        fresh.append(row)
    if clashes and on_conflict == "fail":
        raise _conflict(path, clashes)
    store.insert(fresh)
    store.insert(over, replace=True)
    return Imported(**counts)


def _conflict(path: Path, clashes: Sequence[tuple[Sequence[Any], Verdict, Verdict]]) -> TrimtabError:
    row, mine, theirs = clashes[0]
    named = dict(zip(COLUMNS, row, strict=True))
    return TrimtabError(
        ErrorKind.DATA,
        f"{path}: {len(clashes)} verdicts say something else than those that are recorded, the first on pair "
        f"{named['pair_id']!r} by {named['judge']!r}: {_told(theirs)} in the file, {_told(mine)} in the store",
        "nothing was imported; --on-conflict keep leaves the recorded ones, --on-conflict replace takes the file's",
    )


def _told(verdict: Verdict) -> str:
    return str(verdict.outcome) if verdict.p_first is None else f"{verdict.outcome} {verdict.p_first:.4g}"


def _read(path: Path) -> list[tuple[Any, ...]]:
    """The rows of a file, each checked."""
    if path.suffix == ".jsonl":
        numbered: Iterator[tuple[int, Any]] = _json_records(path)
    else:
        _check_suffix(path)
        numbered = _parquet_records(path)
    rows: list[tuple[Any, ...]] = []
    problems: list[str] = []
    seen: dict[tuple[Any, ...], tuple[int, Verdict]] = {}
    for number, record in numbered:
        problem = _problem(record) or _said_otherwise(record, number, seen)
        if problem:
            problems.append(f"{path}:{number}: {problem}")
            if len(problems) == _SHOWN_PROBLEMS:
                break
            continue
        rows.append(tuple(float(record[c]) if c in _REAL and record[c] is not None else record[c] for c in COLUMNS))
    if problems:
        raise TrimtabError(
            ErrorKind.DATA, "\n".join(problems), "a file of verdicts is what `trimtab labels export` writes"
        )
    return rows


def _said_otherwise(
    record: dict[str, Any], number: int, seen: dict[tuple[Any, ...], tuple[int, Verdict]]
) -> str | None:
    """What is wrong where the file answers one question twice: only one of two answers could be kept."""
    key = tuple(record[name] for name in Key._fields)
    verdict = verdict_of([record[name] for name in VERDICT_COLUMNS])
    before, said = seen.setdefault(key, (number, verdict))
    if said == verdict:
        return None
    return f"says {_told(verdict)} where line {before} says {_told(said)} of the same question"


def _json_records(path: Path) -> Iterator[tuple[int, Any]]:
    refuse_special(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: cannot be read: {error.strerror}") from None
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, None


def _parquet_records(path: Path) -> Iterator[tuple[int, Any]]:
    arrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
    except (OSError, arrow.ArrowException) as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    yield from enumerate(table.to_pylist(), 1)


def _problem(record: Any) -> str | None:
    """What is wrong with a record; None for nothing."""
    if not isinstance(record, dict):
        return "is no JSON object"
    if unknown := sorted(set(record) - set(COLUMNS)):
        return f"unknown column {unknown[0]!r}"
    for name in COLUMNS:
        if name not in record:
            return f"{name} is missing"
        if not _fits(name, record[name]):
            return f"{name} = {str(record[name])[:60]!r} is not what stands there"
    try:
        verdict_of([record[name] for name in VERDICT_COLUMNS])
    except (TrimtabError, ValueError) as error:
        return str(error)
    return None


def _fits(name: str, value: Any) -> bool:
    if value is None:
        return name in _MAYBE
    if name == "shown":
        return value in tuple(Order)
    if name in _WHOLE:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if name in _REAL:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
    return isinstance(value, str)


def _check_suffix(path: Path) -> None:
    if path.suffix != ".parquet":
        raise TrimtabError(
            ErrorKind.USAGE, f"{path}: labels go to and come from .jsonl and .parquet files", "name one of these"
        )


def _pyarrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise TrimtabError(
            ErrorKind.MISSING,
            "parquet files need pyarrow, which is not installed",
            "pip install pyarrow, or use .jsonl",
        ) from None
