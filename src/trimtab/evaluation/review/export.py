"""Votes as data for others: preference pairs with soft labels, and verdicts with reference labels.

The pairs are what `trimtab pm train --data`, `pm eval --data` and any trainer read. The verdicts are what
`trimtab labels audit` reads: those of the annotators, and those that the project's judges gave on the same pairs, each
beside what people say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trimtab.data.records import CandidatePair, Pair
from trimtab.evaluation.review.records import Item
from trimtab.evaluation.review.store import ITEM_COLUMNS, Review, ReviewStore, item_of, review_in
from trimtab.evaluation.review.votes import Vote, votes_of
from trimtab.labeling.protocol import pair_hash
from trimtab.labeling.store import LabelStore

__all__ = ["label_records", "preference_pairs"]

_VALUE = {1: 1.0, 0: 0.5, 2: 0.0}
_DIGITS = 8
"""Digits of a pair's hash in the ids of `LabelStore.verdict_records`."""


def preference_pairs(
    store: ReviewStore, review: str | None = None, *, min_votes: int = 1, without: Collection[str] = ()
) -> list[Pair]:
    """The reviewed items as labeled pairs; gold questions and items with too few votes are left out.

    `p_chosen` is the share of votes for the chosen response (ties and both bad count one half for each), `weight` the
    number of votes over the number planned, `principles` the same shares by aspect. At exactly one half the item's
    first response stands as chosen, with p_chosen = .5.

    Args:
        store: the reviews.
        review: which; None: the only one.
        min_votes: items with fewer are left out.
        without: annotators who are left out.

    Raises:
        TrimtabError: no such review or annotator.
    """
    found, items, votes = _read(store, review, without)
    pairs = []
    for number, given in votes.items():
        if len(given) < max(min_votes, 1):
            continue
        item, shares = items[number], _shares(given)
        p_first = shares.pop("overall")
        forward = p_first >= 0.5
        first, second = (0, 1) if forward else (1, 0)
        responses = (item.first, item.second)
        pairs.append(
            Pair(
                id=item.id,
                prompt=item.prompt,
                chosen=responses[first],
                rejected=responses[second],
                p_chosen=p_first if forward else 1 - p_first,
                weight=len(given) / found.plan.votes_per_item,
                principles={name: p if forward else 1 - p for name, p in shares.items()},
                extra={
                    "review": found.name,
                    "votes": len(given),
                    "both_bad": sum(vote.choice == "both_bad" for vote in given),
                    "annotators": sorted(vote.annotator for vote in given),
                    "chosen_system": item.systems[first],
                    "rejected_system": item.systems[second],
                },
            )
        )
    return pairs


def label_records(
    store: ReviewStore,
    review: str | None = None,
    *,
    labels: LabelStore | None = None,
    without: Collection[str] = (),
) -> list[dict[str, Any]]:
    """The votes as records of a verdict file, see `trimtab.labeling.verdicts`.

    Each vote is one verdict of its annotator, repeats and gold questions included; its reference label (`gold`) is the
    answer of a gold question, else what most of the other annotators say: a majority that held the annotator's own vote
    would flatter it. With a label store, the verdicts of judges on the same pairs follow; their reference label is what
    most annotators say.

    Args:
        store: the reviews.
        review: which; None: the only one.
        labels: a project's label store.
        without: annotators who are left out.

    Raises:
        TrimtabError: no such review or annotator, or a label store that cannot be read.
    """
    with store.reading() as cursor:
        found = review_in(cursor, store, review)
        votes = [vote for vote in votes_of(cursor, found, without) if vote.winners]
        items = _items(cursor, found)
    counted: dict[int, list[Vote]] = defaultdict(list)
    for vote in votes:
        if vote.counts:
            counted[vote.item].append(vote)
    made = [_annotator_record(found, items[vote.item], vote, counted[vote.item]) for vote in votes]
    if labels is not None:
        made += _judge_records(labels, {number: items[number] for number in counted}, counted)
    return made


def _read(
    store: ReviewStore, review: str | None, without: Collection[str]
) -> tuple[Review, dict[int, Item], dict[int, list[Vote]]]:
    with store.reading() as cursor:
        found = review_in(cursor, store, review)
        votes: dict[int, list[Vote]] = defaultdict(list)
        for vote in votes_of(cursor, found, without):
            if vote.counts:
                votes[vote.item].append(vote)
        items = _items(cursor, found)
    return found, items, {number: votes[number] for number in sorted(votes)}


def _items(cursor: Any, review: Review) -> dict[int, Item]:
    rows = cursor.execute(f"SELECT id, {', '.join(ITEM_COLUMNS)} FROM items WHERE review = ?", (review.id,))
    return {row[0]: item_of(row[1:]) for row in rows}


def _shares(votes: list[Vote]) -> dict[str, float]:
    """Share of the item's first response by aspect."""
    values: dict[str, list[float]] = defaultdict(list)
    for vote in votes:
        for name, winner in vote.winners.items():
            values[name].append(_VALUE[winner])
    return {name: sum(listed) / len(listed) for name, listed in values.items()}


def _majority(votes: list[Vote]) -> int | str | None:
    """1 or 2, "tie", or None without votes or without more votes for one of the three than for each other."""
    counts = sorted(((sum(v.winner == w for v in votes), w) for w in (0, 1, 2)), reverse=True)
    if counts[0][0] == counts[1][0]:
        return None
    return _word(counts[0][1])


def _word(winner: int) -> int | str:
    return winner or "tie"


def _shared(item: Item) -> dict[str, Any]:
    return {
        "pair_id": item.id,
        "prompt_id": item.prompt.id,
        "slice": item.prompt.tags[0] if item.prompt.tags else None,
        "generator_1": item.systems[0],
        "generator_2": item.systems[1],
        "prompt": item.prompt.text,
        "response_1": item.first.text,
        "response_2": item.second.text,
    }


def _annotator_record(review: Review, item: Item, vote: Vote, on_item: list[Vote]) -> dict[str, Any]:
    others = [other for other in on_item if other.annotator != vote.annotator]
    return {
        **_shared(item),
        "judge": vote.annotator,
        "annotator": vote.annotator,
        "group": vote.groups[0] if vote.groups else None,
        "order": "21" if vote.swapped else "12",
        "winner": _word(vote.winner),
        "gold": _majority(others) if vote.answer is None else _word(vote.answer),
        "sample": vote.sample,
        "template": vote.guidelines or None,
        "latency": vote.seconds,
        "review": review.name,
    }


def _judge_records(
    labels: LabelStore, items: Mapping[int, Item], votes: Mapping[int, list[Vote]]
) -> Iterator[dict[str, Any]]:
    """Verdicts of the project's judges on the reviewed pairs."""
    by_hash = {}
    for number, item in items.items():
        origin = item.extra.get("origin", {})
        by_hash[pair_hash(CandidatePair(item.id, item.prompt, item.first, item.second, origin))[:_DIGITS]] = number
    for record in labels.verdict_records():
        found = by_hash.get(str(record["pair_id"]).rpartition("#")[2])
        if found is not None:
            item = items[found]
            shared = {key: value for key, value in _shared(item).items() if value is not None}
            yield {**record, **shared, "gold": _majority(votes[found])}
