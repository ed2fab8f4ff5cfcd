"""How much accuracy to expect of a preference model on responses that nobody has labeled.

A logistic regression on the pairs that the reference holds and the model was not trained on: is the pair ordered as
labeled, given how far its responses are from the reference (mean log distance), and how large the gap of their scores
is. Read at the distances and gaps of pairs of the new responses to one prompt; where there is one response a prompt, at
the distances alone. Two things it cannot know: a fault that all held-out pairs share, and what happens beyond the
distances that they reach; where a quarter of the responses lie there, nothing is said. Source of the idea: Guillory et
al., arXiv 2107.03315 (regression of accuracy on differences between sets).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trimtab.preference.model import Observed
from trimtab.preference.shift_reference import Reference
from trimtab.stats.intervals import Interval, bootstrap_mean
from trimtab.stats.resampling import percentile_interval
from trimtab.stats.shift import logistic_fit, logistic_value

__all__ = ["Expected", "expected_accuracy"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FEWEST_PAIRS: Final = 40
_FEWEST_PROMPTS: Final = 15
_BEYOND: Final = 0.25
_TOO_WIDE: Final = 0.3
_RESAMPLES: Final = 200
_MIXED: Final = 2000
_MOST_PAIRS: Final = 3
"""Pairs of responses to one prompt that are looked at: each response with the next ones."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Accuracy to expect.

    Args:
        accuracy: of pairs of the responses, with a 95 % bootstrap interval over prompts; NaN = cannot tell.
        reference: accuracy on the held-out pairs that this is read from.
        change: `accuracy` less that of the same regression on the held-out pairs.
        by_distance: the part of the change that the distances alone bring: held-out pairs moved there with the gaps
            that they have. The rest is that responses of a policy that settles resemble each other, and such pairs are
            hard for any model.
        by: "distance and gap", or "distance" where there is one response a prompt.
        why_not: why nothing can be told; empty = it can.
    """

    accuracy: Interval
    reference: Interval
    change: Interval
    by_distance: Interval
    by: str
    why_not: str = ""

    def loses(self, points: float) -> bool:
        """Whether the distances cost more than `points` of accuracy, and something beyond chance."""
        return self.by_distance.mean < -points and self.by_distance.high < 0

    def as_dict(self) -> dict[str, Any]:
        intervals = {name: getattr(self, name)._asdict() for name in ("accuracy", "reference", "change", "by_distance")}
        return intervals | {"by": self.by, "why_not": self.why_not}


def expected_accuracy(
    reference: Reference, seen: Observed, groups: Ints, same_scores: bool, *, seed: int = 0
) -> Expected:
    """See `Expected`.

    Args:
        reference: of the model.
        seen: what the model gives for the responses.
        groups: [n] their prompts.
        same_scores: whether their scores are made of what the reference's are.
        seed: of the bootstrap.
    """
    known = reference.usual[::2]
    unseen = bool(reference.unseen.any()) and bool(reference.unseen[known].all())
    # two responses that the model reads as one have a distance of 0, whose logarithm is none: the least that is seen
    positive = reference.distances[reference.distances > 0]
    least = float(positive.min()) if len(positive) else 1.0
    single = np.log(np.maximum(reference.distances, least))
    distances = single.reshape(-1, 2).mean(1)
    scores = reference.scores[reference.usual].reshape(-1, 2)
    margins = scores[:, 0] - scores[:, 1]
    labels = reference.labels[known]
    right = np.where(labels >= 0.5, (np.sign(margins) + 1) / 2, (1 - np.sign(margins)) / 2)
    prompts = reference.prompts[known]
    decided = np.abs(labels - 0.5) > 1e-6
    first, second = _pairs(groups)
    paired = same_scores and len(first) >= _FEWEST_PROMPTS and not np.allclose(margins, margins[0])
    by = "distance and gap" if paired else "distance"
    accuracy = _mean(right[decided], prompts[decided], seed)
    if not unseen:
        count = int(reference.unseen.sum())
        return _unknown(
            f"{count} held-out pairs in the reference are too few" if count else _NONE_HELD_OUT, accuracy, by
        )
    if decided.sum() < _FEWEST_PAIRS or len(np.unique(prompts[decided])) < _FEWEST_PROMPTS:
        return _unknown(f"{int(decided.sum())} decided held-out pairs are too few", accuracy, by)
    far = np.log(np.maximum(reference.place.distances(seen.states), least))
    if float((far > np.quantile(single, 0.99)).mean()) > _BEYOND:
        return _unknown("the responses lie beyond the distances of the held-out pairs", accuracy, by)
    columns = [distances[decided]]
    there = [far]
    of = groups
    if paired:
        size = max(float(np.abs(margins).mean()), 1e-12)
        columns.append(np.log1p(np.abs(margins[decided]) / size))
        there = [(far[first] + far[second]) / 2, np.log1p(np.abs(seen.scores[first] - seen.scores[second]) / size)]
        of = groups[first]
    middle, scale = np.mean(columns, axis=1), np.maximum(np.std(columns, axis=1), 1e-9)
    x, z = ((np.column_stack(c) - middle) / scale for c in (columns, there))
    return _regressed(x, right[decided], prompts[decided], z, of, accuracy, by, seed)


def _regressed(
    x: Floats, right: Floats, prompts: Ints, z: Floats, groups: Ints, accuracy: Interval, by: str, seed: int
) -> Expected:
    rng = np.random.default_rng([seed, 5])
    # every held-out pair as it is, but at the distance of a new one
    source = rng.integers(len(z), size=_MIXED)
    mixed = np.column_stack([z[source, 0], np.resize(x[:, 1:], (_MIXED, x.shape[1] - 1))])

    def at(fitted: Floats, weights: Floats) -> tuple[float, float, float]:
        there, farther = logistic_value(fitted, z), logistic_value(fitted, mixed)
        here = float(logistic_value(fitted, x).mean())
        value = float(np.average(there, weights=weights))
        return value, value - here, float(np.average(farther, weights=weights[source])) - here

    here = np.unique(prompts, return_inverse=True)[1]
    new = np.unique(groups, return_inverse=True)[1]
    found = at(logistic_fit(x, right), np.ones(len(z)))
    drawn = np.empty((_RESAMPLES, 3))
    for i in range(_RESAMPLES):
        fitted = logistic_fit(x, right, _drawn_weights(here, rng))
        drawn[i] = at(fitted, np.maximum(_drawn_weights(new, rng), 1e-9))
    value, change, apart = (
        Interval(own, *percentile_interval(draws), len(z)) for own, draws in zip(found, drawn.T, strict=True)
    )
    if value.high - value.low > _TOO_WIDE:
        return _unknown("too few pairs: the interval is wider than 30 points", accuracy, by)
    return Expected(value, accuracy, change, apart, by)


def _drawn_weights(index: Ints, rng: np.random.Generator) -> Floats:
    """[n] how often each row's group was drawn, in one bootstrap resample."""
    count = int(index.max()) + 1
    return np.bincount(rng.integers(count, size=count), minlength=count)[index].astype(np.float64)


def _pairs(groups: Ints) -> tuple[Ints, Ints]:
    """Indices of pairs of rows of one group: every row with the next few of its group."""
    order = np.argsort(groups, kind="stable")
    first, second = [], []
    for step in range(1, _MOST_PAIRS + 1):
        a, b = order[:-step], order[step:]
        same = groups[a] == groups[b]
        first.append(a[same])
        second.append(b[same])
    return np.concatenate(first), np.concatenate(second)


def _mean(right: Floats, prompts: Ints, seed: int) -> Interval:
    return bootstrap_mean(right, prompts, seed=seed) if len(right) else _NOTHING


def _unknown(why: str, accuracy: Interval, by: str) -> Expected:
    return Expected(_NOTHING, accuracy, _NOTHING, _NOTHING, by, why)


_NONE_HELD_OUT: Final = "no held-out pairs in the reference"
_NOTHING: Final = Interval(math.nan, math.nan, math.nan, 0)
