"""Opening what a user points at: plain or gzipped, in whatever encoding, or something that is no log at all."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["HEAD", "PATIENCE", "Source", "clean", "decode", "no_log"]

HEAD = 1 << 16
_BLOCK = 1 << 20
_LONGEST_DOCUMENT = 1 << 30
_LONGEST_NAME = 500
_LONGEST_LINE = 1 << 26
PATIENCE = 500_000
"""Lines after which a reader gives up that has found nothing yet: no log begins with as many of something else."""
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_RAY = re.compile(r"^\s*\(\w[\w.:\- ]*?\bpid=\d+[^)]*\)\s?")
_KNOWN_BINARY = (
    (b"PK\x03\x04", "a zip archive", "Unpack it and point at what is inside."),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "Unpack it first (`zstd -d`)."),
    (b"BZh", "a bzip2 archive", "Unpack it first."),
    (b"\xfd7zXZ\x00", "an xz archive", "Unpack it first."),
    (b"\x93NUMPY", "a NumPy array", "Write its columns as CSV."),
    (b"%PDF", "a PDF", ""),
    (b"\x89PNG", "a picture", "The numbers behind it are needed."),
    (b"\x7fELF", "a program", ""),
)


def no_log(path: str, what: str, hint: str = "") -> TrimtabError:
    """The error for a path that no log can be read from."""
    shown = path if len(path) <= _LONGEST_NAME else f"{path[:_LONGEST_NAME]}..."
    return TrimtabError(ErrorKind.DATA, f"{shown}: {what}", hint)


class Source:
    """A regular file, read as bytes; gzip is unpacked on the way.

    Raises:
        TrimtabError: it is missing, no regular file, or may not be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head = b""
        self.broken = ""
        try:
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):
                raise no_log(str(path), f"is {_kind(info.st_mode)}, not a file", "Point at a file or a directory.")
            with path.open("rb") as file:
                start = file.read(2)
            self.size = info.st_size
            self.packed = start == b"\x1f\x8b"
            with self.open() as stream:
                self.head = self._some(stream, HEAD)
        except OSError as error:
            raise _unreadable(path, error) from None
        except ValueError:
            raise no_log(repr(str(path))[:200], "is no path") from None

    def open(self) -> IO[bytes]:
        """A new stream from the start."""
        return gzip.open(self.path, "rb") if self.packed else self.path.open("rb")  # type: ignore[return-value]

    @property
    def encoding(self) -> str:
        """The encoding: by the byte-order mark, or by where zeros stand; else `utf-8`."""
        head = self.head
        for mark, name in (
            (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
            (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
        ):  # fmt: skip
            if head.startswith(mark):
                return name
        even, odd = head[0::2], head[1::2]
        if len(head) >= 8 and odd.count(0) > 0.4 * len(odd) and even.count(0) < 0.05 * len(even):
            return "utf-16-le"
        if len(head) >= 8 and even.count(0) > 0.4 * len(even) and odd.count(0) < 0.05 * len(odd):
            return "utf-16-be"
        return "utf-8"

    def refuse_binary(self) -> None:
        """Raise if the file is of a known binary kind, or plainly no text."""
        for magic, what, hint in _KNOWN_BINARY:
            if self.head.startswith(magic):
                raise no_log(str(self.path), f"is {what}, not a log", hint)
        if self.encoding.startswith("utf-8") and self.head:
            sample = self.head[:4096]
            odd = sum(b < 9 or 13 < b < 27 or 27 < b < 32 for b in sample if b)
            if odd > 0.1 * len(sample) or sample.count(0) > 0.9 * len(sample):
                raise no_log(str(self.path), "is binary data, not a log that is known here")

    def document(self) -> str:
        """The whole file as text.

        Raises:
            TrimtabError: it is larger than a gigabyte.
        """
        try:
            with self.open() as stream:
                data = self._some(stream, _LONGEST_DOCUMENT + 1)
        except OSError as error:
            raise _unreadable(self.path, error) from None
        if len(data) > _LONGEST_DOCUMENT:
            raise no_log(str(self.path), "is one JSON document of more than a gigabyte", "Write one record a line.")
        return decode(data, self.encoding)

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """The file in UTF-8, in blocks that end with a line (but for the last); `start`, `end`: only these bytes."""
        if not self.encoding.startswith("utf-8"):
            yield self.document().encode("utf-8", "replace")
            return
        try:
            with self.open() as stream:
                if start:
                    stream.seek(start)
                yield from self._lines(stream, None if end is None else end - start)
        except OSError as error:
            raise _unreadable(self.path, error) from None

    def _lines(self, stream: IO[bytes], left: int | None) -> Iterator[bytes]:
        rest: list[bytes] = []
        held = 0
        first = True
        while left is None or left > 0:
            block = self._some(stream, _BLOCK if left is None else min(_BLOCK, left))
            if not block:
                break
            left = None if left is None else left - len(block)
            if first and block.startswith(codecs.BOM_UTF8):
                block = block[3:]
            first = False
            cut = block.rfind(b"\n") + 1
            if cut:
                if held > _LONGEST_LINE:  # the end of a line that was let go
                    rest, block, cut = [], block[block.find(b"\n") :], cut - block.find(b"\n")
                yield b"".join((*rest, block[:cut]))
                rest = [block[cut:]] if cut < len(block) else []
                held = len(block) - cut
                continue
            held += len(block)
            rest.append(block)
            if held > _LONGEST_LINE:
                rest = []
                self.broken = self.broken or f"a line of more than {_LONGEST_LINE >> 20} megabytes was left out"
        if rest and held <= _LONGEST_LINE:
            yield b"".join(rest)

    def _some(self, stream: IO[bytes], size: int) -> bytes:
        """Up to `size` bytes; what a broken archive still holds, and then nothing."""
        if not self.packed:
            return stream.read(size)
        parts = io.BytesIO()
        try:
            while parts.tell() < size:
                piece = stream.read1(min(size - parts.tell(), 1 << 16)) if hasattr(stream, "read1") else b""
                if not piece:
                    break
                parts.write(piece)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            self.broken = f"the archive is damaged: {error}"
        return parts.getvalue()


def decode(data: bytes, encoding: str = "utf-8") -> str:
    """`data` as text; what is not in the encoding becomes a replacement character."""
    return data.decode(encoding, "replace")


def clean(line: str) -> str:
    """A console line without colours, zeros and the prefix that Ray puts before a worker's output."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "\x00" in line:
        line = line.replace("\x00", "")
    if "pid=" in line:
        line = _RAY.sub("", line)
    return line


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
    ):  # fmt: skip
        if test(mode):
            return name
    return "something special"


def _unreadable(path: Path, error: OSError) -> TrimtabError:
    hint = "" if os.path.lexists(path) else "Is the path right?"
    return no_log(str(path), f"cannot be read: {error.strerror or error}", hint)
