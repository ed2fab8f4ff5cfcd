"""Have the policy's responses left what the preference model knows? By the signals that its own scorer gives.

Scores decide nothing here: progress moves them too. In the tiny world healthy runs end with a stability index of the
scores of about 2 and their states near where they began (mean percentile .41-.62); policies that exploit what their
preference model cannot see go from .5 to .81-.86. See bench/preference/shift.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import (
    CRITICAL,
    POLICY,
    WARNING,
    Rule,
    ends,
    figure,
    finding,
    last,
    ruled_out,
    too_short,
    unchecked,
)
from trimtab.doctor.finding import Evidence, Finding, NotDiagnosable, Severity

__all__ = ["RULES"]

_ID = "pm-distribution-shift"
_FAR, _VERY_FAR, _MOVED = 0.7, 0.9, 0.15
"""Mean percentile of the distances, half = as unseen pairs; and its rise."""
_OUT, _MOSTLY_OUT = 0.1, 0.25
"""Share of responses beyond the 99th percentile."""
_LOST, _LOST_MUCH = 0.05, 0.10
"""Points of accuracy."""
_FEWEST = 5


def _shift(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    distance, outside = r.track("shift/distance"), r.track("shift/outside_fraction")
    accuracy, expected = r.track("accuracy/on_policy"), r.track("shift/accuracy_by_distance")
    if distance is None and outside is None and accuracy is None and expected is None:
        if r.log.framework == "trimtab" and _scored_by_a_model(r):
            yield unchecked(r, _ID, "shift/distance", "accuracy/on_policy")
        return
    found = [
        *([] if distance is None else _distance(distance)),
        *([] if outside is None else _outside(outside)),
        *([] if accuracy is None else _accuracy(r, accuracy)),
        *([] if expected is None else _expected(r, expected)),
    ]
    if not found:
        known = next(t for t in (distance, outside, accuracy, expected) if t is not None)
        if accuracy is None and expected is None and len(known) < _FEWEST:
            yield too_short(r, _ID, "shift/distance", "shift/outside_fraction")
        return
    told = [evidence for _, _, evidence in found]
    from_start = distance is not None and len(distance) >= _FEWEST and distance.start > _FAR
    psi = r.track("shift/score_psi")
    yield finding(
        _ID,
        max((severity for severity, _, _ in found), key=lambda s: s.rank),
        min((onset for _, onset, _ in found if onset is not None), default=None),
        [*told, *([last(psi)] if psi is not None else [])],
        cause="from-start" if from_start else "left" if distance is not None or outside is not None else "unlike",
        ruled_out=[ruled_out(_ID, "progress")],
        source="measured on tiny-world runs; accuracy: five points, heuristic",
    )


_Told = tuple[Severity, int | None, Evidence]


def _distance(track: Track) -> Iterator[_Told]:
    if len(track) < _FEWEST or track.late <= _FAR:
        return
    rise = track.late - track.start
    if track.start > _FAR:
        yield (CRITICAL if track.start > _VERY_FAR else WARNING), track.step(0), ends(track)
    elif rise > max(_MOVED, 4 * track.error(track.width)):
        yield (CRITICAL if track.late > _VERY_FAR else WARNING), track.departure(up=True), ends(track)


def _outside(track: Track) -> Iterator[_Told]:
    if len(track) >= _FEWEST and track.late > _OUT + 2 * track.error(track.width):
        at = track.onset(track.smooth > _OUT) if track.start <= _OUT else track.step(0)
        yield (CRITICAL if track.late > _MOSTLY_OUT else WARNING), at, ends(track)


def _accuracy(r: Reading, track: Track) -> Iterator[_Told]:
    """Accuracy on labeled pairs of the policy, against that on held-out pairs or against its own first value."""
    before, high = r.track("accuracy/validation"), r.track("accuracy/on_policy_high")
    first = float(before.values[-1]) if before is not None else float(track.values[0])
    now = float(track.values[-1])
    firm = high is not None and float(high.values[-1]) < first
    if high is None:
        # without an interval a fall has to be seen twice
        firm = len(track) >= 3 and max(track.values[-2:]) < first - _LOST
    if first - now > _LOST and firm:
        told = figure("start-end", track, step=track.step(-1), value=now, first=first, late=now)
        yield (CRITICAL if first - now > _LOST_MUCH else WARNING), track.step(-1), told


def _expected(r: Reading, track: Track) -> Iterator[_Told]:
    high = r.track("shift/accuracy_by_distance_high")
    now = float(track.values[-1])
    if now < -_LOST and high is not None and float(high.values[-1]) < 0:
        yield WARNING, track.step(-1), figure("last", track, step=track.step(-1), value=now)


def _scored_by_a_model(r: Reading) -> bool:
    return any(
        (key == "ppo.reward" and value == "preference") or key == "ppo.reward.preference"
        for key, value in r.log.config.items()
    )


RULES = (Rule((_ID,), POLICY, _shift),)
