"""A part of the pairs is labeled, round by round: each round's labels say which pairs are asked about next.

What is learned between rounds is a bag of words (numpy, seconds), not the preference model: it only
has to know where it is sure. Every choice is a function of the pairs, the verdicts and the seed, so that an interrupted
command, whose verdicts are recorded, chooses the same again and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.data.bag_of_words import Sparse, difference_features, fit_logistic
from trimtab.data.check.corpus import Corpus
from trimtab.data.records import CandidatePair
from trimtab.labeling.active import choose
from trimtab.labeling.aggregate import Label

__all__ = ["WordLearner", "label_in_rounds"]

_ROUNDS = 8
_FEWEST = 8
"""Pairs of a round: fewer teach nothing that the next round could use."""
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
        seed: of all choices.

    Returns:
        (the pairs that were labeled, in the order of `pairs`; their labels).
    """
    learner = WordLearner(pairs) if how == "active" and n < len(pairs) else None
    rounds = 1 if learner is None else max(1, min(_ROUNDS, n // _FEWEST))
    found: dict[int, Label] = {}
    for number in range(1, rounds + 1):
        wanted = min(n, len(pairs)) * number // rounds - len(found)
        known = [(i, label.p_first) for i, label in found.items() if label.p_first is not None]
        scores = None
        if learner is not None and known:
            scores = learner.scores([i for i, _ in known], [p for _, p in known])
        chosen = sorted(choose(pairs, wanted, scores=scores, labeled=list(found), seed=seed).tolist())
        labels = ask([pairs[i] for i in chosen])
        found.update(zip(chosen, labels, strict=True))
    order = sorted(found)
    return [pairs[i] for i in order], [found[i] for i in order]
