"""What a label store's file looks like, in every version; how rows become verdicts and the other way round."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import Outcome, Verdict
from trimtab.labeling.questions import Key, Question

__all__ = [
    "COLUMNS",
    "SCHEMA_VERSION",
    "VERDICT_COLUMNS",
    "migrate",
    "opening_error",
    "row_of",
    "utf8",
    "verdict_of",
    "verdict_record",
]

SCHEMA_VERSION = 2

_KEY_1 = """
    pair_hash TEXT NOT NULL, judge TEXT NOT NULL, model TEXT NOT NULL, template TEXT NOT NULL,
    constitution TEXT NOT NULL, shown TEXT NOT NULL, sample INTEGER NOT NULL, seed INTEGER NOT NULL"""
_PRIMARY = f"PRIMARY KEY ({', '.join(Key._fields)})"
_VERDICTS_1 = f"""
CREATE TABLE verdicts ({_KEY_1},
    pair_id TEXT NOT NULL, outcome TEXT NOT NULL, p_first REAL, mass REAL, detail TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 1, recorded REAL NOT NULL, {_PRIMARY}
) WITHOUT ROWID
"""
_ADDED_2 = (
    "wording TEXT NOT NULL DEFAULT ''",
    "principle TEXT NOT NULL DEFAULT ''",
    "how TEXT NOT NULL DEFAULT ''",
    "text TEXT NOT NULL DEFAULT ''",
    "rationale TEXT NOT NULL DEFAULT ''",
    "logprob_first REAL",
    "logprob_second REAL",
    "prompt_tokens INTEGER",
    "completion_tokens INTEGER",
    "cost REAL",
    "seconds REAL",
)
_CLAIMS_2 = f"CREATE TABLE claims ({_KEY_1}, owner TEXT NOT NULL, expires REAL NOT NULL, {_PRIMARY}) WITHOUT ROWID"

_STEPS = (
    (_VERDICTS_1,),
    (*(f"ALTER TABLE verdicts ADD COLUMN {column}" for column in _ADDED_2), _CLAIMS_2),
)
"""Statements that lead from each version to the next, from an empty file on."""

VERDICT_COLUMNS = (
    "outcome", "p_first", "mass", "detail", "logprob_first", "logprob_second", "how", "text", "rationale",
    "prompt_tokens", "completion_tokens", "cost", "seconds",
)  # fmt: skip
"""Columns that make a `Verdict`, in the order of `verdict_of`."""

COLUMNS = (*Key._fields, "pair_id", "wording", "principle", *VERDICT_COLUMNS, "attempts", "recorded")
"""All columns of `verdicts`, the key first."""

_LONE = re.compile("[\ud800-\udfff]")


def refuse_foreign(db: sqlite3.Connection, path: Path) -> None:
    """Leave an SQLite file alone that somebody else made.

    Raises:
        TrimtabError: it has tables, and none of a label store.
        sqlite3.Error: it is no SQLite file.
    """
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    if tables and "verdicts" not in tables:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{path}: is an SQLite file, but no label store: its tables are {', '.join(sorted(tables)[:5])}",
            "a project's label store is labels.sqlite, written by trimtab label",
        )


def migrate(db: sqlite3.Connection, path: Path) -> None:
    """Bring a file to the present version, in one transaction; an empty file becomes a store.

    Raises:
        TrimtabError: it is of a newer version.
        sqlite3.Error: it is no store, or there is no room.
    """
    if db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
        return
    # IMMEDIATE: two processes that open a new file at once must not both find it empty
    db.execute("BEGIN IMMEDIATE")
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise TrimtabError(
                ErrorKind.DATA,
                f"{path}: was written by a newer Trimtab (format {version}, this one knows {SCHEMA_VERSION})",
                "upgrade trimtab, or move the file away to start a new one",
            )
        for statements in _STEPS[version:]:
            for statement in statements:
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def opening_error(path: Path, error: sqlite3.Error) -> TrimtabError:
    """What to tell of a store that cannot be opened, and what to do."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return TrimtabError(
            ErrorKind.FAILED,
            f"{path}: the label store cannot be opened for writing: {error}",
            "Nothing recorded is lost: make room on the disk, then give the same command again.",
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return TrimtabError(
            ErrorKind.FAILED,
            f"{path}: the label store cannot be opened for writing: {error}",
            "allow writing to the file and its directory: SQLite keeps two files of its own beside it",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return TrimtabError(
            ErrorKind.FAILED, f"{path}: another process keeps the label store locked", "try again when it has ended"
        )
    return TrimtabError(
        ErrorKind.DATA, f"{path}: is not a usable label store: {error}", "move the file away to start a new one"
    )


def row_of(question: Question, verdict: Verdict, recorded: float) -> tuple[Any, ...]:
    """The row of one answer, in the order of `COLUMNS`."""
    first, second = verdict.logprobs or (None, None)
    return (
        *question.key,
        utf8(question.request.pair.id),
        question.judge.wording,
        question.request.principle or "",
        verdict.outcome.value,
        verdict.p_first,
        verdict.mass,
        utf8(verdict.detail),
        first,
        second,
        verdict.how,
        utf8(verdict.text),
        utf8(verdict.rationale),
        verdict.prompt_tokens,
        verdict.completion_tokens,
        verdict.cost,
        verdict.seconds,
        1,
        recorded,
    )


def verdict_of(row: Sequence[Any]) -> Verdict:
    """The verdict in the columns `VERDICT_COLUMNS`."""
    outcome, p_first, mass, detail, first, second, *rest = row
    logprobs = None if first is None and second is None else (first, second)
    return Verdict(Outcome(outcome), p_first, mass, detail, logprobs, *rest)


def utf8(value: Any) -> Any:
    """`value`, where it is a text with half characters (lone surrogates) in their place the replacement character."""
    return _LONE.sub("\ufffd", value) if isinstance(value, str) else value


def verdict_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row by column as a record of a verdict file; see `trimtab.labeling.verdicts`."""
    tokens = [row[c] for c in ("prompt_tokens", "completion_tokens") if row[c] is not None]
    return {
        "pair_id": f"{row['pair_id']}#{row['pair_hash'][:8]}",
        "judge": row["judge"],
        "model": row["model"],
        "template": row["wording"] or row["template"],
        "principle": row["principle"] or None,
        "constitution": row["constitution"],
        "order": {"forward": "12", "reversed": "21"}[row["shown"]],
        "sample": row["sample"],
        "status": row["outcome"],
        "p_1": row["p_first"],
        "mass": row["mass"],
        "cost": row["cost"],
        "tokens": sum(tokens) if tokens else None,
        "latency": row["seconds"],
    }
