"""Does the score rise? What "improves", "is flat" and "has fallen" mean to every rule, and the findings on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np

from trimtab.doctor import trends
from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import (
    CRITICAL,
    POLICY,
    WARNING,
    Rule,
    ends,
    figure,
    finding,
    ruled_out,
    too_short,
    unchecked,
)
from trimtab.doctor.finding import Finding, NotDiagnosable

__all__ = ["RULES", "Progress", "changed_since", "progress", "swings"]

_FEW_STEPS = 50
_FIRM = 3.0
"""Standard errors from which a change of level counts."""


@dataclass(frozen=True)
class Progress:
    """How the score went.

    `improved`: it rose beyond its noise, at any time. `flat`: long enough to tell, and it did not. `peak`, `peak_at`:
    of the slow curve, with the index. `drop`: from there to the last fifth; `fallen`: that much is no noise and at
    least half of what had been won.
    """

    track: Track
    improved: bool
    flat: bool
    peak: float
    peak_at: int
    drop: float
    fallen: bool


@lru_cache(maxsize=1)
def progress(r: Reading) -> Progress | None:
    """The progress of the score; None where it is not logged or too short to tell."""
    track = r.score
    if track is None or not r.long(track):
        return None
    return judge(track)


def judge(track: Track) -> Progress:
    """`Progress` of any series that is to rise."""
    rise, error = track.rise
    first = max(3, len(track) // 20)
    slow = track.slow
    peak_at = int(np.argmax(slow))
    peak, won = float(slow[peak_at]), float(slow[peak_at]) - track.start
    early = won > 4 * track.error(first)  # a sharp rise at once is over before the first fifth is
    grows = track.trend.p < 0.05 and track.trend.change > 0 and rise > error
    improved = bool(rise > _FIRM * error or early or grows)
    high = track.trend.change_high
    # a sharp rise may be over within a few log points: then the very first values lie well below the rest
    began_low = bool(
        track.values[0] < track.late - 2.5 * track.noise
        or float(track.values[:2].mean()) < track.late - 2 * track.noise
    )
    flat = bool(
        not improved
        and not began_low
        and (track.trend.p > 0.1 or track.trend.change <= 0)
        and high < 2 * track.noise
        and abs(rise) < _FIRM * error
    )
    if track.noise == 0:
        flat, improved = rise == 0 and won == 0, rise > 0 or won > 0
    drop = peak - track.late
    # the peak is the best of many: it stands above its own level by about two errors of the slow curve
    width = max(5, len(track) // 7)
    firm = drop > 2 * track.error(width) + _FIRM * sqrt(track.error(width) ** 2 + track.error(track.width) ** 2)
    fallen = bool(firm and drop > 1.5 * track.noise and drop > 0.5 * max(won, 0.0) and peak_at < 0.8 * len(track))
    return Progress(track, improved, flat, peak, peak_at, drop, fallen)


def changed_since(track: Track, step: int) -> float:
    """Change of a series since `step` in standard errors: last fifth of that part against the values before `step`.

    0 where either part is too short to tell (under 5 values).
    """
    at = int(np.searchsorted(track.steps, step))
    after, before = track.values[at:], track.values[max(0, at - track.width) : at]
    if len(after) < 5 or len(before) < 3:
        return 0.0
    tail = after[-min(len(after) // 2 + 1, track.width) :]
    error = sqrt(track.error(len(tail)) ** 2 + track.error(len(before)) ** 2)
    change = float(np.median(tail) - np.median(before))
    return change / error if error > 0 else float(np.sign(change)) * np.inf if change else 0.0


def _not_improving(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "reward-not-improving"
    track = r.score
    if track is None:
        yield unchecked(r, id, "score/mean")
        return
    p = progress(r)
    if p is None:
        found = _excerpt(r, track)
        if found is not None:
            yield found
        else:
            yield too_short(r, id, "score/mean", "reward/mean")
        return
    if track.rows < 50 and r.span < 50:
        yield too_short(r, id, "score/mean", "reward/mean")
        return
    if not p.flat:
        return
    if track.noise == 0 and not len(np.unique(track.values)) > 1:
        yield finding(id, WARNING, track.step(0), [ends(track)], cause="constant", source="heuristic")
        return
    t = track.trend
    told = figure("trend", track, value=t.change, change=t.change, low=t.change_low, high=t.change_high, p=t.p)
    out = [ruled_out(id, "too-short", rows=track.rows), ruled_out(id, "late-start")]
    yield finding(id, WARNING, track.step(0), [ends(track), told], ruled_out=out, source="Mann-Kendall test")


def _excerpt(r: Reading, track: Track) -> Finding | None:
    """Few rows of a run whose length is known: the steps that they cover count, not the rows."""
    if r.covered is None or track.rows < 5 or r.log.planned_steps is None:
        return None
    if (track.steps[-1] - track.steps[0]) < 0.5 * r.log.planned_steps:
        return None
    if r.log.planned_steps < _FEW_STEPS:
        return None  # no excerpt of a long run, but a short one: a trend needs its points
    half = len(track) // 2
    first, second = track.values[:half], track.values[half:]
    spread = sqrt((float(first.var(ddof=1)) + float(second.var(ddof=1))) / 2)
    change = float(second.mean() - first.mean())
    if change > 1.5 * spread:
        return None
    told = figure("excerpt", track, value=change, change=change, spread=spread, rows=track.rows, steps=r.span)
    return finding("reward-not-improving", WARNING, track.step(0), [told], cause="excerpt", source="heuristic")


def _decreasing(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "reward-decreasing"
    p = progress(r)
    if p is None:
        yield unchecked(r, id, "score/mean") if r.score is None else too_short(r, id, "score/mean", "reward/mean")
        return
    track, t = p.track, p.track.trend
    rise, error = track.rise
    sinks = t.falls and t.p < 0.01 and rise < -_FIRM * error and -rise > track.noise and not p.improved
    if not (p.fallen or sinks):
        return
    below = track.start - track.late
    severity = CRITICAL if below > 3 * track.noise and below > 4 * error else WARNING
    if p.fallen:
        at = _fall_from(track, p)
        told = figure("peak", track, step=track.step(p.peak_at), value=p.peak, peak=p.peak, late=track.late)
    else:
        at = track.departure(up=False) or track.step(0)
        told = figure("trend", track, value=t.change, change=t.change, low=t.change_low, high=t.change_high, p=t.p)
    out = [ruled_out(id, "noise", noise=track.noise), ruled_out(id, "dip")]
    yield finding(id, severity, at, [told, ends(track)], ruled_out=out, source="Theil-Sen slope; heuristic bound")


def _fall_from(track: Track, p: Progress) -> int:
    """Step from which the series stays under its peak by more than its noise."""
    low = np.zeros(len(track), bool)
    low[p.peak_at :] = track.smooth[p.peak_at :] < p.peak - max(0.25 * p.drop, track.error(5) * 2)
    return track.onset(low) or track.step(p.peak_at)


def swings(track: Track) -> tuple[list[trends.Drawdown], float]:
    """Falls of the smoothed series that matter (30 % of its range, and beyond its noise), with the range."""
    values = track.values
    low, high = np.percentile(values, [5, 95])
    span = float(high - low)
    smooth = trends.running_median(values, 3 if len(values) < 60 else max(3, len(values) // 40) | 1)
    width = 3 if len(values) < 60 else max(3, len(values) // 40)
    # quantised scores have many equal neighbours: their robust noise is too small
    sigma = max(trends.noise(values), 0.8 * float(np.diff(values).std()) / sqrt(2))
    depth = max(0.4 * span, 5 * 1.25 * sigma / sqrt(width))
    if span <= 0 or depth <= 0:
        return [], span
    return trends.drawdowns(smooth, depth), span


def _beat(track: Track) -> float:
    """Share of the detrended variance in the strongest period between 2 points and a quarter of the series."""
    values = track.values - track.slow if len(track) >= 60 else track.values - track.values.mean()
    power = np.abs(np.fft.rfft(values)) ** 2
    power[:4] = 0.0
    total = float(power.sum())
    if total <= 0:
        return 0.0
    k = int(np.argmax(power))
    return float(power[max(4, k - 1) : k + 2].sum()) / total


def _oscillating(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "oscillating"
    track = r.score
    if track is None:
        yield unchecked(r, id, "score/mean")
        return
    if not r.long(track) or track.rows < 30:
        yield too_short(r, id, "score/mean", "reward/mean")
        return
    falls, span = swings(track)
    deep = [d for d in falls if d.recovered]
    if len(deep) < 3:
        return
    depth = float(np.median([d.depth for d in deep]))
    beat = _beat(track)
    # what correlated noise and a slow wander lack: one period that carries most of it, or falls that are all deep
    alike = len(deep) >= 4 and depth > 0.85 * span and min(d.depth for d in deep) > 0.6 * span and beat > 0.2
    if beat < 0.45 and not alike:
        return
    told = figure("swings", track, value=depth, depth=depth, count=len(deep), span=span)
    out = [ruled_out(id, "noise", noise=trends.noise(track.values)), ruled_out(id, "wander")]
    yield finding(id, WARNING, track.step(deep[0].peak), [told], ruled_out=out, source="heuristic")


RULES = (
    Rule(("reward-not-improving",), POLICY, _not_improving),
    Rule(("reward-decreasing",), POLICY, _decreasing),
    Rule(("oscillating",), POLICY, _oscillating),
)
