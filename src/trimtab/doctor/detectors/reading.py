"""What every rule on a training log reads it through: series once thinned, their levels and trends once computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from trimtab.doctor import trends
from trimtab.doctor.importers.numbers import number
from trimtab.doctor.log import Floats, Log, Series
from trimtab.doctor.trends import Trend

__all__ = ["Reading", "Track", "reading"]

POINTS = 800
"""A longer series is read as so many medians of blocks; rules on single values read the series itself."""
TREND_POINTS = 20
"""Log points below which no trend rule speaks."""


@dataclass(frozen=True, eq=False)
class Track:
    """One series as the trend rules see it: finite values, thinned. `rows`: finite values before thinning."""

    series: Series
    steps: Floats
    values: Floats
    rows: int

    def __len__(self) -> int:
        return len(self.values)

    @property
    def name(self) -> str:
        """The name that the log has for it."""
        return self.series.name

    @property
    def called(self) -> str:
        """What sentences call it: the log's name, and what was done with it."""
        derived = self.series.derived.removeprefix("from ")
        if not derived:
            return self.name
        return derived if self.name in derived else f"{self.name} ({derived})"

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Medians of the first and the last fifth."""
        return trends.ends(self.values)

    @property
    def early(self) -> float:
        """Median of the first fifth."""
        return self.ends[0]

    @property
    def late(self) -> float:
        """Median of the last fifth."""
        return self.ends[1]

    @cached_property
    def start(self) -> float:
        """Median of the first twentieth, of three values at least: the level before anything was learned."""
        return float(np.median(self.values[: max(3, len(self) // 20)]))

    @cached_property
    def smooth(self) -> Floats:
        """Running median over five values: single spikes are gone."""
        return trends.running_median(self.values, 5)

    @cached_property
    def slow(self) -> Floats:
        """Running median over a seventh of the series."""
        return trends.running_median(self.values, max(5, len(self) // 7) | 1)

    @cached_property
    def noise(self) -> float:
        """Sigma of one value about the slow curve; at least that of the differences between neighbours."""
        rest = self.values - self.slow
        sigma = trends.robust_sigma(rest)
        return max(sigma if sigma > 0 else float(rest.std()), trends.noise(self.values))

    @cached_property
    def inflation(self) -> float:
        """By how much correlated noise inflates the variance of a mean: (1 + r) / (1 - r) with r at lag 1."""
        if len(self) < 10:
            return 1.0
        r = float(trends.autocorrelation(self.values - self.slow, 1)[0])
        r = min(max(r, 0.0), 0.9)
        return (1 + r) / (1 - r)

    def error(self, width: float) -> float:
        """Standard error of the median of `width` neighbouring values."""
        return 1.25 * self.noise * sqrt(self.inflation / max(width, 1.0))

    @property
    def width(self) -> int:
        """Values in the first or last fifth."""
        return max(1, min(len(self) // 2, max(3, round(len(self) / 5))))

    @cached_property
    def trend(self) -> Trend:
        """Theil and Sen's over the whole series."""
        return trends.theil_sen(self.values, self.steps)

    @cached_property
    def rise(self) -> tuple[float, float]:
        """Last fifth minus first fifth, and its standard error."""
        return self.late - self.early, self.error(self.width) * sqrt(2)

    def since(self, index: int) -> Track:
        """The part from `index` on."""
        return Track(self.series, self.steps[index:], self.values[index:], self.rows)

    def step(self, index: int) -> int:
        """Step of the value at `index`."""
        return int(self.steps[index])

    def onset(self, beyond: NDArray[np.bool_], run: int = 3) -> int | None:
        """Step at which a condition on the (smoothed or plain) values sets in and lasts for `run` of them."""
        at = trends.onset(self.values, beyond, run)
        return None if at is None else self.step(at)

    def departure(self, up: bool, sigmas: float = 4.0) -> int | None:
        """Step at which the series leaves its first tenth for good, by `sigmas` of its noise."""
        base = float(np.median(self.values[: max(5, len(self) // 10)]))
        gap = (self.smooth - base) * (1 if up else -1)
        total = max(float(gap.max(initial=0.0)), 0.0)
        return self.onset(gap > max(sigmas * self.noise, 0.1 * total))

    @property
    def curve(self) -> tuple[float, ...]:
        """For a sparkline."""
        return trends.curve(self.values)


class Reading:
    """One log under the doctor's eyes."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._tracks: dict[str, Track | None] = {}

    def track(self, *keys: str) -> Track | None:
        """The first of `keys` with at least one finite value."""
        for key in keys:
            if key not in self._tracks:
                self._tracks[key] = self._read(key)
            if (found := self._tracks[key]) is not None:
                return found
        return None

    def _read(self, key: str) -> Track | None:
        series = self.log.series.get(key)
        if series is None:
            return None
        steps, values = series.finite
        if not len(values):
            return None
        # beyond 1e300 medians of sums overflow, and nothing is told apart there anyway
        clipped = np.clip(values, -1e300, 1e300)
        thinned, at = trends.thin(clipped, steps.astype(np.float64), POINTS)
        return Track(series, at, thinned, len(values))

    def trending(self, *keys: str) -> Track | None:
        """As `track`, where it is long enough for a trend: 20 points, and 5 % of the planned steps."""
        found = self.track(*keys)
        return found if found is not None and self.long(found) else None

    def long(self, track: Track) -> bool:
        """Whether a trend rule may speak of it."""
        return track.rows >= TREND_POINTS and (self.covered is None or self.covered >= 0.05)

    @property
    def covered(self) -> float | None:
        """Share of the planned steps that the log spans; None where no plan is known."""
        log = self.log
        if not log.planned_steps or log.steps is None:
            return None
        return min(1.0, log.steps[1] / log.planned_steps)

    @cached_property
    def span(self) -> int:
        """Steps from the first to the last row."""
        return 0 if self.log.steps is None else self.log.steps[1] - self.log.steps[0] + 1

    @cached_property
    def score(self) -> Track | None:
        """What is to rise: the raw score, or the reward where only that is logged."""
        return self.track("score/mean", "reward/mean")

    def setting(self, *keys: str) -> float | None:
        """The first of `keys` that the run's settings have as a number."""
        for key in keys:
            value = self.log.config.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return number(value)
        return None

    @cached_property
    def beta(self) -> float | None:
        """KL coefficient, median over the log; else from the settings; None unknown."""
        track = self.track("kl/beta")
        if track is not None:
            return float(np.median(track.values))
        return self.setting("ppo.kl_beta", "ppo.beta", "beta", "kl_coef", "init_kl_coef", "algorithm.kl_ctrl.kl_coef")

    @cached_property
    def updates_per_batch(self) -> float | None:
        """Optimiser steps taken on one batch, where the settings say so; 1 makes ratio, clip and update KL trivial."""
        epochs = self.setting("ppo.epochs", "num_iterations", "ppo_epochs", "num_ppo_epochs", "actor.ppo_epochs")
        mini = self.setting("ppo.minibatches", "num_mini_batches")
        if epochs is None and mini is None:
            return None
        return (epochs or 1.0) * (mini or 1.0)


@lru_cache(maxsize=1)
def reading(log: Log) -> Reading:
    """The reading of `log`; the last one is kept, so that all rules share it."""
    return Reading(log)
