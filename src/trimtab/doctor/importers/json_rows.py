"""Records out of JSON, whole or broken: one a line, a document, or what is left of a document."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Salvage", "loads", "rows_of_document", "salvage_document", "salvage_line"]

Record = dict[str, Any]
_MOST_TRIES = 10_000
_MOST_EMPTY = 100
_ARRAY = re.compile(r"\[\s*(?=\{)")


def _large(text: str) -> float | int:
    return int(text) if len(text) < 400 else math.inf if text[0] != "-" else -math.inf


_DECODER = json.JSONDecoder(strict=False)
_SLOW = json.JSONDecoder(strict=False, parse_int=_large)


def loads(text: str | bytes) -> Any:
    """The value of a JSON text; control characters in texts, NaN and Infinity are allowed, numbers of any length too.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer of thousands of digits
        return _SLOW.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _decode_at(text: str, at: int) -> tuple[Any, int] | None:
    try:
        return _DECODER.raw_decode(text, at)
    except (json.JSONDecodeError, RecursionError):
        return None
    except ValueError:
        try:
            return _SLOW.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None


class Salvage:
    """Records recovered from a broken document: `lost` pieces were skipped, `cut` says that the end is missing."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.lost = 0
        self.cut = False
        self.settings: Record = {}


def salvage_line(line: str) -> Record | None:
    """The last whole record of a line that begins with half of another one (a process killed, then started again)."""
    at = line.find('{"', 1)
    for _ in range(50):
        if at < 0:
            return None
        found = _decode_at(line, at)
        if found is not None and isinstance(found[0], dict) and not line[found[1] :].strip(" \t\r,]"):
            return found[0]
        at = line.find('{"', at + 1)
    return None


def salvage_document(text: str) -> Salvage | None:
    """Every complete record of the longest list of records in a document that does not parse; None without one."""
    best: Salvage | None = None
    end = empty = 0
    for match in _ARRAY.finditer(text):
        if match.start() < end:
            continue
        found, end = _records_from(text, match.end())
        empty += not found.records
        if empty > _MOST_EMPTY:
            break
        if found.records and (best is None or len(found.records) > len(best.records)):
            found.settings = _settings_before(text, match.start())
            best = found
    return best


def _records_from(text: str, at: int) -> tuple[Salvage, int]:
    found, tries = Salvage(), 0
    while tries < _MOST_TRIES:
        item = _decode_at(text, at)
        if item is None:
            nxt = text.find("{", at + 1)
            found.lost += 1
            if nxt < 0 or found.lost > 100 * (1 + len(found.records)):
                found.cut = True
                return found, len(text)
            tries += 1
            at = nxt
            continue
        value, at = item
        if isinstance(value, dict):
            found.records.append(value)
        at = _skip_space(text, at)
        if at >= len(text):
            found.cut = True
            return found, at
        if text[at] == "]":
            return found, at
        nxt = text.find("{", at)
        if nxt < 0:
            found.cut = True
            return found, len(text)
        at = nxt
    return found, at


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _settings_before(text: str, at: int) -> Record:
    """Plain settings of a document that come before its list: `{"max_steps": 100, "log_history": [`."""
    head = text[:at].rstrip().removesuffix(":").rstrip()
    head = head[: head.rfind('"', 0, len(head) - 1)].rstrip().removesuffix(",") if head.endswith('"') else ""
    if not head.startswith("{") or len(head) > 1_000_000:
        return {}
    found = _decode_at(head + "}", 0)
    return found[0] if found and isinstance(found[0], dict) else {}


def rows_of_document(value: Any) -> tuple[list[Record], Record, str]:
    """The records of a parsed document, the settings beside them, and what form it has.

    Known forms: a list of records; a table with such a list in it (`log_history` first, else the longest); a table of
    lists of equal length; a table of records by step; a list of `[time, step, value]`; one record.
    """
    for shape in _SHAPES:
        found = shape(value)
        if found is not None:
            return found
    return [], {}, ""


_Rows = tuple[list[Record], Record, str] | None


def _as_list(value: Any) -> _Rows:
    if not isinstance(value, list) or not value:
        return None
    records = [item for item in value if isinstance(item, dict)]
    if records:
        return (records, {}, "records")
    if all(isinstance(item, list) and len(item) == 3 for item in value[:50]):
        rows = [dict(zip(("wall_time", "step", "value"), item, strict=True)) for item in value if len(item) == 3]
        return rows, {}, "tensorboard-json"
    return None


def _as_table(value: Any) -> _Rows:
    if not isinstance(value, dict):
        return None
    lists = list(_lists(value))
    if not lists:
        return None
    name, records = next(((n, r) for n, r in lists if n == "log_history"), max(lists, key=lambda item: len(item[1])))
    settings = {k: v for k, v in value.items() if isinstance(v, str | int | float | bool)}
    for inner in ("args", "config", "training_args", "hparams"):
        if isinstance(value.get(inner), dict):
            settings = {**value[inner], **settings}
    return records, settings, "log_history" if name == "log_history" else "records"


def _lists(value: Any, depth: int = 0) -> Iterator[tuple[str, list[Record]]]:
    for key, item in value.items():
        if isinstance(item, list) and item and any(isinstance(x, dict) for x in item):
            yield str(key), [x for x in item if isinstance(x, dict)]
        elif isinstance(item, dict) and depth < 3:
            yield from _lists(item, depth + 1)


def _as_columns(value: Any) -> _Rows:
    if not isinstance(value, dict):
        return None
    columns = {k: v for k, v in value.items() if isinstance(v, list) and v and not isinstance(v[0], list | dict)}
    if not columns:
        inner = [v for v in value.values() if isinstance(v, dict)]
        return _as_columns(inner[0]) if len(inner) == 1 else None
    longest = max(map(len, columns.values()))
    if longest < 2:
        return None
    rows = [{k: v[i] for k, v in columns.items() if i < len(v)} for i in range(longest)]
    return rows, {k: v for k, v in value.items() if isinstance(v, str | int | float | bool)}, "columns"


def _as_steps(value: Any) -> _Rows:
    if not isinstance(value, dict) or len(value) < 2:
        return None
    if not all(isinstance(v, dict) and str(k).isdecimal() and len(str(k)) < 16 for k, v in value.items()):
        return None
    return [{"step": int(k), **v} for k, v in value.items()], {}, "records-by-step"


def _as_record(value: Any) -> _Rows:
    return ([value], {}, "record") if isinstance(value, dict) and value else None


_SHAPES: tuple[Callable[[Any], _Rows], ...] = (_as_list, _as_table, _as_columns, _as_steps, _as_record)
