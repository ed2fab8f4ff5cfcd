"""Arithmetic of the probes on scores: slices, length, spread, edits. numpy only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.stats.intervals import Interval, bootstrap_mean, clustered_share
from trimtab.stats.resampling import bootstrap_sums, percentile_interval
from trimtab.stats.significance import binomial_test, holm, two_proportion_test
from trimtab.stats.text import distinct_n

__all__ = [
    "EditEffect", "LengthFigures", "Slice", "Spread", "centred", "edit_effects", "length_figures", "slices", "spread",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Slice:
    """Accuracy on a part of the pairs; `p`: against the other parts of its kind, Holm-corrected over all slices."""

    kind: str
    name: str
    accuracy: Interval
    p: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"accuracy": self.accuracy._asdict()}


def slices(wins: Floats, groups: Ints, kinds: dict[str, list[str]], smallest: int = 10) -> list[Slice]:
    """Accuracy by slice; parts of fewer than `smallest` pairs are left out, and kinds with a single part.

    Args:
        wins: [n] 1 where the chosen response scores higher, a tie .5.
        groups: [n] prompt of each pair.
        kinds: kind of slice -> [n] name of the part that each pair is in; empty = in none.
    """
    found: list[tuple[str, str, Interval, float]] = []
    for kind, names in kinds.items():
        of = np.array(names, dtype=object)
        parts = [name for name in sorted(set(names)) if name and int((of == name).sum()) >= smallest]
        for name in parts if len(parts) > 1 else ():
            inside, rest = wins[of == name], wins[(of != name) & (of != "")]
            p = two_proportion_test(float(inside.sum()), len(inside), float(rest.sum()), len(rest))
            found.append((kind, name, clustered_share(inside, groups[of == name]), p))
    adjusted = holm([p for *_, p in found]) if found else np.empty(0)
    return [Slice(kind, name, accuracy, float(p)) for (kind, name, accuracy, _), p in zip(found, adjusted, strict=True)]


def centred(x: Floats, groups: Ints) -> Floats:
    """[n] less the mean of its group."""
    index = np.unique(groups, return_inverse=True)[1]
    means = np.bincount(index, x) / np.bincount(index)
    return np.asarray(x - means[index], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class LengthFigures:
    """Score against length.

    Args:
        overall: correlation of score and log length over all responses.
        within: the same within prompts, with a 95 % bootstrap interval over prompts: the partial effect.
        per_doubling: score SDs that a response twice as long gets more, within prompts.
        longer_wins: share of the pairs of unequal length in which the longer scores higher.
        gap: accuracy where the longer response is labeled better minus accuracy where the shorter is; NaN: fewer than
            ten pairs of either kind. An honest scorer has about 0, also where longer responses are better.
    """

    overall: float
    within: Interval
    per_doubling: float
    longer_wins: Interval
    gap: Interval

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {name: getattr(self, name)._asdict() for name in ("within", "longer_wins", "gap")}


def length_figures(
    scores: Floats, words: Floats, groups: Ints, margin: Floats, longer_by: Floats, pair_groups: Ints, *,
    resamples: int, seed: int,
) -> LengthFigures:  # fmt: skip
    """See `LengthFigures`.

    Args:
        scores: [m] of responses.
        words: [m] their lengths.
        groups: [m] their prompts.
        margin: [n] score of the chosen minus score of the rejected response of labeled pairs.
        longer_by: [n] words of the chosen minus words of the rejected.
        pair_groups: [n] prompts of the pairs.
    """
    x, y = np.log2(1 + words), scores
    cx, cy = centred(x, groups), centred(y, groups)
    rows = np.column_stack([cx * cx, cy * cy, cx * cy])
    nothing = Interval(math.nan, math.nan, math.nan, 0)
    total, sd = rows.sum(axis=0), float(scores.std())
    within = nothing
    if total[0] > 0 and total[1] > 1e-18:
        drawn = bootstrap_sums(rows, groups, resamples, seed)
        within = Interval(_correlation(total[None])[0], *percentile_interval(_correlation(drawn)), len(scores))
    overall = float(np.corrcoef(x, y)[0, 1]) if x.std() > 0 and sd > 0 else math.nan
    slope = float(total[2] / total[0]) / sd if total[0] > 0 and sd > 0 else math.nan
    unequal = (longer_by != 0) & (margin != 0)
    picks = ((margin > 0) == (longer_by > 0))[unequal].astype(np.float64)
    shares = clustered_share(picks, pair_groups[unequal])
    return LengthFigures(overall, within, slope, shares, _gap(margin, longer_by, unequal, pair_groups, resamples, seed))


def _correlation(sums: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums[:, 2] / np.sqrt(sums[:, 0] * sums[:, 1]), dtype=np.float64)


def _gap(
    margin: Floats, longer_by: Floats, rows: NDArray[np.bool_], groups: Ints, resamples: int, seed: int
) -> Interval:
    right, long = (margin > 0)[rows].astype(float), (longer_by > 0)[rows].astype(float)
    if min(long.sum(), len(long) - long.sum()) < 10:
        return Interval(math.nan, math.nan, math.nan, int(rows.sum()))
    table = np.column_stack([right * long, long, right * (1 - long), 1 - long])

    def gap(sums: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(sums[:, 0] / sums[:, 1] - sums[:, 2] / sums[:, 3], dtype=np.float64)

    drawn = bootstrap_sums(table, groups[rows], resamples, seed)
    return Interval(float(gap(table.sum(axis=0)[None])[0]), *percentile_interval(gap(drawn)), len(right))


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of the scores.

    Args:
        n: responses.
        mean: of the scores.
        sd: their standard deviation.
        within: share of the variance that lies within prompts.
        same: share of the responses that have the commonest score.
        ties: share of the pairs whose two scores are equal.
        at_ends: share of the scores within one hundredth of the range of the lowest or the highest.
        distinct: number of different scores.
        top_variety: distinct bigrams among the top tenth of the responses relative to as many drawn at random; NaN
            below 100 responses.
    """

    n: int
    mean: float
    sd: float
    within: float
    same: float
    ties: float
    at_ends: float
    distinct: int
    top_variety: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def spread(scores: Floats, groups: Ints, margin: Floats, texts: Sequence[str], seed: int) -> Spread:
    """See `Spread`."""
    values, counts = np.unique(scores, return_counts=True)
    sd, span = float(scores.std()), float(values[-1] - values[0])
    near = (scores - values[0] <= 0.01 * span) | (values[-1] - scores <= 0.01 * span)
    return Spread(
        n=len(scores), mean=float(scores.mean()), sd=sd,
        within=float((centred(scores, groups) ** 2).mean() / sd**2) if sd > 0 else 0.0,
        same=float(counts.max() / len(scores)), ties=float((margin == 0).mean()) if len(margin) else math.nan,
        at_ends=float(near.mean()), distinct=len(values), top_variety=_top_variety(scores, texts, seed),
    )  # fmt: skip


def _top_variety(scores: Floats, texts: Sequence[str], seed: int) -> float:
    if len(scores) < 100:
        return math.nan
    rng = np.random.default_rng([seed, 7])
    # among equal scores chance decides, not the order of the file
    order, size = np.lexsort((rng.random(len(scores)), scores)), len(scores) // 10
    top = distinct_n([texts[i] for i in order[-size:]], 2)
    drawn = [distinct_n([texts[i] for i in rng.permutation(len(texts))[:size]], 2) for _ in range(20)]
    return float(top / np.mean(drawn))


@dataclass(frozen=True, slots=True)
class EditEffect:
    """What an edit does to scores, in score SDs.

    Args:
        name: of the edit.
        kind: of the edit, see `edits`.
        change: mean change, 95 % bootstrap interval over prompts.
        beyond: change beyond that of a neutral sentence appended to the same responses; of `change`'s form, NaN where
            the edit is no added sentence.
        raised: share of the prompts whose mean change is above 0; of those that change.
        p: sign test over prompts, of `beyond` where there is one, else of `change`; Holm-corrected over all edits.
    """

    name: str
    kind: str
    change: Interval
    beyond: Interval
    raised: float
    p: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"change": self.change._asdict(), "beyond": self.beyond._asdict()}


@dataclass(frozen=True, slots=True)
class Changed:
    """Score changes [k] of the responses that an edit applied to, in SDs, with their prompts; `beyond` may be None."""

    name: str
    kind: str
    change: Floats
    beyond: Floats | None
    groups: Ints


def edit_effects(changes: Sequence[Changed], *, resamples: int, seed: int) -> list[EditEffect]:
    """Means, intervals and sign tests of edits; edits that applied to no response are left out."""
    rows, raw = [], []
    for each in changes:
        if not len(each.change):
            continue
        tested = each.change if each.beyond is None else each.beyond
        signs = np.sign(np.round(_by_group(tested, each.groups), 12))
        up, down = int((signs > 0).sum()), int((signs < 0).sum())
        raw.append(binomial_test(up, up + down))
        means = np.round(_by_group(each.change, each.groups), 12)
        raised = float((means > 0).sum() / max(int((means != 0).sum()), 1))
        mean = bootstrap_mean(each.change, each.groups, resamples, seed)
        nothing = Interval(math.nan, math.nan, math.nan, 0)
        beyond = nothing if each.beyond is None else bootstrap_mean(each.beyond, each.groups, resamples, seed)
        rows.append((each, mean, beyond, raised))
    adjusted = holm(raw) if raw else np.empty(0)
    return [
        EditEffect(each.name, each.kind, mean, beyond, raised, float(p))
        for (each, mean, beyond, raised), p in zip(rows, adjusted, strict=True)
    ]


def _by_group(x: Floats, groups: Ints) -> Floats:
    index = np.unique(groups, return_inverse=True)[1]
    return np.asarray(np.bincount(index, x) / np.bincount(index), dtype=np.float64)
