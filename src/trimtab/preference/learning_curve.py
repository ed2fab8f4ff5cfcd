"""What more labels would buy: accuracy against the number of pairs, a power law through it, and how sure that is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from trimtab.preference.folds import Measured
from trimtab.stats.intervals import Interval
from trimtab.stats.power_law import PowerLaw, fit_power_law
from trimtab.stats.resampling import percentile_interval

__all__ = ["SMALL_GAIN", "Forecast", "Verdict", "forecast"]

Verdict = Literal["worth it", "little", "cannot tell"]

SMALL_GAIN = 0.01
"""A gain in accuracy below which twice the labels are said to bring little."""


@dataclass(frozen=True)
class Forecast:
    """The law, and the gain in accuracy from twice the pairs of the largest size.

    `verdict`: "little" if the interval of the gain lies below `SMALL_GAIN`, and that of `last_gain`, measured between
    the two largest sizes, below twice as much: a law through points that scatter is often flat, and sure of it. Else
    "worth it" if the interval of the gain lies above 0, else "cannot tell".
    """

    law: PowerLaw
    pairs: float
    gain: Interval
    last_gain: Interval
    verdict: Verdict

    def as_dict(self) -> dict[str, Any]:
        return {
            "law": self.law._asdict(), "pairs": self.pairs, "twice_the_pairs": 2 * self.pairs,
            "gain": self.gain._asdict(), "last_gain": self.last_gain._asdict(), "verdict": self.verdict,
        }  # fmt: skip


def forecast(
    curve: Sequence[Measured],
    prompts: Sequence[Hashable],
    folds: Sequence[int],
    *,
    resamples: int = 400,
    seed: int = 0,
    level: float = 0.95,
) -> Forecast:
    """Fit the law and bootstrap it.

    Two things make a curve uncertain, which pairs it was measured on and which were trained on: whole folds (each has a
    training set of its own) are drawn with replacement, then prompts within each of them.

    Args:
        curve: measurements of three sizes or more, smallest first, on the same pairs; `wins` in the order of `prompts`.
        prompts: [P] prompt of each pair.
        folds: [P] fold of each pair.
        resamples: bootstrap samples; each is a fit.
        seed: of a random generator of its own.
        level: of the interval.

    Raises:
        TrimtabError: fewer than three sizes.
    """
    sizes = np.array([point.trained_on for point in curve])
    law = fit_power_law(sizes, [point.accuracy.mean for point in curve], top=1.0)
    number: dict[Hashable, int] = {}
    of_prompt = np.array([number.setdefault(prompt, len(number)) for prompt in prompts])
    wins = np.stack([point.wins for point in curve])
    sums = np.stack([np.bincount(of_prompt, row, len(number)) for row in wins], axis=1)  # [G, m]
    counts = np.bincount(of_prompt, minlength=len(number)).astype(float)
    fold_of = np.empty(len(number), dtype=np.int64)
    fold_of[of_prompt] = np.asarray(folds)
    members = [np.flatnonzero(fold_of == fold) for fold in np.unique(fold_of)]
    rng = np.random.default_rng(seed)
    gains, lasts = np.empty(resamples), np.empty(resamples)
    for i in range(resamples):
        chosen = [members[fold] for fold in rng.integers(len(members), size=len(members))]
        drawn = np.concatenate([rng.choice(fold, len(fold)) for fold in chosen])
        values = sums[drawn].sum(0) / counts[drawn].sum()
        gains[i] = _gain(fit_power_law(sizes, values, top=1.0), sizes[-1])
        lasts[i] = values[-1] - values[-2]
    gain = Interval(_gain(law, sizes[-1]), *percentile_interval(gains, level), wins.shape[1])
    last = Interval(
        curve[-1].accuracy.mean - curve[-2].accuracy.mean, *percentile_interval(lasts, level), wins.shape[1]
    )
    return Forecast(law, float(sizes[-1]), gain, last, _verdict(gain, last))


def _gain(law: PowerLaw, n: float) -> float:
    return law.at(2 * n) - law.at(n)


def _verdict(gain: Interval, last: Interval) -> Verdict:
    if gain.high < SMALL_GAIN and last.high < 2 * SMALL_GAIN:
        return "little"
    return "worth it" if gain.low > 0 else "cannot tell"
