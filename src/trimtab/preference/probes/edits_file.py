"""Edits of the user's own, beside the built-in ones or in place of their sentences.

A TOML file. Sentences are in the language of the responses:

    neutral = "That is all there is in this answer."   # what added words are held against
    sentences = true          # false: leave out the built-in English and Chinese sentences, and the questions of taste

    [[edits]]
    name = "marketing"
    kind = "style"            # style, length, damage, identity or surface: see `edits`
    append = "The best you can get, guaranteed!"       # or: prepend, instead, or replace = { colour = "color" }
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final, get_args

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.preference.probes.edits import EDITS, NEUTRAL, Edit, Kind, append, phrase
from trimtab.reading import refuse_special

__all__ = ["BUILT_IN", "EditSet", "read_edits"]

_SENTENCES: Final = frozenset(
    {
        "neutral sentence", "filler", "praise", "apology", "hedge", "vagueness", "disclaimer", "agree with the user",
        "refusal instead",
    }
)  # fmt: skip
"""Built-in edits that write English or Chinese."""
_WAYS: Final = ("append", "prepend", "instead", "replace")
_HINT: Final = (
    'a file of edits has [[edits]] with name, kind and one of append, prepend, instead, replace = { old = "new" }; '
    "if wanted neutral (a text) and sentences (true or false) before them"
)


@dataclass(frozen=True, slots=True)
class EditSet:
    """The edits of a probe.

    Args:
        edits: the first is the neutral sentence.
        neutral: what added words are held against; None: the built-in sentence in the language of the response.
        sentences: whether the built-in sentences are among them.
    """

    edits: tuple[Edit, ...] = EDITS
    neutral: str | None = None
    sentences: bool = True

    def neutral_of(self, text: str) -> str:
        """The neutral sentence in the language of `text`."""
        return phrase(NEUTRAL, text) if self.neutral is None else self.neutral


BUILT_IN: Final = EditSet()


def read_edits(path: Path) -> EditSet:
    """The built-in edits with those of a file; an edit of the name of a built-in one takes its place.

    Raises:
        TrimtabError: the file cannot be read, or something in it is not as the head of this module shows it.
    """
    refuse_special(path)
    try:
        table = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: cannot be read: {error.strerror}", _HINT) from None
    except (ValueError, RecursionError) as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: is not valid TOML: {error}", _HINT) from None
    problems = list(_problems(table))
    if problems:
        raise TrimtabError(ErrorKind.DATA, "\n".join(f"{path}: {problem}" for problem in problems), _HINT)
    neutral, sentences = table.get("neutral"), table.get("sentences", True)
    own = {entry["name"]: Edit(entry["name"], entry["kind"], _applying(entry)) for entry in table.get("edits", [])}
    kept = {edit.name: edit for edit in EDITS if sentences or edit.name not in _SENTENCES}
    if neutral is not None:
        first = Edit("neutral sentence", "length", _applying({"append": neutral}))
        kept = {first.name: first, **{name: edit for name, edit in kept.items() if name != first.name}}
    return EditSet((*(own.pop(name, edit) for name, edit in kept.items()), *own.values()), neutral, sentences)


def _problems(table: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"unknown key {key!r}" for key in table if key not in ("neutral", "sentences", "edits"))
    if not _is_text(table.get("neutral", "x")):
        yield "neutral is no text"
    if not isinstance(table.get("sentences", True), bool):
        yield "sentences is true or false"
    elif not table.get("sentences", True) and "neutral" not in table:
        yield "without the built-in sentences, neutral is needed: added words are held against it"
    entries = table.get("edits", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        yield "edits are tables, each headed [[edits]]"
        return
    names = [entry.get("name") for entry in entries]
    for number, entry in enumerate(entries, 1):
        for problem in _problems_of(entry):
            yield f"edit {number}: {problem}"
        if names[:number].count(entry.get("name")) > 1:
            yield f"edit {number}: there is another one named {entry.get('name')!r}"
        if entry.get("name") == "neutral sentence":
            yield f"edit {number}: the neutral sentence is set by neutral, before the edits"


def _problems_of(entry: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"unknown key {key!r}" for key in entry if key not in ("name", "kind", *_WAYS))
    if not _is_text(entry.get("name")):
        yield "name is no text"
    if entry.get("kind") not in get_args(Kind):
        yield f"kind is one of {', '.join(get_args(Kind))}"
    ways = [way for way in _WAYS if way in entry]
    if len(ways) != 1:
        yield f"one of {', '.join(_WAYS)} is needed" + (f", not {len(ways)} of them" if ways else "")
    for way in ways:
        value = entry[way]
        if way != "replace" and not _is_text(value):
            yield f"{way} is no text"
        elif way == "replace" and not (
            isinstance(value, dict) and value and all(old and isinstance(new, str) for old, new in value.items())
        ):
            yield 'replace is a table of texts: replace = { old = "new" }'


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _applying(entry: Mapping[str, Any]) -> Callable[[str, Random], str | None]:
    if "append" in entry:
        return lambda text, _: append(text, entry["append"])
    if "prepend" in entry:
        return lambda text, _: append(entry["prepend"], text.lstrip())
    if "instead" in entry:
        return lambda text, _: entry["instead"] if text.strip() != entry["instead"].strip() else None
    swaps: dict[str, str] = entry["replace"]
    # one pass, the longest first: what was put in is not replaced again
    found = re.compile("|".join(re.escape(old) for old in sorted(swaps, key=len, reverse=True)))
    return lambda text, _: edited if (edited := found.sub(lambda m: swaps[m.group()], text)) != text else None
