"""Reading verdict files: any of four containers, records checked one by one, columns made of them.

What is wrong is collected, so that one reading names the first ten broken records and not just one.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import Outcome
from trimtab.labeling.verdicts import NO_WINNER, OUTCOMES, TIE, Coded, PairTexts, VerdictTable
from trimtab.reading import MOST_DIGITS, bytes_of, refuse_special, shown
from trimtab.stats.text import length

__all__ = ["Record", "load_records", "read", "table_of"]

Record = Mapping[str, Any]

_MOST_PROBLEMS = 10
_NAMES = {
    "pair": "pair_id",
    "judge": "judge",
    "template": "template",
    "principle": "principle",
    "constitution": "constitution",
    "slice": "slice",
    "annotator": "annotator",
    "group": "group",
    "prompt": "prompt_id",
    "model": "model",
    "generator_1": "generator_1",
    "generator_2": "generator_2",
    "response_1": "response_id_1",
    "response_2": "response_id_2",
}
_NUMBERS = ("p_1", "length_1", "length_2", "cost", "tokens", "latency", "mass")
_BOUNDS = {"p_1": (0.0, 1.0), "mass": (0.0, math.inf)}
_TEXTS = ("prompt", "response_1", "response_2")
_KNOWN = {*_NAMES.values(), *_NUMBERS, *_TEXTS, "order", "winner", "status", "gold", "sample"}
_WINNERS: dict[Any, int] = {
    1: 1,
    2: 2,
    "1": 1,
    "2": 2,
    "1.0": 1,
    "2.0": 2,
    "tie": TIE,
    None: NO_WINNER,
    "": NO_WINNER,
    "null": NO_WINNER,
    "None": NO_WINNER,
}
_ORDERS: dict[Any, int] = {
    None: 0,
    "": 0,
    "12": 1,
    "21": 2,
    12: 1,
    21: 2,
    "12.0": 1,
    "21.0": 2,
    "forward": 1,
    "reversed": 2,
}
_TOO_LARGE = 10**MOST_DIGITS
_STATUS = {outcome.value: i for i, outcome in enumerate(OUTCOMES)}
_OK, _TIED, _UNPARSED = (OUTCOMES.index(o) for o in (Outcome.OK, Outcome.TIE, Outcome.UNPARSED))


class _RecordError(ValueError):
    """What is wrong with a record, in words that follow `FILE, line N:`."""


def read(path: str | os.PathLike[str]) -> VerdictTable:
    """See `verdicts.read_verdicts`."""
    from trimtab.labeling.verdict_formats import read_store, records_of

    path = Path(path)
    if _head(path).startswith(b"SQLite format 3"):
        return read_store(path)
    records, lines = load_records(path)
    converted = records_of(records, lines, path)
    return table_of(records, str(path), lines) if converted is None else table_of(*converted)


def table_of(records: Iterable[Record], source: str = "", lines: Sequence[int] | None = None) -> VerdictTable:
    """See `VerdictTable.from_records`."""
    listed = records if isinstance(records, list) else list(records)
    where = "record" if lines is None else "line"
    problems: list[str] = []
    columns: dict[str, list[Any]] = {name: [] for name in (*_NAMES, *_NUMBERS, *_CODES)}
    texts: dict[str, PairTexts] = {}
    ignored: dict[str, None] = {}
    for i, record in enumerate(listed):
        try:
            row = _row(record)
        except _RecordError as problem:
            number = i + 1 if lines is None else lines[i]
            problems.append(f"{source + ', ' if source else ''}{where} {number}: {problem}")
            if len(problems) == _MOST_PROBLEMS:
                break
            continue
        for name, value in row.items():
            columns[name].append(value)
        if row["pair"] not in texts and any(record.get(t) is not None for t in _TEXTS):
            texts[row["pair"]] = PairTexts(*(_text(record.get(t)) for t in _TEXTS))
        ignored.update(dict.fromkeys(k for k in record if k not in _KNOWN))
    if problems:
        raise TrimtabError(
            ErrorKind.DATA,
            "\n".join(problems),
            "A verdict has pair_id, judge (or annotator) and winner (1, 2, tie or null): see trimtab labels audit -h",
        )
    if not listed:
        raise TrimtabError(
            ErrorKind.DATA, f"{source or 'the records'}: no verdicts", "One verdict a record is expected."
        )
    return _table(columns, texts, source, tuple(str(name) for name in ignored))


def _table(
    columns: dict[str, list[Any]], texts: Mapping[str, PairTexts], source: str, ignored: tuple[str, ...]
) -> VerdictTable:
    named: dict[str, Any] = {name: Coded.of_names(columns[name]) for name in _NAMES}
    numbers: dict[str, Any] = {name: np.array(columns[name], dtype=np.float64) for name in _NUMBERS}
    codes: dict[str, Any] = {name: np.array(columns[name], dtype=kind) for name, kind in _CODES.items()}
    pair = named["pair"]
    number = {name: i for i, name in enumerate(pair.names)}
    by_code = {number[name]: text for name, text in texts.items()}
    for column, attribute in (("length_1", "first"), ("length_2", "second")):
        counted = {code: float(length(getattr(text, attribute))) for code, text in by_code.items()}
        missing = np.flatnonzero(np.isnan(numbers[column]))
        for row in missing.tolist() if counted else []:
            numbers[column][row] = counted.get(int(pair.codes[row]), math.nan)
    return VerdictTable(**named, **numbers, **codes, texts=by_code, source=source, ignored=ignored)


_CODES: dict[str, type[np.signedinteger[Any]]] = {
    "order": np.int8,
    "winner": np.int8,
    "status": np.int8,
    "gold": np.int8,
    "sample": np.int32,
}


# one record


def _row(record: Record) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise _RecordError(f"is a {type(record).__name__}, not an object")
    row: dict[str, Any] = {name: _name(record.get(column), column) for name, column in _NAMES.items()}
    if row["pair"] is None:
        raise _RecordError("has no pair_id")
    if row["judge"] is None:
        if row["annotator"] is None:
            raise _RecordError("has neither judge nor annotator")
        row["judge"], row["annotator"] = row["annotator"], None
    for name in _NUMBERS:
        row[name] = _number(record.get(name), name)
    row["order"] = _code(record.get("order"), _ORDERS, "order", '"12" or "21"')
    row["gold"] = _code(record.get("gold"), _WINNERS, "gold", '1, 2, "tie" or null')
    row["winner"], row["status"] = _verdict(record, row["p_1"])
    sample = record.get("sample")
    row["sample"] = 0 if _missing(sample) else _whole(sample, "sample")
    return row


def _verdict(record: Record, p_1: float) -> tuple[int, int]:
    """Codes of winner and status, which must go together."""
    stated = record.get("status")
    status = None if _missing(stated) else _STATUS.get(str(stated).lower())
    if status is None and not _missing(stated):
        raise _RecordError(f"status is {shown(stated)}; it is one of {', '.join(_STATUS)}")
    if "winner" in record:
        winner = _code(record["winner"], _WINNERS, "winner", '1, 2, "tie" or null')
        if winner == NO_WINNER and status == _TIED:
            winner = TIE
    elif math.isnan(p_1):
        if status in (None, _OK):
            raise _RecordError("has no winner (1, 2, tie or null)")
        winner = TIE if status == _TIED else NO_WINNER
    elif status not in (None, _OK, _TIED):
        winner = NO_WINNER
    else:
        winner = TIE if p_1 == 0.5 else 1 if p_1 > 0.5 else 2
        status = None
    fitting = {NO_WINNER: _UNPARSED, TIE: _TIED}.get(winner, _OK)
    if status is None:
        return winner, fitting
    # a probability of exactly one half is a preference that names nobody, and may be told as ok
    if status != fitting and not (winner == NO_WINNER and status > _TIED) and not (winner == TIE and status == _OK):
        named = {NO_WINNER: "null", TIE: "tie"}.get(winner, str(winner))
        raise _RecordError(f"winner {named} does not go with status {OUTCOMES[status].value}")
    return winner, fitting if winner != NO_WINNER else status


def _missing(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _code(value: Any, codes: Mapping[Any, int], column: str, right: str) -> int:
    if type(value) is str or type(value) is int or value is None:
        found = codes.get(value)
        if found is None and type(value) is str:
            found = codes.get(value.strip().lower())
    elif isinstance(value, float):
        found = codes[None] if math.isnan(value) else codes.get(value)
    else:
        found = None
    if found is None:
        raise _RecordError(f"{column} is {shown(value)}; it is {right}")
    return found


def _name(value: Any, column: str) -> str | None:
    if type(value) is str:
        return value or None
    if _missing(value):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _RecordError(f"{column} is a {type(value).__name__}; it is a text or a whole number")
    if abs(value) >= _TOO_LARGE:
        raise _RecordError(f"{column} has more than {MOST_DIGITS} digits; it is a text or a whole number")
    # a table with gaps turns whole numbers into 3.0
    return str(int(value)) if float(value).is_integer() else str(value)


def _number(value: Any, column: str) -> float:
    if _missing(value):
        return math.nan
    low, high = _BOUNDS.get(column, (0.0, math.inf))
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise _RecordError(f"{column} is {shown(value)}; it is a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= min(high, _TOO_LARGE):
        bounds = f"from {low:g} on" if math.isinf(high) else f"from {low:g} to {high:g}"
        raise _RecordError(f"{column} is {shown(value)}; it is a number {bounds}")
    return float(value)


def _whole(value: Any, column: str) -> int:
    number = _number(value, column)
    if not number.is_integer() or number > 2**31 - 1:
        raise _RecordError(f"{column} is {shown(value)}; it is a whole number from 0 on")
    return int(number)


def _text(value: Any) -> str:
    """A text column; messages become their contents."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(str(m.get("content", "")) if isinstance(m, Mapping) else str(m) for m in value)
    return "" if _missing(value) else str(value)


# containers


def load_records(path: str | os.PathLike[str]) -> tuple[list[Record], list[int]]:
    """The records of a JSONL, JSON, CSV or parquet file, plain or gzipped, and the 1-based line or row of each.

    Raises:
        TrimtabError: the file cannot be read, or is broken; parquet needs pyarrow.
    """
    path = Path(path)
    data = bytes_of(path)
    suffix = path.with_suffix("").suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()
    if data.startswith(b"PAR1") or suffix == ".parquet":
        return _parquet(path, data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TrimtabError(
            ErrorKind.DATA, f"{path}: is not UTF-8: {error.reason} at byte {error.start}", "Save it as UTF-8."
        ) from None
    if suffix in (".csv", ".tsv"):
        return _csv(text, "\t" if suffix == ".tsv" else ",", path)
    if text.lstrip().startswith("["):
        rows = _json(text, f"{path}")
        return rows, list(range(1, len(rows) + 1))
    return _jsonl(text, path)


def _head(path: Path) -> bytes:
    refuse_special(path)
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: cannot be read: {error.strerror}") from None


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TrimtabError(
            ErrorKind.DATA, f"{where}: is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except (RecursionError, ValueError) as error:
        raise TrimtabError(ErrorKind.DATA, f"{where}: is not JSON: {error}") from None


def _jsonl(text: str, path: Path) -> tuple[list[Record], list[int]]:
    records: list[Record] = []
    lines: list[int] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            records.append(_json(line, f"{path}, line {number}"))
            lines.append(number)
    return records, lines


def _csv(text: str, separator: str, path: Path) -> tuple[list[Record], list[int]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, restkey="", strict=True)
    records: list[Record] = []
    lines: list[int] = []
    try:
        for record in reader:
            records.append(record)
            lines.append(reader.line_num)
    except csv.Error as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}, line {reader.line_num}: is not CSV: {error}") from None
    return records, lines


def _parquet(path: Path, data: bytes) -> tuple[list[Record], list[int]]:
    # by name: pyarrow carries no types
    try:
        pa, pq = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise TrimtabError(
            ErrorKind.MISSING, f"{path}: reading parquet needs pyarrow", "pip install pyarrow, or save it as JSONL"
        ) from None
    try:
        rows = pq.read_table(pa.BufferReader(data)).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: is not a parquet file that can be read: {error}") from None
    return rows, list(range(1, len(rows) + 1))
