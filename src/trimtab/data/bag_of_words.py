"""What a bag of words predicts: the least that a preference model must beat.

The difference of the two responses' words and neighbouring pairs of words (hashed, each text's counts as
log(1 + count), scaled to unit length) goes into a ridge logistic regression without intercept, so that swapping the
responses swaps the answer. Predictions are cross-validated with whole prompts held out. numpy only: sparse rows and
L-BFGS (Liu and Nocedal, 1989).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from trimtab.data.check.corpus import Corpus

__all__ = ["Predictions", "Sparse", "cross_validate", "difference_features", "fit_logistic"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BITS = 16
_MEMORY, _MOST_STEPS, _SETTLED = 8, 60, 1e-5
_RIDGES = (0.3, 1.0, 4.0)


class Sparse(NamedTuple):
    """A sparse matrix: the cells' rows (ascending), columns and values, and its shape."""

    rows: Ints
    columns: NDArray[np.int32]
    values: NDArray[np.float32]
    shape: tuple[int, int]

    def times(self, vector: Floats) -> Floats:
        """matrix @ vector, [rows]."""
        return np.bincount(self.rows, self.values * vector[self.columns], self.shape[0]).astype(np.float64)

    def transposed_times(self, vector: Floats) -> Floats:
        """matrix.T @ vector, [columns]."""
        return np.bincount(self.columns, self.values * vector[self.rows], self.shape[1]).astype(np.float64)

    def take(self, index: Ints) -> Sparse:
        """The rows with these numbers (ascending)."""
        place = np.full(self.shape[0], -1, dtype=np.int64)
        place[index] = np.arange(len(index))
        keep = place[self.rows] >= 0
        return Sparse(place[self.rows[keep]], self.columns[keep], self.values[keep], (len(index), self.shape[1]))


class Predictions(NamedTuple):
    """Cross-validated margins, log-odds that the chosen response is preferred; and the ridge that did best."""

    margins: Floats
    ridge: float


def difference_features(corpus: Corpus, chosen: Ints, rejected: Ints) -> Sparse:
    """[pairs, 2^16] hashed words and word pairs of the chosen minus those of the rejected response."""
    texts, place = np.unique(np.concatenate([chosen, rejected]), return_inverse=True)
    each = _text_features(corpus, texts)
    begins = np.searchsorted(each.rows, np.arange(len(texts) + 1))
    sides = []
    for sign, index in ((1.0, place[: len(chosen)]), (-1.0, place[len(chosen) :])):
        counts = begins[index + 1] - begins[index]
        at = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(begins[index], counts)
        sides.append((np.repeat(np.arange(len(index)), counts), each.columns[at], np.float32(sign) * each.values[at]))
    rows, columns, values = (np.concatenate(part) for part in zip(*sides, strict=True))
    merged = _merged(rows, columns, values, (len(chosen), 1 << _BITS))
    # rows of unit length: a ridge means the same for long responses as for short ones
    norms = np.sqrt(np.bincount(merged.rows, merged.values.astype(np.float64) ** 2, merged.shape[0]))
    scaled = merged.values / np.maximum(norms, 1e-9)[merged.rows]
    return merged._replace(values=scaled.astype(np.float32))


def _text_features(corpus: Corpus, texts: Ints) -> Sparse:
    parts = []
    for n in (1, 2):
        for chunk in corpus.grams_of(texts, n):
            columns = (chunk.hashes >> np.uint64(64 - _BITS)).astype(np.int32)
            parts.append((chunk.first + chunk.texts, columns))
    rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    merged = _merged(rows, columns, np.ones(len(rows), np.float32), (len(texts), 1 << _BITS))
    return merged._replace(values=np.log1p(merged.values).astype(np.float32))


def _merged(rows: Ints, columns: NDArray[np.int32], values: NDArray[np.float32], shape: tuple[int, int]) -> Sparse:
    """Cells of one place added up; those that cancel are left out."""
    cells, place = np.unique(rows * shape[1] + columns, return_inverse=True)
    sums = np.bincount(place, values, len(cells))
    cells, sums = cells[sums != 0], sums[sums != 0]
    return Sparse(cells // shape[1], (cells % shape[1]).astype(np.int32), sums.astype(np.float32), shape)


def fit_logistic(x: Sparse, y: Floats, ridge: float, weights: Floats | None = None) -> Floats:
    """Coefficients of a logistic regression without intercept: least sum of cross entropies + ridge / 2 |w|^2.

    Args:
        x: [n, d] features.
        y: [n] outcomes in [0, 1].
        ridge: above 0.
        weights: [n] of the rows; None = all 1.

    Returns:
        [d] coefficients.
    """
    each = np.ones(len(y)) if weights is None else weights

    def loss(w: Floats) -> tuple[float, Floats]:
        z = x.times(w)
        value = float(each @ (np.logaddexp(0, z) - y * z)) + 0.5 * ridge * float(w @ w)
        return value, x.transposed_times(each * (0.5 * (1 + np.tanh(0.5 * z)) - y)) + ridge * w

    return _minimise(loss, np.zeros(x.shape[1]), 1 / (ridge + 0.25 * max(len(y), 1)))


def _minimise(loss: Callable[[Floats], tuple[float, Floats]], start: Floats, first_step: float) -> Floats:
    """L-BFGS with halving of steps that do not descend enough."""
    x = start
    value, gradient = loss(x)
    steps: list[Floats] = []
    changes: list[Floats] = []
    scale = max(float(np.abs(gradient).max()), 1e-12)
    for _ in range(_MOST_STEPS):
        if np.abs(gradient).max() <= _SETTLED * scale:
            break
        direction = -_inverse_hessian_times(gradient, steps, changes, first_step)
        slope, length = float(direction @ gradient), 1.0
        new_value, new_gradient = loss(x + direction)
        while new_value > value + 1e-4 * length * slope and length > 1e-6:
            length /= 2
            new_value, new_gradient = loss(x + length * direction)
        if new_value >= value:
            break
        step, change = length * direction, new_gradient - gradient
        if float(step @ change) > 1e-12:
            steps, changes = [*steps[1 - _MEMORY :], step], [*changes[1 - _MEMORY :], change]
        x, value, gradient = x + step, new_value, new_gradient
    return x


def _inverse_hessian_times(gradient: Floats, steps: list[Floats], changes: list[Floats], first_step: float) -> Floats:
    q, along = gradient.copy(), []
    for s, c in zip(reversed(steps), reversed(changes), strict=True):
        along.append(float(s @ q) / float(s @ c))
        q -= along[-1] * c
    q *= float(steps[-1] @ changes[-1]) / float(changes[-1] @ changes[-1]) if steps else first_step
    for s, c, a in zip(steps, changes, reversed(along), strict=True):
        q += s * (a - float(c @ q) / float(s @ c))
    return q


def cross_validate(x: Sparse, y: Floats, prompts: Ints, *, folds: int = 5, seed: int = 0) -> Predictions:
    """Margins of all pairs by models that have not seen their prompt.

    Args:
        x: [n, d] features of the pairs.
        y: [n] P(chosen > rejected).
        prompts: [n] number of each pair's prompt; a prompt is held out whole.
        folds: at least 2; fewer where there are fewer prompts.
        seed: of the split.

    Returns:
        Predictions; all margins are 0 for fewer than three prompts.
    """
    kinds, index = np.unique(prompts, return_inverse=True)
    folds = min(folds, len(kinds))
    margins = np.zeros(len(y))
    if len(kinds) < 3:
        return Predictions(margins, _RIDGES[-1])
    fold = (np.random.default_rng(seed).permutation(len(kinds)) % folds)[index]
    ridge = _best_ridge(x, y, fold)
    for k in range(folds):
        train, test = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        margins[test] = x.take(test).times(fit_logistic(x.take(train), y[train], ridge))
    return Predictions(margins, ridge)


def _best_ridge(x: Sparse, y: Floats, fold: Ints) -> float:
    """The ridge with the least log loss on the first fold, fitted on the others."""
    train, test = np.flatnonzero(fold > 0), np.flatnonzero(fold == 0)
    known, held = x.take(train), x.take(test)
    losses = []
    for ridge in _RIDGES:
        z = held.times(fit_logistic(known, y[train], ridge))
        losses.append(float((np.logaddexp(0, z) - y[test] * z).mean()))
    return _RIDGES[int(np.argmin(losses))]
