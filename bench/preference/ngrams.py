"""The peer: a logistic regression on n-grams of the two responses, as one would write it with scikit-learn.

The features of a pair are those of its chosen response minus those of its rejected one, without intercept, so that
swapping the responses swaps the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from trimtab.data.records import Pair
from trimtab.preference.folds import fold_of_prompts

__all__ = ["KINDS", "STRENGTHS", "margins", "tuned"]

KINDS: dict[str, Callable[[], Any]] = {
    "words": lambda: CountVectorizer(ngram_range=(1, 2), min_df=3, binary=True),
    "words, tf-idf": lambda: TfidfVectorizer(ngram_range=(1, 2), min_df=3, sublinear_tf=True),
    "characters, tf-idf": lambda: TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), min_df=5, sublinear_tf=True),
}
STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""scikit-learn's C: the inverse of the ridge."""
INNER_FOLDS = 5


def margins(
    kind: str, strengths: Sequence[float], training: Sequence[Pair], test: Sequence[Pair]
) -> dict[float, np.ndarray]:
    """Log-odds [P] that the chosen response of each test pair is preferred, by strength."""
    vectors = KINDS[kind]().fit([text for p in training for text in (p.chosen.text, p.rejected.text)])

    def difference(pairs: Sequence[Pair]) -> Any:
        chosen, rejected = [p.chosen.text for p in pairs], [p.rejected.text for p in pairs]
        return (vectors.transform(chosen) - vectors.transform(rejected)).tocsr()

    own, other = difference(training), difference(test)
    x, y = sparse.vstack([own, -own]), np.repeat([1, 0], len(training))
    fits = {c: LogisticRegression(C=c, fit_intercept=False, max_iter=500).fit(x, y) for c in strengths}
    return {c: np.asarray(other @ fit.coef_[0]) for c, fit in fits.items()}


def tuned(training: Sequence[Pair], test: Sequence[Pair], seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Log-odds [P] of the test pairs by the kind and strength of least log loss in folds of the training pairs.

    The chosen one is then fitted on all training pairs. The second result says what was chosen, and the loss of each.
    """
    place = fold_of_prompts(training, INNER_FOLDS, seed)
    losses: dict[tuple[str, float], float] = {}
    for kind in KINDS:
        held = {c: np.empty(len(training)) for c in STRENGTHS}
        for fold in range(INNER_FOLDS):
            seen = [p for p, at in zip(training, place, strict=True) if at != fold]
            unseen = [p for p, at in zip(training, place, strict=True) if at == fold]
            for c, found in margins(kind, STRENGTHS, seen, unseen).items():
                held[c][place == fold] = found
        losses |= {(kind, c): float(np.logaddexp(0, -found).mean()) for c, found in held.items()}
    kind, c = min(losses, key=losses.__getitem__)
    tried = {f"{name}, C = {strength:g}": loss for (name, strength), loss in losses.items()}
    return margins(kind, [c], training, test)[c], {"chosen": f"{kind}, C = {c:g}", "tried": tried}
