"""Confidence intervals for shares, means and differences, with values that come in groups."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["Interval", "bootstrap_mean", "clustered_share", "paired_bootstrap", "wilson"]

_CHUNK_ELEMENTS = 1 << 22


class Interval(NamedTuple):
    """An estimate, its interval, and the number of values (not of groups) that it rests on."""

    mean: float
    low: float
    high: float
    n: int


def wilson(k: float, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of a share k / n; sound for small n and near 0 and 1. Source: Wilson (1927).

    Args:
        k: successes, from 0 to n; ties may count as halves.
        n: trials; 0 gives (nan, 0, 1): nothing is known.
        level: in (0, 1).

    Raises:
        TrimtabError: k or the level out of range.
    """
    _check_level(level)
    if not 0 <= k <= n:
        raise TrimtabError(
            ErrorKind.FAILED, f"{k} successes in {n} trials", "successes are from 0 to the number of trials"
        )
    if n == 0:
        return Interval(math.nan, 0.0, 1.0, 0)
    low, high = _score_bounds(k / n, n, level)
    # at 0 and n the bound is exact, whatever rounding says
    return Interval(k / n, 0.0 if k == 0 else low, 1.0 if k == n else high, n)


def clustered_share(successes: ArrayLike, groups: NDArray[np.integer] | None = None, level: float = 0.95) -> Interval:
    """Wilson's interval of a share whose trials come in groups: with as many trials as the groups' scatter is worth.

    The number of trials is share (1 - share) / variance, with the variance of the ratio estimate over groups; one group
    more, with the scatter of a group that is all of a kind, keeps trials that happen to agree from looking certain.
    Source: Kish (1965) for the effective size; Korn and Graubard (1998) for its use in a score interval.

    Args:
        successes: [n] in [0, 1].
        groups: [n] group of each trial; None = each is its own.
        level: in (0, 1).

    Returns:
        Interval; (nan, 0, 1) without trials; low and high are 0 and 1 where there is a single group.

    Raises:
        TrimtabError: values outside [0, 1], unequal lengths, or a level out of range.
    """
    x = np.asarray(successes, dtype=np.float64)
    _check_level(level)
    if x.size == 0:
        return Interval(math.nan, 0.0, 1.0, 0)
    if not ((x >= 0) & (x <= 1)).all():
        raise TrimtabError(ErrorKind.DATA, "a share of values outside [0, 1]", "successes are 1, failures 0")
    if groups is None:
        sums, counts = x, np.ones_like(x)
    else:
        if len(groups) != x.size:
            raise TrimtabError(ErrorKind.DATA, f"{x.size} values but {len(groups)} groups", "name the group of each")
        index = np.unique(groups, return_inverse=True)[1]
        sums, counts = np.bincount(index, x).astype(np.float64), np.bincount(index).astype(np.float64)
    share, clusters = float(x.mean()), len(sums)
    if clusters == 1:
        return Interval(share, 0.0, 1.0, x.size)
    spread = share * (1 - share)
    if spread == 0:
        size = float(clusters)
    else:
        scatter = float(((sums - share * counts) ** 2).sum()) + float((counts**2).mean()) * spread
        size = spread * x.size**2 / (scatter * clusters / (clusters - 1))
    low, high = _score_bounds(share, size, level)
    return Interval(share, 0.0 if share == 0 else low, 1.0 if share == 1 else high, x.size)


def _score_bounds(share: float, n: float, level: float) -> tuple[float, float]:
    """Bounds of Wilson's interval for a share of n trials."""
    z = NormalDist().inv_cdf(0.5 + level / 2)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return centre - half, centre + half


def bootstrap_mean(
    values: ArrayLike,
    groups: Sequence[Hashable] | NDArray[np.generic] | None = None,
    resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Percentile bootstrap interval of a mean. With groups, whole groups are drawn.

    Several responses to one prompt are not independent: drawn one by one they would make the interval too narrow.
    Source: Efron and Tibshirani (1993).

    Args:
        values: [n] finite numbers.
        groups: [n] which group each value belongs to (its prompt); None = each is its own.
        resamples: bootstrap samples.
        seed: of a random generator of its own; the same seed gives the same interval.
        level: in (0, 1).

    Returns:
        Interval; `mean` is the plain mean of the values. From a single group nothing can be said: low and high are NaN.

    Raises:
        TrimtabError: no values, values that are not finite, unequal lengths, no resamples, or a level out of range.
    """
    x = np.asarray(values, dtype=np.float64)
    _check_level(level)
    if x.ndim != 1 or x.size == 0 or not np.isfinite(x).all() or resamples < 1:
        raise TrimtabError(
            ErrorKind.DATA,
            f"bootstrap of values of shape {list(x.shape)} with {resamples} resamples",
            "give a list of finite numbers, at least one, and at least one resample",
        )
    sums, counts = _by_group(x, groups)
    if len(sums) == 1:
        return Interval(float(x.mean()), math.nan, math.nan, x.size)
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    chunk = max(1, _CHUNK_ELEMENTS // len(sums))
    for start in range(0, resamples, chunk):
        drawn = rng.integers(len(sums), size=(min(chunk, resamples - start), len(sums)))
        means[start : start + chunk] = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(x.mean()), float(low), float(high), x.size)


def paired_bootstrap(
    first: ArrayLike,
    second: ArrayLike,
    groups: Sequence[Hashable] | NDArray[np.generic] | None = None,
    resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Bootstrap interval of the mean difference first - second of paired values; see `bootstrap_mean`.

    Args:
        first: [n] measurements.
        second: [n] measurements of the same things, in the same order.
        groups: [n] which group each pair belongs to; None = each is its own.
        resamples: bootstrap samples.
        seed: of a random generator of its own.
        level: in (0, 1).

    Raises:
        TrimtabError: unequal lengths, and as `bootstrap_mean`.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.shape != b.shape:
        raise TrimtabError(
            ErrorKind.DATA,
            f"paired bootstrap of {list(a.shape)} and {list(b.shape)} values",
            "pairs need equal lengths",
        )
    return bootstrap_mean(a - b, groups, resamples, seed, level)


def _by_group(
    x: NDArray[np.float64], groups: Sequence[Hashable] | NDArray[np.generic] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum and count of every group, in order of first appearance."""
    if groups is None:
        return x, np.ones_like(x)
    if len(groups) != x.size:
        raise TrimtabError(ErrorKind.DATA, f"{x.size} values but {len(groups)} groups", "name the group of every value")
    number: dict[Hashable, int] = {}
    index = np.array([number.setdefault(group, len(number)) for group in groups])
    sums: NDArray[np.float64] = np.bincount(index, x).astype(np.float64)
    return sums, np.bincount(index).astype(np.float64)


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise TrimtabError(ErrorKind.FAILED, f"an interval of level {level}", "the level is in (0, 1), such as 0.95")
