"""What the votes of a review say: win rates, agreement, and how far each annotator can be relied on.

Which votes count where: the first vote of an annotator on an item counts for win rates and agreement, its repeat for
self-consistency, votes on gold questions for the annotator's accuracy alone, all of them for position bias. A skip is
no vote. Intervals are over prompts: votes on one prompt are not independent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from trimtab.evaluation.compare import Estimate
from trimtab.evaluation.review.agreement import Agreement, agreement_of, equal_share
from trimtab.evaluation.review.records import OVERALL, Choice, Item
from trimtab.evaluation.review.store import ITEM_COLUMNS, Review, ReviewStore, item_of, review_in
from trimtab.evaluation.review.votes import Vote, share_over_prompts, votes_of

__all__ = ["AnnotatorResult", "Disagreement", "Preference", "Results", "disagreements", "results"]

FEW_PROMPTS = 20
"""With fewer, the interval of a win rate near one half is wider than +-.20 (Wilson's, 95 %): it can only show
landslides."""
POSITION_MARGIN = 0.05
"""How far from one half the share of responses shown first has to be, beside being outside the interval."""
GOLD_ACCURACY = 0.8
"""An annotator whose accuracy on gold questions lies below this with its whole interval is named. A convention."""

_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Preference:
    """How often the first system was preferred, in one part of the votes.

    Args:
        name: of the aspect or part.
        votes, items: how many.
        first, second, ties, both_bad: votes by what they say.
        win_rate: of the first system: over items, of the mean of an item's votes; ties and both bad count one half.
        decided: share of the first system among the votes for one of the two.
        tied: share of ties and both bad among the votes.
        few: there are too few prompts to tell more than a landslide.
    """

    name: str
    votes: int
    items: int
    first: int
    second: int
    ties: int
    both_bad: int
    win_rate: Estimate | None
    decided: Estimate | None
    tied: Estimate | None
    few: bool


@dataclass(frozen=True, slots=True)
class AnnotatorResult:
    """One annotator.

    Args:
        name, groups: who; the groups when they voted last.
        votes, skips: how many, repeats and gold questions included.
        preference: over the votes that count for win rates.
        with_others: share of equal votes with others on the same items.
        consistency: share of repeats with the same winner as the first time.
        first_shown: share of the response shown first among votes for one of the two.
        gold: share of right votes on gold questions.
        seconds: median time of a vote.
        notes: what is odd, in words.
    """

    name: str
    groups: tuple[str, ...]
    votes: int
    skips: int
    preference: Preference
    with_others: Estimate | None
    consistency: Estimate | None
    first_shown: Estimate | None
    gold: Estimate | None
    seconds: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """What a review says so far.

    Args:
        review: which.
        overall: win rate of the first system over the second.
        aspects: the same by aspect.
        agreement: between annotators.
        consistency: share of repeats with the same winner, all annotators together.
        first_shown: share of the response shown first among all votes for one of the two.
        gold: accuracy on gold questions, all together.
        annotators: one by one.
        slices: parts of the votes by `group`, `tag` and `guidelines`, each by name.
        started, complete: items with a vote, and with all of them.
        without: annotators who were left out.
        seed, resamples: of the bootstrap (agreement); level of all intervals is .95.
    """

    review: Review
    overall: Preference
    aspects: tuple[Preference, ...]
    agreement: Agreement
    consistency: Estimate | None
    first_shown: Estimate | None
    gold: Estimate | None
    annotators: tuple[AnnotatorResult, ...]
    slices: dict[str, tuple[Preference, ...]]
    started: int
    complete: int
    without: tuple[str, ...]
    seed: int
    resamples: int

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON, without NaN."""
        return {"schema_version": _SCHEMA_VERSION, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An item that annotators do not agree on.

    Args:
        item: the item, with its systems.
        disagreement: share of unequal votes among the pairs of votes.
        votes: that it got, gold questions and repeats not among them.
    """

    item: Item
    disagreement: float
    votes: tuple[Vote, ...]


def results(
    store: ReviewStore,
    review: str | None = None,
    *,
    without: Collection[str] = (),
    resamples: int = 1000,
    seed: int = 0,
) -> Results:
    """What the votes say so far.

    Args:
        store: the reviews.
        review: which; None: the only one.
        without: annotators who are left out.
        resamples, seed: of the bootstrap for the measures of agreement.

    Raises:
        TrimtabError: no such review or annotator.
    """
    with store.reading() as cursor:
        found = review_in(cursor, store, review)
        votes = votes_of(cursor, found, without)
    counted = [vote for vote in votes if vote.counts]
    per_item: dict[int, list[Vote]] = defaultdict(list)
    for vote in counted:
        per_item[vote.item].append(vote)
    return Results(
        review=found,
        overall=_preference(OVERALL, counted),
        aspects=tuple(_preference(name, counted, name) for name in found.plan.aspects),
        agreement=agreement_of(counted, found.plan.votes_per_item, resamples, seed),
        consistency=_consistency(votes),
        first_shown=_first_shown(votes),
        gold=_gold(votes),
        annotators=_annotators(votes, per_item),
        slices={
            "group": _slices(counted, lambda vote: vote.groups),
            "tag": _slices(counted, lambda vote: vote.tags),
            "guidelines": _slices(counted, lambda vote: (vote.guidelines,) if vote.guidelines else ()),
        },
        started=len(per_item),
        complete=sum(len(listed) >= found.plan.votes_per_item for listed in per_item.values()),
        without=tuple(sorted(without)),
        seed=seed,
        resamples=resamples,
    )


def disagreements(
    store: ReviewStore, review: str | None = None, *, limit: int | None = None, without: Collection[str] = ()
) -> list[Disagreement]:
    """The items that annotators disagree on, the most disputed first, with who said what and why.

    Raises:
        TrimtabError: no such review or annotator.
    """
    with store.reading() as cursor:
        found = review_in(cursor, store, review)
        per_item: dict[int, list[Vote]] = defaultdict(list)
        for vote in votes_of(cursor, found, without):
            if vote.counts:
                per_item[vote.item].append(vote)
        shares = {item: 1 - equal_share(votes) for item, votes in per_item.items()}
        disputed = sorted((i for i, share in shares.items() if share > 0), key=lambda i: (-shares[i], i))[:limit]
        select = f"SELECT {', '.join(ITEM_COLUMNS)} FROM items WHERE id = ?"
        return [
            Disagreement(item_of(cursor.execute(select, (i,)).fetchone()), shares[i], tuple(per_item[i]))
            for i in disputed
        ]


# parts of the votes


def _preference(name: str, votes: Sequence[Vote], aspect: str = OVERALL) -> Preference:
    voted = [vote for vote in votes if aspect in vote.winners]
    winners = [vote.winners[aspect] for vote in voted]
    of_item: dict[int, list[float]] = defaultdict(list)
    prompts = {vote.item: vote.prompt for vote in voted}
    for vote, winner in zip(voted, winners, strict=True):
        of_item[vote.item].append({1: 1.0, 2: 0.0}.get(winner, 0.5))
    decided = [(float(winner == 1), vote.prompt) for vote, winner in zip(voted, winners, strict=True) if winner]
    bad = sum(vote.choice == Choice.BOTH_BAD for vote in voted) if aspect == OVERALL else 0
    win_rate = share_over_prompts([sum(v) / len(v) for v in of_item.values()], [prompts[item] for item in of_item])
    return Preference(
        name=name,
        votes=len(voted),
        items=len(of_item),
        first=winners.count(1),
        second=winners.count(2),
        ties=winners.count(0) - bad,
        both_bad=bad,
        win_rate=win_rate,
        decided=share_over_prompts([won for won, _ in decided], [prompt for _, prompt in decided]),
        tied=share_over_prompts([float(winner == 0) for winner in winners], [vote.prompt for vote in voted]),
        few=len(set(prompts.values())) < FEW_PROMPTS,
    )


def _slices(votes: Sequence[Vote], names: Callable[[Vote], Iterable[str]]) -> tuple[Preference, ...]:
    """Preferences by name, the most votes first; a vote may be in several."""
    parts: dict[str, list[Vote]] = defaultdict(list)
    for vote in votes:
        for name in dict.fromkeys(names(vote)):
            parts[name].append(vote)
    return tuple(_preference(name, parts[name]) for name in sorted(parts, key=lambda n: (-len(parts[n]), n)))


def _consistency(votes: Sequence[Vote]) -> Estimate | None:
    first = {(v.annotator, v.item): v.winner for v in votes if v.sample == 0 and v.winners}
    again = [v for v in votes if v.sample == 1 and v.winners and (v.annotator, v.item) in first]
    same = [float(first[v.annotator, v.item] == v.winner) for v in again]
    return share_over_prompts(same, [v.prompt for v in again])


def _first_shown(votes: Sequence[Vote]) -> Estimate | None:
    decided = [v for v in votes if v.choice in (Choice.A, Choice.B)]
    return share_over_prompts([float(v.choice == Choice.A) for v in decided], [v.prompt for v in decided])


def _gold(votes: Sequence[Vote]) -> Estimate | None:
    asked = [v for v in votes if v.answer is not None and v.winners]
    return share_over_prompts([float(v.winner == v.answer) for v in asked], [v.prompt for v in asked])


def _annotators(votes: Sequence[Vote], per_item: dict[int, list[Vote]]) -> tuple[AnnotatorResult, ...]:
    by_name: dict[str, list[Vote]] = defaultdict(list)
    for vote in votes:
        by_name[vote.annotator].append(vote)
    return tuple(_annotator(name, by_name[name], per_item) for name in sorted(by_name))


def _annotator(name: str, votes: Sequence[Vote], per_item: dict[int, list[Vote]]) -> AnnotatorResult:
    given = [vote for vote in votes if vote.winners]
    counted = [vote for vote in given if vote.counts]
    shares, prompts = [], []
    for vote in counted:
        others = [other.winner for other in per_item[vote.item] if other.annotator != name]
        if others:
            shares.append(sum(winner == vote.winner for winner in others) / len(others))
            prompts.append(vote.prompt)
    first_shown, gold = _first_shown(given), _gold(given)
    notes = []
    if first_shown is not None and first_shown.excludes(0.5) and abs(first_shown.value - 0.5) > POSITION_MARGIN:
        notes.append(f"prefers the response shown {'first' if first_shown.value > 0.5 else 'second'}")
    if gold is not None and gold.high is not None and gold.high < GOLD_ACCURACY:
        notes.append("misses gold questions")
    return AnnotatorResult(
        name=name,
        groups=votes[-1].groups,
        votes=len(given),
        skips=len(votes) - len(given),
        preference=_preference(name, counted),
        with_others=share_over_prompts(shares, prompts),
        consistency=_consistency(votes),
        first_shown=first_shown,
        gold=gold,
        seconds=median(vote.seconds for vote in given) if given else None,
        notes=tuple(notes),
    )
