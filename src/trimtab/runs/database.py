"""An SQLite file of our own that outlives kills and power cuts, and that several processes use at once.

Write-ahead logging with full synchronisation: what a transaction has written is on the disk when it returns. The
format is counted in `PRAGMA user_version`; a file of an older one is brought up to date in place.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import writing

__all__ = ["Database", "Format"]

BUSY_SECONDS = 30.0
"""How long a writer waits for another process's write."""


@dataclass(frozen=True, slots=True)
class Format:
    """What a file looks like.

    Args:
        what: what the file is, for messages, such as `review store`.
        table: a table that every version of it has, by which a foreign file is told.
        steps: statements that lead from each version to the next, from an empty file on.
        hint: what to tell where the file is something else.
        go_on: what to tell where something could not be recorded.
    """

    what: str
    table: str
    steps: tuple[tuple[str, ...], ...]
    hint: str = ""
    go_on: str = "Nothing recorded before is lost: make room or allow writing there, and go on."


class Database:
    """One file, usable as a context manager and from several threads and processes at once.

    Args:
        path: made, with its directory, where it does not exist.
        form: what it has to look like.

    Raises:
        TrimtabError: the file is something else, of a newer version of Trimtab, or cannot be opened for writing.
    """

    def __init__(self, path: str | os.PathLike[str], form: Format) -> None:
        self.path, self.form = Path(path), form
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        try:
            self._db = self._connect("FULL")
            self._migrate()
        except sqlite3.Error as error:
            raise self._opening_error(error) from error

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        """A connection; `synchronous` FULL waits for the disk, NORMAL may lose what came last in a power cut.

        Raises:
            TrimtabError: the file is somebody else's.
            sqlite3.Error: it cannot be opened, or is no SQLite file.
        """
        db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._refuse_foreign(db)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        return db

    @contextmanager
    def reading(self, *, one_moment: bool = True) -> Iterator[sqlite3.Cursor]:
        """A cursor for reading.

        Args:
            one_moment: all that is read with it is of one moment; nothing can be written before it is closed.

        Raises:
            TrimtabError: the file is damaged, or another process kept it locked for too long.
        """
        with self._lock, closing(self._db.cursor()) as cursor:
            try:
                if one_moment:
                    cursor.execute("BEGIN")
                yield cursor
            except sqlite3.DatabaseError as error:
                raise TrimtabError(
                    ErrorKind.DATA,
                    f"{self.path}: the {self.form.what} cannot be read: {error}",
                    "what `sqlite3 FILE .recover` can save of a damaged file is a store again",
                ) from error
            finally:
                if one_moment and self._db.in_transaction:
                    cursor.execute("ROLLBACK")

    @contextmanager
    def transaction(self, failed: str, db: sqlite3.Connection | None = None) -> Iterator[sqlite3.Cursor]:
        """A transaction that is whole or not at all; on return it is on the disk.

        Args:
            failed: what cannot be done if it fails, such as `the vote cannot be recorded`.
            db: another connection to the file; None: the one that waits for the disk.

        Raises:
            TrimtabError: the disk is full, or another process wrote for too long.
        """
        db = self._db if db is None else db
        with self._lock, closing(db.cursor()) as cursor:
            try:
                # IMMEDIATE: what is read before the write may not be changed by another process in between
                cursor.execute("BEGIN IMMEDIATE")
                yield cursor
                cursor.execute("COMMIT")
            except BaseException as error:
                if db.in_transaction:  # on a full disk SQLite has rolled back itself
                    cursor.execute("ROLLBACK")
                if type(error) in (sqlite3.OperationalError, sqlite3.DatabaseError):  # others are bugs of ours
                    raise TrimtabError(ErrorKind.FAILED, f"{self.path}: {failed}: {error}", self.form.go_on) from error
                raise

    def close(self) -> None:
        """Close the file; it cannot be used after it."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _refuse_foreign(self, db: sqlite3.Connection) -> None:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if tables and self.form.table not in tables:
            raise TrimtabError(
                ErrorKind.DATA,
                f"{self.path}: is an SQLite file, but no {self.form.what}: its tables are "
                f"{', '.join(sorted(tables)[:5])}",
                self.form.hint,
            )

    def _migrate(self) -> None:
        newest = len(self.form.steps)
        if self._db.execute("PRAGMA user_version").fetchone()[0] == newest:
            return
        self._db.execute("BEGIN IMMEDIATE")
        try:
            # read again: two processes that open a new file at once must not both find it empty
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > newest:
                raise TrimtabError(
                    ErrorKind.DATA,
                    f"{self.path}: was written by a newer Trimtab (format {version}, this one knows {newest})",
                    "upgrade trimtab, or move the file away to start a new one",
                )
            for statements in self.form.steps[version:]:
                for statement in statements:
                    self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version = {newest}")
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _opening_error(self, error: sqlite3.Error) -> TrimtabError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        what = f"{self.path}: the {self.form.what} cannot be opened for writing: {error}"
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            hint = "Nothing recorded is lost: make room on the disk, then give the same command again."
            return TrimtabError(ErrorKind.FAILED, what, hint)
        if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            hint = "allow writing to the file and its directory: SQLite keeps two files of its own beside it"
            return TrimtabError(ErrorKind.FAILED, what, hint)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            what = f"{self.path}: another process keeps the {self.form.what} locked"
            return TrimtabError(ErrorKind.FAILED, what, "try again when it has ended")
        what = f"{self.path}: is not a usable {self.form.what}: {error}"
        return TrimtabError(ErrorKind.DATA, what, "move the file away to start a new one")
