"""The label store: every verdict ever given, in one SQLite file, so that none is asked for twice.

Write-ahead logging with full synchronisation: a batch that `record` has returned from survives a killed process and a
power cut, several processes may read and write at once, and the file opens with any SQLite tool. Its format is counted
in `PRAGMA user_version`; a file of an older one is brought up to date in place. `store_schema` says what it looks like.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.claims import LEASE_SECONDS, is_alive
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Outcome, Verdict
from trimtab.labeling.questions import Key, Question, key_of
from trimtab.labeling.store_schema import (
    COLUMNS,
    FORMAT,
    VERDICT_COLUMNS,
    row_of,
    utf8,
    verdict_of,
    verdict_record,
)
from trimtab.runs.database import Database

__all__ = ["Claimed", "LabelStore"]

_CHUNK = 256
"""Pairs looked up in one statement."""
_PAIRS = ",".join("?" * _CHUNK)
_WHERE_KEY = " AND ".join(f"{column} = ?" for column in Key._fields)
_FIND = f"""
SELECT pair_hash, shown, sample, {", ".join(VERDICT_COLUMNS)} FROM verdicts
WHERE pair_hash IN ({_PAIRS}) AND judge = ? AND model = ? AND template = ? AND constitution = ? AND seed = ?
"""
# the first real verdict stays, whoever else asked at the same time; an error gives way to whatever comes next
_INSERT = f"""
INSERT INTO verdicts ({", ".join(COLUMNS)}) VALUES ({", ".join("?" * len(COLUMNS))})
ON CONFLICT DO UPDATE SET {", ".join(f"{c} = excluded.{c}" for c in COLUMNS[len(Key._fields) :] if c != "attempts")},
    attempts = verdicts.attempts + excluded.attempts
WHERE verdicts.outcome = 'error'
"""
_UNCLAIM = f"DELETE FROM claims WHERE {_WHERE_KEY}"
_CLAIM = (
    f"INSERT OR REPLACE INTO claims ({', '.join(Key._fields)}, owner, expires) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Claimed(NamedTuple):
    """What came of claiming questions.

    Args:
        mine: to be asked by the claimant.
        recorded: answered by now, errors not among them.
        busy: being asked by somebody else.
    """

    mine: list[Question]
    recorded: dict[Key, Verdict]
    busy: list[Question]


class LabelStore(Database):
    """Verdicts by (pair content, judge, model, template, what was asked, order, sample, seed).

    Usable as a context manager, and from several threads and processes at once.

    Args:
        path: the file; made, with its directory, where it does not exist.

    Raises:
        TrimtabError: the file is no label store, of a newer version of Trimtab, or cannot be opened for writing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, FORMAT)
        # A lost claim costs a question asked twice at worst: not worth waiting for the disk.
        try:
            self._claims = self._connect("NORMAL")
        except sqlite3.Error as error:
            raise self._opening_error(error) from error

    # verdicts

    def find(self, keys: Iterable[Key]) -> dict[Key, Verdict]:
        """The recorded verdicts among `keys`, errors included."""
        wanted = set(keys)
        groups: dict[tuple[str, str, str, str, int], dict[str, None]] = {}
        for key in wanted:
            groups.setdefault((*key[1:5], key.seed), {})[key.pair_hash] = None
        found: dict[Key, Verdict] = {}
        with self.reading(one_moment=False) as cursor:
            for group, hashes in groups.items():
                listed = list(hashes)
                for start in range(0, len(listed), _CHUNK):
                    chunk = listed[start : start + _CHUNK]
                    chunk += chunk[-1:] * (_CHUNK - len(chunk))  # one statement for every length
                    for row in cursor.execute(_FIND, (*chunk, *group)):
                        key = Key(row[0], *group[:4], row[1], row[2], group[4])
                        if key in wanted:
                            found[key] = self._verdict(row[0], row[3:])
        return found

    def record(self, questions: Sequence[Question], verdicts: Sequence[Verdict]) -> None:
        """Record answers in one transaction and give up the claims on their questions; on return it is on the disk.

        A verdict that is already recorded stays as it is, unless it is an error.

        Raises:
            TrimtabError: the disk is full, or another process wrote for too long; nothing of the batch is recorded.
        """
        now = time.time()
        rows = [row_of(q, v, now) for q, v in zip(questions, verdicts, strict=True)]
        with self.transaction(f"the last {len(rows)} verdicts cannot be recorded") as cursor:
            cursor.executemany(_INSERT, rows)
            cursor.executemany(_UNCLAIM, [q.key for q in questions])

    def get(self, judge: JudgeIdentity, requests: Sequence[JudgeRequest]) -> list[Verdict | None]:
        """The recorded verdict of each request, None where there is none; errors are returned as recorded."""
        keys = [key_of(judge, request) for request in requests]
        found = self.find(keys)
        return [found.get(key) for key in keys]

    def put(self, judge: JudgeIdentity, requests: Sequence[JudgeRequest], verdicts: Sequence[Verdict]) -> None:
        """As `record`, for requests to one judge."""
        self.record([Question(key_of(judge, request), request, judge) for request in requests], verdicts)

    # claims

    def claim(self, questions: Sequence[Question], owner: str) -> Claimed:
        """Claim questions for `owner` (see `claims.new_owner`), so that nobody else asks them meanwhile.

        A recorded error is no answer: its question can be claimed.
        """
        now = time.time()
        with self.transaction("questions cannot be claimed", self._claims) as cursor:
            recorded = {k: v for k, v in self._among(cursor, questions).items() if v.outcome is not Outcome.ERROR}
            open_ = [q for q in questions if q.key not in recorded]
            held = self._held(cursor, open_, owner, now)
            mine = [q for q in open_ if q.key not in held]
            cursor.executemany(_CLAIM, [(*q.key, owner, now + LEASE_SECONDS) for q in mine])
        return Claimed(mine, recorded, [q for q in open_ if q.key in held])

    def renew(self, owner: str) -> None:
        """Put off the end of the owner's claims."""
        with self.transaction("claims cannot be renewed", self._claims) as cursor:
            cursor.execute("UPDATE claims SET expires = ? WHERE owner = ?", (time.time() + LEASE_SECONDS, owner))

    def release(self, owner: str) -> None:
        """Give up the owner's claims."""
        with self.transaction("claims cannot be given up", self._claims) as cursor:
            cursor.execute("DELETE FROM claims WHERE owner = ?", (owner,))

    def _among(self, cursor: sqlite3.Cursor, questions: Sequence[Question]) -> dict[Key, Verdict]:
        """As `find`, row by row, in the transaction of `cursor`."""
        select = f"SELECT {', '.join(VERDICT_COLUMNS)} FROM verdicts WHERE {_WHERE_KEY}"
        rows = ((q.key, cursor.execute(select, q.key).fetchone()) for q in questions)
        return {key: self._verdict(key.pair_hash, row) for key, row in rows if row is not None}

    def _held(self, cursor: sqlite3.Cursor, questions: Sequence[Question], owner: str, now: float) -> set[Key]:
        """Keys that another living owner holds."""
        select, alive = f"SELECT owner, expires FROM claims WHERE {_WHERE_KEY}", {owner: False}
        held = set()
        for question in questions:
            row = cursor.execute(select, question.key).fetchone()
            if row is None or row[1] < now:
                continue
            if row[0] not in alive:
                alive[row[0]] = is_alive(row[0])
            if alive[row[0]]:
                held.add(question.key)
        return held

    # the file as a whole

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Every recorded verdict as a row of `store_schema.COLUMNS`, in the order of the key."""
        with self.reading(one_moment=False) as cursor:
            for row in cursor.execute(f"SELECT {', '.join(COLUMNS)} FROM verdicts ORDER BY {', '.join(Key._fields)}"):
                if any(isinstance(value, bytes) for value in row):
                    raise self._damaged(str(row[0]), "a column holds bytes where a text or a number belongs")
                yield row

    def insert(self, rows: Sequence[Sequence[Any]], *, replace: bool = False) -> None:
        """Add rows of `store_schema.COLUMNS` in one transaction, where there is none yet or only an error.

        Args:
            replace: put them in the place of whatever is there.
        """
        overwrite = _INSERT.partition("ON CONFLICT")[0].replace("INSERT", "INSERT OR REPLACE", 1)
        with self.transaction(f"{len(rows)} verdicts cannot be recorded") as cursor:
            cursor.executemany(overwrite if replace else _INSERT, [[utf8(value) for value in row] for row in rows])

    def verdict_records(self) -> Iterator[dict[str, Any]]:
        """Every verdict in the form of a verdict file; see `trimtab.labeling.verdicts`."""
        for row in self.rows():
            yield verdict_record(dict(zip(COLUMNS, row, strict=True)))

    def _verdict(self, pair_hash: str, row: Sequence[Any]) -> Verdict:
        try:
            return verdict_of(row)
        except (ValueError, TypeError, TrimtabError) as error:
            raise self._damaged(pair_hash, str(error)) from None

    def _damaged(self, pair_hash: str, what: str) -> TrimtabError:
        short = pair_hash[:12]
        return TrimtabError(
            ErrorKind.DATA,
            f"{self.path}: the recorded verdict on pair {short}... cannot be read: {what}",
            f"another program changed it: DELETE FROM verdicts WHERE pair_hash LIKE '{short}%', and it is asked again",
        )

    def counts(self) -> dict[Outcome, int]:
        """Recorded verdicts by outcome, every outcome present."""
        with self.reading(one_moment=False) as cursor:
            rows = dict(cursor.execute("SELECT outcome, COUNT(*) FROM verdicts GROUP BY outcome"))
        return {outcome: rows.get(outcome.value, 0) for outcome in Outcome}

    def close(self) -> None:
        """Close the file; the store cannot be used after it."""
        self._claims.close()
        super().close()

    def __len__(self) -> int:
        return sum(self.counts().values())
