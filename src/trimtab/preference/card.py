"""`trimtab.json` beside a saved preference model: what its reading depends on, checked before anything is loaded."""

from __future__ import annotations

import sys
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
        backbone: Any = facts.get("backbone", "")
        offsets: Any = facts.get("offsets")
        if not isinstance(chat, bool):
            raise _wrong(path, facts, "chat", "true or false")
        if not _whole(most):
            raise _wrong(path, facts, "max_tokens", f"a whole number from 1 to {_MOST}")
        if not _whole(members):
            raise _wrong(path, facts, "members", f"a whole number from 1 to {_MOST}")
        if not isinstance(backbone, str):
            raise _wrong(path, facts, "backbone", "a model's name, or left out")
        if members > 1 and not (isinstance(offsets, list) and len(offsets) == members and all(map(_number, offsets))):
            raise _wrong(path, facts, "offsets", f"a list of {members} numbers, one a member")
        kept = tuple(float(x) for x in offsets) if members > 1 else ()
        return cls(chat, most, bool(backbone), members, kept, facts)


_MOST = 10**9


def _whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


def _number(value: object) -> bool:
    # A whole number in JSON has no bound: of more digits than a float holds it is not to be converted.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # False for NaN too


def _wrong(path: Path, facts: Mapping[str, Any], key: str, wanted: str) -> TrimtabError:
    value = facts.get(key)
    text = "null" if value is None else repr(str(value)[:60])
    told = f"is {text}" if key in facts else "is missing"
    return TrimtabError(ErrorKind.MODEL, f"{path}: {key} {told}", f"it must be {wanted}; or train the model again")
