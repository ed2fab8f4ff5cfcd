"""Reviews for tests: items whose texts say nothing of who wrote them, and annotators who vote by rule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trimtab.data.records import Message, Prompt, Response
from trimtab.evaluation.review.assignment import next_item
from trimtab.evaluation.review.records import Choice, Item, Plan, Served
from trimtab.evaluation.review.store import ReviewStore, create
from trimtab.evaluation.review.voting import vote

SYSTEMS = ("secret-run@300", "secret-run@0")
GOOD, BAD = "pear", "plum"
"""Words of the first and of the second response."""


def item(i: int, *, prompt: int | None = None, tags: tuple[str, ...] = (), answer: int | None = None) -> Item:
    name = f"p{i if prompt is None else prompt}"
    kind = "" if answer is None else "g"
    text = f"question {kind}{i}"
    return Item(
        Prompt(kind + name, (Message("user", text),), tags), Response(f"{GOOD} {i}"), Response(f"{BAD} {i}"),
        SYSTEMS, answer, f"pair-{kind}{i}",
    )  # fmt: skip


def review(path: Path, n: int, plan: Plan | None = None, gold: int = 0, **options: object) -> ReviewStore:
    store = ReviewStore(path / "reviews.sqlite")
    items = [item(i) for i in range(n)]
    create(store, "r", items, plan or Plan(), gold=[item(i, answer=1) for i in range(gold)], systems=SYSTEMS)
    return store


def good(shown: Served) -> Choice:
    """Votes for the item's first response, wherever it is shown."""
    return Choice.A if shown.a.startswith(GOOD) else Choice.B


def all_votes(store: ReviewStore, annotator: str, choose: Callable[[Served], Choice] = good) -> list[Served]:
    """Votes until nothing is left; what was shown."""
    seen = []
    while (shown := next_item(store, "r", annotator)) is not None:
        vote(store, shown.ticket, choose(shown), annotator=annotator)
        seen.append(shown)
    return seen
