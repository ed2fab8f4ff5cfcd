"""A constitution: the principles that the judge goes by, in a readable TOML or YAML file.

name = "kind"
[[principles]]
id = "warm"
text = "Prefer the response that is kinder."       # what the judge is told
weight = 2.0                                       # how often it is drawn, how much it counts
reading = "You are warm and kind."                 # system message of one who follows it
opposite = "You are cold and curt."                # ... and of one who does the contrary
critique = "Where is the response unkind?"         # for the constitutional supervised phase
revision = "Rewrite it so that it is kind."
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.errors import ErrorKind, TrimtabError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Constitution", "Principle", "load_constitution"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TEXTS = ("text", "reading", "opposite", "critique", "revision")
_KEYS = ("id", "weight", *_TEXTS)


@dataclass(frozen=True, slots=True)
class Principle:
    """One principle.

    Args:
        id: short and unique: letters, digits, dots, dashes, underscores.
        text: what it asks for, in a sentence.
        weight: how often it is drawn, and how much it counts, relative to the others; 0 = never.
        reading: system message under which a model follows it (contrast pairs, the likelihood judge).
        opposite: system message under which a model does the contrary.
        critique: asks where a response breaks it.
        revision: asks for a response that keeps it.
    """

    id: str
    text: str
    weight: float = 1.0
    reading: str | None = None
    opposite: str | None = None
    critique: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Constitution:
    """Principles in order. `hash` (sha256, hex) changes with anything in them, not with the name."""

    name: str
    principles: tuple[Principle, ...]
    hash: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        text = json.dumps([asdict(p) | {"weight": float(p.weight)} for p in self.principles], sort_keys=True)
        object.__setattr__(self, "hash", hashlib.sha256(text.encode("ascii")).hexdigest())

    def sample(self, rng: np.random.Generator) -> Principle:
        """One principle, drawn by weight."""
        weights = [p.weight for p in self.principles]
        total = math.fsum(weights)
        return self.principles[int(rng.choice(len(weights), p=[w / total for w in weights]))]

    def render(self) -> str:
        """The principles for the judge: a numbered list, with weights where they differ; weight 0 is left out."""
        counted = [p for p in self.principles if p.weight > 0]
        weighted = len({p.weight for p in counted}) > 1
        return "\n".join(
            f"{i}. {p.text.strip()}{f' (weight {p.weight:g})' * weighted}" for i, p in enumerate(counted, 1)
        )

    def swapped(self) -> Constitution:
        """The same constitution with reading and opposite of every principle exchanged.

        Raises:
            TrimtabError: a principle has no reading and opposite.
        """
        if bare := [p.id for p in self.principles if p.reading is None or p.opposite is None]:
            raise TrimtabError(
                ErrorKind.DATA, f"constitution {self.name!r}: {', '.join(bare)}: no reading and opposite to exchange"
            )
        exchanged = tuple(replace(p, reading=p.opposite, opposite=p.reading) for p in self.principles)
        return Constitution(f"{self.name} (swapped)", exchanged)


def load_constitution(path: str | os.PathLike[str]) -> Constitution:
    """Read a constitution from a `.toml`, `.yaml` or `.yml` file; without `name` it is called as the file.

    Raises:
        TrimtabError: the file is missing or broken; each problem names the file and the principle.
    """
    path = Path(path)
    document = _parse(path)
    problems: list[str] = []
    _check_keys(document, ("name", "principles"), "", problems)
    name = document.get("name", path.stem)
    if not isinstance(name, str) or not name.strip():
        problems.append(f"name is {name!r}; it is a text")
    entries = document.get("principles")
    if not isinstance(entries, list) or not entries:
        problems.append("there are no principles")
        entries = []
    principles = [p for i, entry in enumerate(entries, 1) if (p := _principle(entry, i, problems)) is not None]
    for repeated, n in Counter(p.id for p in principles).items():
        if n > 1:
            problems.append(f"{n} principles have the id {repeated!r}")
    if principles and not problems and not any(p.weight > 0 for p in principles):
        problems.append("every principle has weight 0")
    if problems:
        raise TrimtabError(
            ErrorKind.DATA,
            "\n".join(f"{path}: {problem}" for problem in problems),
            "A constitution has a name and [[principles]] with id, text and, where wanted, weight, reading, opposite, "
            "critique, revision.",
        )
    return Constitution(name, tuple(principles))


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from None
    kind = path.suffix.lower()
    if kind == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise TrimtabError(ErrorKind.DATA, f"{path}: is not valid TOML: {error}") from None
    if kind in (".yaml", ".yml"):
        import yaml

        try:
            document = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise TrimtabError(ErrorKind.DATA, f"{path}: is not valid YAML: {' '.join(str(error).split())}") from None
        if not isinstance(document, dict):
            raise TrimtabError(ErrorKind.DATA, f"{path}: holds no mapping with name and principles")
        return document
    raise TrimtabError(ErrorKind.DATA, f"{path}: a constitution is a .toml, .yaml or .yml file")


def _principle(entry: Any, number: int, problems: list[str]) -> Principle | None:
    if not isinstance(entry, dict):
        problems.append(f"principle {number} is no table")
        return None
    before = len(problems)
    name = entry.get("id", f"principle-{number}")
    where = f"principle {number}"
    if isinstance(name, str) and _ID.fullmatch(name):
        where += f" ({name})"
    else:
        problems.append(f"{where}: id is {name!r}; it is made of letters, digits, dots, dashes and underscores")
    _check_keys(entry, _KEYS, f"{where}: ", problems)
    for key in _TEXTS:
        value = entry.get(key)
        if (value is not None or key == "text") and not (isinstance(value, str) and value.strip()):
            problems.append(f"{where}: {key} is {'missing' if value is None else repr(value)}; it is a text")
    weight = entry.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
        problems.append(f"{where}: weight is {weight!r}; it is a number from 0 on")
    if (entry.get("reading") is None) != (entry.get("opposite") is None):
        problems.append(f"{where}: reading and opposite go together")
    if len(problems) > before:
        return None
    return Principle(name, entry["text"], float(weight), *(entry.get(key) for key in _TEXTS[1:]))


def _check_keys(table: Mapping[Any, Any], known: tuple[str, ...], where: str, problems: list[str]) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            problems.append(f"{where}unknown key {key!r}{f', did you mean {near[0]!r}?' if near else ''}")
