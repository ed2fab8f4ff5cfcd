"""Files of labeled pairs and of candidate pairs, one JSON object a line.

Labeled pairs have the columns that Hugging Face users know: `prompt`, `chosen`, `rejected`, optionally `margin`, as
texts or as lists of messages with role and content. Where `prompt` is missing it is what `chosen` and `rejected` begin
with in common. Our columns ride along: `id`, `prompt_id`, `tags`, `p_chosen`, `chosen_finished`, `chosen_tokens` and so
on. What else a line holds is kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Any

from trimtab.data.lines import (
    PROMPT_COLUMNS,
    LineError,
    messages_of,
    number_of,
    object_of,
    prompt_columns,
    prompt_of,
    read_lines,
    record_id,
    response_columns,
    response_of,
    text_of,
    without,
)
from trimtab.data.records import CandidatePair, Message, Pair
from trimtab.runs.files import write_jsonl

__all__ = ["candidate_record", "read_candidates", "read_pairs", "write_candidates", "write_pairs"]

Messages = tuple[Message, ...]

_TURN = re.compile(r"\n\n(Human|Assistant): ?")
_PAIR_COLUMNS = ("id", "chosen", "rejected", "p_chosen", "margin", *PROMPT_COLUMNS)
_CANDIDATE_COLUMNS = ("id", "first", "second", "origin", *PROMPT_COLUMNS)


def read_pairs(path: str | os.PathLike[str]) -> list[Pair]:
    """The labeled pairs in a JSONL file.

    Without `prompt`, `chosen` and `rejected` are lists of messages, or transcripts of `Human:` and `Assistant:` turns,
    that differ in their last message. A prompt without `prompt_id` gets one made from its messages: pairs of one prompt
    share it.

    Raises:
        TrimtabError: the file is missing or empty, or a line is broken; it is named with its number.
    """
    seen: dict[str, int] = {}

    def parse(record: dict[str, Any], number: int) -> Pair:
        prompt, chosen, rejected = _split(record)
        return Pair(
            record_id(record, number, seen),
            prompt_of(record, prompt),
            response_of(record, "chosen", chosen),
            response_of(record, "rejected", rejected),
            number_of(record, "p_chosen", 0, 1),
            number_of(record, "margin"),
            without(record, *_PAIR_COLUMNS, *_response_columns("chosen", "rejected")),
        )

    return read_lines(path, "pairs", parse)


def write_pairs(path: str | os.PathLike[str], pairs: Iterable[Pair]) -> None:
    """Write a file that `read_pairs` reads back the same, and Hugging Face trainers read as they are."""
    write_jsonl(path, (_pair_line(pair) for pair in pairs))


def read_candidates(path: str | os.PathLike[str], *, partial: bool = False) -> list[CandidatePair]:
    """The candidate pairs in a JSONL file with `prompt`, `first`, `second`; columns that are not ours go into `origin`.

    Args:
        path: the file.
        partial: its writer, which appended `candidate_record`s, may have been killed: half-written lines are skipped,
            and there may be none.

    Raises:
        TrimtabError: the file is missing or empty, or a line is broken; it is named with its number.
    """
    seen: dict[str, int] = {}

    def parse(record: dict[str, Any], number: int) -> CandidatePair:
        others = without(record, *_CANDIDATE_COLUMNS, *_response_columns("first", "second"))
        return CandidatePair(
            record_id(record, number, seen),
            prompt_of(record, messages_of(record.get("prompt"), "prompt")),
            response_of(record, "first", text_of(record, "first")),
            response_of(record, "second", text_of(record, "second")),
            {**others, **object_of(record, "origin")},
        )

    return read_lines(path, "candidate pairs", parse, partial=partial)


def write_candidates(path: str | os.PathLike[str], pairs: Iterable[CandidatePair]) -> None:
    """Write a file that `read_candidates` reads back the same."""
    write_jsonl(path, (candidate_record(pair) for pair in pairs))


# reading


def _split(record: dict[str, Any]) -> tuple[Messages, str, str]:
    """Prompt, chosen and rejected of a line, in whichever form it has them."""
    prompt = None if record.get("prompt") is None else messages_of(record["prompt"], "prompt")
    if prompt is not None and all(isinstance(record.get(c), str) for c in ("chosen", "rejected")):
        return prompt, record["chosen"], record["rejected"]
    chosen, rejected = _conversation(record, "chosen", prompt), _conversation(record, "rejected", prompt)
    if prompt is None:
        same = sum(1 for _ in takewhile(lambda ab: ab[0] == ab[1], zip(chosen, rejected, strict=False)))
        prompt = chosen[: min(same, len(chosen) - 1, len(rejected) - 1)]
        if not prompt:
            raise LineError("there is no prompt, and chosen and rejected do not begin with the same messages")
    return prompt, _last(chosen, prompt, "chosen"), _last(rejected, prompt, "rejected")


def _conversation(record: dict[str, Any], column: str, prompt: Messages | None) -> Messages:
    value = record.get(column)
    if isinstance(value, str):
        if prompt is not None:
            return (Message("assistant", value),)
        turns = _transcript(value)
        if turns is None:
            raise LineError(f"{column} is a text, and there is no prompt")
        return turns
    return messages_of(value, column)


def _transcript(text: str) -> Messages | None:
    """The turns of a `Human: ... Assistant: ...` transcript."""
    parts = _TURN.split("\n\n" + text.lstrip("\n"))
    if parts[0].strip() or len(parts) < 5:
        return None
    roles = {"Human": "user", "Assistant": "assistant"}
    return tuple(Message(roles[who], said) for who, said in zip(parts[1::2], parts[2::2], strict=True))


def _last(messages: Messages, prompt: Messages, column: str) -> str:
    """The response that is left of a conversation after its prompt, which it may or may not repeat."""
    rest = messages[len(prompt) :] if messages[: len(prompt)] == prompt else messages
    if len(rest) != 1 or rest[0].role != "assistant":
        raise LineError(f"{column} is not one message of the assistant after the prompt")
    return rest[0].content


def _response_columns(*columns: str) -> list[str]:
    return [f"{column}_{what}" for column in columns for what in ("finished", "tokens")]


# writing


def _pair_line(pair: Pair) -> dict[str, Any]:
    line: dict[str, Any] = {"id": pair.id, **prompt_columns(pair.prompt)}
    # Messages in one column and texts in another are no form that trainers know.
    as_text = isinstance(line["prompt"], str)
    for column, response in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        line[column] = response.text if as_text else [{"role": "assistant", "content": response.text}]
        line |= response_columns(column, response)
    line |= {k: v for k, v in (("p_chosen", pair.p_chosen), ("margin", pair.margin)) if v is not None}
    return {**line, **without(pair.extra, *_PAIR_COLUMNS, *_response_columns("chosen", "rejected"))}


def candidate_record(pair: CandidatePair) -> dict[str, Any]:
    """The JSON object of a candidate pair's line."""
    line: dict[str, Any] = {"id": pair.id, **prompt_columns(pair.prompt)}
    for column, response in (("first", pair.first), ("second", pair.second)):
        line[column] = response.text
        line |= response_columns(column, response)
    return {**line, **({"origin": dict(pair.origin)} if pair.origin else {})}
