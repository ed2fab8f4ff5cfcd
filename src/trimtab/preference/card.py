"""`trimtab.json` beside a saved preference model: what its reading depends on, checked before anything is loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import read_json

__all__ = ["CARD", "Card"]

CARD = "trimtab.json"


@dataclass(frozen=True)
class Card:
    """What a saved preference model says of itself.

    `chat`: prompts go through the tokenizer's chat template. `max_tokens`: longest prompt with response. `backbone`:
    it has one of its own. `members`: models of an ensemble, this one included, and the `offsets` that are taken off
    their scores. `facts`: all that the file says.
    """

    chat: bool
    max_tokens: int
    backbone: bool
    members: int
    offsets: tuple[float, ...]
    facts: Mapping[str, Any]

    @classmethod
    def read(cls, directory: Path) -> Card:
        """The card of the model in a directory.

        Raises:
            TrimtabError: it is missing or broken, or a value in it is not what it must be; the value is named.
        """
        path = directory / CARD
        facts = read_json(path, ErrorKind.MODEL)
        chat, most, members = facts.get("chat"), facts.get("max_tokens"), facts.get("members", 1)
        offsets: Any = facts.get("offsets")
        if not isinstance(chat, bool):
            raise _wrong(path, "chat", chat, "true or false")
        if not _whole(most):
            raise _wrong(path, "max_tokens", most, "a whole number from 1 on")
        if not _whole(members):
            raise _wrong(path, "members", members, "a whole number from 1 on")
        if members > 1 and not (isinstance(offsets, list) and len(offsets) == members and all(map(_number, offsets))):
            raise _wrong(path, "offsets", offsets, f"a list of {members} numbers, one a member")
        kept = tuple(float(x) for x in offsets) if members > 1 else ()
        return cls(chat, most, bool(facts.get("backbone")), members, kept, facts)


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _wrong(path: Path, key: str, value: object, wanted: str) -> TrimtabError:
    told = "is missing" if value is None else f"is {str(value)[:60]!r}"
    return TrimtabError(ErrorKind.MODEL, f"{path}: {key} {told}", f"it must be {wanted}; or train the model again")
