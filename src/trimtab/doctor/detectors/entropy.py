"""The policy's entropy: collapsed, or exploded. A fall alone is learning; it takes a second sign of harm."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.doctor.detectors.progress import Progress, changed_since, progress
from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import (
    CRITICAL,
    INFO,
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
from trimtab.doctor.finding import Evidence, Finding, NotDiagnosable

__all__ = ["RULES", "at_ceiling"]

_KEY = "policy/entropy"
FLOOR = 0.05
"""nats/token below which next to nothing is sampled any more."""
EMPTY = 0.01
"""nats/token below which nothing is: one response of a few hundred tokens is as good as certain."""


def _read(r: Reading, id: str) -> Track | NotDiagnosable:
    track = r.track(_KEY)
    if track is None:
        return unchecked(r, id, _KEY)
    if not r.long(track):
        return too_short(r, id, _KEY)
    return track


def at_ceiling(r: Reading, p: Progress) -> bool:
    """Whether the score has risen to where nearly every response of the batch has the best score there is.

    Needs the batch's largest score: the mean has come to within a tenth of the way that it had to go.
    """
    top = r.track("score/max")
    if top is None or not p.improved or p.fallen:
        return False
    way = max(top.late, top.early) - p.track.start
    return bool(way > 0 and max(top.late, top.early) - p.track.late < 0.15 * way)


def _harm(r: Reading, p: Progress | None, entropy: Track, since: int) -> Evidence | None:
    """What a collapse does besides lowering entropy: the score no longer rises, groups all alike, one text for all."""
    if p is not None and p.fallen:
        return figure("peak", p.track, step=p.track.step(p.peak_at), value=p.peak, peak=p.peak, late=p.track.late)
    copies = r.track("batch/duplicate_fraction")
    if copies is not None and copies.late > 0.5 and copies.late > 2 * copies.early:
        return ends(copies)
    distinct = r.track("response/distinct_2")
    if distinct is not None and distinct.late < 0.7 * distinct.early:
        return ends(distinct)
    if p is None or at_ceiling(r, p):
        return None
    groups = r.track("group/zero_std_fraction")
    if groups is not None and groups.late > 0.5 and groups.late > groups.early + 0.2 and not p.improved:
        return ends(groups)
    if not p.flat and entropy.late >= FLOOR:
        return None  # it may have levelled off at what it won, and there is entropy left to sample from
    if p.flat or (changed_since(p.track, since) < 2.0 and not _won_late(p, since)):
        return ends(p.track)
    return _plateau(p, entropy.onset(entropy.smooth < EMPTY))


def _plateau(p: Progress, empty: int | None) -> Evidence | None:
    """A third of the log, at least, without any gain since the entropy was used up.

    What was won on the way down is no sign that there is more to win.
    """
    if empty is None:
        return None
    at = int((p.track.steps < empty).sum())
    rest = p.track.since(at)
    if len(rest) < max(20, len(p.track) // 3):
        return None
    rise, error = rest.rise
    if rise >= 2 * error or _won_late(p, empty):
        return None
    return figure("since-then", rest, step=rest.step(-1), value=rest.late, then=rest.early, late=rest.late, at=empty)


def _won_late(p: Progress, since: int) -> bool:
    """Whether the score still rose after `since`: what is left of its trend, where that part is long enough."""
    at = int((p.track.steps < since).sum())
    rest = p.track.since(at)
    return (
        len(rest) >= 8
        and rest.trend.rises
        and rest.trend.p < 0.01
        and rest.trend.change > 0.15 * (p.peak - p.track.start)
    )


def _collapse(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "entropy-collapse"
    track = _read(r, id)
    if isinstance(track, NotDiagnosable):
        yield track
        return
    low = track.late < 0.1 * track.start or (track.late < FLOOR and track.late < 0.25 * track.start)
    if not low or track.late < 0 or track.start <= FLOOR:
        return  # below zero is no entropy; a start near zero is a narrow fine-tuned model, not a collapse
    since = track.onset(track.smooth < max(0.2 * track.start, min(FLOOR, 0.5 * track.start))) or track.step(0)
    harm = _harm(r, progress(r), track, since)
    told = [ends(track), *([harm] if harm is not None else [])]
    if harm is None:
        yield finding(id, INFO, since, told, cause="benign", source="heuristic")
        return
    out = [ruled_out(id, "narrow-start", start=track.start), ruled_out(id, "learning")]
    severity = CRITICAL if track.late < 0.02 * track.start and track.late < FLOOR else WARNING
    yield finding(id, severity, since, told, ruled_out=out, source="heuristic; entropy falls in healthy runs, too")


def _explosion(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "entropy-explosion"
    track = _read(r, id)
    if isinstance(track, NotDiagnosable):
        yield track
        return
    base = min(track.start, track.early)
    grown = track.late > 2 * max(base, 0.0) and track.late > 0.5 and track.late - base > 4 * track.noise
    # a rise that sets in late is no trend of the whole log
    if not (grown and (track.trend.rises or track.rise[0] > 4 * track.rise[1]) and base > 0):
        return
    since = track.onset(track.smooth > max(1.5 * base, base + 4 * track.noise)) or track.step(0)
    p = progress(r)
    if p is None:
        yield unchecked(r, id, "score/mean") if r.score is None else too_short(r, id, "score/mean", "reward/mean")
        return
    told = [ends(track), ends(p.track)]
    still_rises = not p.fallen and not p.flat and (changed_since(p.track, since) >= 2.0 or _won_late(p, since))
    if still_rises:
        yield finding(id, INFO, since, told, cause="benign", source="heuristic")
        return
    severity = CRITICAL if track.late > 2 and track.late > 3 * base and p.fallen else WARNING
    out = [ruled_out(id, "bonus"), ruled_out(id, "exploring")]
    yield finding(id, severity, since, told, ruled_out=out, source="heuristic")


RULES = (
    Rule(("entropy-collapse",), POLICY, _collapse),
    Rule(("entropy-explosion",), POLICY, _explosion),
)
