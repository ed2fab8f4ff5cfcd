"""The review store: one SQLite file a project, with reviews, their items, and every vote ever given."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trimtab.data.records import Message, Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation.review.records import Item, Plan, check_name
from trimtab.evaluation.review.schema import FORMAT
from trimtab.runs.database import Database
from trimtab.runs.files import dump_json

__all__ = ["STORE_NAME", "Review", "ReviewStore", "create", "find_review", "item_of", "reviews", "utf8"]

STORE_NAME = "reviews.sqlite"
"""The file in a project's directory."""

ITEM_COLUMNS = (
    "pair_id", "prompt_id", "messages", "tags", "response_1", "response_2", "system_1", "system_2", "answer", "extra",
)  # fmt: skip
"""Columns that make an `Item`, in the order of `item_of`."""


@dataclass(frozen=True, slots=True)
class Review:
    """A review in the store.

    Args:
        id, name: in the store.
        created: seconds since the epoch.
        source: where the responses are from, in words.
        systems: what is compared, in the items' own order.
        identical: pairs that were left out because both responses are the same; they would be ties.
        plan: how it is done.
        items, gold: how many items and gold questions there are.
        guidelines: version in force; empty where there are none.
        guidelines_file: where their text is kept, relative to the store; empty where that is not known.
    """

    id: int
    name: str
    created: float
    source: str
    systems: tuple[str, str]
    identical: int
    plan: Plan
    items: int
    gold: int
    guidelines: str
    guidelines_file: str

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


class ReviewStore(Database):
    """The file with a project's reviews; usable as a context manager, from several threads and processes at once.

    Args:
        path: made, with its directory, where it does not exist.

    Raises:
        TrimtabError: the file is no review store, of a newer version of Trimtab, or cannot be opened for writing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, FORMAT)


def create(
    store: ReviewStore,
    name: str | None,
    items: Sequence[Item],
    plan: Plan | None = None,
    *,
    gold: Sequence[Item] = (),
    systems: tuple[str, str] = ("first", "second"),
    source: str = "",
    identical: int = 0,
) -> Review:
    """Add a review to the store; on return it is on the disk, whole.

    Args:
        store: where to.
        name: of the review; None: the first free one of review-1, review-2, ...
        items: what is asked; of equal ones the first counts.
        plan: how; None: the defaults.
        gold: questions with a known answer (`Item.answer`).
        systems: what is compared.
        source: where the responses are from, in words.
        identical: pairs that were left out because both responses are the same.

    Raises:
        TrimtabError: no items, a name that is taken or none, or gold questions without an answer.
    """
    plan = plan or Plan()
    if not items:
        left = f"; in {identical} pairs both responses are the same" if identical else ""
        raise TrimtabError(ErrorKind.DATA, f"there is nothing to review{left}", "compare points with other responses")
    if any(item.answer is not None for item in items) or any(item.answer not in (0, 1, 2) for item in gold):
        raise TrimtabError(
            ErrorKind.DATA, "a gold question without an answer, or an answer to a question", "answers are 0, 1 or 2"
        )
    if name is not None:
        check_name(name, "a review")
    unique = {item.key: item for item in [*items, *gold]}
    places = list(range(len(unique)))
    random.Random(plan.seed).shuffle(places)
    with store.transaction("the review cannot be made") as cursor:
        known = {row[0] for row in cursor.execute("SELECT name FROM reviews")}
        if name in known:
            raise TrimtabError(ErrorKind.USAGE, f"{store.path}: there is a review {name!r}", "take another name")
        name = name or next(n for n in (f"review-{i}" for i in range(1, len(known) + 2)) if n not in known)
        cursor.execute(
            "INSERT INTO reviews (name, created, source, system_1, system_2, identical, votes_per_item, repeats, gold,"
            " aspects, lease_s, seed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (name, time.time(), utf8(source), utf8(systems[0]), utf8(systems[1]), identical, plan.votes_per_item,
             plan.repeats, plan.gold, dump_json(plan.aspects), plan.lease_s, plan.seed),
        )  # fmt: skip
        review = cursor.lastrowid
        columns = ("review", "key", *ITEM_COLUMNS, "place")
        cursor.executemany(
            f"INSERT INTO items ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            ((review, key, *_row(item), place) for (key, item), place in zip(unique.items(), places, strict=True)),
        )
    return find_review(store, name)


def reviews(store: ReviewStore) -> list[Review]:
    """The reviews of a store, oldest first."""
    with store.reading() as cursor:
        return _reviews(cursor)


def find_review(store: ReviewStore, name: str | None = None) -> Review:
    """The review of that name; None: the only one.

    Raises:
        TrimtabError: there is none, or several and no name.
    """
    with store.reading() as cursor:
        return review_in(cursor, store, name)


def review_in(cursor: sqlite3.Cursor, store: ReviewStore, name: str | None) -> Review:
    """As `find_review`, in the transaction of `cursor`."""
    found = _reviews(cursor)
    chosen = [review for review in found if name in (None, review.name)]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(review.name for review in found)
    if not found:
        raise TrimtabError(
            ErrorKind.USAGE, f"{store.path}: there is no review yet", "make one with: trimtab review new"
        )
    if name is None:
        raise TrimtabError(ErrorKind.USAGE, f"{store.path}: there are several reviews", f"name one of {names}")
    raise TrimtabError(ErrorKind.USAGE, f"{store.path}: there is no review {name!r}", f"there are: {names}")


def item_of(row: Sequence[Any]) -> Item:
    """The item in the columns `ITEM_COLUMNS`."""
    pair_id, prompt_id, messages, tags, first, second, system_1, system_2, answer, extra = row
    prompt = Prompt(prompt_id, tuple(Message(r, c) for r, c in json.loads(messages)), tuple(json.loads(tags)))
    responses = (Response(*json.loads(first)), Response(*json.loads(second)))
    return Item(prompt, *responses, (system_1, system_2), answer, pair_id, json.loads(extra))


def utf8(text: str) -> str:
    """`text` with a question mark in the place of half characters (lone surrogates), which no file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _row(item: Item) -> Iterable[Any]:
    # JSON texts hold half characters as escapes
    first, second = (dump_json([r.text, r.finished, r.tokens]) for r in (item.first, item.second))
    messages = dump_json([[m.role, m.content] for m in item.prompt.messages])
    extra: Mapping[str, Any] = item.extra
    return (
        utf8(item.id or item.key[:12]), utf8(item.prompt.id), messages, dump_json(item.prompt.tags), first, second,
        utf8(item.systems[0]), utf8(item.systems[1]), item.answer, dump_json(extra),
    )  # fmt: skip


def _reviews(cursor: sqlite3.Cursor) -> list[Review]:
    rows = cursor.execute(
        "SELECT id, name, created, source, system_1, system_2, identical, votes_per_item, repeats, gold, aspects,"
        " lease_s, seed, guidelines_file,"
        " (SELECT COUNT(*) FROM items WHERE items.review = reviews.id AND answer IS NULL),"
        " (SELECT COUNT(*) FROM items WHERE items.review = reviews.id AND answer IS NOT NULL),"
        " (SELECT version FROM guideline_changes g WHERE g.review = reviews.id ORDER BY g.id DESC LIMIT 1)"
        " FROM reviews ORDER BY id"
    ).fetchall()
    return [
        Review(id_, name, created, source, (one, two), identical,
               Plan(votes, repeats, gold, tuple(json.loads(aspects)), lease, seed), items, golds, version or "", file)
        for id_, name, created, source, one, two, identical, votes, repeats, gold, aspects, lease, seed, file, items,
        golds, version in rows
    ]  # fmt: skip
