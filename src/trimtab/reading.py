"""Reading what people hand in: no pipe is waited for, no bomb unpacked, no message is as long as the value it names."""

from __future__ import annotations

import gzip
import os
import reprlib
import stat
import zlib
from pathlib import Path

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["MOST_BYTES", "MOST_DIGITS", "bytes_of", "refuse_special", "shown"]

MOST_BYTES = 2**31
"""What a gzipped file may unpack to where all of it has to be in memory."""
MOST_DIGITS = 308
"""Digits of a whole number that a float can hold."""

_PIECE = 2**24

_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = 60
_short.maxlevel, _short.maxdict, _short.maxlist, _short.maxtuple, _short.maxset = 2, 3, 4, 4, 4


def shown(value: object) -> str:
    """A value for a message, as Python writes it but for its length; nested values that hold themselves are no harm."""
    return _short.repr(value)


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Refuse pipes, devices and sockets: a file is opened more than once, or replaced as a whole.

    Raises:
        TrimtabError: `path` is one of them.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # whoever opens it says why it cannot be read
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise TrimtabError(ErrorKind.DATA, f"{path}: is a pipe or a device, not a file", "name a file")


def bytes_of(path: str | os.PathLike[str], most: int = MOST_BYTES) -> bytes:
    """The bytes of a file, unpacked where it is gzipped.

    Raises:
        TrimtabError: it cannot be read, is broken gzip, or unpacks to more than `most` bytes.
    """
    refuse_special(path)
    try:
        data = Path(path).read_bytes()
        if not data.startswith(b"\x1f\x8b"):
            return data
        pieces, size = [], 0
        with gzip.open(path, "rb") as file:
            while piece := file.read(_PIECE):
                size += len(piece)
                if size > most:
                    raise TrimtabError(
                        ErrorKind.DATA,
                        f"{path}: unpacks to more than {most / 2**30:.3g} GiB",
                        "unpack it, and split it",
                    )
                pieces.append(piece)
        return b"".join(pieces)
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise TrimtabError(ErrorKind.DATA, f"{path}: cannot be read: {why}") from None
