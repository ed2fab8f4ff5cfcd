"""Writes of weights that fail: a full disk in plain words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from safetensors import SafetensorError

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["writing_weights"]


@contextmanager
def writing_weights(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns a failed write (a full disk, no permission) of a checkpoint or model into a `TrimtabError`."""
    try:
        yield
    except (OSError, SafetensorError) as error:  # safetensors wraps the system's error in its own
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise TrimtabError(
            ErrorKind.FAILED,
            f"{path}: cannot be written: {why}",
            "Nothing recorded so far is lost: make room or allow writing there, then give the same command again; it "
            "goes on from the last checkpoint.",
        ) from error
