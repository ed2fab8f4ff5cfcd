"""The label store: every verdict ever given, in one SQLite file, so that none is asked for twice.

Write-ahead logging with full synchronisation: a batch that `put` has returned from survives a killed process and a
power cut, several processes may read and write at once, and the file opens with any SQLite tool. Its format is counted
in `PRAGMA user_version`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Outcome, Verdict, pair_hash

__all__ = ["LabelStore"]

SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0
"""How long a writer waits for another process's write."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    pair_hash TEXT NOT NULL, judge TEXT NOT NULL, model TEXT NOT NULL, template TEXT NOT NULL,
    constitution TEXT NOT NULL, shown TEXT NOT NULL, sample INTEGER NOT NULL, seed INTEGER NOT NULL,
    pair_id TEXT NOT NULL, outcome TEXT NOT NULL, p_first REAL, mass REAL, detail TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 1, recorded REAL NOT NULL,
    PRIMARY KEY (pair_hash, judge, model, template, constitution, shown, sample, seed)
) WITHOUT ROWID
"""
_SELECT = """
SELECT outcome, p_first, mass, detail FROM verdicts WHERE pair_hash = ? AND judge = ? AND model = ? AND template = ?
    AND constitution = ? AND shown = ? AND sample = ? AND seed = ?
"""
# the first real verdict stays, whoever else asked at the same time; an error gives way to whatever comes next
_INSERT = """
INSERT INTO verdicts (pair_hash, judge, model, template, constitution, shown, sample, seed,
    pair_id, outcome, p_first, mass, detail, recorded)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET pair_id = excluded.pair_id, outcome = excluded.outcome, p_first = excluded.p_first,
    mass = excluded.mass, detail = excluded.detail, recorded = excluded.recorded, attempts = attempts + 1
WHERE verdicts.outcome = 'error'
"""

_Key = tuple[str, str, str, str, str, str, int, int]


class LabelStore:
    """Verdicts by (pair content, judge, model, template, constitution, order, sample, seed).

    Usable as a context manager, and from several threads and processes at once.

    Args:
        path: the file; made, with its directory, where it does not exist.

    Raises:
        TrimtabError: the file is no label store, or of a newer version of Trimtab.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            self._open()
        except sqlite3.DatabaseError as error:
            raise TrimtabError(
                ErrorKind.DATA,
                f"{self.path}: is not a usable label store: {error}",
                "move the file away to start a new one",
            ) from error

    def get(self, judge: JudgeIdentity, requests: Sequence[JudgeRequest]) -> list[Verdict | None]:
        """The recorded verdict of each request, None where there is none; errors are returned as recorded."""
        found: list[Verdict | None] = []
        with self._lock, closing(self._db.cursor()) as cursor:
            for key in _keys(judge, requests):
                row = cursor.execute(_SELECT, key).fetchone()
                found.append(None if row is None else Verdict(Outcome(row[0]), row[1], row[2], row[3]))
        return found

    def put(self, judge: JudgeIdentity, requests: Sequence[JudgeRequest], verdicts: Sequence[Verdict]) -> None:
        """Record a batch in one transaction; on return it is on the disk.

        A verdict that is already recorded stays as it is, unless it is an error.

        Raises:
            TrimtabError: the disk is full, or another process wrote for too long; nothing of the batch is recorded.
        """
        now = time.time()
        rows = [
            (*key, request.pair.id, v.outcome.value, v.p_first, v.mass, v.detail, now)
            for key, request, v in zip(_keys(judge, requests), requests, verdicts, strict=True)
        ]
        with self._lock, closing(self._db.cursor()) as cursor:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                cursor.executemany(_INSERT, rows)
                cursor.execute("COMMIT")
            except BaseException as error:
                if self._db.in_transaction:  # on a full disk SQLite has rolled back itself
                    cursor.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise TrimtabError(
                        ErrorKind.FAILED,
                        f"{self.path}: the last {len(rows)} verdicts cannot be recorded: {error}",
                        "No verdict recorded before is lost: make room or allow writing there, then give the same "
                        "command again; only what is missing is asked for.",
                    ) from error
                raise

    def counts(self) -> dict[Outcome, int]:
        """Recorded verdicts by outcome, every outcome present."""
        with self._lock, closing(self._db.cursor()) as cursor:
            rows = dict(cursor.execute("SELECT outcome, COUNT(*) FROM verdicts GROUP BY outcome"))
        return {outcome: rows.get(outcome.value, 0) for outcome in Outcome}

    def close(self) -> None:
        """Close the file; the store cannot be used after it."""
        self._db.close()

    def __len__(self) -> int:
        return sum(self.counts().values())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        # IMMEDIATE: two processes that open a new file at once must not both find it empty
        self._db.execute("BEGIN IMMEDIATE")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            self._db.execute("ROLLBACK")
            raise TrimtabError(
                ErrorKind.DATA,
                f"{self.path}: was written by a newer Trimtab (format {version}, this one knows {SCHEMA_VERSION})",
                "upgrade trimtab, or move the file away to start a new one",
            )
        self._db.execute(_SCHEMA)
        self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._db.execute("COMMIT")


def _keys(judge: JudgeIdentity, requests: Sequence[JudgeRequest]) -> list[_Key]:
    return [
        (
            pair_hash(r.pair),
            judge.name,
            judge.model,
            judge.template,
            r.constitution.hash,
            r.order.value,
            r.sample,
            judge.seed,
        )
        for r in requests
    ]
