"""What a way of shaping scores leaves of them: figures, a histogram, and which of several ways to take. numpy only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shaped", "Shaping", "advise", "figures_of", "histogram", "pairs_within"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BARS: Final = " ▁▂▃▄▅▆▇█"
_BINS: Final = 24
_OUTLIER_SDS: Final = 5.0
_SATURATED: Final = 0.1
"""A response is saturated where the shape is this much flatter than at its steepest."""
UNIT: Final = (0.5, 2.0)
"""Deviations that are about 1: beta then means about the same as elsewhere."""
MOST_OUTLIERS: Final = 0.005
MOST_SATURATED: Final = 0.05
KEPT: Final = 0.999
LOST_SIGNAL: Final = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Shaped:
    """Scores after a way of shaping.

    Args:
        name: of the way.
        settings: of `[ppo]` or `[preference]` that it takes; None: the settings in force.
        scores: [n] of the responses.
        repeats: [n] of the same responses scored again, in another wording that says the same; None: there are none.
        slope: [n] how much the shape passes on of a small change, relative to where it passes on most.
        clipped: [n] whether a bound cut the score.
        rank: what "simpler" means: lower is simpler.
    """

    name: str
    settings: dict[str, Any] | None
    scores: Floats
    repeats: Floats | None
    slope: Floats
    clipped: NDArray[np.bool_]
    rank: int


@dataclass(frozen=True, slots=True)
class Shaping:
    """Figures of one way.

    Args:
        name: of the way.
        settings: see `Shaped`.
        mean: of the shaped scores.
        sd: their standard deviation.
        low: the lowest.
        high: the highest.
        clipped: share that a bound cut.
        saturated: share where the shape passes on less than a tenth of a change.
        ties: share of pairs of one prompt that differed before and are equal now.
        kept: share of pairs of one prompt that differed before and are ordered as before.
        within: standard deviation within prompts.
        signal: `within` relative to the noise: the deviation between two scorings of one response; NaN without repeats.
        outliers: share farther than five robust deviations from the median.
        histogram: of the scores, from the lowest to the highest.
    """

    name: str
    settings: dict[str, Any] | None
    mean: float
    sd: float
    low: float
    high: float
    clipped: float
    saturated: float
    ties: float
    kept: float
    within: float
    signal: float
    outliers: float
    histogram: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def figures_of(raw: Floats, shaped: Shaped, groups: Ints) -> Shaping:
    """See `Shaping`; `raw` [n] scores before, `groups` [n] prompts."""
    x = shaped.scores
    first, second = pairs_within(groups)
    before, after = np.sign(raw[first] - raw[second]), np.sign(x[first] - x[second])
    apart = before != 0
    within = _within(x, groups)
    return Shaping(
        shaped.name, shaped.settings, float(x.mean()), float(x.std()), float(x.min()), float(x.max()),
        clipped=float(shaped.clipped.mean()), saturated=float((shaped.slope < _SATURATED).mean()),
        ties=float((after[apart] == 0).mean()) if apart.any() else math.nan,
        kept=float((after[apart] == before[apart]).mean()) if apart.any() else math.nan,
        within=within, signal=_signal(x, shaped.repeats, within), outliers=_outliers(x), histogram=histogram(x),
    )  # fmt: skip


def pairs_within(groups: Ints) -> tuple[Ints, Ints]:
    """Indices of all pairs of rows of one group."""
    first, second = [], []
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        a, b = np.triu_indices(len(rows), 1)
        first.append(rows[a])
        second.append(rows[b])
    return np.concatenate(first), np.concatenate(second)


def histogram(x: Floats, bins: int = _BINS) -> str:
    """One character a bin, as high as its share of the largest; a bin with anything in it is never blank."""
    low, high = float(x.min()), float(x.max())
    if high <= low:
        return _BARS[-1].center(bins)
    counts = np.bincount(np.minimum((bins * (x - low) / (high - low)).astype(int), bins - 1), minlength=bins)
    return "".join(_BARS[math.ceil((len(_BARS) - 1) * count / counts.max())] for count in counts)


def _within(x: Floats, groups: Ints) -> float:
    """Standard deviation within groups, with the degrees of freedom that their means take; NaN without pairs."""
    index = np.unique(groups, return_inverse=True)[1]
    counts = np.bincount(index)
    free = len(x) - len(counts)
    if free == 0:
        return math.nan
    rest = x - (np.bincount(index, x) / counts)[index]
    return math.sqrt(float((rest**2).sum()) / free)


def _signal(x: Floats, repeats: Floats | None, within: float) -> float:
    if repeats is None:
        return math.nan
    noise = math.sqrt(float(((x - repeats) ** 2).mean()) / 2)
    return within / noise if noise > 0 else math.inf


def _outliers(x: Floats) -> float:
    centre = np.median(x)
    deviation = 1.4826 * float(np.median(np.abs(x - centre)))
    return float((np.abs(x - centre) > _OUTLIER_SDS * deviation).mean()) if deviation > 0 else 0.0


def advise(ways: Sequence[tuple[Shaping, int]]) -> tuple[Shaping, str]:
    """The simplest way that leaves nothing to object to, with the reason.

    A way is objected to where it turns or ties scores of one prompt, saturates, leaves outliers, loses a tenth of the
    signal-to-noise of the raw scores, or leaves a deviation far from 1. The first way is the raw scores.

    Args:
        ways: (figures, how complicated); those that need no training again.
    """
    raw = ways[0][0]
    objections = {own.name: _objections(own, raw) for own, _ in ways}
    best = min(ways, key=lambda way: (len(objections[way[0].name]), way[1]))[0]
    against = objections[raw.name]
    if best.name == raw.name:
        left = f"; it has against it: {', '.join(against)}, but no way here does better" if against else ""
        return best, f"the raw scores need no shaping: their deviation is {raw.sd:.2g}{left}"
    why = f"the raw scores have {', '.join(against)}; this has " + (", ".join(objections[best.name]) or "none of that")
    return best, why


def _objections(own: Shaping, raw: Shaping) -> list[str]:
    low, high = UNIT
    told = [
        (not low <= own.sd <= high, f"a deviation of {own.sd:.2g} (beta is meant for about 1)"),
        (own.outliers > MOST_OUTLIERS, f"{own.outliers:.1%} outliers"),
        (own.kept < KEPT, f"{1 - own.kept:.1%} of the pairs of a prompt turned or tied"),
        (own.saturated > MOST_SATURATED, f"{own.saturated:.0%} of the responses in flat parts"),
        (own.signal < LOST_SIGNAL * raw.signal, f"a signal-to-noise of {own.signal:.2g} for {raw.signal:.2g}"),
    ]
    return [what for wrong, what in told if wrong]
