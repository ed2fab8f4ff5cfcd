"""Prompt files: one JSON object a line with `prompt` (a text or messages), and `id`, `tags` and any other columns."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from trimtab.data.lines import check_prompt, messages_of, read_lines, record_id, tags_of, without, write_messages
from trimtab.data.records import Prompt
from trimtab.runs.files import write_jsonl

__all__ = ["read_prompts", "write_prompts"]


def read_prompts(path: str | os.PathLike[str], *, limit: int | None = None) -> list[Prompt]:
    """The prompts in a JSONL file.

    A prompt without `id` is `line-<number>`. Other columns ride along in `extra`.

    Args:
        path: the file.
        limit: only the first so many.

    Raises:
        TrimtabError: the file is missing or empty, or a line is broken, empty or has the id of another; it is named
            with its number, and nothing is left out.
    """
    seen: dict[str, int] = {}

    def parse(record: dict[str, Any], number: int) -> Prompt:
        messages = check_prompt(messages_of(record.get("prompt"), "prompt"))
        name = record_id(record, number, seen)
        return Prompt(name, messages, tags_of(record), without(record, "id", "prompt", "tags"))

    return read_lines(path, "prompts", parse, limit=limit)


def write_prompts(path: str | os.PathLike[str], prompts: Iterable[Prompt]) -> None:
    """Write a file that `read_prompts` reads back the same."""
    write_jsonl(path, (_line(prompt) for prompt in prompts))


def _line(prompt: Prompt) -> dict[str, Any]:
    line: dict[str, Any] = {"id": prompt.id, "prompt": write_messages(prompt.messages)}
    if prompt.tags:
        line["tags"] = list(prompt.tags)
    return {**line, **without(prompt.extra, *line)}
