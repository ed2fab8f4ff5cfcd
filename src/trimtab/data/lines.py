"""Strict reading of JSON-lines data files: a line that does not hold is an error that names it, never a gap.

What is wrong is collected, so that one run of the reader shows the first ten broken lines and not just one.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.reading import MOST_DIGITS, refuse_special, shown
from trimtab.runs.files import stable_hash

__all__ = [
    "PROMPT_COLUMNS",
    "LineError",
    "check_prompt",
    "finite",
    "kind",
    "messages_of",
    "no_constant",
    "number_of",
    "object_of",
    "parse_object",
    "prompt_columns",
    "prompt_id_of",
    "prompt_of",
    "read_lines",
    "record_id",
    "response_columns",
    "response_of",
    "tags_of",
    "text_of",
    "whole",
    "without",
    "write_messages",
]

T = TypeVar("T")

_ROLES = ("system", "user", "assistant")
_MOST_PROBLEMS = 10


class LineError(ValueError):
    """What is wrong with a line, in words that follow `FILE, line N:`."""


def read_lines(
    path: str | os.PathLike[str],
    what: str,
    parse: Callable[[dict[str, Any], int], T],
    *,
    limit: int | None = None,
    partial: bool = False,
) -> list[T]:
    """The records of a JSON-lines file; blank lines are skipped.

    Args:
        path: UTF-8, with or without byte-order mark, with any line ends.
        what: what a record is, in the plural, for messages.
        parse: makes a record of a line's object and its 1-based number; raises `LineError`.
        limit: stop after this many records.
        partial: the file is our own and its writer may have been killed: half-written lines are skipped, and it may
            hold nothing.

    Raises:
        TrimtabError: the file cannot be read, a line is broken (all of the first ten are named), or nothing is in it.
    """
    path = Path(path)
    records: list[T] = []
    problems: list[str] = []
    for number, line in _raw_lines(path):
        if limit is not None and len(records) >= limit:
            break
        try:
            record = parse_object(line)
        except LineError as problem:
            if not partial:
                problems.append(f"{path}, line {number}: {problem}")
            record = None
        try:
            if record is not None:
                records.append(parse(record, number))
        except LineError as problem:
            problems.append(f"{path}, line {number}: {problem}")
        if len(problems) == _MOST_PROBLEMS:
            break
    if problems:
        raise TrimtabError(
            ErrorKind.DATA, "\n".join(problems), f"Nothing was read: correct or remove {_lines(len(problems))} first."
        )
    if not records and limit != 0 and not partial:
        raise TrimtabError(ErrorKind.DATA, f"{path}: holds no {what}", "One JSON object a line is expected.")
    return records


def _lines(n: int) -> str:
    return "this line" if n == 1 else "these lines"


def _raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    refuse_special(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: cannot be read: {error.strerror}") from None
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TrimtabError(ErrorKind.DATA, f"{path}: is UTF-16", "Save it as UTF-8.")
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if line.strip():
            yield number, line


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object on a line; raises `LineError`."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise LineError(f"is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        record = json.loads(text, parse_constant=no_constant, parse_float=finite, parse_int=whole)
    except json.JSONDecodeError as error:
        raise LineError(f"is not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise LineError("is nested too deeply") from None
    except ValueError as error:
        raise error if isinstance(error, LineError) else LineError(f"is not JSON: {error}") from None
    if not isinstance(record, dict):
        raise LineError(f"is a JSON {type(record).__name__}, not an object")
    return record


def no_constant(name: str) -> float:
    """For JSON decoders: NaN and Infinity are no JSON."""
    raise LineError(f"is not JSON: {name} is no JSON number")


def finite(text: str) -> float:
    """For JSON decoders: a number that a float can hold."""
    number = float(text)
    if not math.isfinite(number):
        raise LineError(f"holds {text[:20]}, which is too large for a number")
    return number


def whole(text: str) -> int:
    """For JSON decoders: a whole number that a float can hold."""
    if len(text) > MOST_DIGITS:
        raise LineError(f"holds a number of {len(text)} digits, which is too large")
    return int(text)


# columns


def record_id(record: Mapping[str, Any], number: int, seen: dict[str, int]) -> str:
    """The line's `id` (text or a whole number), else `line-<number>`; `seen` remembers where each was."""
    value = record.get("id")
    if value is None:
        name = f"line-{number}"
    elif isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
        name = str(value)
    else:
        raise LineError(f"id is {shown(value)}; it is a text or a whole number")
    if name in seen:
        raise LineError(f"id {shown(name)} is that of line {seen[name]} already")
    seen[name] = number
    return name


def tags_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The line's `tags`: a list of texts; none where it is missing."""
    tags = record.get("tags")
    if tags is None:
        return ()
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise LineError("tags is no list of texts")
    return tuple(tags)


def messages_of(value: Any, column: str) -> tuple[Message, ...]:
    """The messages in a column: a text is one message of the user."""
    if isinstance(value, str):
        return (Message("user", value),)
    if not isinstance(value, list) or not value:
        raise LineError(f"{column} is {kind(value)}; it is a text, or a list of messages with role and content")
    messages = []
    for i, item in enumerate(value):
        where = f"message {i + 1} of {column}"
        if not isinstance(item, dict) or item.get("role") not in _ROLES:
            raise LineError(f"{where} has no role out of {', '.join(_ROLES)}")
        if not isinstance(item.get("content"), str):
            raise LineError(f"{where} has no content that is a text")
        messages.append(Message(item["role"], item["content"]))
    return tuple(messages)


def check_prompt(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """`messages` if they can be a prompt: the last is the user's and not empty."""
    if messages[-1].role != "user":
        raise LineError(
            f"the last message of prompt is the {messages[-1].role}'s; it is the user's turn to be answered"
        )
    if not messages[-1].content.strip():
        raise LineError("prompt is empty")
    return messages


def response_of(record: Mapping[str, Any], column: str, text: str) -> Response:
    """The response in a column, with what `<column>_finished` and `<column>_tokens` say of it."""
    finished, tokens = record.get(f"{column}_finished"), record.get(f"{column}_tokens")
    finished = True if finished is None else finished  # tables have the column in every row
    if not isinstance(finished, bool):
        raise LineError(f"{column}_finished is {shown(finished)}; it is true or false")
    if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0):
        raise LineError(f"{column}_tokens is {shown(tokens)}; it is a whole number from 0 on")
    return Response(text, finished, tokens)


def text_of(record: Mapping[str, Any], column: str) -> str:
    """A column that must be a text; it may be empty."""
    value = record.get(column)
    if not isinstance(value, str):
        raise LineError(f"{column} is {kind(value)}; it is a text")
    return value


def number_of(record: Mapping[str, Any], column: str, low: float = -math.inf, high: float = math.inf) -> float | None:
    """A column that is a number in [low, high], or missing."""
    value = record.get(column)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        bounds = "a number" if math.isinf(low) else f"a number from {low:g} to {high:g}"
        raise LineError(f"{column} is {shown(value)}; it is {bounds}")
    return float(value)


def object_of(record: Mapping[str, Any], column: str) -> dict[str, Any]:
    """A column that is a JSON object; empty where it is missing."""
    value = record.get(column)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise LineError(f"{column} is {kind(value)}; it is an object")
    return value


def prompt_id_of(messages: tuple[Message, ...]) -> str:
    """An id for a prompt that has none, the same for the same messages."""
    return "prompt-" + stable_hash([[m.role, m.content] for m in messages])[:12]


def without(record: Mapping[str, Any], *columns: str) -> dict[str, Any]:
    """The columns of a line that are not ours."""
    return {k: v for k, v in record.items() if k not in columns}


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    if value is None:
        return "missing"
    if isinstance(value, list | dict | str) and not value:
        return "empty"
    return {bool: "true or false", int: "a number", float: "a number", dict: "an object", list: "a list"}.get(
        type(value), "a text"
    )


# writing


def write_messages(messages: tuple[Message, ...]) -> str | list[dict[str, str]]:
    """The inverse of `messages_of`."""
    if len(messages) == 1 and messages[0].role == "user":
        return messages[0].content
    return [{"role": m.role, "content": m.content} for m in messages]


def response_columns(column: str, response: Response) -> dict[str, Any]:
    """`<column>_finished` and `<column>_tokens`, where they say something."""
    columns: dict[str, Any] = {} if response.finished else {f"{column}_finished": False}
    return columns if response.tokens is None else {**columns, f"{column}_tokens": response.tokens}


def prompt_columns(prompt: Prompt) -> dict[str, Any]:
    """A prompt's columns inside the line of another record."""
    columns: dict[str, Any] = {"prompt_id": prompt.id, "prompt": write_messages(prompt.messages)}
    if prompt.tags:
        columns["tags"] = list(prompt.tags)
    if prompt.extra:
        columns["prompt_extra"] = dict(prompt.extra)
    return columns


PROMPT_COLUMNS = ("prompt_id", "prompt", "tags", "prompt_extra")


def prompt_of(record: Mapping[str, Any], messages: tuple[Message, ...]) -> Prompt:
    """The prompt inside the line of another record; the inverse of `prompt_columns`."""
    name = record.get("prompt_id")
    if name is not None and not (isinstance(name, str) and name):
        raise LineError(f"prompt_id is {shown(name)}; it is a text")
    check_prompt(messages)
    return Prompt(name or prompt_id_of(messages), messages, tags_of(record), object_of(record, "prompt_extra"))
