"""From counts to a check: estimates over clusters, p, what the sample could have shown, and the five endings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.labeling.audit.results import BIASES, Check, CheckStatus, Estimate
from trimtab.stats.intervals import clustered_share
from trimtab.stats.significance import detectable_mean, holm, sign_flip_test

__all__ = ["Balanced", "balanced_share", "finite", "missing", "rate", "settle", "share_of", "signed_share"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Clusters = NDArray[np.integer[Any]]

ALPHA = 0.05
_FEWEST_SIGNS = 6
"""With fewer clusters that differ from the null no sign test reaches the 5 % level: 2 / 2^5 is above it."""
_FEWEST_A_SIDE = 10
"""Fewer reference labels on a side do not balance anything."""


class Balanced(NamedTuple):
    """A share with the reference labels made even, its standard error, and the shares on either side.

    `freedom`: degrees of freedom of the error, by Satterthwaite.
    """

    share: float
    error: float
    freedom: float
    with_side: float
    against_side: float
    n: int


def finite(x: float) -> float | None:
    """None for NaN and infinities."""
    return x if math.isfinite(x) else None


def share_of(successes: NDArray[Any], cluster: Clusters) -> Estimate:
    """A share with its interval over clusters; values None where nothing is counted."""
    if len(successes) == 0:
        return Estimate(None, None, None, 0)
    interval = clustered_share(successes, cluster)
    known = len(np.unique(cluster)) > 1
    return Estimate(interval.mean, interval.low if known else None, interval.high if known else None, interval.n)


def missing(check: str, *what: str, n: int = 0, **details: Any) -> Check:
    """A check that cannot be made."""
    return Check(check, CheckStatus.NOT_MEASURABLE, n=n, missing=what, details=details)


def signed_share(
    check: str, toward: Bools, cluster: Clusters, threshold: float, unit_of_n: str = "verdicts", **details: Any
) -> Check:
    """A share whose null is one half: verdicts toward something against verdicts away from it.

    Args:
        check: its id.
        toward: [n] whether each decided verdict goes toward it.
        cluster: [n].
        threshold: the distance from one half that matters.
        unit_of_n: what n counts.
        details: further figures.
    """
    estimate = share_of(toward, cluster)
    index = np.unique(cluster, return_inverse=True)[1]
    sums = np.bincount(index, np.where(toward, 1.0, -1.0)).astype(np.float64)
    return Check(
        check,
        CheckStatus.OK,
        estimate.value,
        estimate.low,
        estimate.high,
        sign_flip_test(sums),
        n=len(toward),
        null=0.5,
        threshold=threshold,
        detectable=_detectable_share(sums, np.bincount(index)),
        unit_of_n=unit_of_n,
        details=details,
    )


def _detectable_share(sums: Floats, counts: NDArray[np.integer[Any]]) -> float | None:
    """Smallest distance from one half that clusters with this scatter show."""
    n = float(counts.sum())
    if len(counts) < _FEWEST_SIGNS:
        return None
    sizes = np.abs(sums[sums != 0])
    one = float(sizes.mean()) if len(sizes) else float(counts.mean())
    # one cluster more, so that verdicts that never scatter do not seem to show everything
    error = math.sqrt(float((sums**2).sum()) + one**2) / (2 * n)
    return min(max(detectable_mean(error), _FEWEST_SIGNS * one / (2 * n)), 0.5)


def balanced_share(toward: Bools, reference: Bools, cluster: Clusters) -> Balanced | None:
    """Share of verdicts toward something if the reference labels went toward it as often as away from it.

    A judge that errs at random has one half here whatever the reference labels favour; the plain share would show the
    reference's own leaning, and a difference from it would show the errors.

    Args:
        toward: [n] whether each verdict goes toward it.
        reference: [n] whether the reference label does.
        cluster: [n].

    Returns:
        None where either side has fewer than 10 verdicts or there is one cluster only.
    """
    sides = reference, ~reference
    sizes = [int(side.sum()) for side in sides]
    clusters = len(np.unique(cluster))
    if min(sizes) < _FEWEST_A_SIDE or clusters < 2:
        return None
    shares = [float(toward[side].mean()) for side in sides]
    index = np.unique(cluster, return_inverse=True)[1]
    halves = []
    for side, share in zip(sides, shares, strict=True):
        count = np.bincount(index[side], minlength=clusters).astype(np.float64)
        total = np.bincount(index[side], toward[side], minlength=clusters)
        halves.append(_half(total - share * count, count, float(toward[side].sum())))
    residual, extra, freedom = (list(column) for column in zip(*halves, strict=True))
    # both sides of one prompt are drawn together, which the sum of the residuals takes into account
    variance = float(((residual[0] + residual[1]) ** 2).sum()) * clusters / (clusters - 1) + sum(extra)
    own = [float((r**2).sum()) + e for r, e in zip(residual, extra, strict=True)]
    degrees = sum(own) ** 2 / sum(v * v / f for v, f in zip(own, freedom, strict=True))
    return Balanced(sum(shares) / 2, math.sqrt(variance), degrees, shares[0], shares[1], len(toward))


def _half(residual: Floats, count: Floats, successes: float) -> tuple[Floats, float, float]:
    """One side of a balanced share: residuals by cluster, the scatter of one cluster more, degrees of freedom."""
    size, used = float(count.sum()), int((count > 0).sum())
    share = (successes + 1) / (size + 2)
    typical = float((count**2).sum()) / max(used, 1)
    return 0.5 * residual / size, 0.25 * share * (1 - share) * typical / size**2, float(max(used - 1, 1))


def rate(
    check: str, estimate: Estimate, limit: float, unit_of_n: str, *, bad_above: bool = True, **details: Any
) -> Check:
    """A rate with a limit: `poor` beyond it for certain, `ok` within it for certain, else the sample cannot say."""
    if estimate.value is None:
        return missing(check, f"{unit_of_n} to count", **details)
    low, high = estimate.low, estimate.high
    status, detectable = CheckStatus.UNDERPOWERED, None
    if low is not None and high is not None:
        surely_above, surely_below = low > limit, high < limit
        if surely_above or surely_below:
            status = CheckStatus.POOR if surely_above == bad_above else CheckStatus.OK
        # the half that leads to the limit is what has to shrink
        detectable = detectable_mean((high - low) / (2 * 1.96))
    return Check(
        check,
        status,
        estimate.value,
        low,
        high,
        n=estimate.n,
        threshold=limit,
        detectable=detectable,
        unit="rate",
        unit_of_n=unit_of_n,
        details=details,
    )


def settle(checks: Iterable[Check]) -> dict[str, Check]:
    """Adjust the p of one judge's biases together (Holm) and give each its ending.

    `biased`: adjusted p below .05 and at least the threshold away from the null. Else `ok` if an effect as large as the
    threshold would have shown, or if the interval lies within it; else `underpowered`.
    """
    listed = list(checks)
    tested = [c.p if c.id in BIASES and c.p is not None else math.nan for c in listed]
    settled: Mapping[str, Check] = {
        c.id: c if math.isnan(p) else replace(c, p_adjusted=float(p), status=_ending(c, float(p)))
        for c, p in zip(listed, holm(tested), strict=True)
    }
    return dict(settled)


def _ending(check: Check, p: float) -> CheckStatus:
    assert check.effect is not None
    assert check.null is not None
    assert check.threshold is not None
    distance = abs(check.effect - check.null)
    if p < ALPHA and distance >= check.threshold:
        return CheckStatus.BIASED
    within = (
        check.low is not None
        and check.high is not None
        and max(check.high - check.null, check.null - check.low) < check.threshold
    )
    shows = check.detectable is not None and check.detectable <= check.threshold
    return CheckStatus.OK if within or (shows and distance < check.threshold) else CheckStatus.UNDERPOWERED
