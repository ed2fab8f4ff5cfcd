"""One writer a run: an advisory lock on `run.lock`, released by the system when its process ends, however it ends."""

from __future__ import annotations

import errno
import os
import sys
import time
import weakref
from pathlib import Path
from typing import ClassVar

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import writing

if sys.platform != "win32":
    import fcntl

__all__ = ["RunLock", "is_locked"]

LOCK_NAME = "run.lock"
# A reader that asks whether a run is alive holds the lock for microseconds: a writer tries again before it gives up.
_TRIES, _PAUSE_S = 5, 0.02
_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}


class RunLock:
    """The right to write into a run directory; shared by all `Run` objects of this process on that directory."""

    _held: ClassVar[weakref.WeakValueDictionary[Path, RunLock]] = weakref.WeakValueDictionary()

    def __init__(self, descriptor: int) -> None:
        self._close = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def acquire(cls, directory: Path) -> RunLock:
        """Lock `directory`.

        Raises:
            TrimtabError: another living process holds it.
        """
        key = directory.resolve()
        lock = cls._held.get(key)
        # The directory may have been deleted and made anew since: then the old lock guards nothing.
        if lock is None or not lock._guards(key):
            lock = cls(_open_locked(key))
            cls._held[key] = lock
        return lock

    def _guards(self, directory: Path) -> bool:
        entry = self._close.peek()
        if entry is None:
            return False
        try:
            return os.path.samestat(os.fstat(entry[2][0]), (directory / LOCK_NAME).stat())
        except FileNotFoundError:
            return False


def is_locked(directory: Path) -> bool:
    """Whether a living process (this one included) writes into the run in `directory`."""
    if sys.platform == "win32":
        return False
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _UNSUPPORTED
    finally:
        os.close(descriptor)
    return False


def _open_locked(directory: Path) -> int:
    with writing(directory):
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    kept = False
    try:
        _lock(descriptor, directory)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        kept = True
    finally:
        if not kept:
            os.close(descriptor)
    return descriptor


def _lock(descriptor: int, directory: Path) -> None:
    if sys.platform == "win32":
        return
    for left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if left:
                time.sleep(_PAUSE_S)
        except OSError as error:
            if error.errno in _UNSUPPORTED:  # a file system without locks: nothing can be promised there
                return
            raise
    holder = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip()
    raise TrimtabError(
        ErrorKind.RUN,
        f"{directory}: another process{f' ({holder})' if holder else ''} is writing into this run",
        "Wait until it ends, stop it, or write into a run of another name.",
    )
