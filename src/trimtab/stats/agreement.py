"""Do raters agree beyond chance? Raw agreement, Cohen, Fleiss, Krippendorff, Gwet, each with a cluster bootstrap.

Votes are whole numbers from 0 to classes - 1, [n] for one rater or [n_items, n_raters] for several; -1 is no vote.
Every measure is a function of sums over items, which is what its interval draws. A measure that is 0 / 0 (all votes the
same class, for those that divide by what chance leaves) is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.stats.intervals import Interval
from trimtab.stats.resampling import bootstrap_sums, group_sums, percentile_interval

__all__ = [
    "Level",
    "Measure",
    "agreement",
    "agreement_intervals",
    "cohen_kappa",
    "fleiss_kappa",
    "gwet_ac1",
    "krippendorff_alpha",
    "raw_agreement",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Level = Literal["nominal", "ordinal", "interval"]
Measure = Literal["raw", "cohen", "fleiss", "alpha", "alpha-ordinal", "alpha-interval", "ac1"]

_LEVELS: dict[str, Level] = {"alpha": "nominal", "alpha-ordinal": "ordinal", "alpha-interval": "interval"}


class _Sums(NamedTuple):
    """A measure: what it sums over items, and how the sums make it."""

    of_items: Callable[[Ints, int], Floats]
    """votes [n, raters], classes -> [n, k]"""
    measure: Callable[[Floats, int], Floats]
    """sums [..., k], classes -> [...]"""


def raw_agreement(first: ArrayLike, second: ArrayLike) -> float:
    """Share of items on which two raters give the same vote, over the items that both voted on; NaN without any.

    Args:
        first: [n] votes of one rater.
        second: [n] votes of the other.

    Raises:
        TrimtabError: unequal lengths, or votes that are no whole numbers from -1 on.
    """
    return agreement("raw", _two(first, second))


def cohen_kappa(first: ArrayLike, second: ArrayLike, weights: Literal["linear", "quadratic"] | None = None) -> float:
    """Cohen's kappa of two raters: (observed - chance) / (1 - chance), chance from each rater's own shares.

    Only items that both voted on count. Source: Cohen (1960); weighted, for classes in order, Cohen (1968).

    Args:
        first: [n] votes of one rater.
        second: [n] votes of the other.
        weights: disagreement by the distance of the classes, or its square; None = all disagreements are alike.

    Returns:
        In [-1, 1]; NaN without common items or where chance leaves no room (both always vote the same class).

    Raises:
        TrimtabError: unequal lengths, or votes that are no whole numbers from -1 on.
    """
    votes = _two(first, second)
    classes = _classes(votes, None)
    return float(_kappa(_table_items(votes, classes).sum(axis=0), classes, weights))


def fleiss_kappa(votes: ArrayLike, classes: int | None = None) -> float:
    """Fleiss' kappa of several raters, chance from the pooled shares. Source: Fleiss (1971).

    Args:
        votes: [n_items, n_raters]; items without a vote of every rater are left out.
        classes: how many there are; None: as many as occur.

    Returns:
        At most 1; NaN without complete items or where all votes are the same class.

    Raises:
        TrimtabError: votes of the wrong shape or out of range.
    """
    return agreement("fleiss", votes, classes)


def krippendorff_alpha(votes: ArrayLike, level: Level = "nominal", classes: int | None = None) -> float:
    """Krippendorff's alpha: 1 - observed / expected disagreement, for any number of raters and missing votes.

    Items with a single vote cannot be paired and are left out. Source: Krippendorff (2011), "Computing Krippendorff's
    alpha-reliability".

    Args:
        votes: [n_items, n_raters].
        level: `nominal`: classes differ or not; `ordinal`: they have an order; `interval`: the class numbers are
            equally spaced values.
        classes: how many there are; None: as many as occur.

    Returns:
        At most 1; NaN where nothing can be paired or all votes are the same class.

    Raises:
        TrimtabError: votes of the wrong shape or out of range, or an unknown level.
    """
    names: dict[str, Measure] = {"nominal": "alpha", "ordinal": "alpha-ordinal", "interval": "alpha-interval"}
    if level not in names:
        raise TrimtabError(ErrorKind.FAILED, f"Krippendorff's alpha of level {level!r}", f"one of {', '.join(names)}")
    return agreement(names[level], votes, classes)


def gwet_ac1(votes: ArrayLike, classes: int | None = None) -> float:
    """Gwet's AC1: as kappa, with a chance that stays small where nearly all votes are one class.

    Observed agreement over the items with at least two votes, class shares over those with at least one. Source: Gwet
    (2008), with missing votes as in Gwet (2014), "Handbook of Inter-Rater Reliability", chapter 2.

    Args:
        votes: [n_items, n_raters]; missing votes are allowed.
        classes: how many there are, used or not; None: as many as occur, at least 2.

    Returns:
        At most 1; NaN where no item has two votes.

    Raises:
        TrimtabError: votes of the wrong shape or out of range.
    """
    return agreement("ac1", votes, classes)


def agreement(measure: Measure, votes: ArrayLike, classes: int | None = None) -> float:
    """A measure by name; `raw` and `cohen` take two raters. See the functions of those names."""
    checked = _checked(votes, measure)
    k = _classes(checked, classes)
    sums = _MEASURES[measure]
    return float(sums.measure(sums.of_items(checked, k).sum(axis=0), k))


def agreement_intervals(
    measures: tuple[Measure, ...],
    votes: ArrayLike,
    groups: NDArray[np.integer] | None = None,
    classes: int | None = None,
    resamples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> dict[Measure, Interval]:
    """Several measures of the same votes with percentile bootstrap intervals; whole groups of items are drawn.

    Args:
        measures: which.
        votes: [n_items, n_raters].
        groups: [n_items] the prompt (or whatever is independent) of each item; None = each is its own.
        classes: how many there are; None: as many as occur.
        resamples: bootstrap samples.
        seed: of a random generator of its own.
        level: in (0, 1).

    Returns:
        An `Interval` a measure; `n` counts the items that it rests on. NaN where it is not defined, and for the bounds
        where there is one group only.

    Raises:
        TrimtabError: as the measures, or unequal lengths.
    """
    checked = np.asarray(votes)
    parts, k = [], 0
    for measure in measures:
        checked = _checked(checked, measure)
        k = _classes(checked, classes)
        parts.append(_MEASURES[measure].of_items(checked, k))
    joint = np.concatenate(parts, axis=1)
    grouped = group_sums(joint, groups)
    drawn = bootstrap_sums(grouped, None, resamples, seed) if len(grouped) > 1 else None
    result: dict[Measure, Interval] = {}
    start = 0
    for measure, part in zip(measures, parts, strict=True):
        columns = slice(start, start + part.shape[1])
        start += part.shape[1]
        make = _MEASURES[measure].measure
        low, high = (math.nan, math.nan) if drawn is None else percentile_interval(make(drawn[:, columns], k), level)
        used = int((part != 0).any(axis=1).sum())
        result[measure] = Interval(float(make(part.sum(axis=0), k)), low, high, used)
    return result


# two raters


def _table_items(votes: Ints, classes: int) -> Floats:
    """[n, classes * classes]: a 1 in the cell of the two votes; nothing where one is missing."""
    both = (votes >= 0).all(axis=1)
    items = np.zeros((len(votes), classes * classes))
    rows = np.flatnonzero(both)
    items[rows, votes[rows, 0] * classes + votes[rows, 1]] = 1
    return items


def _raw(sums: Floats, classes: int) -> Floats:
    table = sums.reshape(*sums.shape[:-1], classes, classes)
    return _over(np.trace(table, axis1=-2, axis2=-1), table.sum(axis=(-2, -1)))


def _kappa(sums: Floats, classes: int, weights: Literal["linear", "quadratic"] | None = None) -> Floats:
    table = sums.reshape(*sums.shape[:-1], classes, classes)
    n = table.sum(axis=(-2, -1))
    expected = table.sum(axis=-1)[..., :, None] * table.sum(axis=-2)[..., None, :]
    distance = np.abs(np.arange(classes)[:, None] - np.arange(classes)[None, :]).astype(np.float64)
    cost = {None: (distance > 0).astype(np.float64), "linear": distance, "quadratic": distance**2}[weights]
    return 1 - _over((table * cost).sum(axis=(-2, -1)) * n, (expected * cost).sum(axis=(-2, -1)))


# several raters


def _counts(votes: Ints, classes: int) -> Floats:
    """[n, classes] votes by class."""
    return np.stack([(votes == c).sum(axis=1) for c in range(classes)], axis=1).astype(np.float64)


def _fleiss_items(votes: Ints, classes: int) -> Floats:
    """[n, 2 + classes]: 1, agreement within the item, class shares; nothing for incomplete items."""
    counts = _counts(votes, classes)
    raters = votes.shape[1]
    complete = np.min(votes, axis=1, keepdims=True) >= 0
    within = (counts * (counts - 1)).sum(axis=1, keepdims=True) / (raters * (raters - 1))
    return np.where(complete, np.concatenate([np.ones_like(within), within, counts / raters], axis=1), 0.0)


def _fleiss(sums: Floats, classes: int) -> Floats:
    n = sums[..., 0]
    chance = (_over(sums[..., 2:], n[..., None]) ** 2).sum(axis=-1)
    return 1 - _over(1 - _over(sums[..., 1], n), 1 - chance)


def _coincidence_items(votes: Ints, classes: int) -> Floats:
    """[n, classes * classes] coincidences: ordered pairs of votes within an item, over its number of votes - 1."""
    counts = _counts(votes, classes)
    m = counts.sum(axis=1)
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(classes)
    weight = np.where(m > 1, 1 / np.maximum(m - 1, 1), 0.0)
    return (pairs * weight[:, None, None]).reshape(len(votes), -1)


def _alpha(level: Level) -> Callable[[Floats, int], Floats]:
    def measure(sums: Floats, classes: int) -> Floats:
        observed = sums.reshape(*sums.shape[:-1], classes, classes)
        marginal = observed.sum(axis=-1)
        n = marginal.sum(axis=-1)
        expected = marginal[..., :, None] * marginal[..., None, :] - marginal[..., :, None] * np.eye(classes)
        distance = _distance(level, marginal, classes)
        result: Floats = 1 - _over(
            (observed * distance).sum(axis=(-2, -1)) * (n - 1), (expected * distance).sum(axis=(-2, -1))
        )
        return result

    return measure


def _distance(level: Level, marginal: Floats, classes: int) -> Floats:
    """[..., classes, classes] how much two classes differ; for ordered ones by how many votes lie between them."""
    k = np.arange(classes, dtype=np.float64)
    if level == "nominal":
        return 1 - np.eye(classes)
    if level == "interval":
        return np.subtract.outer(k, k) ** 2
    # votes below the middle of each class: differences of it are what Krippendorff sums up
    middle = np.cumsum(marginal, axis=-1) - marginal / 2
    result: Floats = (middle[..., :, None] - middle[..., None, :]) ** 2
    return result


def _ac1_items(votes: Ints, classes: int) -> Floats:
    """[n, 3 + classes]: two votes or more, agreement within, one vote or more, class shares."""
    counts = _counts(votes, classes)
    m = counts.sum(axis=1, keepdims=True)
    paired, voted = (m > 1).astype(np.float64), (m > 0).astype(np.float64)
    within = (counts * (counts - 1)).sum(axis=1, keepdims=True) / np.maximum(m * (m - 1), 1)
    return np.concatenate([paired, within * paired, voted, counts / np.maximum(m, 1)], axis=1)


def _ac1(sums: Floats, classes: int) -> Floats:
    observed = _over(sums[..., 1], sums[..., 0])
    share = _over(sums[..., 3:], sums[..., 2, None])
    chance = (share * (1 - share)).sum(axis=-1) / (classes - 1)
    result: Floats = (observed - chance) / (1 - chance)
    return result


_MEASURES: dict[str, _Sums] = {
    "raw": _Sums(_table_items, _raw),
    "cohen": _Sums(_table_items, _kappa),
    "fleiss": _Sums(_fleiss_items, _fleiss),
    **{name: _Sums(_coincidence_items, _alpha(level)) for name, level in _LEVELS.items()},
    "ac1": _Sums(_ac1_items, _ac1),
}


def _over(a: Floats, b: Floats) -> Floats:
    """a / b, NaN where b is 0 (to within rounding: sums of shares do not cancel exactly)."""
    zero = np.abs(b) < 1e-12
    result: Floats = np.where(zero, np.nan, a / np.where(zero, 1.0, b))
    return result


def _two(first: ArrayLike, second: ArrayLike) -> Ints:
    a, b = np.asarray(first), np.asarray(second)
    if a.ndim != 1 or a.shape != b.shape:
        raise TrimtabError(
            ErrorKind.DATA,
            f"agreement of {list(a.shape)} and {list(b.shape)} votes",
            "give one vote of each rater for every item, -1 where there is none",
        )
    return _checked(np.stack([a, b], axis=1), "raw")


def _classes(votes: Ints, classes: int | None) -> int:
    seen = int(votes.max(initial=-1)) + 1
    if classes is not None and seen > classes:
        raise TrimtabError(ErrorKind.DATA, f"vote {seen - 1} with {classes} classes", "votes are below `classes`")
    return max(classes or seen, 2)


def _checked(votes: ArrayLike, measure: str) -> Ints:
    v = np.asarray(votes)
    good = v.ndim == 2 and v.dtype.kind in "iu" and v.shape[1] >= 2 and not (v < -1).any()
    if not good or (measure in ("raw", "cohen") and v.shape[1] != 2):
        raise TrimtabError(
            ErrorKind.DATA,
            f"agreement ({measure}) of votes of shape {list(v.shape)} and type {v.dtype}",
            "give whole numbers from 0 on as [items, raters], -1 for no vote; raw and Cohen's take two raters",
        )
    return v.astype(np.int64)
