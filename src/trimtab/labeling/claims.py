"""Who is asking what just now: claims on questions, so that two processes never ask the same one at once.

A claim stands beside the verdicts in the label store. It is held while its owner lives and renews it: the claims of a
process of this machine that has died are free at once, those of one elsewhere after `LEASE_SECONDS` without a renewal.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["LEASE_SECONDS", "Lease", "is_alive", "new_owner"]

LEASE_SECONDS = 120.0
"""A claim that was not renewed for so long is free. A process that is stopped longer than that may find its questions
asked by another one when it goes on; the first verdict is kept."""

_RENEWALS = 4


def new_owner() -> str:
    """A name for one holder of claims: the machine and process that it lives in, and a random part."""
    return "|".join([_machine(), str(os.getpid()), _started(os.getpid()), uuid.uuid4().hex])


def is_alive(owner: str) -> bool:
    """Whether the process behind `owner` may still be there; True where that cannot be told from here."""
    machine, _, rest = owner.partition("|")
    pid, _, rest = rest.partition("|")
    started = rest.partition("|")[0]
    if machine != _machine() or not started or not pid.isdigit():
        return True
    return _started(int(pid)) == started


class Lease:
    """Renews an owner's claims from a thread of its own, for as long as the context lasts.

    Args:
        owner: see `new_owner`.
        renew: called every so often with the owner.
        seconds: how long a claim lasts.
    """

    def __init__(self, owner: str, renew: Callable[[str], None], seconds: float) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(owner, renew, seconds / _RENEWALS), daemon=True)

    def _run(self, owner: str, renew: Callable[[str], None], pause: float) -> None:
        while not self._ended.wait(pause):
            # a store that is busy or full now may not be at the next turn, and asking goes on without
            with suppress(sqlite3.Error):
                renew(owner)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


@cache
def _machine() -> str:
    """What has to be equal for process numbers to mean the same: host, boot, and process namespace."""
    parts = [socket.gethostname().replace("|", "_")]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return "/".join(parts)


def _started(pid: int) -> str:
    """Start time of a living process, which tells it from a later one of the same number; empty where unknown."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    # a zombie has ended, it only waits to be buried
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")
