"""The votes of a review as rows, and shares of them with intervals over prompts."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation.compare import Estimate
from trimtab.evaluation.review.records import OVERALL, Winner, winner_of
from trimtab.evaluation.review.store import Review
from trimtab.stats.intervals import Interval, clustered_share

__all__ = ["Vote", "estimate_of", "share_over_prompts", "votes_of"]


@dataclass(frozen=True, slots=True)
class Vote:
    """A vote that counts, mapped back to the item's own responses.

    Args:
        item: its id in the store.
        prompt: id of its prompt.
        tags: of its prompt.
        answer: of a gold question, else None.
        annotator: who voted.
        groups: of the annotator when voting.
        sample: 0, or 1 for a repeat.
        swapped: whether the second response was shown first.
        choice: as shown.
        winners: by aspect, `overall` among them; empty for a skip.
        seconds: that it took.
        guidelines: version in force.
        reason: in the annotator's words.
    """

    item: int
    prompt: str
    tags: tuple[str, ...]
    answer: Winner | None
    annotator: str
    groups: tuple[str, ...]
    sample: int
    swapped: bool
    choice: str
    winners: Mapping[str, Winner]
    seconds: float
    guidelines: str
    reason: str

    @property
    def winner(self) -> Winner:
        """Overall: 1, 2, or 0 for neither."""
        return self.winners[OVERALL]

    @property
    def counts(self) -> bool:
        """Whether it counts for win rates: the first vote of an annotator on what is no gold question."""
        return bool(self.winners) and self.sample == 0 and self.answer is None


def votes_of(cursor: sqlite3.Cursor, review: Review, without: Collection[str] = ()) -> list[Vote]:
    """The votes of a review that were not undone, in the order given; skips among them.

    Args:
        cursor: in a transaction.
        review: which.
        without: annotators who are left out.

    Raises:
        TrimtabError: an annotator in `without` has not voted.
    """
    rows = cursor.execute(
        "SELECT s.item, i.prompt_id, i.tags, i.answer, v.annotator, v.groups, s.sample, s.swapped, v.choice, v.aspects,"
        " v.seconds, v.guidelines, v.reason FROM votes v JOIN showings s ON s.ticket = v.ticket"
        " JOIN items i ON i.id = s.item WHERE v.review = ? AND v.undone IS NULL ORDER BY v.id",
        (review.id,),
    ).fetchall()
    there = {row[4] for row in rows}
    if unknown := sorted(set(without) - there):
        raise TrimtabError(
            ErrorKind.USAGE,
            f"there are no votes of {unknown[0][:80]!r} to leave out",
            f"votes are from: {', '.join(sorted(there)) or 'nobody yet'}",
        )
    votes = []
    for item, prompt, tags, answer, who, groups, sample, swapped, choice, aspects, seconds, version, reason in rows:
        if who in without:
            continue
        chosen = {OVERALL: choice, **json.loads(aspects)}
        made = {name: winner_of(value, bool(swapped)) for name, value in chosen.items()}
        winners = {name: winner for name, winner in made.items() if winner is not None}
        votes.append(
            Vote(item, prompt, tuple(json.loads(tags)), answer, who, tuple(json.loads(groups)), sample, bool(swapped),
                 choice, winners, seconds, version, reason)
        )  # fmt: skip
    return votes


def share_over_prompts(successes: Sequence[float], prompts: Sequence[str]) -> Estimate | None:
    """The mean of values in [0, 1] with a score interval over prompts; None without values.

    The bounds are None where all are of one prompt. See `trimtab.stats.intervals.clustered_share`.
    """
    if not successes:
        return None
    number: dict[str, int] = {}
    codes = np.array([number.setdefault(prompt, len(number)) for prompt in prompts])
    return estimate_of(clustered_share(np.array(successes), codes), len(number))


def estimate_of(interval: Interval, prompts: int) -> Estimate | None:
    """An interval as JSON has it: no NaN, no bounds from a single prompt; None where the value is not defined."""
    if math.isnan(interval.mean):
        return None
    known = prompts > 1 and not (math.isnan(interval.low) or math.isnan(interval.high))
    low, high = (interval.low, interval.high) if known else (None, None)
    return Estimate(interval.mean, low, high, interval.n, prompts)
