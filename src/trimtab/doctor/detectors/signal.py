"""Is there anything to learn from? Groups that all score alike, scores that never differ, one output for all."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from trimtab.doctor.detectors.entropy import at_ceiling
from trimtab.doctor.detectors.progress import Progress, progress
from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import (
    CRITICAL,
    INFO,
    POLICY,
    WARNING,
    Rule,
    by_rows,
    ends,
    figure,
    finding,
    ruled_out,
    too_short,
    unchecked,
)
from trimtab.doctor.finding import Evidence, Finding, NotDiagnosable
from trimtab.doctor.log import Stage

__all__ = ["RULES"]

_STAGES = POLICY | {Stage.SAMPLE, Stage.EVALUATION}


def _no_signal(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "no-reward-signal"
    groups = r.track("group/zero_std_fraction")
    spread = r.track("score/group_std", "score/std", "reward/std") or _range(r)
    if groups is None and spread is None:
        yield unchecked(r, id, "group/zero_std_fraction", "score/std")
        return
    if spread is not None:
        dead = np.abs(spread.values) <= 1e-6  # float32 rounding of equal scores
        rows = int(dead.sum())
        if rows and (rows > 0.8 * len(dead)):
            at = spread.step(int(np.argmax(dead)))
            told = figure("rows-zero", spread, step=at, value=0.0, rows=rows, of=len(dead))
            yield finding(
                id,
                by_rows(rows),
                at,
                [told],
                cause="constant",
                ruled_out=[ruled_out(id, "batch")],
                source="heuristic",
            )
            return
    if groups is not None:
        yield from _groups(r, groups)


def _range(r: Reading) -> Track | None:
    """Largest minus smallest score of each batch, for frameworks that log these in place of a spread."""
    low, high = r.log.get("score/min"), r.log.get("score/max")
    if low is None or high is None:
        return None
    shared, i, j = np.intersect1d(low.steps, high.steps, return_indices=True)
    width = high.values[j] - low.values[i]
    good = np.isfinite(width)
    if not good.any():
        return None
    return Track(high, shared[good].astype(np.float64), width[good], int(good.sum()))


def _groups(r: Reading, groups: Track) -> Iterator[Finding | NotDiagnosable]:
    id = "no-reward-signal"
    full = groups.values >= 1
    if len(groups) < 5:
        rows = int(full.sum())
        if rows and 2 * rows >= len(groups):
            shown = figure(
                "rows-above",
                groups,
                step=groups.step(int(np.argmax(full))),
                value=1.0,
                rows=rows,
                of=len(groups),
                bound=0.99,
            )
            yield finding(
                id,
                by_rows(rows),
                groups.step(int(np.argmax(full))),
                [shown],
                ruled_out=[ruled_out(id, "batch")],
                source="heuristic",
            )
        return
    # one group a batch logs 0 or 1: means tell the share there, medians do not
    width = groups.width
    late = float(groups.values[-width:].mean())
    coarse = float(np.isin(groups.values, (0.0, 1.0)).mean()) > 0.9
    level = float(groups.values.mean()) if coarse else late
    error = float(np.sqrt(max(level * (1 - level), 0.0) / (len(groups) if coarse else width))) if coarse else 0.0
    if level - 1.64 * error <= 0.5:
        return
    p = progress(r)
    solved = p is not None and p.improved and not p.fallen and _by_success(r, p, groups, level)
    at = groups.onset(groups.smooth > 0.5, 5) or groups.step(0)
    told = [figure("share-groups", groups, step=at, value=level, level=level)]
    if p is not None:
        told.append(ends(p.track))
    if solved:
        yield finding(id, INFO, at, told, cause="solved", source="heuristic")
        return
    severity = CRITICAL if level > 0.8 and len(groups) >= 10 else WARNING
    yield finding(
        id,
        severity,
        at,
        told,
        ruled_out=[ruled_out(id, "batch"), ruled_out(id, "solved")],
        source="DAPO's dynamic sampling",
    )


def _by_success(r: Reading, p: Progress, groups: Track, level: float) -> bool:
    """Whether groups became alike as the score rose to its best, so that most are alike because all are right."""
    if at_ceiling(r, p):
        return True
    if float(groups.values[: max(3, len(groups) // 20)].mean()) >= 0.5:
        return False
    track = p.track
    stays = float(track.slow.max()) - track.late < 2 * track.error(track.width) + 0.5 * track.noise
    return level <= 0.8 or (stays and track.late - track.start > 6 * track.noise)


def _repetitive(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "repetitive-outputs"
    distinct, inside, copies = (
        r.track(k) for k in ("response/distinct_2", "response/repetition", "batch/duplicate_fraction")
    )
    pinned = _pinned(r)
    if distinct is None and inside is None and copies is None and pinned is None:
        yield unchecked(r, id, "response/distinct_2", "response/repetition", "batch/duplicate_fraction")
        return
    told: list[Evidence] = []
    onsets: list[int | None] = []
    strong = 0
    if distinct is not None and r.long(distinct) and _sunk(distinct):
        told.append(ends(distinct))
        onsets.append(distinct.departure(up=False))
        strong += distinct.late < 0.4 * distinct.start
    if inside is not None and len(inside) >= 5 and inside.late > 0.3 and inside.late > 2 * inside.start:
        told.append(ends(inside))
        onsets.append(inside.departure(up=True))
        strong += inside.late > 0.5
    if copies is not None and len(copies) >= 5 and copies.late > 0.5 and copies.late > copies.start + 0.2:
        told.append(ends(copies))
        onsets.append(copies.departure(up=True))
        strong += copies.late > 0.9
    if pinned is not None:
        told.append(pinned[1])
        onsets.append(pinned[0])
    if not told:
        return
    at = min((o for o in onsets if o is not None), default=None)
    severity = CRITICAL if strong >= 2 else WARNING
    yield finding(
        id,
        severity,
        at,
        told,
        ruled_out=[ruled_out(id, "template"), ruled_out(id, "short")],
        source="trl#204",
    )


def _sunk(distinct: Track) -> bool:
    fall = distinct.start - distinct.late
    return fall > 0.3 * distinct.start and fall > 4 * distinct.error(distinct.width)


def _pinned(r: Reading) -> tuple[int, Evidence] | None:
    """Batch means of different prompts that are the same to half a percent, from five rows on, and never move."""
    track = r.score
    if track is None or len(track) < 5:
        return None
    spread = r.track("score/std", "score/group_std", "reward/std")
    values = track.values[-max(5, len(track) // 2) :]
    middle = abs(float(np.median(values)))
    sigma = float(values.std())
    if middle == 0 or sigma == 0 or sigma >= 0.005 * middle:
        return None
    if spread is not None and spread.late > 5 * sigma:
        return None  # responses differ: a large batch alone makes the mean quiet
    p = progress(r)
    if p is not None and p.improved:
        return None
    told = figure(
        "pinned",
        track,
        step=track.step(-1),
        value=sigma,
        middle=float(np.median(values)),
        sigma=sigma,
        rows=len(values),
    )
    return track.step(len(track) - len(values)), told


_NO_ANSWER = re.compile(r"style/(?:no_?op|refus)")


def _style(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    """Rates of hedges, praise, stock phrases: twice what they were, beyond noise, while the score rises."""
    family = {k: t for k in r.log.family("style/") if (t := r.track(k)) is not None}
    if not family:
        yield unchecked(r, "style-exploitation", "style/<name>")
        yield unchecked(r, "sycophancy", "style/sycophancy")
        return
    p = progress(r)
    measured = bool(r.log.family("eval/") or r.log.family("gold/"))
    for key, track in sorted(family.items()):
        if measured and _NO_ANSWER.match(key):
            continue  # no manner of speaking: whether it is an exploit is what the independent measure says
        id = "sycophancy" if "sycophan" in key or "flip" in key else "style-exploitation"
        if not r.long(track):
            yield too_short(r, id, key)
            continue
        rise, error = track.rise
        doubled = track.late > 2 * track.start + 1e-9 and rise > max(4 * error, 0.01)
        if id == "sycophancy":
            doubled = rise > max(0.1, 3 * error)
        if not doubled or not (track.trend.rises or rise > 5 * error):
            continue
        told = [ends(track)]
        bought = p is None or p.improved
        if p is not None:
            told.append(ends(p.track))
        at = track.departure(up=True) or track.step(0)
        yield finding(
            id,
            WARNING if bought else INFO,
            at,
            told,
            values={"style": key.split("/", 1)[1]},
            ruled_out=[ruled_out(id, "prompts")],
            source="heuristic",
        )


RULES = (
    Rule(("no-reward-signal",), POLICY, _no_signal),
    Rule(("repetitive-outputs",), POLICY, _repetitive),
    Rule(("style-exploitation", "sycophancy"), _STAGES, _style),
)
