"""What is computed from a table of scores: accuracy, likelihoods, the share of labels that no score can explain."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.doctor.judgments import ScoreTable
from trimtab.stats.intervals import Interval, wilson
from trimtab.stats.text import ngrams, words

__all__ = ["Noise", "accuracy", "bare_logits", "distinct_at_the_top", "flips_of_repeats", "label_noise",
           "log_likelihood", "rank_correlation"]  # fmt: skip

Floats = NDArray[np.float64]

_LARGEST: Final = 5000
"""Pairs that the slower figures are computed on; more are thinned evenly."""
_INFORMED: Final = 3.84
_LIKELIHOOD: Final = 6.63
"""Twice the log-likelihood ratio that chance reaches once in a hundred."""


class Noise(NamedTuple):
    """Share of labels that are wrong whatever the margin, with the interval of its likelihood profile.

    `confident`: share of the tenth with the largest margins that the label contradicts.
    """

    share: float
    low: float
    high: float
    confident: float


def accuracy(table: ScoreTable) -> Interval | None:
    """Share of pairs whose better response has the higher score, ties half; None without reference labels."""
    margins = table.signed
    if not len(margins):
        return None
    return wilson(float((margins > 0).sum() + 0.5 * (margins == 0).sum()), len(margins))


def log_likelihood(margins: Floats, temperature: float) -> float:
    """Sum of log sigmoid(margin / temperature) over margins of the better over the worse response."""
    return -float(np.logaddexp(0, -margins / temperature).sum())


def bare_logits(table: ScoreTable) -> bool:
    """Whether sigmoid(margin) can be a probability: scores neither squashed into [0, 1] nor marks on a scale."""
    scores = np.concatenate([table.first, table.second])
    scores = scores[np.isfinite(scores)]
    if not len(scores):
        return False
    squashed = scores.min() >= 0 and scores.max() <= 1
    whole = len(scores) >= 40 and len(np.unique(scores)) <= 21
    return not (squashed or whole)


def rank_correlation(margin: Floats, by: Floats) -> float:
    """Spearman's correlation of two differences, either of which may be counted from the other response.

    Which response stands first is arbitrary (or says which is better), so every pair enters in both orientations.
    """
    a, b = (_ranks(np.concatenate([x, -x])) for x in (margin, by))
    spread = float(a.std() * b.std())
    return float(((a - a.mean()) * (b - b.mean())).mean() / spread) if spread > 0 else 0.0


def _ranks(x: Floats) -> Floats:
    """Ranks from 0 on, the mean rank for equal values."""
    _, index, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    result: Floats = (last - (counts + 1) / 2)[index]
    return result


def label_noise(margins: Floats) -> Noise | None:
    """Labels that are wrong at any margin, next to the close calls that every preference model has.

    P(label agrees) = e + (1 - 2 e) sigmoid(margin / T): a calibrated model has e = 0, and its errors vanish with the
    margin; wrong labels do not. Fitted by maximum likelihood on a grid.

    Args:
        margins: [n] score of the response labeled better less score of the other.

    Returns:
        None where e = 0 does as well, or the model tells nothing (a poor model leaves the same trace).
    """
    m = margins[np.isfinite(margins)]
    m = m[:: math.ceil(len(m) / _LARGEST)]
    scale = float(np.abs(m).mean())
    if scale == 0:
        return None
    tenth = m[np.argsort(np.abs(m))[-max(len(m) // 10, 1) :]]
    noises = np.arange(0.0, 0.46, 0.01)
    temperatures = scale * np.logspace(-2, 1, 40)
    p = np.exp(-np.logaddexp(0, -m[None, :] / temperatures[:, None]))
    fits = np.array([np.log(e + (1 - 2 * e) * p + 1e-12).sum(axis=1).max() for e in noises])
    best = int(fits.argmax())
    right = float((m > 0).mean())
    flat = len(m) * (right * math.log(right) + (1 - right) * math.log(1 - right)) if 0 < right < 1 else 0.0
    # neither a calibrated model without wrong labels, nor one whose margins tell nothing at all, explains it
    if 2 * (fits[best] - fits[0]) < _LIKELIHOOD or 2 * (fits[best] - flat) < _INFORMED:
        return None
    inside = noises[2 * (fits[best] - fits) <= 3.84]
    return Noise(float(noises[best]), float(inside.min()), float(inside.max()), float((tenth < 0).mean()))


def flips_of_repeats(table: ScoreTable) -> tuple[int, int]:
    """Repeated pairs whose score gap changes its sign from one row to the next, and how many there are."""
    codes = table.pair.codes
    order = np.argsort(codes, kind="stable")
    codes, margin = codes[order], table.margin[order]
    again = (codes[1:] == codes[:-1]) & (codes[1:] >= 0) & np.isfinite(margin[1:]) & np.isfinite(margin[:-1])
    return int((np.sign(margin[1:]) * np.sign(margin[:-1]) < 0)[again].sum()), int(again.sum())


def distinct_at_the_top(table: ScoreTable) -> tuple[float, int, int] | None:
    """Distinct word pairs of the tenth of the better responses with the highest scores, over those of as many drawn
    from all better responses, both cut to the same number of word pairs; with the two numbers of responses."""
    rows = np.flatnonzero((table.gold > 0) & np.isfinite(table.margin))
    if len(rows) < 200:
        return None
    rows = rows[:: math.ceil(len(rows) / _LARGEST)]
    score = np.where(table.gold == 1, table.first, table.second)[rows]
    texts = [table.texts[i][0 if table.gold[i] == 1 else 1] for i in rows.tolist()]
    grams = [ngrams(words(text)[:200], 2) for text in texts]
    size = max(len(rows) // 10, 20)
    top = np.argsort(-score, kind="stable")[:size]
    rng = np.random.default_rng(0)
    draws = [rng.choice(len(rows), size, replace=False) for _ in range(10)]
    least = min(sum(len(grams[i]) for i in chosen.tolist()) for chosen in (top, *draws))
    if least < 100:
        return None

    def distinct(chosen: NDArray[np.int64]) -> float:
        flat = [g for i in rng.permutation(chosen).tolist() for g in grams[i]][:least]
        return len(set(flat)) / len(flat)

    return distinct(top) / float(np.mean([distinct(chosen) for chosen in draws])), size, len(rows)
