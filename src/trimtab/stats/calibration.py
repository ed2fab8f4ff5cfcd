"""Does a predicted probability mean what it says? Measures of calibration, and three ways to mend it.

Everywhere p is the predicted P(first wins) and y what happened: 1, 0, or a soft label between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError

__all__ = [
    "Isotonic",
    "Platt",
    "Reliability",
    "brier",
    "ece",
    "fit_isotonic",
    "fit_platt",
    "fit_temperature",
    "log_loss",
    "reliability",
]

Floats = NDArray[np.float64]

_MIN_TEMPERATURE, _MAX_TEMPERATURE = 1e-3, 1e3
_MAX_STEPS = 100


class Reliability(NamedTuple):
    """The bins of a reliability diagram; an empty bin counts 0 and has NaN means."""

    counts: NDArray[np.int64]
    mean_p: Floats
    mean_y: Floats


def ece(p: ArrayLike, y: ArrayLike, bins: int = 10) -> float:
    """Expected calibration error: the mean over bins of |mean p - mean y|, weighted by the bins' counts.

    Equal-width bins on [0, 1]. With few predictions it is above 0 even for a perfect model: compare at equal n. Source:
    Naeini et al. (2015); Guo et al., arXiv 1706.04599.

    Args:
        p: [n] predicted probabilities in [0, 1].
        y: [n] outcomes in [0, 1].
        bins: at least 1.

    Returns:
        In [0, 1]; 0 is best.

    Raises:
        TrimtabError: empty input, unequal lengths, values outside [0, 1], or no bins.
    """
    table = reliability(p, y, bins)
    used = table.counts > 0
    gaps = np.abs(table.mean_p[used] - table.mean_y[used])
    return float(np.sum(gaps * table.counts[used]) / np.sum(table.counts))


def reliability(p: ArrayLike, y: ArrayLike, bins: int = 10) -> Reliability:
    """Counts and means of the equal-width bins [k / bins, (k + 1) / bins); 1 belongs to the last.

    Args:
        p: [n] predicted probabilities in [0, 1].
        y: [n] outcomes in [0, 1].
        bins: at least 1.

    Raises:
        TrimtabError: as `ece`.
    """
    probabilities, outcomes = _checked(p, y, "probability")
    if bins < 1:
        raise TrimtabError(ErrorKind.FAILED, f"a reliability diagram of {bins} bins", "there must be at least one")
    # compared with the edges themselves: p * bins rounds .29 * 100 down to bin 28
    index = np.searchsorted(np.arange(1, bins) / bins, probabilities, side="right")
    count = np.bincount(index, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean_p = np.bincount(index, probabilities, bins) / count
        mean_y = np.bincount(index, outcomes, bins) / count
    return Reliability(count.astype(np.int64), mean_p, mean_y)


def brier(p: ArrayLike, y: ArrayLike) -> float:
    """Brier score: the mean of (p - y)^2, in [0, 1]; 0 is best, .25 is what p = .5 gets. Source: Brier (1950).

    Args:
        p: [n] predicted probabilities in [0, 1].
        y: [n] outcomes in [0, 1].

    Raises:
        TrimtabError: empty input, unequal lengths, or values outside [0, 1].
    """
    probabilities, outcomes = _checked(p, y, "probability")
    return float(np.mean((probabilities - outcomes) ** 2))


def log_loss(p: ArrayLike, y: ArrayLike, epsilon: float = 1e-12) -> float:
    """Cross entropy -mean(y log p + (1 - y) log(1 - p)), nats a prediction; log 2 is what p = .5 gets.

    Args:
        p: [n] predicted probabilities in [0, 1].
        y: [n] outcomes in [0, 1].
        epsilon: p is held this far from 0 and 1, so that one certain miss costs at most -log(epsilon).

    Raises:
        TrimtabError: empty input, unequal lengths, or values outside [0, 1].
    """
    probabilities, outcomes = _checked(p, y, "probability")
    held = np.clip(probabilities, epsilon, 1 - epsilon)
    return float(-np.mean(outcomes * np.log(held) + (1 - outcomes) * np.log1p(-held)))


def fit_temperature(margins: ArrayLike, y: ArrayLike) -> float:
    """The temperature T > 0 whose sigmoid(margin / T) has the least log loss. Above 1: the margins were overconfident.

    Source: Guo et al., arXiv 1706.04599.

    Args:
        margins: [n] score differences first - second.
        y: [n] outcomes in [0, 1].

    Returns:
        T in [0.001, 1000]. The lower end means that the margins separate the outcomes without an error, the upper end
        that they say nothing or point the wrong way.

    Raises:
        TrimtabError: empty input, unequal lengths, margins that are not finite, or outcomes outside [0, 1].
    """
    x, outcomes = _checked(margins, y, "margin")

    def slope(log_inverse: float) -> float:
        logit = np.exp(log_inverse) * x
        # p - y, without losing the last digits of 1 - p
        gap = (1 - outcomes) * _sigmoid(logit) - outcomes * _sigmoid(-logit)
        return float(np.mean(gap * x))

    low, high = float(np.log(1 / _MAX_TEMPERATURE)), float(np.log(1 / _MIN_TEMPERATURE))
    if slope(low) >= 0:
        return _MAX_TEMPERATURE
    # in 1 / T the loss is convex, so its slope changes sign once: bisect, on a logarithmic scale
    for _ in range(_MAX_STEPS):
        middle = 0.5 * (low + high)
        # a slope of exactly 0 is one that underflowed, on the way down
        if slope(middle) <= 0:
            low = middle
        else:
            high = middle
    return float(np.exp(-0.5 * (low + high)))


class Platt(NamedTuple):
    """A fitted sigmoid; call it with margins to get probabilities."""

    slope: float
    intercept: float

    def __call__(self, margins: ArrayLike) -> Floats:
        """sigmoid(slope margin + intercept), [n]."""
        return _sigmoid(self.slope * np.asarray(margins, dtype=np.float64) + self.intercept)


def fit_platt(margins: ArrayLike, y: ArrayLike) -> Platt:
    """Logistic regression of the outcomes on the margins: mends scale and a constant preference for the first.

    The outcomes are drawn a little to the middle, 1 to (n1 + 1) / (n1 + 2) and 0 to 1 / (n0 + 2), so that separable
    data have a finite answer. Source: Platt (1999); Newton steps as in Lin, Lin and Weng (2007).

    Args:
        margins: [n] score differences first - second.
        y: [n] outcomes in [0, 1].

    Returns:
        Platt(slope, intercept).

    Raises:
        TrimtabError: empty input, unequal lengths, margins that are not finite, or outcomes outside [0, 1].
    """
    x, outcomes = _checked(margins, y, "margin")
    wins = float(outcomes.sum())
    losses = len(outcomes) - wins
    target = outcomes * (wins + 1) / (wins + 2) + (1 - outcomes) / (losses + 2)
    # on standardised margins Newton's method does not depend on their scale
    centre, scale = float(x.mean()), float(x.std()) or 1.0
    design = np.stack([(x - centre) / scale, np.ones_like(x)], axis=1)
    weights = np.array([0.0, np.log((wins + 1) / (losses + 1))])

    def loss(w: Floats) -> float:
        logit = design @ w
        return float(np.sum(np.logaddexp(0, logit) - target * logit))

    for _ in range(_MAX_STEPS):
        p = _sigmoid(design @ weights)
        gradient = design.T @ (p - target)
        # the ridge keeps margins that are all equal from making the system singular
        hessian = design.T @ (design * (p * (1 - p))[:, None]) + 1e-12 * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        rate = 1.0
        while rate > 1e-10 and loss(weights - rate * step) > loss(weights):
            rate /= 2
        weights = weights - rate * step
        if float(np.abs(rate * step).max()) < 1e-12:
            break
    slope = float(weights[0]) / scale
    return Platt(slope, float(weights[1]) - slope * centre)


class Isotonic(NamedTuple):
    """A fitted increasing function; call it with margins (or probabilities) to get probabilities."""

    x: Floats
    y: Floats

    def __call__(self, margins: ArrayLike) -> Floats:
        """Straight between the fitted points and level beyond them, [n]."""
        result: Floats = np.interp(np.asarray(margins, dtype=np.float64), self.x, self.y)
        return result


def fit_isotonic(margins: ArrayLike, y: ArrayLike) -> Isotonic:
    """The increasing function of the margin with the least squared error (pool adjacent violators).

    Needs some hundreds of outcomes; with fewer it overfits, and `fit_platt` or `fit_temperature` do better. Source:
    Zadrozny and Elkan (2002).

    Args:
        margins: [n] score differences or probabilities.
        y: [n] outcomes in [0, 1].

    Returns:
        Isotonic with one point for each distinct margin.

    Raises:
        TrimtabError: empty input, unequal lengths, margins that are not finite, or outcomes outside [0, 1].
    """
    x, outcomes = _checked(margins, y, "margin")
    points, index = np.unique(x, return_inverse=True)
    count = np.bincount(index).astype(np.float64)
    means = np.bincount(index, outcomes) / count
    # blocks of (mean, weight, number of points); a block that lies below its left neighbour joins it
    blocks: list[tuple[float, float, int]] = []
    for mean, weight in zip(means.tolist(), count.tolist(), strict=True):
        block = (mean, weight, 1)
        while blocks and blocks[-1][0] >= block[0]:
            left_mean, left_weight, left_points = blocks.pop()
            joint = left_weight + block[1]
            block = ((left_mean * left_weight + block[0] * block[1]) / joint, joint, left_points + block[2])
        blocks.append(block)
    fitted = np.concatenate([np.full(n, mean) for mean, _, n in blocks])
    return Isotonic(points, fitted)


def _sigmoid(x: Floats) -> Floats:
    # through exp(-|x|), which cannot overflow
    small = np.exp(-np.abs(x))
    result: Floats = np.where(x >= 0, 1 / (1 + small), small / (1 + small))
    return result


def _checked(first: ArrayLike, y: ArrayLike, what: str) -> tuple[Floats, Floats]:
    """Both as float64 [n], refused unless usable; `first` holds probabilities or margins."""
    x, outcomes = np.asarray(first, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if x.ndim != 1 or x.shape != outcomes.shape or x.size == 0:
        raise TrimtabError(
            ErrorKind.DATA,
            f"calibration of {list(x.shape)} predictions against {list(outcomes.shape)} outcomes",
            "give one outcome for each prediction, and at least one",
        )
    for name, values, bounded in ((what, x, what == "probability"), ("outcome", outcomes, True)):
        good = (values >= 0) & (values <= 1) if bounded else np.isfinite(values)
        if not good.all():
            at = int(np.argmin(good))
            right = "in [0, 1]" if bounded else "finite"
            raise TrimtabError(
                ErrorKind.DATA, f"{name} {values[at]} at position {at} is out of range", f"it must be {right}"
            )
    return x, outcomes
