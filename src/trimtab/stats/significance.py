"""Tests of shares and signs, what a sample could have shown, and corrections for many tests at once.

All p are two-sided. Normal approximations say so.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError

__all__ = [
    "MantelHaenszel",
    "benjamini_hochberg",
    "binomial_test",
    "detectable_mean",
    "detectable_share",
    "holm",
    "mantel_haenszel",
    "mantel_haenszel_odds",
    "mcnemar_test",
    "normal_p",
    "sign_flip_test",
    "student_p",
    "student_quantile",
    "two_proportion_test",
]

Floats = NDArray[np.float64]

_NORMAL = NormalDist()
_EXACT_SUM = 4000
"""Up to this sum of sizes the sign-flip distribution is worked out exactly."""


def binomial_test(k: int, n: int, p: float = 0.5) -> float:
    """Exact two-sided binomial test: probability of all outcomes at most as likely as k of n. 1 for n = 0.

    Raises:
        TrimtabError: k or p out of range.
    """
    if not (0 <= k <= n and 0 < p < 1):
        raise TrimtabError(
            ErrorKind.FAILED, f"binomial test of {k} in {n} against {p}", "k is from 0 to n, p inside (0, 1)"
        )
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    x = np.arange(n + 1)
    log_p = log_factorial[n] - log_factorial - log_factorial[::-1] + x * math.log(p) + (n - x) * math.log1p(-p)
    # outcomes that are equally likely differ in the last digits only
    as_rare = log_p <= log_p[k] + 1e-7
    return min(1.0, float(np.exp(log_p[as_rare]).sum()))


def mcnemar_test(only_first: int, only_second: int) -> float:
    """Exact McNemar test of paired yes/no outcomes from the two discordant counts. Source: McNemar (1947).

    Raises:
        TrimtabError: a negative count.
    """
    if only_first < 0 or only_second < 0:
        raise TrimtabError(ErrorKind.FAILED, f"McNemar test of {only_first} and {only_second}", "counts are from 0 on")
    return binomial_test(only_first, only_first + only_second)


def two_proportion_test(k1: float, n1: float, k2: float, n2: float) -> float:
    """Do two independent shares differ? Pooled z test, a normal approximation; NaN where one has no trials.

    Raises:
        TrimtabError: more successes than trials, or negative counts.
    """
    if not (0 <= k1 <= n1 and 0 <= k2 <= n2):
        raise TrimtabError(
            ErrorKind.FAILED, f"two-proportion test of {k1}/{n1} and {k2}/{n2}", "successes are from 0 to the trials"
        )
    if n1 == 0 or n2 == 0:
        return math.nan
    pooled = (k1 + k2) / (n1 + n2)
    variance = pooled * (1 - pooled) * (1 / n1 + 1 / n2)
    return 1.0 if variance == 0 else normal_p((k1 / n1 - k2 / n2) / math.sqrt(variance))


def sign_flip_test(values: ArrayLike) -> float:
    """Is the sum of independent values larger than their signs explain? Randomisation test of symmetry around 0.

    Under the null every value could as well have had the other sign; p is the probability of a sum at least as far from
    0. For whole numbers of a moderate sum the distribution is worked out exactly (for values of one size this is the
    sign test, for yes/no pairs McNemar's); else by its normal approximation. Source: Fisher (1935).

    Args:
        values: [n] one a cluster; zeros say nothing. None left: p = 1.

    Raises:
        TrimtabError: values that are not finite.
    """
    x = np.asarray(values, dtype=np.float64).ravel()
    if not np.isfinite(x).all():
        raise TrimtabError(ErrorKind.DATA, "sign-flip test of values that are not finite", "leave them out first")
    sizes = np.abs(x[x != 0])
    if sizes.size == 0:
        return 1.0
    total = abs(float(x.sum()))
    whole = bool((sizes == np.round(sizes)).all())
    if not whole or sizes.sum() > _EXACT_SUM:
        return normal_p(total / math.sqrt(float((sizes**2).sum())))
    # ways[i] = probability that the values with a plus sign add up to i
    ways = np.zeros(int(sizes.sum()) + 1)
    ways[0] = 1.0
    for size in sizes.astype(int).tolist():
        ways[size:] = 0.5 * (ways[size:] + ways[: len(ways) - size])
        ways[:size] *= 0.5
    far = np.abs(2 * np.arange(len(ways)) - sizes.sum()) >= total - 1e-9
    return min(1.0, float(ways[far].sum()))


class MantelHaenszel(NamedTuple):
    """A common odds ratio over strata, its 95 % interval, and p of an odds ratio of 1."""

    odds_ratio: float
    low: float
    high: float
    p: float


def mantel_haenszel(tables: ArrayLike) -> MantelHaenszel:
    """Common odds ratio of 2 x 2 tables. Interval by Robins, Breslow and Greenland; p by Cochran, Mantel and Haenszel.

    p without continuity correction. Source: Mantel and Haenszel (1959); Robins, Breslow and Greenland (1986).

    Args:
        tables: [strata, 2, 2] counts.

    Returns:
        NaNs where the odds ratio is not defined; infinite or 0 with NaN bounds where only one of its sides is 0.

    Raises:
        TrimtabError: tables of another shape.
    """
    t = np.asarray(tables, dtype=np.float64)
    if t.ndim != 3 or t.shape[1:] != (2, 2):
        raise TrimtabError(ErrorKind.DATA, f"Mantel-Haenszel of shape {list(t.shape)}", "give [strata, 2, 2] counts")
    t = t[t.sum(axis=(1, 2)) > 1]
    a, b, c, d = t[:, 0, 0], t[:, 0, 1], t[:, 1, 0], t[:, 1, 1]
    n = t.sum(axis=(1, 2))
    r, s = (float(x) for x in _mantel_haenszel_sides(t))
    if r == 0 and s == 0:
        return MantelHaenszel(math.nan, math.nan, math.nan, math.nan)
    expected = (a + b) * (a + c) / n
    variance = float(((a + b) * (c + d) * (a + c) * (b + d) / (n**2 * (n - 1))).sum())
    p = 1.0 if variance == 0 else normal_p(float((a - expected).sum()) / math.sqrt(variance))
    if r == 0 or s == 0:
        return MantelHaenszel(math.inf if s == 0 else 0.0, math.nan, math.nan, p)
    straight, crossed = (a + d) / n, (b + c) / n
    rs, ss = a * d / n, b * c / n
    log_variance = (
        float((straight * rs).sum()) / (2 * r * r)
        + float((straight * ss + crossed * rs).sum()) / (2 * r * s)
        + float((crossed * ss).sum()) / (2 * s * s)
    )
    half = _NORMAL.inv_cdf(0.975) * math.sqrt(log_variance)
    return MantelHaenszel(r / s, r / s * math.exp(-half), r / s * math.exp(half), p)


def mantel_haenszel_odds(tables: ArrayLike) -> Floats:
    """The common odds ratio of many sets of tables [..., strata, 2, 2], as resamples are; see `mantel_haenszel`."""
    straight, crossed = _mantel_haenszel_sides(np.asarray(tables, dtype=np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        return straight / crossed


def _mantel_haenszel_sides(t: Floats) -> tuple[Floats, Floats]:
    """Sums over strata of a d / n and of b c / n."""
    n = np.maximum(t.sum(axis=(-2, -1)), 1.0)
    straight = (t[..., 0, 0] * t[..., 1, 1] / n).sum(axis=-1)
    crossed = (t[..., 0, 1] * t[..., 1, 0] / n).sum(axis=-1)
    return straight, crossed


def detectable_share(n: float, null: float = 0.5, alpha: float = 0.05, power: float = 0.8) -> float:
    """Smallest distance from a share `null` that a two-sided test of n independent trials finds with this power.

    Normal approximation: the d that solves d sqrt(n) = z_a sqrt(p0 q0) + z_b sqrt(p1 q1), p1 = p0 + d, toward .5.

    Args:
        n: trials.
        null: the share under the null, inside (0, 1).
        alpha: level of the test.
        power: in (0, 1).

    Returns:
        A distance; infinite where n trials cannot find any.

    Raises:
        TrimtabError: a share, level or power outside (0, 1).
    """
    z_alpha, z_power = _quantiles(alpha, power)
    if not 0 < null < 1:
        raise TrimtabError(ErrorKind.FAILED, f"detectable distance from a share of {null}", "it is inside (0, 1)")
    room = max(null, 1 - null)
    toward = 1 if null <= 0.5 else -1

    def short(d: float) -> float:
        p1 = null + toward * d
        need = z_alpha * math.sqrt(null * (1 - null)) + z_power * math.sqrt(max(p1 * (1 - p1), 0.0))
        return need - d * math.sqrt(n)

    if n <= 0 or short(room) > 0:
        return math.inf
    low, high = 0.0, room
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if short(middle) > 0 else (low, middle)
    return high


def detectable_mean(standard_error: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Smallest distance from the null that an estimate with this standard error shows; normal approximation.

    (z_{1 - alpha/2} + z_power) times the standard error: 2.80 of them by default.

    Raises:
        TrimtabError: a level or power outside (0, 1).
    """
    return sum(_quantiles(alpha, power)) * standard_error


def holm(p: ArrayLike) -> Floats:
    """p adjusted so that any false alarm among them all has at most the nominal level. Source: Holm (1979).

    Args:
        p: [n]; NaN = no test, stays NaN and does not count.
    """
    values = np.asarray(p, dtype=np.float64)
    adjusted = np.full(values.shape, np.nan)
    order = np.argsort(values)[: int(np.isfinite(values).sum())]
    m = len(order)
    scaled = np.minimum(values[order] * (m - np.arange(m)), 1.0)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """p adjusted so that the expected share of false alarms among the alarms is at most the nominal level.

    Source: Benjamini and Hochberg (1995).

    Args:
        p: [n]; NaN = no test, stays NaN and does not count.
    """
    values = np.asarray(p, dtype=np.float64)
    adjusted = np.full(values.shape, np.nan)
    order = np.argsort(values)[: int(np.isfinite(values).sum())]
    m = len(order)
    scaled = values[order] * m / np.arange(1, m + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted


def normal_p(z: float) -> float:
    """Two-sided p of a standard normal z."""
    # erfc keeps the digits of a small tail
    return math.erfc(abs(z) / math.sqrt(2))


def student_p(t: float, freedom: float) -> float:
    """Two-sided p of Student's t with any positive degrees of freedom; infinite ones give the normal's."""
    if math.isinf(freedom):
        return normal_p(t)
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def student_quantile(level: float, freedom: float) -> float:
    """The t that a two-sided interval of this level reaches to: 1.96 for .95 and many degrees of freedom.

    Raises:
        TrimtabError: a level outside (0, 1), or degrees of freedom that are not positive.
    """
    if not (0 < level < 1 and freedom > 0):
        raise TrimtabError(
            ErrorKind.FAILED, f"a t quantile of level {level} with {freedom} degrees of freedom", "both are positive"
        )
    low, high = 0.0, 1.0
    while student_p(high, freedom) > 1 - level and high < 1e8:
        high *= 2
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if student_p(middle, freedom) > 1 - level else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function by its continued fraction (Lentz). Source: DLMF 8.17.22."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    # the fraction converges fast on one side of the mean only
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        before = value
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            value *= c * d
        if abs(value - before) < 1e-15 * abs(value):
            break
    return front * value


def _quantiles(alpha: float, power: float) -> tuple[float, float]:
    if not (0 < alpha < 1 and 0 < power < 1):
        raise TrimtabError(ErrorKind.FAILED, f"a test of level {alpha} with power {power}", "both are inside (0, 1)")
    return _NORMAL.inv_cdf(1 - alpha / 2), _NORMAL.inv_cdf(power)
