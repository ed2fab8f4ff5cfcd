"""Demonstration files: one JSON object a line with `prompt` and `response`, or `messages` that end in the response."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.data.lines import (
    PROMPT_COLUMNS,
    LineError,
    messages_of,
    prompt_columns,
    prompt_of,
    read_lines,
    record_id,
    text_of,
    without,
)
from trimtab.data.records import Prompt
from trimtab.runs.files import write_jsonl

__all__ = ["Demonstration", "read_demonstrations", "write_demonstrations"]


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A prompt with the response to imitate; `extra` holds the other columns of the line."""

    prompt: Prompt
    response: str
    id: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def read_demonstrations(path: str | os.PathLike[str]) -> list[Demonstration]:
    """The demonstrations in a JSONL file.

    Raises:
        TrimtabError: the file is missing or empty, or a line is broken; it is named with its number.
    """
    seen: dict[str, int] = {}

    def parse(record: dict[str, Any], number: int) -> Demonstration:
        if "messages" in record and "prompt" not in record:
            messages = messages_of(record["messages"], "messages")
            if len(messages) < 2 or messages[-1].role != "assistant":
                raise LineError("messages does not end with a response of the assistant")
            prompt, response = messages[:-1], messages[-1].content
        else:
            prompt, response = messages_of(record.get("prompt"), "prompt"), text_of(record, "response")
        extra = without(record, "id", "messages", "response", *PROMPT_COLUMNS)
        return Demonstration(prompt_of(record, prompt), response, record_id(record, number, seen), extra)

    return read_lines(path, "demonstrations", parse)


def write_demonstrations(path: str | os.PathLike[str], demonstrations: Iterable[Demonstration]) -> None:
    """Write a file that `read_demonstrations` reads back the same (a missing id becomes the line's)."""
    write_jsonl(path, (_line(d) for d in demonstrations))


def _line(d: Demonstration) -> dict[str, Any]:
    line = {**({"id": d.id} if d.id else {}), **prompt_columns(d.prompt), "response": d.response}
    return {**line, **without(d.extra, *line)}
