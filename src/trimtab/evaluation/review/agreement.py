"""Do annotators agree on the same items, beyond chance?

A vote is one of three classes: the first response, neither (a tie, or both bad), the second. They have an order, which
the ordinal alpha uses: one for the first and a tie differ less than one for either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from trimtab.evaluation.compare import Estimate
from trimtab.evaluation.review.votes import Vote, estimate_of, share_over_prompts
from trimtab.stats.agreement import Measure, agreement_intervals

__all__ = ["Agreement", "PairAgreement", "agreement_of", "equal_share"]

_CLASS = {1: 2, 0: 1, 2: 0}
_CLASSES = 3


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Two annotators on the items that both voted on: how many, share of equal votes, Cohen's kappa."""

    first: str
    second: str
    items: int
    raw: Estimate | None
    kappa: Estimate | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """All annotators together; an estimate is None where it is not defined, as kappa is if all votes are alike.

    Args:
        items: those that two annotators or more voted on.
        raw: share of equal votes among all pairs of votes on an item, averaged over items.
        fleiss: Fleiss' kappa, on the items with all their votes (the first so many of each).
        alpha: Krippendorff's alpha, nominal.
        alpha_ordinal: the same, with a tie between the two sides.
        ac1: Gwet's AC1, which stays stable where nearly all votes are for one side.
        pairwise: by two annotators, the least agreeing first.
    """

    items: int
    raw: Estimate | None
    fleiss: Estimate | None
    alpha: Estimate | None
    alpha_ordinal: Estimate | None
    ac1: Estimate | None
    pairwise: tuple[PairAgreement, ...]


def agreement_of(votes: Sequence[Vote], per_item: int, resamples: int = 1000, seed: int = 0) -> Agreement:
    """Agreement over the votes that count.

    Args:
        votes: first votes on items that are no gold questions, at most one an annotator and item.
        per_item: how many votes make an item complete (for Fleiss' kappa).
        resamples, seed: of the bootstrap over prompts.
    """
    of_item: dict[int, list[Vote]] = defaultdict(list)
    for vote in votes:
        of_item[vote.item].append(vote)
    shared = [listed for listed in of_item.values() if len(listed) > 1]
    if not shared:
        return Agreement(0, None, None, None, None, None, ())
    prompts = _codes([listed[0].prompt for listed in shared])
    table = np.full((len(shared), max(len(listed) for listed in shared)), -1, dtype=np.int64)
    for row, listed in enumerate(shared):
        table[row, : len(listed)] = [_CLASS[vote.winner] for vote in listed]

    def measured(names: tuple[Measure, ...], of: NDArray[np.int64]) -> list[Estimate | None]:
        made = agreement_intervals(names, of, prompts, _CLASSES, resamples, seed)
        counted = len(np.unique(prompts))
        return [estimate_of(made[name], counted) for name in names]

    (fleiss,) = measured(("fleiss",), table[:, : max(2, min(per_item, table.shape[1]))])
    alpha, ordinal, ac1 = measured(("alpha", "alpha-ordinal", "ac1"), table)
    raw = share_over_prompts([equal_share(listed) for listed in shared], [listed[0].prompt for listed in shared])
    return Agreement(len(shared), raw, fleiss, alpha, ordinal, ac1, _pairwise(shared, resamples, seed))


def equal_share(votes: Sequence[Vote]) -> float:
    """Share of equal votes among the pairs of votes on an item; 1 for a single vote."""
    pairs = list(combinations([vote.winner for vote in votes], 2))
    return sum(a == b for a, b in pairs) / len(pairs) if pairs else 1.0


def _pairwise(shared: Sequence[Sequence[Vote]], resamples: int, seed: int) -> tuple[PairAgreement, ...]:
    both: dict[tuple[str, str], list[tuple[str, int, int]]] = defaultdict(list)
    for listed in shared:
        for a, b in combinations(sorted(listed, key=lambda vote: vote.annotator), 2):
            both[a.annotator, b.annotator].append((a.prompt, _CLASS[a.winner], _CLASS[b.winner]))
    found = []
    for (first, second), rows in both.items():
        prompts = [row[0] for row in rows]
        table = np.array([row[1:] for row in rows], dtype=np.int64)
        kappa = agreement_intervals(("cohen",), table, _codes(prompts), _CLASSES, resamples, seed)["cohen"]
        raw = share_over_prompts((table[:, 0] == table[:, 1]).astype(float).tolist(), prompts)
        found.append(PairAgreement(first, second, len(rows), raw, estimate_of(kappa, len(set(prompts)))))
    return tuple(sorted(found, key=lambda pair: (pair.raw.value if pair.raw else 1.0, pair.first, pair.second)))


def _codes(names: Sequence[str]) -> NDArray[np.int64]:
    number: dict[str, int] = {}
    return np.array([number.setdefault(name, len(number)) for name in names], dtype=np.int64)
