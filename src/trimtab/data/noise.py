"""Which labels are wrong, and which are only close calls?

A rater who finds two responses about equal picks either of them: such a label disagrees with the better half of all
raters without being an error. So the label is modeled as a Bradley-Terry draw that is turned over with a small
probability e: with a score margin s that was not fitted on this label (cross-validated, or from a model trained
elsewhere),

    P(first wins) = (1 - e) sigmoid(a s + b) + e (1 - sigmoid(a s + b))

a and b are fitted by maximum likelihood at every e of a grid; what is said of e and of the labels is averaged over the
grid by likelihood and a prior (Beta(1, 9): mean .1), so that a weak model, which cannot tell e, does not pretend to.
Every label gets the posterior probability that it was turned over. Where the margin is near 0 that probability is near
e, whatever the label says. Sources: the noise model is that of Natarajan et al. (2013) and Chowdhury et al., arXiv
2403.00409; the interval is the profile likelihood's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["NoiseFit", "fit_noise", "flip_posterior"]

Floats = NDArray[np.float64]

_RATES = np.concatenate([[0.0], np.geomspace(1e-3, 0.02, 5), np.arange(0.03, 0.5, 0.02)])
_MOST_STEPS = 60
_ROUNDS = 200
_SETTLED = 1e-7
_HALF_CHI2_95 = 1.920729410347062  # half the 95 % quantile of chi squared with one degree of freedom
_MOST_RATE = 0.49


@dataclass(frozen=True, slots=True)
class NoiseFit:
    """What the labels say about themselves.

    Args:
        rate: share of labels that were turned over, over all of them; its posterior mean.
        low: lower end of the 95 % profile-likelihood interval of one common rate.
        high: upper end.
        slope: a; how sharply the margin decides.
        intercept: b; preference for the first response, 0 where it was not asked for.
        rates: the rate of every group, by the group's name; empty without groups.
        posterior: [n] probability that this label was turned over.
        gain: log-likelihood gained over a fit without noise, nats.
    """

    rate: float
    low: float
    high: float
    slope: float
    intercept: float
    rates: dict[Hashable, float]
    posterior: Floats
    gain: float

    @property
    def evident(self) -> bool:
        """Whether the interval of the rate excludes 0: only then is there noise that close calls do not explain."""
        return self.low > 0

    def likely(self, above: float = 0.5) -> NDArray[np.bool_]:
        """[n] labels that are more likely wrong than `above`; of those about the mean of their posterior are."""
        result: NDArray[np.bool_] = self.posterior > above
        return result

    def best_f1(self) -> NDArray[np.bool_]:
        """[n] the set of labels whose expected F1 score as a list of the wrong ones is greatest.

        Longer than `likely`, and only about as often right as wrong: to be looked at by people, not to be dropped.
        """
        order = np.argsort(-self.posterior, kind="stable")
        found = np.cumsum(self.posterior[order])
        f1 = 2 * found / (np.arange(1, len(order) + 1) + found[-1]) if found[-1] > 0 else np.zeros(len(order))
        chosen = np.zeros(len(order), dtype=np.bool_)
        chosen[order[: int(np.argmax(f1)) + 1]] = bool(found[-1] > 0)
        return chosen


def fit_noise(
    margins: ArrayLike,
    labels: ArrayLike,
    groups: Sequence[Hashable] | None = None,
    *,
    intercept: bool = False,
    prior_labels: float = 10.0,
) -> NoiseFit:
    """Fit the margin's slope and the share of labels that were turned over, and judge every label.

    Args:
        margins: [n] score of the first response minus score of the second, by a model that has not seen this label.
        labels: [n] P(first wins) as labeled, in [0, 1]: 1 or 0 for hard labels. Files of pairs put the winner first:
            all ones.
        groups: [n] annotator or source of each label; None = one rate for all.
        intercept: also fit a preference for the first response; only where first was not chosen by the label.
        prior_labels: a group's rate is drawn to the common one as if so many more of its labels were known exactly.

    Returns:
        The fit; with useless margins (slope near 0) the rate cannot be known and its interval is wide.

    Raises:
        TrimtabError: no labels, unequal lengths, margins that are not finite, labels outside [0, 1].
    """
    s, y = _checked(margins, labels, groups)
    scale = float(np.sqrt(np.mean(s * s))) or 1.0
    x = s / scale
    rates, profile, fits = _profile(x, y, intercept)
    best = int(np.argmax(profile))
    low, high = _interval(rates, profile)
    weights = _weights(rates, profile)
    rate = float(weights @ rates)
    theta = fits[int(np.argmin(np.abs(rates - rate)))]
    by_group: dict[Hashable, float] = {}
    if groups is None:
        posterior = np.zeros(len(x))
        for weight, e, (a, b) in zip(weights, rates, fits, strict=True):
            if weight > 1e-6:
                posterior += weight * flip_posterior(a * x + b, y, e)
    else:
        by_group, each = _by_group(x, y, groups, theta, rate, prior_labels)
        rate = float(each.mean())
        posterior = flip_posterior(theta[0] * x + theta[1], y, each)
    gain = max(float(profile[best] - profile[0]), 0.0)
    return NoiseFit(rate, low, high, float(theta[0] / scale), float(theta[1]), by_group, posterior, gain)


def flip_posterior(logits: ArrayLike, labels: ArrayLike, rate: ArrayLike) -> Floats:
    """P(the label was turned over), given the log-odds that the first response wins an honest draw.

    With q the honest probability of what the label says, e (1 - q) / ((1 - e) q + e (1 - q)); a soft label mixes the
    two answers.

    Args:
        logits: [n] log-odds of the first response.
        labels: [n] P(first wins) as labeled, in [0, 1].
        rate: share of labels that are turned over; a number or [n].

    Returns:
        [n] in [0, 1].
    """
    q = _sigmoid(np.asarray(logits, dtype=np.float64))
    y, e = np.asarray(labels, dtype=np.float64), np.asarray(rate, dtype=np.float64)
    tiny = np.finfo(np.float64).tiny
    first = e * (1 - q) / np.maximum((1 - e) * q + e * (1 - q), tiny)
    second = e * q / np.maximum((1 - e) * (1 - q) + e * q, tiny)
    result: Floats = y * first + (1 - y) * second
    return result


def _checked(margins: ArrayLike, labels: ArrayLike, groups: Sequence[Hashable] | None) -> tuple[Floats, Floats]:
    s, y = np.asarray(margins, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if s.ndim != 1 or s.size == 0 or s.shape != y.shape or (groups is not None and len(groups) != s.size):
        counts = f"{s.size} margins and {y.size} labels" + ("" if groups is None else f" of {len(groups)} groups")
        raise TrimtabError(ErrorKind.DATA, counts, "give one margin, one label and one group for every pair")
    if not np.isfinite(s).all():
        raise TrimtabError(ErrorKind.DATA, f"margin {s[~np.isfinite(s)][0]} is no number", "margins are finite")
    bad = ~((y >= 0) & (y <= 1))
    if bad.any():
        raise TrimtabError(ErrorKind.DATA, f"label {y[bad][0]} is no probability", "labels are in [0, 1]")
    return s, y


def _profile(x: Floats, y: Floats, intercept: bool) -> tuple[Floats, Floats, list[Floats]]:
    """Rates, best log-likelihood at each, and the (slope, intercept) that reach it; refined about the maximum."""
    rates, profile, fits = list(_RATES), [], []
    theta = np.array([1.0, 0.0])
    for rate in rates:
        theta, value = _fit_logistic(x, y, np.full(len(x), rate), theta, intercept)
        profile.append(value)
        fits.append(theta)
    for _ in range(6):
        best = int(np.argmax(profile))
        around = [i for i in (best - 1, best + 1) if 0 <= i < len(rates)]
        for middle in [(rates[best] + rates[i]) / 2 for i in around]:
            found, value = _fit_logistic(x, y, np.full(len(x), middle), fits[best], intercept)
            place = int(np.searchsorted(rates, middle))
            rates.insert(place, middle)
            profile.insert(place, value)
            fits.insert(place, found)
            best += place <= best
    return np.array(rates), np.array(profile), fits


def _weights(rates: Floats, profile: Floats) -> Floats:
    """Posterior mass of every rate on the grid (trapezoid cells), under the prior Beta(1, 9)."""
    edges = np.concatenate([rates[:1], (rates[1:] + rates[:-1]) / 2, [0.5]])
    mass = np.exp(profile - profile.max()) * (1 - rates) ** 8 * np.diff(edges)
    result: Floats = mass / mass.sum()
    return result


def _interval(rates: Floats, profile: Floats) -> tuple[float, float]:
    """Where the profile crosses its maximum minus half a chi-squared quantile, straight between the grid's points."""
    best = int(np.argmax(profile))
    bar = profile[best] - _HALF_CHI2_95
    low, high = 0.0, 0.5
    for i in range(best, 0, -1):
        if profile[i - 1] < bar <= profile[i]:
            low = float(np.interp(bar, profile[i - 1 : i + 1], rates[i - 1 : i + 1]))
            break
    for i in range(best, len(rates) - 1):
        if profile[i + 1] < bar <= profile[i]:
            high = float(np.interp(-bar, -profile[i : i + 2], rates[i : i + 2]))
            break
    return low, high


def _fit_logistic(x: Floats, y: Floats, rate: Floats, start: Floats, intercept: bool) -> tuple[Floats, float]:
    """The slope (at least 0) and intercept with the greatest likelihood at given rates: damped Newton steps.

    Steps follow the expected information (Fisher scoring), which is never negative where the likelihood is not concave.
    """
    theta, damping = start.copy(), 1e-6
    value = _log_likelihood(x, y, rate, theta)
    for _ in range(_MOST_STEPS):
        q = _sigmoid(theta[0] * x + theta[1])
        p = np.clip((1 - 2 * rate) * q + rate, 1e-12, 1 - 1e-12)
        slope = (1 - 2 * rate) * q * (1 - q)
        score = (y - p) / (p * (1 - p)) * slope
        weight = slope * slope / (p * (1 - p))
        gradient = np.array([score @ x, score.sum() if intercept else 0.0])
        information = np.array([[weight @ (x * x), weight @ x], [weight @ x, weight.sum()]])
        if not intercept:
            information[0, 1] = information[1, 0] = 0.0
            information[1, 1] = 1.0
        # a weak prior (standard deviation 30 in units of the margins' size) keeps separable labels finite
        gradient[0] -= theta[0] / 900
        information += np.diag([1 / 900, 1e-9]) + damping * np.diag(np.diag(information))
        step = np.linalg.solve(information, gradient)
        tried = np.array([max(theta[0] + step[0], 0.0), theta[1] + step[1]])
        new = _log_likelihood(x, y, rate, tried)
        if new < value - 1e-12:
            damping = max(damping, 1e-3) * 10
            if damping > 1e8:
                break
            continue
        moved, theta, value, damping = float(np.abs(tried - theta).max()), tried, new, damping / 10
        if moved < _SETTLED:
            break
    return theta, value


def _by_group(
    x: Floats, y: Floats, groups: Sequence[Hashable], theta: Floats, rate: float, prior_labels: float
) -> tuple[dict[Hashable, float], Floats]:
    """Rates by group, drawn to the common one, by expectation-maximisation at the slope of the common fit.

    Fitting the slope again with the groups' rates lets both run away upwards together: a group alone says little of a
    small rate, and a rate cannot be below 0.
    """
    number: dict[Hashable, int] = {}
    index = np.array([number.setdefault(group, len(number)) for group in groups])
    sizes = np.bincount(index).astype(np.float64)
    common = max(rate, 1e-3)
    rates = np.full(len(sizes), common)
    for _ in range(_ROUNDS):
        posterior = flip_posterior(theta[0] * x + theta[1], y, rates[index])
        turned = np.bincount(index, posterior, len(sizes))
        new = np.minimum((turned + prior_labels * common) / (sizes + prior_labels), _MOST_RATE)
        moved, rates = float(np.abs(new - rates).max()), new
        if moved < 1e-5:
            break
    return {group: float(rates[i]) for group, i in number.items()}, rates[index]


def _log_likelihood(x: Floats, y: Floats, rate: Floats, theta: Floats) -> float:
    q = _sigmoid(theta[0] * x + theta[1])
    p = np.clip((1 - 2 * rate) * q + rate, 1e-12, 1 - 1e-12)
    return float(y @ np.log(p) + (1 - y) @ np.log1p(-p) - theta[0] ** 2 / 1800)


def _sigmoid(x: Floats) -> Floats:
    result: Floats = 0.5 * (1 + np.tanh(0.5 * x))
    return result
