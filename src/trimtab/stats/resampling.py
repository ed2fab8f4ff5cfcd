"""The cluster bootstrap of anything that is a function of sums, drawn for many sums at once."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["bootstrap_sums", "group_sums", "percentile_interval"]

Floats = NDArray[np.float64]

_CHUNK_ELEMENTS = 1 << 22


def group_sums(values: ArrayLike, groups: NDArray[np.integer] | None = None) -> Floats:
    """[G, k] sums of the rows of values [n, k] by group, in order of the groups' numbers.

    Raises:
        TrimtabError: unequal lengths.
    """
    x = np.asarray(values, dtype=np.float64)
    if groups is None:
        return x
    if len(groups) != len(x):
        raise TrimtabError(ErrorKind.DATA, f"{len(x)} rows but {len(groups)} groups", "name the group of every row")
    index = np.unique(groups, return_inverse=True)[1]
    return np.stack([np.bincount(index, column) for column in x.T], axis=1) if len(x) else x


def bootstrap_sums(
    values: ArrayLike, groups: NDArray[np.integer] | None = None, resamples: int = 1000, seed: int = 0
) -> Floats:
    """Sums over resamples of whole groups, drawn with replacement.

    Groups whose sums are the same are drawn together, by multinomial counts: the same distribution, and for counts of
    verdicts a thousand times less work. Source: Efron and Tibshirani (1993); for clusters Davison and Hinkley (1997).

    Args:
        values: [n, k] what is summed.
        groups: [n] group of each row; None = each row is its own.
        resamples: R.
        seed: of a random generator of its own.

    Returns:
        [R, k].

    Raises:
        TrimtabError: no row, unequal lengths, or no resamples.
    """
    sums = group_sums(values, groups)
    if sums.ndim != 2 or len(sums) == 0 or resamples < 1:
        raise TrimtabError(
            ErrorKind.DATA,
            f"bootstrap of sums of shape {list(sums.shape)} with {resamples} resamples",
            "give rows of numbers, at least one, and at least one resample",
        )
    kinds, count = np.unique(sums, axis=0, return_counts=True)
    rng = np.random.default_rng(seed)
    total = len(sums)
    result = np.empty((resamples, sums.shape[1]))
    if len(kinds) * 8 <= total or len(kinds) <= 64:
        drawn = rng.multinomial(total, count / total, size=resamples)
        return np.asarray(drawn @ kinds, dtype=np.float64)
    chunk = max(1, _CHUNK_ELEMENTS // total)
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        drawn = rng.integers(total, size=(rows, total)) + np.arange(rows)[:, None] * total
        weights = np.bincount(drawn.ravel(), minlength=rows * total).reshape(rows, total)
        result[start : start + rows] = weights.astype(np.float64) @ sums
    return result


def percentile_interval(drawn: Floats, level: float = 0.95) -> tuple[float, float]:
    """Lower and upper percentile of bootstrapped values; NaNs (undefined in a resample) are left out.

    Args:
        drawn: [R].
        level: in (0, 1).

    Returns:
        (low, high); NaN where fewer than half of the resamples are defined.
    """
    good = drawn[np.isfinite(drawn)]
    if 2 * len(good) < len(drawn) or len(good) == 0:
        return math.nan, math.nan
    low, high = np.quantile(good, [0.5 - level / 2, 0.5 + level / 2])
    return float(low), float(high)
