"""Records out of files: JSON lines, a JSON array, CSV, TSV, parquet; plain or gzip; one file or a directory of them.

What a file is, is read off its content, not its name. Records come one at a time. One that cannot be read is an `Item`
with a problem and never a gap.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trimtab.data.lines import LineError, finite, kind, no_constant, parse_object, whole
from trimtab.data.readers.parquet import parquet_records
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.reading import refuse_special

__all__ = ["Item", "Source", "open_source"]

_SUFFIXES = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet")
_CHUNK = 1 << 16
_HEAD = 1 << 16
_LINE = 1 << 28
"""A longer line is no record: what a small gzip file can unpack to is not kept."""


@dataclass(frozen=True, slots=True)
class Item:
    """One record of a file: where it stands (`line 3`), its number for an id, and the record or what is wrong."""

    number: int
    where: str
    record: dict[str, Any] | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its path, what it is (`jsonl`, `json`, `csv`, `tsv`, `parquet`), and its records."""

    path: Path
    container: str
    items: Iterator[Item]


def open_source(path: str | os.PathLike[str]) -> list[Source]:
    """The files behind a path: itself, or what a directory holds, in the order of their names.

    Raises:
        TrimtabError: there is nothing to read, it is no text that we know, or pyarrow is missing for parquet.
    """
    place = Path(path)
    if not place.is_dir():
        return [_source(place)]
    files = sorted(f for f in place.rglob("*") if f.is_file() and _suffix(f) in _SUFFIXES)
    files = [f for f in files if f.name not in ("dataset_info.json", "state.json", "dataset_infos.json")]
    if not files:
        arrow = any(place.rglob("*.arrow"))
        hint = "save it with Dataset.to_parquet first" if arrow else f"a directory holds {', '.join(_SUFFIXES)} files"
        raise TrimtabError(ErrorKind.DATA, f"{place}: no data files in this directory", hint)
    return [_source(f) for f in files]


def _suffix(path: Path) -> str:
    return (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()


def _source(path: Path) -> Source:
    with _opened(path) as file:
        try:
            head = file.read(_HEAD)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise TrimtabError(ErrorKind.DATA, f"{path}: is broken gzip", "fetch or compress it again") from None
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TrimtabError(ErrorKind.DATA, f"{path}: is UTF-16", "Save it as UTF-8.")
    if head[:4] == b"PAR1":
        rows = parquet_records(path)
        return Source(path, "parquet", (_row(i, record) for i, record in enumerate(rows, 1)))
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] == b"[":
        return Source(path, "json", _array(path))
    if text[:1] == b"{":
        return _object_file(path, text)
    delimiter = _delimiter(text)
    if delimiter:
        return Source(path, "tsv" if delimiter == "\t" else "csv", _table(path, delimiter))
    return Source(path, "jsonl", _lines(path))


def _opened(path: Path) -> BinaryIO:
    refuse_special(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise TrimtabError(ErrorKind.DATA, f"{path}: cannot be read: {error.strerror}", _absent_hint(path)) from None
    if file.read(2) == b"\x1f\x8b":
        file.close()
        return gzip.open(path, "rb")  # type: ignore[return-value]
    file.seek(0)
    return file


def _absent_hint(path: Path) -> str:
    parts = path.as_posix().split("/")
    if path.exists() or len(parts) != 2 or Path(parts[0]).exists():
        return ""
    return (
        f"for a data set of the hub: hf download --repo-type dataset {path.as_posix()} --local-dir DIR, then name DIR"
    )


def _row(number: int, record: dict[str, Any] | LineError) -> Item:
    if isinstance(record, LineError):
        return Item(number, f"row {number}", None, str(record))
    return Item(number, f"row {number}", record)


# JSON lines


def _lines(path: Path) -> Iterator[Item]:
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(_LINE), b""), 1):
                if len(line) == _LINE:
                    what = f"is longer than {_LINE >> 20} MiB; nothing after it was read"
                    yield Item(number, f"line {number}", None, what)
                    return
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not text.strip():
                    continue
                try:
                    yield Item(number, f"line {number}", parse_object(text.rstrip(b"\r\n")))
                except LineError as problem:
                    yield Item(number, f"line {number}", None, str(problem))
    except (EOFError, zlib.error, gzip.BadGzipFile):
        yield Item(
            number + 1, f"line {number + 1}", None, "the gzip file ends or breaks here; nothing after it was read"
        )


# JSON arrays


def _object_file(path: Path, head: bytes) -> Source:
    """JSON lines, or one object (over several lines) that holds the records as a list."""
    first = head.split(b"\n", 1)
    try:
        parse_object(first[0])
        return Source(path, "jsonl", _lines(path))
    except LineError:
        pass
    if (len(first) == 2 and first[0].strip() in (b"{", b"{\r")) or (len(first) == 1 and len(head) < _HEAD):
        with _opened(path) as file:
            try:
                whole = parse_object(file.read().removeprefix(b"\xef\xbb\xbf"))
            except LineError:
                return Source(path, "jsonl", _lines(path))
        return Source(path, "json", iter(_members(whole)))
    return Source(path, "jsonl", _lines(path))


def _members(whole: dict[str, Any]) -> list[Item]:
    lists = [v for v in whole.values() if isinstance(v, list) and v and all(isinstance(r, dict) for r in v)]
    if len(lists) == 1 and not {"chosen", "rejected", "completions"} & set(whole):
        return [Item(i, f"record {i}", record) for i, record in enumerate(lists[0], 1)]
    return [Item(1, "record 1", whole)]


def _array(path: Path) -> Iterator[Item]:
    """The objects of a JSON array, decoded as the file is read."""
    decoder = json.JSONDecoder(parse_constant=no_constant, parse_float=finite, parse_int=whole)
    number = 0
    with _opened(path) as file:
        text = _Text(file)
        try:
            text.skip("[")
            while not text.at_end("]"):
                number += 1
                line = text.line
                record = text.decode(decoder)
                where = f"record {number} (line {line})"
                if isinstance(record, dict):
                    yield Item(number, where, record)
                else:
                    yield Item(number, where, None, f"is {kind(record)}, not an object")
        except LineError as problem:
            number = max(number, 1)
            yield Item(number, f"record {number} (line {text.line})", None, f"{problem}; nothing after it was read")


class _Text:
    """Characters of a stream, with as much of them in memory as one record needs."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decode = file, codecs.getincrementaldecoder("utf-8-sig")()
        self._buffer, self._at, self._done = "", 0, False
        self.line = 1

    def skip(self, character: str) -> None:
        self._blank()
        if self._buffer[self._at : self._at + 1] != character:
            raise LineError(f"is not JSON: {character} is expected")
        self._at += 1

    def at_end(self, closing: str) -> bool:
        """Step over a comma; True at the closing bracket."""
        self._blank()
        if self._buffer[self._at : self._at + 1] == closing:
            return True
        if self._buffer[self._at : self._at + 1] == ",":
            self._at += 1
            self._blank()
        if self._at == len(self._buffer):
            raise LineError("is not JSON: the file ends inside the list")
        return False

    def decode(self, decoder: json.JSONDecoder) -> Any:
        size = _CHUNK
        while True:
            try:
                value, end = decoder.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                if not self._more(size):
                    raise LineError(f"is not JSON: {error.msg}") from None
                size *= 2
                continue
            except RecursionError:
                raise LineError("is nested too deeply") from None
            if end == len(self._buffer) and self._more(size):
                continue  # a number may go on
            self._count(end)
            return value

    def _blank(self) -> None:
        while True:
            at = self._at
            while at < len(self._buffer) and self._buffer[at] in " \t\r\n":
                at += 1
            self._count(at)
            if at < len(self._buffer) or not self._more(_CHUNK):
                return

    def _count(self, end: int) -> None:
        self.line += self._buffer.count("\n", self._at, end)
        self._at = end

    def _more(self, size: int) -> bool:
        if self._done:
            return False
        try:
            data = self._file.read(size)
            new = self._decode.decode(data, final=not data)
        except UnicodeDecodeError as error:
            raise LineError(f"is not UTF-8: {error.reason}") from None
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise LineError("the gzip file ends or breaks here") from None
        self._done = not data
        self._buffer, self._at = self._buffer[self._at :] + new, 0
        return bool(data)


# tables


def _delimiter(head: bytes) -> str:
    """What separates the names in the first line, or nothing where that is no header."""
    try:
        first = head.split(b"\n", 1)[0].decode("utf-8").strip()
    except UnicodeDecodeError:
        return ""
    for delimiter in ("\t", ","):
        names = next(csv.reader([first], delimiter=delimiter), [])
        if len(names) > 1 and all(n.strip() and len(n) < 60 for n in names) and len(set(names)) == len(names):
            return delimiter
    return ""


def _table(path: Path, delimiter: str) -> Iterator[Item]:
    csv.field_size_limit(2**31 - 1)
    with _opened(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        rows = csv.reader(text, delimiter=delimiter, strict=True)
        number = 0
        try:
            names = [name.strip() for name in next(rows)]
            begins = rows.line_num + 1
            for row in rows:
                if row:
                    number += 1
                    yield _cells(names, row, number, f"row {number} (line {begins})")
                begins = rows.line_num + 1
        except (csv.Error, UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            what = f"is not UTF-8: {error.reason}" if isinstance(error, UnicodeDecodeError) else f"is no CSV: {error}"
            yield Item(number + 1, f"row {number + 1}", None, f"{what}; nothing after it was read")


def _cells(names: list[str], row: list[str], number: int, where: str) -> Item:
    if len(row) != len(names):
        return Item(number, where, None, f"has {len(row)} fields where the header has {len(names)}")
    return Item(number, where, {name: _cell(name, text) for name, text in zip(names, row, strict=True)})


_TEXTS = ("prompt", "chosen", "rejected")


def _cell(name: str, text: str) -> Any:
    """A cell of our columns as what it stands for; other columns stay texts."""
    if name in _TEXTS:
        return _maybe_json(text, list) if text.startswith('[{"') else text
    if name in ("p_chosen", "margin", "weight") or name.endswith("_tokens"):
        if not text:
            return None
        try:
            return int(text) if name.endswith("_tokens") else finite(text)
        except (ValueError, LineError):
            return text  # the reader of the column says what is wrong
    if name.endswith("_finished"):
        return {"": None, "true": True, "false": False}.get(text.lower(), text)
    if name in ("tags", "prompt_extra", "principles"):
        return _maybe_json(text, object) if text else None
    if name in ("id", "prompt_id"):
        return text or None
    return text


def _maybe_json(text: str, wanted: type) -> Any:
    try:
        value = json.loads(text, parse_constant=no_constant, parse_float=finite, parse_int=whole)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, wanted) else text
