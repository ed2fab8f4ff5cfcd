"""Human review: people compare two responses without knowing whose they are, and what their votes say.

Everything is a function of a store (`reviews.sqlite`), so that a terminal and a web server serve the same review:

    with ReviewStore("my-project/reviews.sqlite") as store:
        found = of_runs(point_of("main@300", runs), point_of("main@0", runs))
        create(store, "late-or-early", found.items, Plan(votes_per_item=2), systems=found.systems)
        while (shown := next_item(store, "late-or-early", "ana")) is not None:
            vote(store, shown.ticket, Choice.A, annotator="ana")
        print(results(store, "late-or-early").overall.win_rate)

No torch, and no model: what is compared has been sampled before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.evaluation.review.assignment import next_item
    from trimtab.evaluation.review.export import label_records, preference_pairs
    from trimtab.evaluation.review.records import Choice, Item, Plan, Progress, Served
    from trimtab.evaluation.review.sources import gold_of_pairs, of_pairs, of_runs, point_of
    from trimtab.evaluation.review.store import ReviewStore, create, find_review, reviews
    from trimtab.evaluation.review.tally import disagreements, results
    from trimtab.evaluation.review.versions import guidelines, set_guidelines
    from trimtab.evaluation.review.voting import progress, register, undo, vote

_HOMES = {
    "assignment": ("next_item",),
    "export": ("label_records", "preference_pairs"),
    "versions": ("guidelines", "set_guidelines"),
    "records": ("Choice", "Item", "Plan", "Progress", "Served"),
    "tally": ("disagreements", "results"),
    "sources": ("gold_of_pairs", "of_pairs", "of_runs", "point_of"),
    "store": ("ReviewStore", "create", "find_review", "reviews"),
    "voting": ("progress", "register", "undo", "vote"),
}

__all__ = [
    "Choice",
    "Item",
    "Plan",
    "Progress",
    "ReviewStore",
    "Served",
    "create",
    "disagreements",
    "find_review",
    "gold_of_pairs",
    "guidelines",
    "label_records",
    "next_item",
    "of_pairs",
    "of_runs",
    "point_of",
    "preference_pairs",
    "progress",
    "register",
    "results",
    "reviews",
    "set_guidelines",
    "undo",
    "vote",
]


def __getattr__(name: str) -> Any:
    # on first use, so that the terminal does not wait for numpy
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
