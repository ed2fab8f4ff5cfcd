"""What training cost elsewhere: general abilities that sink, a public test that rises alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import sqrt

import numpy as np

from trimtab.doctor import trends
from trimtab.doctor.detectors.hacking import Measured, independent
from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import (
    CRITICAL,
    POLICY,
    WARNING,
    Rule,
    figure,
    finding,
    ruled_out,
    too_short,
    unchecked,
)
from trimtab.doctor.finding import Finding, NotDiagnosable
from trimtab.doctor.log import Stage

__all__ = ["RULES"]

_STAGES = POLICY | {Stage.EVALUATION, Stage.DIRECT, Stage.SFT}
_FRESH = re.compile(
    r"[_\-./](fresh|perturbed|paraphrased?|renumbered|variant|private|held_?out|symbolic|new|clean|robust)"
)


def _tail(track: Track) -> tuple[float, float]:
    """Late level and its standard error, from the last quarter (at least one value)."""
    width = max(1, len(track) // 4)
    sigma = trends.noise(track.values)
    return float(np.median(track.values[-width:])), 1.25 * sigma / sqrt(width)


def _tax(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    """A general ability below where it began, by more than a point and twice its error, and not coming back."""
    id = "alignment-tax"
    measures = independent(r)
    general = [m for m in measures if m.general] or _sinking_beside_rising(measures)
    if not general:
        yield unchecked(r, id, "eval/<measure>")
        return
    enough = [m for m in general if len(m.track) >= 3]
    if not enough:
        yield too_short(r, id, general[0].key)
        return
    worst: tuple[float, Measured, float, float] | None = None
    for m in enough:
        track = m.track
        width = max(1, min(3, len(track) // 4))
        first = float(np.median(track.values[:width]))
        late, error = _tail(track)
        scale = _points(track)
        drop = (first - late) / scale
        error = sqrt(error**2 + (1.25 * trends.noise(track.values)) ** 2 / width) / scale
        least = 1.0 if len(track) >= 6 else 2.0  # of a few values the noise cannot be told
        if drop > max(least, 2.5 * error) and late < first and (worst is None or drop > worst[0]):
            worst = (drop, m, first, late)
    if worst is None:
        return
    drop, m, first, late = worst
    told = [figure("start-end", m.track, step=m.track.step(-1), value=late, first=first, late=late)]
    at = m.track.onset(m.track.values < first - 0.5 * (first - late), 2) or m.track.step(-1)
    yield finding(
        id,
        CRITICAL if drop > 10 else WARNING,
        at,
        told,
        values={"measure": m.track.name, "points": drop},
        ruled_out=[ruled_out(id, "noise"), ruled_out(id, "format")],
        source="rlhf-book, appendix C",
    )


def _points(track: Track) -> float:
    """What one point is: .01 of a share, 1 of a percentage, a hundredth of the start of anything else."""
    top = float(np.abs(track.values).max())
    if float(track.values.min()) >= 0 and top <= 1:
        return 0.01
    if float(track.values.min()) >= 0 and top <= 100:
        return 1.0
    return max(abs(track.start) / 100, 1e-12)


def _sinking_beside_rising(measures: list[Measured]) -> list[Measured]:
    """Where one measure rises firmly, the others are what it may have cost."""
    ups = [
        m for m in measures if len(m.track) >= 4 and (m.track.trend.rises or m.track.rise[0] > 4 * m.track.rise[1] > 0)
    ]
    return [m for m in measures if m not in ups] if ups else []


def _benchmark(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    """A test and its fresh variant part: the gap between them grows beyond twice its error."""
    id = "benchmark-overfitting"
    measures = {m.key: m for m in independent(r)}
    pairs = []
    for key, m in measures.items():
        if (hit := _FRESH.search(key)) is None:
            continue
        base = key[: hit.start()] + key[hit.end() :]
        if (public := measures.get(base)) is not None:
            pairs.append((public, m))
    if not pairs:
        yield unchecked(r, id, "eval/<measure> and eval/<measure>_fresh")
        return
    for public, fresh in pairs:
        shared, i, j = np.intersect1d(public.track.steps, fresh.track.steps, return_indices=True)
        if len(shared) < 4:
            yield too_short(r, id, fresh.key)
            continue
        gap = public.track.values[i] - fresh.track.values[j]
        width = max(1, len(gap) // 4)
        first, late = float(np.median(gap[:width])), float(np.median(gap[-width:]))
        error = 1.25 * trends.noise(gap) * sqrt(2 / width)
        if late - first > max(2.5 * error, 3 * _points(public.track)) and public.track.late > public.track.early:
            at = int(shared[int(np.argmax(gap > first + 0.5 * (late - first)))])
            told = [
                figure(
                    "gap-grows",
                    public.track,
                    step=int(shared[-1]),
                    value=late,
                    first=first,
                    late=late,
                    fresh=fresh.track.name,
                )
            ]
            yield finding(id, WARNING, at, told, ruled_out=[ruled_out(id, "harder")], source="heuristic")
            return


RULES = (
    Rule(("alignment-tax",), _STAGES, _tax),
    Rule(("benchmark-overfitting",), _STAGES, _benchmark),
)
