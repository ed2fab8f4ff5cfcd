"""Several raters, unknown truth: Dawid and Skene's model, fitted by expectation maximisation.

Each item has one true class; each rater names class k for an item of class j with probability confusion[rater, j, k],
independently of the other raters. The estimate weighs a vote by how well its rater agrees with the rest, and turns the
vote of a rater who is wrong more often than chance around.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["DawidSkene", "dawid_skene"]

Floats = NDArray[np.float64]


class DawidSkene(NamedTuple):
    """A fitted model.

    Args:
        posterior: [n_items, classes] P(class of the item given all votes); the prior where an item has no vote.
        confusion: [n_raters, classes, classes] P(vote given true class); the last axis sums to 1.
        prior: [classes] P(class).
        accuracy: [n_raters] P(a vote of the rater is the true class), over the classes by `prior`.
        log_likelihood: of the votes that were given, nats; smoothing is not part of it.
        iterations: steps taken.
        converged: whether the objective had stopped to rise before the last step.
    """

    posterior: Floats
    confusion: Floats
    prior: Floats
    accuracy: Floats
    log_likelihood: float
    iterations: int
    converged: bool


def dawid_skene(
    votes: ArrayLike,
    classes: int,
    *,
    smoothing: float = 0.01,
    symmetric: bool = False,
    max_iterations: int = 500,
    tolerance: float = 1e-8,
) -> DawidSkene:
    """Fit classes, class priors and confusion matrices by EM from the vote shares.

    Starts from each item's vote shares, so that the classes keep their names as long as the raters are right more often
    than wrong. With two raters the model is not identified beyond that start. Source: Dawid and Skene (1979).

    Args:
        votes: [n_items, n_raters] integers from 0 to classes - 1; -1 = no vote.
        classes: at least 2 (3 with ties).
        smoothing: votes added to every cell of a confusion matrix and to every class, so that a rater with few votes is
            not taken for perfect. 0 gives the plain maximum-likelihood estimate.
        symmetric: one error rate a rater, the same for every class and spread evenly over the wrong ones; for few
            votes. Without it a matrix a rater.
        max_iterations: at most this many steps.
        tolerance: converged when a step raises the objective by less than this times (1 + its size).

    Returns:
        DawidSkene.

    Raises:
        TrimtabError: votes of the wrong shape or out of range, no vote at all, or settings out of range.
    """
    v = _checked(votes, classes, smoothing)
    given = np.stack([v == k for k in range(classes)], axis=2).astype(np.float64)  # [n_items, n_raters, classes]
    flat = given.reshape(len(v), -1)
    counted = given.sum(axis=1)
    total = counted.sum(axis=1, keepdims=True)
    posterior = np.where(total > 0, counted / np.maximum(total, 1), 1 / classes)
    # an item without a vote says nothing of the prior
    weight = (total[:, 0] > 0).astype(np.float64)
    before, likelihood = -np.inf, -np.inf
    converged, steps = False, 0
    confusion, prior = _maximise(posterior, flat, weight, v.shape[1], classes, smoothing, symmetric)
    for steps in range(1, max_iterations + 1):  # noqa: B007 - told in the result
        posterior, likelihood = _expect(confusion, prior, flat, weight)
        objective = likelihood + _log_smoothing(confusion, prior, smoothing)
        if objective - before < tolerance * (1 + abs(objective)):
            converged = True
            break
        before = objective
        confusion, prior = _maximise(posterior, flat, weight, v.shape[1], classes, smoothing, symmetric)
    accuracy = np.einsum("rkk,k->r", confusion, prior)
    return DawidSkene(posterior, confusion, prior, accuracy, likelihood, steps, converged)


def _expect(confusion: Floats, prior: Floats, flat: Floats, weight: Floats) -> tuple[Floats, float]:
    """Posterior of every item and the log-likelihood of all votes."""
    raters, classes = confusion.shape[:2]
    with np.errstate(divide="ignore"):
        log_vote = np.log(confusion).transpose(0, 2, 1).reshape(raters * classes, classes)
        log_prior = np.log(prior)
    # a vote that is not given must not turn 0 * -inf into NaN
    held = np.maximum(log_vote, -1e300)
    joint = flat @ held + np.maximum(log_prior, -1e300)
    top = joint.max(axis=1, keepdims=True)
    likely = np.exp(joint - top)
    mass = likely.sum(axis=1, keepdims=True)
    return likely / mass, float(np.sum(weight * (top + np.log(mass))[:, 0]))


def _maximise(
    posterior: Floats, flat: Floats, weight: Floats, raters: int, classes: int, smoothing: float, symmetric: bool
) -> tuple[Floats, Floats]:
    """Confusion matrices and prior that the weighted items make most likely."""
    weighted = posterior * weight[:, None]
    prior = weighted.sum(axis=0) + smoothing
    prior = prior / prior.sum()
    counts = (weighted.T @ flat).reshape(classes, raters, classes).transpose(1, 0, 2) + smoothing
    if symmetric:
        right = np.einsum("rkk->r", counts)
        share = right / counts.sum(axis=(1, 2)) if smoothing else _divide(right, counts.sum(axis=(1, 2)), 1 / classes)
        wrong = (1 - share) / (classes - 1)
        eye = np.eye(classes)
        return wrong[:, None, None] * (1 - eye) + share[:, None, None] * eye, prior
    return _divide(counts, counts.sum(axis=2, keepdims=True), 1 / classes), prior


def _log_smoothing(confusion: Floats, prior: Floats, smoothing: float) -> float:
    """What the added votes add to the objective that EM raises."""
    if smoothing == 0:
        return 0.0
    return float(smoothing * (np.log(confusion).sum() + np.log(prior).sum()))


def _divide(counts: Floats, totals: Floats, empty: float) -> Floats:
    """counts / totals, `empty` where there is nothing."""
    result: Floats = np.where(totals > 0, counts / np.where(totals > 0, totals, 1), empty)
    return result


def _checked(votes: ArrayLike, classes: int, smoothing: float) -> NDArray[np.int64]:
    v = np.asarray(votes)
    if v.ndim != 2 or v.dtype.kind not in "iu":
        raise TrimtabError(
            ErrorKind.DATA,
            f"Dawid-Skene votes of shape {list(v.shape)} and type {v.dtype}",
            "give whole numbers as [items, raters], -1 for no vote",
        )
    if classes < 2 or smoothing < 0:
        raise TrimtabError(
            ErrorKind.FAILED,
            f"Dawid-Skene with {classes} classes and smoothing {smoothing}",
            "there are at least 2 classes, and smoothing is not negative",
        )
    if v.size == 0 or not (v >= 0).any():
        raise TrimtabError(ErrorKind.DATA, "Dawid-Skene without a vote", "at least one item needs at least one vote")
    if int(v.min()) < -1 or int(v.max()) >= classes:
        bad = v[(v < -1) | (v >= classes)][0]
        raise TrimtabError(
            ErrorKind.DATA, f"vote {bad} is no class", f"votes are from 0 to {classes - 1}, -1 for no vote"
        )
    return v.astype(np.int64)
