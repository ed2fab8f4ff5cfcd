"""Constitution files: TOML, YAML, JSON, and the public JSON of critique and revision requests.

name = "kind"
[[principles]]
id = "warm"
text = "Prefer the response that is kinder."       # what the judge is told
weight = 2.0                                       # how often it is drawn, how much it counts
reading = "You are warm and kind."                 # system message of one who follows it
opposite = "You are cold and curt."                # ... and of one who does the contrary
critique = "Where is the response unkind?"         # for the constitutional supervised phase
revision = "Rewrite it so that it is kind."
[[chats]]                                          # example conversations for that phase
messages = [{ role = "user", content = "..." }, { role = "assistant", content = "..." }]

A JSON file has the same keys, or the form that https://github.com/huggingface/llm-swarm publishes: `constitutions`, a
list of `critic` and `revision`, and `system_chat`, a list of conversations. That form has no ids and no sentence for a
judge: `public_id` and `public_text` derive both from an entry's own words, so that they stay when others come and go.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.constitution.principles import Constitution, Principle, Turn
from trimtab.constitution.wording import distinctive
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.reading import refuse_special, shown

__all__ = ["load_constitution", "public_id", "public_text", "read_constitution"]

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TEXTS = ("text", "reading", "opposite", "critique", "revision")
_KEYS = ("id", "weight", *_TEXTS)
_ROLES = ("user", "assistant")
_MOST_WEIGHT = 1e9
_SHOWN_PROBLEMS = 20
_HINT = (
    "A constitution has a name and [[principles]] with id, text and, where wanted, weight, reading, opposite, "
    "critique, revision."
)


def load_constitution(path: str | os.PathLike[str]) -> Constitution:
    """Read a constitution from a `.toml`, `.yaml`, `.yml` or `.json` file; without `name` it is called as the file.

    Raises:
        TrimtabError: the file is missing or broken; each problem names the file and the principle.
    """
    constitution, problems = read_constitution(path)
    if constitution is None:
        told = [f"{path}: {problem}" for problem in problems[:_SHOWN_PROBLEMS]]
        if len(problems) > _SHOWN_PROBLEMS:
            told.append(f"{path}: {len(problems) - _SHOWN_PROBLEMS} more problems")
        raise TrimtabError(ErrorKind.DATA, "\n".join(told), _HINT)
    return constitution


def read_constitution(path: str | os.PathLike[str]) -> tuple[Constitution | None, list[str]]:
    """As `load_constitution`, with what is wrong with the entries as a list: a constitution, or problems.

    Raises:
        TrimtabError: the file cannot be read, or is not in its format at all.
    """
    path = Path(path)
    document = _parse(path)
    problems: list[str] = []
    if "constitutions" in document and path.suffix.lower() == ".json":
        document = _from_public(document, problems)
    _check_keys(document, ("name", "principles", "chats"), "", problems)
    name = document.get("name", path.stem)
    if not isinstance(name, str) or not name.strip():
        problems.append(f"name is {shown(name)}; it is a text")
    entries = document.get("principles")
    if not isinstance(entries, list) or not entries:
        problems.append("there are no principles")
        entries = []
    principles = [p for i, entry in enumerate(entries, 1) if (p := _principle(entry, i, problems)) is not None]
    chats = _chats(document.get("chats", []), problems)
    for repeated, n in Counter(p.id for p in principles).items():
        if n > 1:
            problems.append(f"{n} principles have the id {shown(repeated)}")
    if principles and not problems and not any(p.weight > 0 for p in principles):
        problems.append("every principle has weight 0")
    return (None if problems else Constitution(name, tuple(principles), chats)), problems


# files


def _parse(path: Path) -> Mapping[str, Any]:
    refuse_special(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: is not UTF-8: {error.reason} at byte {error.start}") from None
    formats = {".toml": ("TOML", _toml), ".yaml": ("YAML", _yaml), ".yml": ("YAML", _yaml), ".json": ("JSON", _json)}
    if path.suffix.lower() not in formats:
        raise TrimtabError(ErrorKind.DATA, f"{path}: a constitution is a .toml, .yaml, .yml or .json file")
    name, parse = formats[path.suffix.lower()]
    try:
        document = parse(text)
    except RecursionError:
        raise TrimtabError(ErrorKind.DATA, f"{path}: is nested too deeply") from None
    except ValueError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: is not valid {name}: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise TrimtabError(ErrorKind.DATA, f"{path}: holds no mapping with name and principles")
    return document


def _toml(text: str) -> Any:
    return tomllib.loads(text)


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For JSON decoders: a key given twice is an error, as in TOML, and no silent loss."""
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"the key {shown(twice)} is given twice")
    return table


def _yaml(text: str) -> Any:
    from trimtab.constitution.yaml_text import plain_yaml

    return plain_yaml(text)


def _from_public(document: Mapping[str, Any], problems: list[str]) -> Mapping[str, Any]:
    """The public form in the words of ours. Nothing in it is left out: what has no place here is a problem."""
    _check_keys(document, ("name", "constitutions", "system_chat"), "", problems)
    entries = document["constitutions"] if isinstance(document["constitutions"], list) else []
    principles: list[Any] = []
    ids: Counter[str] = Counter()
    for i, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            principles.append(entry)
            continue
        _check_keys(entry, ("critic", "revision"), f"constitution {i}: ", problems)
        texts = [entry.get("critic"), entry.get("revision")]
        if not all(isinstance(text, str) and text.strip() for text in texts):
            problems.append(f"constitution {i}: critic and revision are texts")
            continue
        critic, revision = str(texts[0]), str(texts[1])
        name = public_id(critic, revision)
        ids[name] += 1
        principles.append(
            {
                "id": name if ids[name] == 1 else f"{name}-{ids[name]}",
                "text": public_text(revision),
                "critique": critic,
                "revision": revision,
            }
        )
    named = {"name": document["name"]} if "name" in document else {}
    return {**named, "principles": principles, "chats": document.get("system_chat", [])}


def public_id(critique: str, revision: str) -> str:
    """An id for an entry of the public form: the first words of its revision request that say something, and four hex
    digits of the sha256 of both requests. It depends on nothing but the entry."""
    words = [w for word in distinctive(revision, 3) if (w := re.sub(r"[^a-z-]", "", word).strip("-"))]
    digest = hashlib.sha256(f"{critique.strip()}\x1f{revision.strip()}".encode("utf-8", "surrogatepass")).hexdigest()
    return "-".join([*(words or ["principle"]), digest[:4]])


_PUBLIC_TEXT = "Prefer the response that already does what this request asks for: "


def public_text(revision: str) -> str:
    """The sentence for a judge that an entry of the public form lacks, made from its revision request."""
    return f"{_PUBLIC_TEXT}{revision.strip()}"


# entries


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
        problems.append(f"{where}: id is {shown(name)}; it is made of letters, digits, dots, dashes and underscores")
    _check_keys(entry, _KEYS, f"{where}: ", problems)
    for key in _TEXTS:
        value = entry.get(key)
        if (value is not None or key == "text") and not (isinstance(value, str) and value.strip()):
            problems.append(f"{where}: {key} is {'missing' if value is None else shown(value)}; it is a text")
    weight = entry.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= _MOST_WEIGHT:
        problems.append(f"{where}: weight is {shown(weight)}; it is a number from 0 to {_MOST_WEIGHT:g}")
    if (entry.get("reading") is None) != (entry.get("opposite") is None):
        problems.append(f"{where}: reading and opposite go together")
    if len(problems) > before:
        return None
    return Principle(name, entry["text"], float(weight), *(entry.get(key) for key in _TEXTS[1:]))


def _chats(value: Any, problems: list[str]) -> tuple[tuple[Turn, ...], ...]:
    if not isinstance(value, list):
        problems.append("chats is no list of conversations")
        return ()
    chats = []
    for i, entry in enumerate(value, 1):
        if isinstance(entry, dict):
            _check_keys(entry, ("messages",), f"chat {i}: ", problems)
            entry = entry.get("messages")
        before = len(problems)
        turns = entry if isinstance(entry, list) else []
        chat = tuple(turn for j, t in enumerate(turns, 1) if (turn := _turn(t, f"chat {i}, turn {j}", problems)))
        if len(problems) > before:
            continue
        spoken = [turn.role for turn in chat]
        if not spoken or spoken != ["user", "assistant"] * (len(spoken) // 2):
            problems.append(f"chat {i}: user and assistant do not take turns, the assistant last")
        chats.append(chat)
    return tuple(chats)


def _turn(value: Any, where: str, problems: list[str]) -> Turn | None:
    if not isinstance(value, dict) or value.get("role") not in _ROLES or not isinstance(value.get("content"), str):
        problems.append(f"{where} has no role out of {', '.join(_ROLES)} with a content that is a text")
        return None
    _check_keys(value, ("role", "content"), f"{where}: ", problems)
    return Turn(value["role"], value["content"])


def _check_keys(table: Mapping[Any, Any], known: Sequence[str], where: str, problems: list[str]) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(str(key)[:60], known, n=1)
            problems.append(f"{where}unknown key {shown(key)}{f', did you mean {near[0]!r}?' if near else ''}")
