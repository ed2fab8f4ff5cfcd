"""Have numbers or vectors left the place of a reference sample? Distances, classifiers, and what chance alone gives.

Everything here is numpy on small samples; rows that belong together (responses to one prompt) are named by groups and
are never split between fitting and judging.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError

__all__ = [
    "Gaussian",
    "Permuted",
    "auc",
    "cross_distances",
    "cross_fitted",
    "expected_psi",
    "fit_gaussian",
    "folds_of",
    "ks",
    "logistic_fit",
    "logistic_value",
    "percentiles",
    "permuted",
    "principal",
    "psi",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TINY = 1e-12


def psi(reference: ArrayLike, sample: ArrayLike, bins: int = 10) -> float:
    """Population stability index: sum over bins of (q - p) ln(q / p), p and q the shares of reference and sample.

    Bins are quantiles of the reference (equal ones are merged). Half a count is added to every bin, so that an empty
    one is no infinity. Usual reading: below .1 the same, above .25 another population; in small samples chance alone
    gives more, see `expected_psi`. Source: Siddiqi (2006), Credit Risk Scorecards.

    Args:
        reference: [n] finite numbers.
        sample: [m] finite numbers.
        bins: at least 2.

    Raises:
        TrimtabError: an empty sample, values that are not finite, or fewer than two bins.
    """
    x, y = _sample(reference), _sample(sample)
    if bins < 2:
        raise TrimtabError(ErrorKind.FAILED, f"a stability index of {bins} bins", "use at least 2")
    cuts = np.unique(np.quantile(x, np.arange(1, bins) / bins))
    # right: a value that equals a cut lies below it, as quantiles of ties do
    p, q = (
        (np.bincount(np.searchsorted(cuts, v, "left"), minlength=len(cuts) + 1) + 0.5)
        / (len(v) + 0.5 * (len(cuts) + 1))
        for v in (x, y)
    )
    return float(((q - p) * np.log(q / p)).sum())


def expected_psi(n: int, m: int, bins: int = 10) -> float:
    """What `psi` of n and m values of one population is on average, about: (bins - 1)(1 / n + 1 / m).

    Source: the index is twice the sum of two chi-square halves; Yurdakul and Naranjo (2020).
    """
    return (bins - 1) * (1 / n + 1 / m)


def ks(first: ArrayLike, second: ArrayLike) -> float:
    """Kolmogorov-Smirnov statistic: the largest gap between two empirical distribution functions, in [0, 1].

    Raises:
        TrimtabError: an empty sample, or values that are not finite.
    """
    x, y = np.sort(_sample(first)), np.sort(_sample(second))
    both = np.concatenate([x, y])
    gaps = np.searchsorted(x, both, "right") / len(x) - np.searchsorted(y, both, "right") / len(y)
    return float(np.abs(gaps).max())


def auc(high: ArrayLike, low: ArrayLike) -> float:
    """P(a value of `high` lies above one of `low`), a tie counting half; NaN where one is empty."""
    x, y = np.asarray(high, dtype=np.float64), np.sort(np.asarray(low, dtype=np.float64))
    if not len(x) or not len(y):
        return math.nan
    below = np.searchsorted(y, x, "left") + np.searchsorted(y, x, "right")
    return float(below.mean() / (2 * len(y)))


def percentiles(values: ArrayLike, reference: ArrayLike) -> Floats:
    """Share of `reference` below each value, a tie counting half: [n] in [0, 1]; .5 on average for the same population.

    Raises:
        TrimtabError: no reference.
    """
    x, y = np.asarray(values, dtype=np.float64), np.sort(_sample(reference))
    return np.asarray((np.searchsorted(y, x, "left") + np.searchsorted(y, x, "right")) / (2 * len(y)))


class Permuted(NamedTuple):
    """A statistic, what 95 % of relabelings stay below, and the share of relabelings that reach it (p)."""

    value: float
    floor: float
    p: float


def permuted(
    statistic: Callable[[NDArray[np.bool_]], float],
    second: NDArray[np.bool_],
    groups: Ints,
    relabelings: int = 200,
    seed: int = 0,
) -> Permuted:
    """A statistic of two samples against what it is where nothing but chance tells them apart.

    Rows of one group and sample change sides together. Source: Fisher (1935), with clusters as units.

    Args:
        statistic: of which rows are the second sample, bool [n].
        second: [n] the rows that are.
        groups: [n] what each row belongs to (its prompt).
        relabelings: random ones.
        seed: of a random generator of its own.
    """
    _, unit = np.unique(2 * np.asarray(groups, dtype=np.int64) + second, return_inverse=True)
    side = np.zeros(int(unit.max()) + 1, dtype=bool)
    side[unit] = second
    rng = np.random.default_rng(seed)
    value = statistic(second)
    drawn = np.array([statistic(rng.permutation(side)[unit]) for _ in range(relabelings)])
    p = (1 + int((drawn >= value - _TINY).sum())) / (1 + relabelings)
    return Permuted(value, float(np.quantile(drawn, 0.95)), p)


@dataclass(frozen=True, slots=True, eq=False)
class Gaussian:
    """Mean and shrunk covariance of vectors, as far as distances need them.

    Args:
        mean: [D].
        axes: [r, D] orthonormal directions in which the sample varies.
        variances: [r] shrunk variances along them.
        floor: variance in every other direction; above 0.
        shrinkage: share of the covariance that is its average variance in all directions.
        n: rows that it was fitted on.
    """

    mean: Floats
    axes: Floats
    variances: Floats
    floor: float
    shrinkage: float
    n: int

    def distances(self, x: ArrayLike) -> Floats:
        """Mahalanobis distances [n] of rows [n, D], per root of D: about 1 for rows of the same population."""
        centred = np.asarray(x, dtype=np.float64) - self.mean
        along = centred @ self.axes.T
        rest = np.maximum((centred**2).sum(1) - (along**2).sum(1), 0.0)
        squared = (along**2 / self.variances).sum(1) + rest / self.floor
        return np.asarray(np.sqrt(squared / len(self.mean)))


def fit_gaussian(x: ArrayLike) -> Gaussian:
    """Mean and covariance shrunk toward a multiple of the identity, also where there are fewer rows than columns.

    Source: Ledoit and Wolf (2004), A well-conditioned estimator for large-dimensional covariance matrices.

    Args:
        x: [n, D], n at least 2.

    Raises:
        TrimtabError: fewer than two rows, or values that are not finite.
    """
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise TrimtabError(
            ErrorKind.DATA, f"a covariance of vectors of shape {list(rows.shape)}", "give two finite rows or more"
        )
    n, d = rows.shape
    mean = rows.mean(0)
    centred = rows - mean
    axes, values = _spectrum(centred)
    average = values.sum() / d
    squares = float((values**2).sum())
    spread = squares - d * average**2
    error = (float(((centred**2).sum(1) ** 2).sum()) / n - squares) / n
    shrinkage = 1.0 if spread <= _TINY * squares else min(1.0, max(error, 0.0) / spread)
    floor = max(shrinkage * average, _TINY * max(average, 1.0))
    return Gaussian(mean, axes, (1 - shrinkage) * values + floor, floor, shrinkage, n)


def _spectrum(centred: Floats) -> tuple[Floats, Floats]:
    """(directions [r, D], population variances [r] along them) of centred rows."""
    n, d = centred.shape
    if d <= n:
        values, vectors = np.linalg.eigh(centred.T @ centred / n)
        keep = values > _TINY * max(float(values[-1]), _TINY)
        return vectors.T[keep], values[keep]
    values, vectors = np.linalg.eigh(centred @ centred.T / n)
    keep = values > 1e-10 * max(float(values[-1]), _TINY)
    return (centred.T @ vectors[:, keep] / np.sqrt(n * values[keep])).T, values[keep]


def principal(x: ArrayLike, most: int) -> Floats:
    """[n, r] rows along their `most` directions of largest variance, each to variance 1."""
    rows = np.asarray(x, dtype=np.float64)
    centred = rows - rows.mean(0)
    axes, values = _spectrum(centred)
    top = np.argsort(values)[::-1][:most]
    return np.asarray(centred @ axes[top].T / np.sqrt(values[top]))


def folds_of(groups: Ints, folds: int, seed: int = 0) -> Ints:
    """[n] number of each row's fold; a group lies in one fold."""
    _, index = np.unique(groups, return_inverse=True)
    count = int(index.max()) + 1
    return np.asarray(np.random.default_rng(seed).permutation(count)[index] % min(folds, count))


def cross_distances(x: ArrayLike, groups: Ints, folds: int = 5, seed: int = 0) -> Floats:
    """Distance [n] of every row from a `Gaussian` of the rows of other folds: what an unseen row's is like.

    Raises:
        TrimtabError: fewer than two groups.
    """
    rows, fold = np.asarray(x, dtype=np.float64), folds_of(groups, folds, seed)
    found = np.empty(len(rows))
    for number in range(int(fold.max()) + 1):
        inside = fold == number
        found[inside] = fit_gaussian(rows[~inside]).distances(rows[inside])
    return found


def cross_fitted(x: Floats, second: NDArray[np.bool_], fold: Ints) -> Floats:
    """[n] how far each row looks like the second sample to a classifier that was fitted on other folds.

    A linear discriminant with shrunk covariance; each fold's values are in standard deviations from its threshold.
    Source: Fisher's discriminant; for telling samples apart with it Lopez-Paz and Oquab, arXiv 1610.06545.
    """
    found = np.zeros(len(x))
    for number in range(int(fold.max()) + 1):
        inside = fold == number
        here, there = x[~inside & second], x[~inside & ~second]
        if len(here) < 2 or len(there) < 2:
            continue
        middle = (here.mean(0) + there.mean(0)) / 2
        within = fit_gaussian(np.concatenate([here - here.mean(0), there - there.mean(0)]))
        gap = here.mean(0) - there.mean(0)
        along = within.axes @ gap
        rest = gap - along @ within.axes
        direction = (along / within.variances) @ within.axes + rest / within.floor
        size = math.sqrt(max(float(direction @ gap), _TINY))
        found[inside] = (x[inside] - middle) @ direction / size
    return found


def logistic_fit(x: Floats, y: Floats, weights: Floats | None = None, ridge: float = 1.0) -> Floats:
    """Intercept and slopes [1 + k] of a logistic regression with a ridge on the slopes, by Newton's method.

    Args:
        x: [n, k], each column of about unit scale.
        y: [n] in [0, 1].
        weights: [n] how much each row counts; None: 1.
        ridge: added to the slopes' curvature; also a millionth of it to the intercept's, so that one class is no error.
    """
    table = np.column_stack([np.ones(len(x)), x])
    w = np.ones(len(x)) if weights is None else weights
    penalty = np.full(table.shape[1], ridge)
    penalty[0] = 1e-6 * ridge + 1e-3
    found = np.zeros(table.shape[1])
    for _ in range(50):
        p = logistic_value(found, x)
        gradient = table.T @ (w * (y - p)) - penalty * found
        curvature = (table * (w * p * (1 - p))[:, None]).T @ table + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        found = found + step * min(1.0, 5.0 / max(float(np.abs(step).max()), _TINY))
        if float(np.abs(step).max()) < 1e-10:
            break
    return found


def logistic_value(coefficients: Floats, x: Floats) -> Floats:
    """P [n] that `logistic_fit`'s coefficients give rows [n, k]."""
    return np.asarray(0.5 * (1 + np.tanh((coefficients[0] + x @ coefficients[1:]) / 2)))


def _sample(values: ArrayLike) -> Floats:
    x = np.asarray(values, dtype=np.float64).ravel()
    if x.size == 0 or not np.isfinite(x).all():
        raise TrimtabError(ErrorKind.DATA, f"a distribution of {x.size} values", "give finite numbers, at least one")
    return x
