"""Votes: recorded once, undone without being forgotten."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterable, Mapping

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation.review.assignment import progress_in, register_in
from trimtab.evaluation.review.records import OVERALL, Choice, Progress, check_name
from trimtab.evaluation.review.store import ReviewStore, review_in, utf8
from trimtab.runs.files import dump_json

__all__ = ["progress", "register", "undo", "vote"]

_LONGEST_REASON = 10_000


def register(store: ReviewStore, annotator: str, groups: Iterable[str] = ()) -> None:
    """Note an annotator and the groups that they belong to from now on; votes keep the groups they were given in.

    Raises:
        TrimtabError: a name that cannot be one.
    """
    check_name(annotator, "an annotator")
    named = list(dict.fromkeys(check_name(group, "a group") for group in groups))
    with store.transaction("the annotator cannot be noted") as cursor:
        register_in(cursor, annotator, named, time.time())


def vote(
    store: ReviewStore,
    ticket: str,
    choice: Choice | str,
    *,
    annotator: str,
    aspects: Mapping[str, Choice | str] | None = None,
    reason: str = "",
    seconds: float | None = None,
) -> None:
    """Record a vote; on return it is on the disk.

    A vote whose lease has ended counts too: the work is done. The same vote twice (a page that was sent again) is one.

    Args:
        store: the reviews.
        ticket: of what was shown (`Served.ticket`).
        choice: A, B, tie, both bad or skip.
        annotator: who votes; the one it was shown to.
        aspects: choices by aspect, any of the review's; none with a skip.
        reason: in the annotator's words.
        seconds: that it took; None: since it was shown.

    Raises:
        TrimtabError: no such ticket, somebody else's, another vote on it, or a choice or aspect that does not exist.
    """
    chosen = _choice(choice, OVERALL)
    by_aspect = {name: _choice(value, name).value for name, value in (aspects or {}).items()}
    if Choice.SKIP in by_aspect.values() or (chosen is Choice.SKIP and by_aspect):
        raise TrimtabError(ErrorKind.USAGE, "an aspect cannot be skipped, nor voted on with a skip", "leave it out")
    if len(reason) > _LONGEST_REASON:
        raise TrimtabError(ErrorKind.USAGE, f"a reason of {len(reason)} characters", f"at most {_LONGEST_REASON}")
    now = time.time()
    with store.transaction("the vote cannot be recorded") as cursor:
        row = cursor.execute(
            "SELECT s.review, s.annotator, s.guidelines, s.shown, s.voted, r.aspects, a.groups FROM showings s"
            " JOIN reviews r ON r.id = s.review JOIN annotators a ON a.name = s.annotator WHERE ticket = ?",
            (ticket,),
        ).fetchone()
        if row is None or row[1] != annotator:
            raise TrimtabError(ErrorKind.USAGE, "this ticket is none of the annotator's", "ask for the next item")
        review, _, guidelines, shown, voted, known, groups = row
        unknown = [name for name in by_aspect if name not in json.loads(known)]
        if unknown:
            raise TrimtabError(
                ErrorKind.USAGE, f"no aspect {unknown[0]!r}", f"there are: {', '.join(json.loads(known)) or 'none'}"
            )
        if voted:
            return _same(cursor, ticket, chosen, by_aspect)
        took = now - shown if seconds is None or not math.isfinite(seconds) else seconds
        cursor.execute(
            "INSERT INTO votes (ticket, review, annotator, groups, choice, aspects, reason, seconds, guidelines,"
            " recorded) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (ticket, review, annotator, groups, chosen.value, dump_json(by_aspect), utf8(reason), max(took, 0.0),
             guidelines, now),
        )  # fmt: skip
        cursor.execute("UPDATE showings SET voted = ? WHERE ticket = ?", (2 if chosen is Choice.SKIP else 1, ticket))
    return None


def undo(store: ReviewStore, review: str | None, annotator: str) -> Choice | None:
    """Take back an annotator's last vote; it is shown to them next, and stays in the store as undone.

    Returns:
        What the vote was; None: there is none.

    Raises:
        TrimtabError: no such review.
    """
    now = time.time()
    with store.transaction("the vote cannot be undone") as cursor:
        found = review_in(cursor, store, review)
        row = cursor.execute(
            "SELECT id, ticket, choice FROM votes WHERE review = ? AND annotator = ? AND undone IS NULL"
            " ORDER BY id DESC LIMIT 1",
            (found.id, annotator),
        ).fetchone()
        if row is None:
            return None
        cursor.execute("UPDATE votes SET undone = ? WHERE id = ?", (now, row[0]))
        cursor.execute(
            # later than what is in hand: of several the last one shown comes next
            "UPDATE showings SET voted = 0, expires = ?2, shown ="
            " MAX(?1, (SELECT MAX(shown) + 1e-3 FROM showings WHERE annotator = ?3)) WHERE ticket = ?4",
            (now, now + found.plan.lease_s, annotator, row[1]),
        )
        return Choice(row[2])


def progress(store: ReviewStore, review: str | None, annotator: str) -> Progress:
    """How far an annotator is.

    Raises:
        TrimtabError: no such review.
    """
    with store.reading() as cursor:
        return progress_in(cursor, review_in(cursor, store, review), annotator, time.time())


def _choice(value: Choice | str, of: str) -> Choice:
    try:
        return Choice(value)
    except ValueError:
        raise TrimtabError(
            ErrorKind.USAGE, f"no choice {str(value)[:40]!r} ({of})", f"one of {', '.join(Choice)}"
        ) from None


def _same(cursor: sqlite3.Cursor, ticket: str, choice: Choice, aspects: Mapping[str, str]) -> None:
    """Pass over a vote that is recorded already.

    Raises:
        TrimtabError: another one is.
    """
    recorded = cursor.execute(
        "SELECT choice, aspects FROM votes WHERE ticket = ? AND undone IS NULL", (ticket,)
    ).fetchone()
    if recorded[0] != choice or json.loads(recorded[1]) != dict(aspects):
        raise TrimtabError(ErrorKind.USAGE, "this item has been voted on otherwise", "undo that vote first")
