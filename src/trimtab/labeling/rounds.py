"""A part of the pairs is labeled, round by round: each round's labels say which pairs are asked about next.

What is learned between rounds is a bag of words (numpy, seconds), not the preference model: it only
has to know where it is sure. Every choice is a function of the pairs, the verdicts and the seed, so that an interrupted
command, whose verdicts are recorded, chooses the same again and goes on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.data.bag_of_words import Sparse, difference_features, fit_logistic
from trimtab.data.check.corpus import Corpus
from trimtab.data.records import CandidatePair
from trimtab.labeling.active import choose
from trimtab.labeling.aggregate import Label

__all__ = ["WordLearner", "label_in_rounds"]

_FIRST, _GROWTH = 16, 1.5
"""Pairs of the first round, and by what the labels grow with each further one."""
_RIDGE = 0.3


class WordLearner:
    """Scores of all pairs by a logistic regression on the words of the two responses.

    Args:
        pairs: all candidates.
    """

    def __init__(self, pairs: Sequence[CandidatePair]) -> None:
        corpus = Corpus()
        first, second = (
            np.array([corpus.add(text) for text in texts], dtype=np.int64)
            for texts in ([p.first.text for p in pairs], [p.second.text for p in pairs])
        )
        self._x: Sparse = difference_features(corpus, first, second)

    def scores(self, numbers: Sequence[int], p_first: Sequence[float]) -> NDArray[np.float64]:
        """[P, 2] scores of the responses of every pair, learned from the pairs with these numbers and labels."""
        order = np.argsort(np.asarray(numbers))
        index, y = np.asarray(numbers)[order], np.asarray(p_first, dtype=np.float64)[order]
        margins = self._x.times(fit_logistic(self._x.take(index), y, _RIDGE))
        return np.stack([margins / 2, -margins / 2], axis=-1)


def label_in_rounds(
    pairs: Sequence[CandidatePair],
    n: int,
    ask: Callable[[Sequence[CandidatePair]], list[Label]],
    *,
    how: Literal["random", "active"] = "active",
    seed: int = 0,
) -> tuple[list[CandidatePair], list[Label]]:
    """Label `n` of the pairs.

    Args:
        pairs: the candidates.
        n: how many get a label; all, where there are fewer.
        ask: labels the pairs that it is handed, one label each.
        how: `random`: spread over the prompts, otherwise by chance; `active`: a first round by chance, then by the
            uncertainty of a bag of words that learns from the labels so far.
        seed: of all choices. A larger `n` asks about all that a smaller one asks about.

    Returns:
        (the pairs that were labeled, in the order of `pairs`; their labels).
    """
    learner = WordLearner(pairs) if how == "active" and n < len(pairs) else None
    prompts = len({pair.prompt.messages for pair in pairs})
    found: dict[int, Label] = {}
    for total in _totals(min(n, len(pairs))):
        known = [(i, label.p_first) for i, label in found.items() if label.p_first is not None]
        scores = None
        if learner is not None and known:
            scores = learner.scores([i for i, _ in known], [p for _, p in known])
        # chosen as if the round were whole, so that a larger budget begins with the pairs of a smaller one
        chosen = choose(
            pairs, total - len(found), scores=scores, labeled=list(found), per_prompt=math.ceil(total / prompts),
            seed=seed,
        ).tolist()[: n - len(found)]  # fmt: skip
        labels = ask([pairs[i] for i in sorted(chosen)])
        found.update(zip(sorted(chosen), labels, strict=True))
    order = sorted(found)
    return [pairs[i] for i in order], [found[i] for i in order]


def _totals(n: int) -> Iterator[int]:
    """Labels after each round, until there are at least `n`."""
    total = _FIRST
    while total < n:
        yield total
        total = math.ceil(total * _GROWTH)
    if n:
        yield total
