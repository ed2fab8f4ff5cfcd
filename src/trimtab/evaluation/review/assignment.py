"""Who is shown what next: balanced over items, leased, with repeats and gold questions that nobody can tell.

An item that fewer people have voted on, or are looking at, comes first, until it has its votes. What is handed out is
leased: nobody else gets that vote before the lease ends, and its annotator gets the same showing again until it is
voted on. Repeats and gold questions come at drawn places: the j-th one somewhere between the showings j / rate and
(j + 1) / rate of an annotator, so that there are neither rules to guess nor long stretches without one.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import time
from typing import Any, NamedTuple

from trimtab.evaluation.review.records import Progress, Served, check_name
from trimtab.evaluation.review.store import Review, ReviewStore, review_in

__all__ = ["draw", "next_item", "planned", "progress_in", "register_in"]

REPEAT_GAP = 10
"""Showings between an item and its repeat, as long as there is anything else to show."""

# Votes on an item, and living leases on one, of other annotators than `me`.
_TAKEN = (
    "(SELECT COUNT(*) FROM showings s WHERE s.item = i.id AND s.sample = 0 AND s.annotator <> :me"
    " AND (s.voted = 1 OR s.voted = 0 AND s.expires > :now))"
)
_SEEN = "EXISTS (SELECT 1 FROM showings s WHERE s.item = i.id AND s.annotator = :me AND s.sample = 0 AND s.voted > 0)"
# starts at another place for every annotator: with several votes an item, not always the same people meet on it
_OPEN = f"""
SELECT id, COUNT(*) OVER () FROM (SELECT i.id, i.place, {_TAKEN} AS taken FROM items i
WHERE i.review = :review AND i.answer IS NULL AND NOT {_SEEN}) WHERE taken < :votes
ORDER BY taken, (place + :start) % :places LIMIT 1
"""
_GOLD = f"SELECT i.id FROM items i WHERE i.review = :review AND i.answer IS NOT NULL AND NOT {_SEEN} ORDER BY i.id"
# sample-0 votes of `me` that were not repeated yet, in the order given
_REPEATABLE = """
SELECT s.item, (SELECT COUNT(*) FROM votes w WHERE w.review = :review AND w.annotator = :me AND w.undone IS NULL
                AND w.id > v.id)
FROM showings s JOIN votes v ON v.ticket = s.ticket AND v.undone IS NULL JOIN items i ON i.id = s.item
WHERE s.review = :review AND s.annotator = :me AND s.sample = 0 AND s.voted = 1 AND i.answer IS NULL
AND NOT EXISTS (SELECT 1 FROM showings r WHERE r.item = s.item AND r.annotator = :me AND r.sample = 1 AND r.voted > 0)
ORDER BY v.id
"""
_COUNTS = """
SELECT COUNT(*), COALESCE(SUM(i.answer IS NOT NULL), 0), COALESCE(SUM(s.sample = 1), 0)
FROM showings s JOIN items i ON i.id = s.item WHERE s.review = ? AND s.annotator = ? AND s.voted > 0
"""


class _Counts(NamedTuple):
    """What an annotator has voted on (or skipped) in a review."""

    shown: int
    gold: int
    repeats: int


def next_item(store: ReviewStore, review: str | None, annotator: str, *, now: float | None = None) -> Served | None:
    """What to show to an annotator; the same until it is voted on. None: there is nothing left for them.

    Args:
        store: the reviews.
        review: which; None: the only one.
        annotator: registered when first seen.
        now: seconds since the epoch; None: the time.

    Raises:
        TrimtabError: no such review, or a name that cannot be one.
    """
    check_name(annotator, "an annotator")
    now = time.time() if now is None else now
    with store.transaction("the next item cannot be handed out") as cursor:
        found = review_in(cursor, store, review)
        register_in(cursor, annotator, None, now)
        available = _open(cursor, found, annotator, now)
        showing = _held(cursor, found, annotator, now) or _new(cursor, found, annotator, available, now)
        if showing is None:
            return None
        cursor.execute(
            "UPDATE showings SET expires = ?, guidelines = ?, shown = MAX(shown, ?) WHERE ticket = ?",
            (now + found.plan.lease_s, found.guidelines, now, showing[0]),
        )
        done = _counts(cursor, found, annotator)
        left = max(planned(found, annotator, done.shown - done.gold - done.repeats + available[1]) - done.shown, 1)
        return _served(cursor, found, showing, Progress(done.shown, left))


def progress_in(cursor: sqlite3.Cursor, review: Review, annotator: str, now: float) -> Progress:
    """How far an annotator is, in the transaction of `cursor`."""
    done = _counts(cursor, review, annotator)
    available = _open(cursor, review, annotator, now)[1]
    left = planned(review, annotator, done.shown - done.gold - done.repeats + available) - done.shown
    return Progress(done.shown, max(left, 0))


def planned(review: Review, annotator: str, regular: int) -> int:
    """Showings in all for an annotator who gets `regular` items: with their repeats and gold questions."""
    repeatable = regular if regular > 1 else 0
    total, last = regular, -1
    while total != last:
        last = total
        gold = min(review.gold, _due(review, annotator, "gold", last))
        total = regular + gold + min(repeatable, _due(review, annotator, "repeat", last))
    return total


def register_in(cursor: sqlite3.Cursor, annotator: str, groups: list[str] | None, now: float) -> None:
    """Note an annotator, with new groups where there are any, in the transaction of `cursor`."""
    cursor.execute("INSERT OR IGNORE INTO annotators (name, groups, since) VALUES (?, '[]', ?)", (annotator, now))
    if groups is not None:
        cursor.execute("UPDATE annotators SET groups = ? WHERE name = ?", (json.dumps(groups), annotator))


def draw(*parts: str | int) -> int:
    """A number from 0 to 2^64 - 1 that is always the same for the same parts."""
    return int.from_bytes(hashlib.blake2b(json.dumps(parts).encode("ascii"), digest_size=8).digest())


def _due(review: Review, annotator: str, kind: str, n: int) -> int:
    """How many repeats or gold questions an annotator is to have seen with the showing number n, from 0 on."""
    rate = review.plan.gold if kind == "gold" else review.plan.repeats
    if rate == 0:
        return 0
    sure = max(int(n * rate) - 1, 0)
    near = (sure + k for k in range(4))
    return sure + sum(int((j + draw(review.plan.seed, annotator, kind, j) / 2**64) / rate) <= n for j in near)


def _counts(cursor: sqlite3.Cursor, review: Review, annotator: str) -> _Counts:
    return _Counts(*cursor.execute(_COUNTS, (review.id, annotator)).fetchone())


def _open(cursor: sqlite3.Cursor, review: Review, annotator: str, now: float) -> tuple[int | None, int]:
    """The item that the annotator would be given for a vote, and how many are open to them."""
    places = review.items + review.gold
    row = cursor.execute(
        _OPEN,
        {
            "review": review.id, "me": annotator, "now": now, "votes": review.plan.votes_per_item, "places": places,
            "start": draw(review.plan.seed, annotator, "start") % places,
        },
    ).fetchone()  # fmt: skip
    return (None, 0) if row is None else (row[0], row[1])


def _held(cursor: sqlite3.Cursor, review: Review, annotator: str, now: float) -> tuple[Any, ...] | None:
    """(ticket, item, swapped) of the showing that the annotator has in hand; of several the last one shown."""
    row: tuple[Any, ...] | None = cursor.execute(
        "SELECT ticket, item, swapped FROM showings WHERE review = ? AND annotator = ? AND voted = 0 AND expires > ?"
        " ORDER BY shown DESC LIMIT 1",
        (review.id, annotator, now),
    ).fetchone()
    return row


def _new(
    cursor: sqlite3.Cursor, review: Review, annotator: str, available: tuple[int | None, int], now: float
) -> tuple[Any, ...] | None:
    """(ticket, item, swapped) of a new showing, or of one whose lease had ended; None: nothing is left."""
    shown, gold, repeats = _counts(cursor, review, annotator)
    names = {"review": review.id, "me": annotator}
    if _due(review, annotator, "gold", shown) > gold:
        unseen = [row[0] for row in cursor.execute(_GOLD, names)]
        if unseen:
            item = unseen[draw(review.plan.seed, annotator, "gold question", shown) % len(unseen)]
            return _showing(cursor, review, annotator, item, 0, now)
    if _due(review, annotator, "repeat", shown) > repeats:
        gap = REPEAT_GAP if available[0] is not None else 1
        seen = [item for item, since in cursor.execute(_REPEATABLE, names) if since >= gap]
        if seen:
            item = seen[draw(review.plan.seed, annotator, "repeated", shown) % len(seen)]
            return _showing(cursor, review, annotator, item, 1, now)
    return None if available[0] is None else _showing(cursor, review, annotator, available[0], 0, now)


def _showing(
    cursor: sqlite3.Cursor, review: Review, annotator: str, item: int, sample: int, now: float
) -> tuple[Any, ...]:
    """(ticket, item, swapped) of an item's showing, which is made where there is none yet."""
    key = cursor.execute("SELECT key FROM items WHERE id = ?", (item,)).fetchone()[0]
    swapped = (draw(review.plan.seed, annotator, "side", key) + sample) % 2
    cursor.execute(
        "INSERT OR IGNORE INTO showings (ticket, review, item, annotator, sample, swapped, guidelines, shown, expires)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (secrets.token_hex(8), review.id, item, annotator, sample, swapped, review.guidelines, now, now),
    )
    row: tuple[Any, ...] = cursor.execute(
        "SELECT ticket, item, swapped FROM showings WHERE item = ? AND annotator = ? AND sample = ?",
        (item, annotator, sample),
    ).fetchone()
    return row


def _served(cursor: sqlite3.Cursor, review: Review, showing: tuple[Any, ...], progress: Progress) -> Served:
    ticket, item, swapped = showing
    messages, *responses = cursor.execute(
        "SELECT messages, response_1, response_2 FROM items WHERE id = ?", (item,)
    ).fetchone()
    a, b = (json.loads(text)[0] for text in (reversed(responses) if swapped else responses))
    prompt = tuple((role, content) for role, content in json.loads(messages))
    return Served(ticket, prompt, a, b, review.plan.aspects, review.guidelines, progress)
