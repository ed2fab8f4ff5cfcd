"""Length of the responses: growing or shrinking without gain, cut off, never ending."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.doctor.detectors.progress import Progress, changed_since, progress
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
from trimtab.doctor.finding import Finding, Message, NotDiagnosable

__all__ = ["RULES", "grown"]

_LENGTH = "response/length_mean"
_CUT = "response/truncated_fraction"
GROWTH = 1.5


def grown(track: Track) -> bool:
    """Whether the length has grown by half, beyond its noise."""
    return (
        track.start > 0
        and track.late > GROWTH * track.start
        and track.late - track.start > 4 * track.error(track.width)
    )


def _explosion(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "length-explosion"
    track = r.track(_LENGTH)
    if track is None or not r.long(track):
        yield unchecked(r, id, _LENGTH) if track is None else too_short(r, id, _LENGTH)
        return
    if not grown(track):
        return
    at = track.departure(up=True) or track.step(0)
    p, cut = progress(r), r.track(_CUT)
    told = [ends(track)]
    harm = False
    severe = False
    if cut is not None and cut.late > 0.1 and cut.late > cut.start + 0.05:
        told.append(ends(cut))
        harm, severe = True, cut.late > 0.5
    if p is not None and (p.fallen or p.flat):
        told.append(ends(p.track))
        harm = True
    severity = (CRITICAL if severe and track.late > 2 * track.start else WARNING) if harm else INFO
    out = [ruled_out(id, "earned")] if harm else []
    yield finding(id, severity, at, told, ruled_out=out, cause="cause" if harm else "watch", source="heuristic")


def _collapse(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "length-collapse"
    track = r.track(_LENGTH)
    if track is None or not r.long(track):
        yield unchecked(r, id, _LENGTH) if track is None else too_short(r, id, _LENGTH)
        return
    if track.late >= 0.5 * track.start or track.start - track.late < 4 * track.error(track.width):
        return
    at = track.departure(up=False) or track.step(0)
    p, empty = progress(r), r.track("response/empty_fraction")
    told = [ends(track)]
    harm = track.late < 8 and track.start >= 16
    out: list[Message] = []
    if empty is not None and empty.late > 0.05:
        told.append(ends(empty))
        harm = True
    if p is not None and (p.fallen or p.flat or changed_since(p.track, at) < -2 or _nothing_won(p, at, track)):
        told.append(ends(p.track))
        harm = True
        out = [ruled_out(id, "brief")]  # said only where the score does suffer
    yield finding(
        id,
        WARNING if harm else INFO,
        at,
        told,
        ruled_out=out,
        cause="cause" if harm else "watch",
        source="trl#522",
    )


def _nothing_won(p: Progress, at: int, length: Track) -> bool:
    """Whether the score has come down from its best beyond doubt, or three quarters of the length went for nothing."""
    sunk = p.drop > 5 * p.track.error(p.track.width) and p.peak_at < 0.8 * len(p.track)
    return sunk or (length.late < 0.25 * length.start and changed_since(p.track, at) < 2)


def _truncated(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "truncated-responses"
    track = r.track(_CUT)
    if track is None:
        yield unchecked(r, id, _CUT, "response/eos_fraction")
        return
    most = track.values > 0.9
    if len(track) < 10:
        rows = int(most.sum())
        if rows and 2 * rows >= len(track):
            shown = figure(
                "rows-above",
                track,
                step=track.step(int(np.argmax(most))),
                value=float(track.values.max()),
                rows=rows,
                of=len(track),
                bound=0.9,
            )
            yield finding(
                id,
                by_rows(rows),
                track.step(int(np.argmax(most))),
                [shown],
                ruled_out=[ruled_out(id, "padded")],
                source="heuristic",
            )
        elif len(track) >= 5 and track.late > 0.5:
            yield finding(id, WARNING, track.step(0), [ends(track)], source="heuristic")
        return
    if track.late <= 0.1:
        return
    p = progress(r)
    gains = p is not None and p.improved and not p.fallen
    grew = track.late > track.start + 0.05 and track.trend.rises
    at = track.onset(track.smooth > 0.1) or track.step(0)
    if track.late > 0.9:
        severity = CRITICAL
    elif track.late > 0.5:
        severity = WARNING if gains and not grew else CRITICAL
    elif track.late > 0.3:
        severity = WARNING
    else:
        severity = INFO if gains and not grew else WARNING
    told = [figure("above", track, step=at, value=track.late, bound=0.1, late=track.late), ends(track)]
    yield finding(id, severity, at, told, ruled_out=[ruled_out(id, "padded")], source="trl, verl#7817")


def _missing_eos(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "missing-eos"
    count, share, cut = r.track("response/eos_count"), r.track("response/eos_fraction"), r.track(_CUT)
    track, missing = None, None
    if share is not None:
        track, missing = share, share.values <= 0
    elif count is not None:
        track, missing = count, count.values <= 0
    elif cut is not None:
        track, missing = cut, cut.values >= 1
    if track is None or missing is None:
        yield unchecked(r, id, "response/eos_fraction", "response/eos_count", _CUT)
        return
    rows = int(missing.sum())
    if rows and rows >= 0.8 * len(track):
        at = track.step(int(np.argmax(missing)))
        told = figure("rows-no-eos", track, step=at, value=float(track.values[-1]), rows=rows, of=len(track))
        out = [ruled_out(id, "sum")]
        length, longest = r.track(_LENGTH), r.track("response/length_max")
        if length is not None and longest is not None and length.late >= 0.99 * longest.late:
            out.insert(0, ruled_out(id, "short", length=length.late))
        yield finding(id, by_rows(rows), at, [told], ruled_out=out, source="TRL missing_eos_penalty")
    elif share is not None and len(share) >= 10 and share.late < 0.5:
        at = share.onset(share.smooth < 0.5) or share.step(0)
        yield finding(id, WARNING, at, [ends(share)], ruled_out=[ruled_out(id, "sum")], source="heuristic")


RULES = (
    Rule(("length-explosion",), POLICY, _explosion),
    Rule(("length-collapse",), POLICY, _collapse),
    Rule(("truncated-responses",), POLICY, _truncated),
    Rule(("missing-eos",), POLICY, _missing_eos),
)
