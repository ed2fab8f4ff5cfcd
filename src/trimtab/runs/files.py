"""Plain files that survive crashes: atomic writes, JSON lines, hashes.

JSON is written as UTF-8 with readable text. Characters that would break a reader that splits on Unicode line ends,
upset a terminal, or cannot be encoded at all (lone surrogates) are written as `\\uXXXX` escapes, so any text survives a
round trip. The one exception: a high surrogate directly followed by a low one comes back as the character that they
stand for.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.reading import refuse_special

__all__ = [
    "JsonLines",
    "append_jsonl",
    "atomic_write_text",
    "dump_json",
    "file_hash",
    "read_json",
    "read_jsonl",
    "stable_hash",
    "tree_hash",
    "write_json",
    "write_jsonl",
    "writing",
]

_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]")
_CHUNK = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class JsonLines(NamedTuple):
    """What a tolerant reader found in a JSON-lines file.

    `lines[i]` is the 1-based line number of `records[i]`. `broken` lists the numbers of the lines that are no JSON
    object. `partial`: the last line has no line end and does not parse: it is being written, or its writer was killed.
    """

    records: list[dict[str, Any]]
    lines: list[int]
    broken: list[int]
    partial: bool


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """JSON text of `value`: strict (no NaN), readable, and safe to encode as UTF-8 whatever strings it holds.

    Raises:
        ValueError: a float is NaN or infinite.
        TypeError: something in `value` has no JSON form.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return _ESCAPED.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns a failed write (a full disk, no permission, a file where a directory should be) into a `TrimtabError`."""
    try:
        yield
    except OSError as error:
        hint = ""
        if error.errno in _FULL:
            hint = "nothing recorded before is lost: make room there, then give the same command again"
        raise TrimtabError(ErrorKind.FAILED, f"{path}: cannot be written: {error.strerror or error}", hint) from error


def atomic_write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8 so that readers see the old file or the new one, never a part.

    Raises:
        TrimtabError: the disk is full, or the place cannot be written to; the old file is as it was.
        UnicodeEncodeError: `text` holds a lone surrogate.
    """
    path = Path(path)
    refuse_special(path)  # the new file would take the place of a pipe or a device
    data = text.encode("utf-8")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write `value` atomically as indented JSON."""
    atomic_write_text(path, dump_json(value, indent=2) + "\n")


def read_json(path: str | os.PathLike[str], kind: ErrorKind = ErrorKind.RUN) -> dict[str, Any]:
    """The JSON object in `path`.

    Raises:
        TrimtabError: the file is missing or holds anything else; `kind` is the error's kind.
    """
    try:
        value = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise TrimtabError(kind, f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise TrimtabError(kind, f"{path}: is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise TrimtabError(kind, f"{path}: holds a {type(value).__name__} where a JSON object is expected")
    return value


def write_jsonl(path: str | os.PathLike[str], records: Iterable[Mapping[str, Any]]) -> None:
    """Write `records`, one JSON object a line, atomically."""
    atomic_write_text(path, "".join(dump_json(r) + "\n" for r in records))


def append_jsonl(path: str | os.PathLike[str], records: Iterable[Mapping[str, Any]]) -> None:
    """Append `records`, one JSON object a line, in one write.

    A half-written last line (of a killed writer) is closed first, so that it spoils itself and nothing else.

    Raises:
        TrimtabError: the disk is full, or the file cannot be written.
    """
    data = "".join(dump_json(r) + "\n" for r in records).encode("utf-8")
    if not data:
        return
    with writing(path), Path(path).open("ab+") as file:
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                data = b"\n" + data
        file.write(data)


def read_jsonl(path: str | os.PathLike[str]) -> JsonLines:
    """Read a JSON-lines file that may still be being written, or whose writer was killed; a missing file is empty."""
    result = JsonLines([], [], [], False)
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return result
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    partial = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            result.records.append(record)
            result.lines.append(number)
        elif number == len(lines):
            partial = True
        else:
            result.broken.append(number)
    return result._replace(partial=partial)


def file_hash(path: str | os.PathLike[str]) -> str:
    """sha256 of a file's bytes, in hex."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def tree_hash(directory: str | os.PathLike[str]) -> str:
    """sha256 over the relative names and contents of all files below `directory`, in hex; order does not matter."""
    root = Path(directory)
    files = sorted((p.relative_to(root).as_posix(), p) for p in root.rglob("*") if p.is_file())
    return stable_hash([[name, file_hash(path)] for name, path in files])


def stable_hash(value: Any) -> str:
    """sha256 of the canonical JSON of `value`, in hex: the same in every process, whatever the order of keys.

    Dataclasses count as their fields, paths as their text, sets as sorted lists; 1 and 1.0 differ.

    Raises:
        TypeError: something in `value` has no such form.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=_plain)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"stable_hash: a {type(value).__name__} has no canonical form")
