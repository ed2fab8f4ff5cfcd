"""Robust statistics of one series: trends, levels, onsets, changes, swings. Pure functions of numpy arrays.

Batches of reinforcement learning are noisy, their logs correlated in time and spoilt by single spikes. So medians
stand for means, the slope is Theil and Sen's, significance is Mann and Kendall's with its variance corrected for
autocorrelation, and a crossing counts only where it lasts. Every function takes finite values in the order of their
steps; long series are thinned first (`thin`), which keeps a million points affordable.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Change",
    "Drawdown",
    "Trend",
    "autocorrelation",
    "change_point",
    "curve",
    "drawdowns",
    "ends",
    "lag1_of_differences",
    "mann_kendall",
    "noise",
    "onset",
    "rank",
    "robust_sigma",
    "running_median",
    "theil_sen",
    "thin",
]

Floats = NDArray[np.float64]
_MAD_TO_SIGMA = 1 / NormalDist().inv_cdf(0.75)
PAIRS_FROM = 400
"""Points above which slopes are taken over a thinned series: 400 points are 79,800 pairs."""


class Trend(NamedTuple):
    """A monotone trend.

    `slope`, `low`, `high`: change per unit of `steps`, with its interval. `change`, `change_low`, `change_high`: the
    same over the whole range of steps. `p`: two-sided, of no trend. `n`: points it rests on.
    """

    slope: float
    low: float
    high: float
    change: float
    change_low: float
    change_high: float
    p: float
    n: int

    @property
    def rises(self) -> bool:
        """Whether the interval lies above zero."""
        return self.low > 0

    @property
    def falls(self) -> bool:
        """Whether the interval lies below zero."""
        return self.high < 0


class Change(NamedTuple):
    """A change of level: `at`, index of the first value after it, size (in the series' unit), and p of no change."""

    at: int
    size: float
    p: float


class Drawdown(NamedTuple):
    """A fall from a peak: indices of peak and trough, depth, and whether half of it was won back afterwards."""

    peak: int
    trough: int
    depth: float
    recovered: bool


def thin(values: Floats, steps: Floats, points: int) -> tuple[Floats, Floats]:
    """Blocks of equal size replaced by their medians (steps: by the step of the block's first value).

    Args:
        values: [N].
        steps: [N].
        points: at most so many blocks.

    Returns:
        (values [<= points], steps): the series itself where it is short enough.
    """
    n = len(values)
    if n <= points:
        return values, steps
    size = -(-n // points)
    whole = n // size
    out = np.median(values[: whole * size].reshape(whole, size), axis=1)
    at = steps[: whole * size : size]
    if whole * size < n:  # the rest, unless it is too small a block to be as quiet as the others
        rest = values[whole * size :]
        if 2 * len(rest) >= size:
            out, at = np.append(out, np.median(rest)), np.append(at, steps[whole * size])
    return out, at


def curve(values: Floats, points: int = 60) -> tuple[float, ...]:
    """A series at no more than `points` points, for a sparkline: the value of each block furthest from its median.

    Spikes stay visible: what is drawn is the extreme of each block, not its mean.
    """
    n = len(values)
    if n <= points:
        return tuple(float(v) for v in values)
    edges = np.linspace(0, n, points + 1).astype(int)
    middle = float(np.median(values))
    blocks = (values[i:j] for i, j in pairwise(edges))
    return tuple(float(b[np.argmax(np.abs(b - middle))]) for b in blocks)


def robust_sigma(values: Floats) -> float:
    """Median absolute deviation from the median, scaled to the standard deviation of a normal; 0 for fewer than 2."""
    if len(values) < 2:
        return 0.0
    return float(np.median(np.abs(values - np.median(values)))) * _MAD_TO_SIGMA


def noise(values: Floats) -> float:
    """Point-to-point noise: robust sigma of the differences over sqrt 2, so that a trend does not count as noise.

    Where more than half of the differences are the same (values quantised, mostly constant), their standard deviation
    instead. Autocorrelated noise is underestimated; multiply by `sqrt(inflation)` where it matters.
    """
    if len(values) < 3:
        return 0.0
    steps = np.diff(values)
    sigma = robust_sigma(steps)
    return (sigma if sigma > 0 else float(steps.std())) / math.sqrt(2)


def ends(values: Floats, share: float = 0.2, least: int = 3) -> tuple[float, float]:
    """Medians of the first and of the last `share` of the values (at least `least`, at most half of them)."""
    n = len(values)
    width = max(1, min(n // 2, max(least, round(n * share))))
    return float(np.median(values[:width])), float(np.median(values[n - width :]))


def running_median(values: Floats, width: int) -> Floats:
    """Centred running median over `width` (odd) values; shorter at the two ends. A spike of half a width is gone."""
    half = width // 2
    if half < 1 or len(values) < 3:
        return values
    padded = np.concatenate([np.full(half, np.nan), values, np.full(half, np.nan)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    out = np.empty(len(values))
    out[half : len(values) - half] = np.median(windows[half : len(values) - half], axis=1)
    for i in [*range(min(half, len(values))), *range(max(half, len(values) - half), len(values))]:
        out[i] = np.nanmedian(windows[i])
    return out


def rank(values: Floats) -> Floats:
    """[N] ranks from 0, ties at their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    return ((upper - counts) + (counts - 1) / 2)[inverse]


def autocorrelation(values: Floats, lags: int) -> Floats:
    """[lags] autocorrelation at lag 1, 2, ...: sums over N - lag products, divided by the sum of squares."""
    x = values - values.mean()
    total = float(x @ x)
    if total <= 0:
        return np.zeros(lags)
    return np.array([float(x[k:] @ x[:-k]) / total for k in range(1, lags + 1)])


def lag1_of_differences(values: Floats) -> float:
    """Lag-1 autocorrelation of the differences: about -.5 for white noise, below that for a sawtooth, 0 for a walk."""
    steps = np.diff(values)
    return float(autocorrelation(steps, 1)[0]) if len(steps) > 2 else 0.0


def _signs(values: Floats) -> tuple[float, float]:
    """Mann and Kendall's S and its variance under independence, with the correction for ties."""
    n = len(values)
    s = float(sum(np.sign(values[i + 1 :] - values[i]).sum() for i in range(n - 1)))
    _, ties = np.unique(values, return_counts=True)
    t = ties.astype(float)
    var = (n * (n - 1) * (2 * n + 5) - float((t * (t - 1) * (2 * t + 5)).sum())) / 18
    return s, var


def _inflation(values: Floats, slope: float, at: Floats) -> float:
    """How much autocorrelation inflates the variance of S: 1 or more. Source: Hamed and Rao (1998).

    Ranks of the detrended values; only lags whose correlation is significant (5 %) count, and among them only the
    first tenth of the series: far lags are noise, and summing them makes the correction noise as well.
    """
    n = len(values)
    if n < 10:
        return 1.0
    lags = max(1, min(n // 10, 40))
    rho = autocorrelation(rank(values - slope * at), lags)
    bound = 1.96 / math.sqrt(n)
    k = np.arange(1, lags + 1)
    weights = (n - k) * (n - k - 1.0) * (n - k - 2.0)
    total = float((weights * np.where(np.abs(rho) > bound, rho, 0.0)).sum())
    return max(1.0, 1 + 2 * total / (n * (n - 1.0) * (n - 2.0)))


def mann_kendall(values: Floats, correct: bool = True) -> float:
    """p of no monotone trend, two-sided. 1 for fewer than 4 values or where all are the same.

    Args:
        values: [N], in the order of their steps, evenly spaced or nearly so.
        correct: for autocorrelation (Hamed and Rao 1998); False: independent noise.

    Source: Mann (1945), Kendall (1975); normal approximation with continuity correction.
    """
    values, at = thin(values, np.arange(len(values), dtype=float), PAIRS_FROM)
    if len(values) < 4:
        return 1.0
    s, var = _signs(values)
    if var <= 0:
        return 1.0
    if correct:
        var *= _inflation(values, _slopes_median(values, at), at)
    z = (abs(s) - 1) / math.sqrt(var) if s else 0.0
    return float(math.erfc(max(z, 0.0) / math.sqrt(2)))


def _pair_slopes(values: Floats, at: Floats) -> Floats:
    i, j = np.triu_indices(len(values), 1)
    return (values[j] - values[i]) / (at[j] - at[i])


def _slopes_median(values: Floats, at: Floats) -> float:
    return float(np.median(_pair_slopes(values, at)))


def theil_sen(values: Floats, steps: Floats, level: float = 0.95, correct: bool = True) -> Trend:
    """Theil and Sen's slope, its interval, and Mann and Kendall's p, all with one variance.

    Args:
        values: [N].
        steps: [N], rising strictly.
        level: of the interval.
        correct: for autocorrelation.

    Returns:
        Trend; slope 0 with an interval of (-inf, inf) and p 1 for fewer than 4 values.

    Source: Sen (1968): the interval is made of the slopes at ranks (pairs -+ z sqrt(Var S)) / 2.
    """
    values, at = thin(values, steps, PAIRS_FROM)
    n = len(values)
    if n < 4:
        return Trend(0.0, -math.inf, math.inf, 0.0, -math.inf, math.inf, 1.0, n)
    slopes = np.sort(_pair_slopes(values, at))
    slope = float(np.median(slopes))
    s, var = _signs(values)
    span = float(at[-1] - at[0])
    if var <= 0:  # all the same
        return Trend(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, n)
    if correct:
        var *= _inflation(values, slope, at)
    half = NormalDist().inv_cdf(0.5 + level / 2) * math.sqrt(var)
    pairs = len(slopes)
    low = float(slopes[max(0, min(pairs - 1, round((pairs - half) / 2) - 1))])
    high = float(slopes[max(0, min(pairs - 1, round((pairs + half) / 2)))])
    z = (abs(s) - 1) / math.sqrt(var) if s else 0.0
    p = float(math.erfc(max(z, 0.0) / math.sqrt(2)))
    return Trend(slope, low, high, slope * span, low * span, high * span, p, n)


def onset(values: Floats, beyond: NDArray[np.bool_], run: int = 3) -> int | None:
    """Index at which a condition sets in: the first of `run` values in a row of which it holds.

    Args:
        values: [N], for its length only where `beyond` is given as a mask.
        beyond: [N] where the condition holds.
        run: values in a row; fewer suffice where the series has fewer.

    Returns:
        The index, or None where it never lasts.
    """
    n = len(values)
    run = max(1, min(run, n))
    if n == 0 or not beyond.any():
        return None
    held = np.convolve(beyond.astype(np.int64), np.ones(run, np.int64), "valid")
    hits = np.flatnonzero(held == run)
    return int(hits[0]) if len(hits) else None


def change_point(values: Floats) -> Change | None:
    """The most likely single change of level: the largest excursion of the cumulated, robustly scaled residuals.

    Residuals are taken from the median and clipped at 4 sigma, so that a spike is no change. The scale is the
    point-to-point `noise`, and p is that of the largest absolute value of a Brownian bridge: too small where the
    noise is correlated. None for fewer than 8 values or for a constant series.

    Source: Page (1954); Kolmogorov's distribution.
    """
    n = len(values)
    sigma = noise(values)
    if n < 8 or sigma <= 0:
        return None
    x = np.clip((values - np.median(values)) / sigma, -4, 4)
    bridge = np.cumsum(x - x.mean())[:-1] / math.sqrt(n)
    at = int(np.argmax(np.abs(bridge)))
    height = abs(float(bridge[at]))
    if height < 0.3:  # the series below converges slowly there, and p is 1 for all that matters
        p = 1.0
    else:
        p = min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * height) ** 2) for k in range(1, 101))))
    size = float(np.median(values[at + 1 :]) - np.median(values[: at + 1]))
    return Change(at + 1, size, p)


def drawdowns(values: Floats, depth: float) -> list[Drawdown]:
    """Falls of at least `depth` from a peak, one after the other; a fall ends where the series turns up by `depth`.

    Args:
        values: [N], smoothed: noise deeper than `depth` counts as a fall.
        depth: above 0, in the unit of the values.
    """
    out: list[Drawdown] = []
    peak = trough = 0
    falling = False
    for i, v in enumerate(values):
        if not falling:
            if v >= values[peak]:
                peak = i
            elif values[peak] - v >= depth:
                falling, trough = True, i
        elif v <= values[trough]:
            trough = i
        elif v - values[trough] >= depth:
            out.append(_drawdown(values, peak, trough, True))
            falling, peak = False, i
    if falling:
        fall = float(values[peak] - values[trough])
        out.append(_drawdown(values, peak, trough, bool(values[-1] - values[trough] >= fall / 2)))
    return out


def _drawdown(values: Floats, peak: int, trough: int, recovered: bool) -> Drawdown:
    return Drawdown(peak, trough, float(values[peak] - values[trough]), recovered)
