"""Pairs as Hugging Face trainers take them, and hh-rlhf dialogues.

`prompt`, `chosen`, `rejected` are texts or lists of messages with role and content (or from and value). Without
`prompt` it is what both conversations, or both transcripts of `Human:` and `Assistant:` turns, begin with in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from trimtab.data.lines import PROMPT_COLUMNS, LineError, messages_of, number_of, prompt_of, response_of, without
from trimtab.data.records import Message, Pair

__all__ = ["PAIR_COLUMNS", "PROMPT_NAMES", "pair_of", "response_columns_of", "transcript", "write_transcript"]

Messages = tuple[Message, ...]

PAIR_COLUMNS = ("id", "chosen", "rejected", "p_chosen", "margin", "weight", *PROMPT_COLUMNS)
PROMPT_NAMES = ("question", "instruction", "query", "input")
"""Names that data sets give the prompt besides `prompt`; the first that is there is taken."""

_TURN = re.compile(r"\n\n(Human|Assistant): ?")
_SPEAKERS = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}


def pair_of(record: dict[str, Any], name: str) -> Pair:
    """The pair on a line with the columns `chosen` and `rejected`; raises `LineError`."""
    record = _with_prompt(_with_roles(record))
    prompt, chosen, rejected = _split(record)
    weight = number_of(record, "weight", 0)
    principles = _principles(record)
    return Pair(
        name,
        prompt_of(record, prompt),
        response_of(record, "chosen", chosen),
        response_of(record, "rejected", rejected),
        number_of(record, "p_chosen", 0, 1),
        number_of(record, "margin"),
        without(
            record, *PAIR_COLUMNS, *response_columns_of("chosen", "rejected"), *(["principles"] if principles else [])
        ),
        1.0 if weight is None else weight,
        principles,
    )


def _principles(record: dict[str, Any]) -> dict[str, float]:
    """P(chosen > rejected) by principle; a column `principles` that is no object of numbers is somebody else's."""
    value = record.get("principles")
    numbers = isinstance(value, dict) and all(
        isinstance(p, int | float) and not isinstance(p, bool) for p in value.values()
    )
    if not isinstance(value, dict) or not numbers:
        return {}
    for name, p in value.items():
        if not 0 <= p <= 1:
            raise LineError(f"principles.{name} is {p:g}; it is a probability, a number from 0 to 1")
    return {name: float(p) for name, p in value.items()}


def response_columns_of(*columns: str) -> list[str]:
    """Names of the columns that say more of the response in each of `columns`."""
    return [f"{column}_{what}" for column in columns for what in ("finished", "tokens")]


def transcript(text: str) -> Messages | None:
    """The turns of a `Human: ... Assistant: ...` transcript, or None where it is none of at least two turns."""
    parts = _TURN.split("\n\n" + text.lstrip("\n"))
    if parts[0].strip() or len(parts) < 5:
        return None
    roles = {"Human": "user", "Assistant": "assistant"}
    return tuple(Message(roles[who], said) for who, said in zip(parts[1::2], parts[2::2], strict=True))


def write_transcript(messages: Messages) -> str:
    """The inverse of `transcript`.

    Raises:
        LineError: a system message, or a content that would read as a turn of its own.
    """
    names = {"user": "Human", "assistant": "Assistant"}
    for message in messages:
        if message.role not in names:
            raise LineError(f"a {message.role} message has no place in a Human/Assistant transcript")
        if _TURN.search("\n\n" + message.content) or message.content[:1] == " ":
            raise LineError("a message begins with a space or holds a Human/Assistant turn")
    return "".join(f"\n\n{names[m.role]}: {m.content}" for m in messages)


def _with_prompt(record: dict[str, Any]) -> dict[str, Any]:
    """The record with its prompt under that name; a `system` text beside it becomes the first message."""
    if "prompt" in record:
        return record
    name = next((n for n in PROMPT_NAMES if isinstance(record.get(n), str)), None)
    if name is None:
        return record
    prompt: Any = record[name]
    rest = without(record, name)
    if isinstance(rest.get("system"), str):
        system = rest.pop("system")
        if system:
            prompt = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
    return {**rest, "prompt": prompt}


def _with_roles(record: dict[str, Any]) -> dict[str, Any]:
    """Messages with `from` and `value` as messages with role and content; `conversations` is the prompt."""
    if not any(_has_speakers(record.get(name)) for name in ("chosen", "rejected", "prompt", "conversations")):
        return record
    renamed = dict(record)
    if "prompt" not in renamed and "conversations" in renamed:
        renamed["prompt"] = renamed.pop("conversations")
    for name in ("prompt", "chosen", "rejected"):
        value = renamed.get(name)
        turns = [value] if isinstance(value, Mapping) else value
        if _has_speakers(turns):
            renamed[name] = [
                {"role": _SPEAKERS.get(str(turn.get("from")), turn.get("from")), "content": turn.get("value")}
                for turn in turns  # type: ignore[union-attr]
                if isinstance(turn, Mapping)
            ]
    return renamed


def _has_speakers(value: Any) -> bool:
    turns = [value] if isinstance(value, Mapping) else value
    return isinstance(turns, list) and bool(turns) and all(isinstance(t, Mapping) and "from" in t for t in turns)


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
        for column, turns in (("chosen", chosen), ("rejected", rejected)):
            if len(turns) - len(prompt) > 1:
                raise LineError(
                    f"chosen and rejected share their first {_turns(len(prompt))}, but {column} goes on for "
                    f"{len(turns) - len(prompt)}; they must differ in their last turn only"
                )
    return prompt, _last(chosen, prompt, "chosen"), _last(rejected, prompt, "rejected")


def _turns(n: int) -> str:
    return "turn" if n == 1 else f"{n} turns"


def _conversation(record: dict[str, Any], column: str, prompt: Messages | None) -> Messages:
    value = record.get(column)
    if isinstance(value, str):
        if prompt is not None:
            return (Message("assistant", value),)
        turns = transcript(value)
        if turns is None:
            raise LineError(f"{column} is a text, and there is no prompt")
        return turns
    return messages_of(value, column)


def _last(messages: Messages, prompt: Messages, column: str) -> str:
    """The response that is left of a conversation after its prompt, which it may or may not repeat."""
    rest = messages[len(prompt) :] if messages[: len(prompt)] == prompt else messages
    if len(rest) != 1 or rest[0].role != "assistant":
        raise LineError(f"{column} is not one message of the assistant after the prompt")
    return rest[0].content
