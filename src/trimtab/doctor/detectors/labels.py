"""The label and sample stages of our own runs, from the shares that they log; verdict files are read elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from math import sqrt

from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import CRITICAL, INFO, WARNING, Rule, figure, last, logged, ruled_out, unchecked
from trimtab.doctor.finding import Finding, NotDiagnosable
from trimtab.doctor.log import Stage

__all__ = ["RULES"]

_LABEL = frozenset({Stage.LABEL})
_SAMPLE = frozenset({Stage.SAMPLE, Stage.LABEL})
_FEWEST = 50
"""Verdicts or pairs below which no share of them is judged."""


def _end(track: Track) -> float:
    return float(track.values[-1])


def _count(r: Reading, *keys: str) -> float | None:
    track = r.track(*keys)
    return None if track is None else _end(track)


def _z(share: float, null: float, n: float) -> float:
    return (share - null) / sqrt(max(null * (1 - null), 1e-9) / max(n, 1.0))


def _few(id: str, n: float | None) -> NotDiagnosable | None:
    return NotDiagnosable(id, ("label/pairs",), "underpowered") if n is not None and n < _FEWEST else None


def _position(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "judge-position-bias"
    first, n = r.track("label/first_slot_fraction"), _count(r, "label/verdicts", "label/pairs")
    if first is None or n is None:
        yield unchecked(r, id, "label/first_slot_fraction" if first is None else "label/verdicts")
        return
    if (few := _few(id, n)) is not None:
        yield few
        return
    share = _end(first)
    decided = n * (1 - (_count(r, "label/tie_fraction") or 0.0))
    z = _z(share, 0.5, decided)
    flips = r.track("label/order_flip_fraction")
    flipping = flips is not None and _end(flips) > 0.35
    if abs(z) <= 3 or abs(share - 0.5) <= 0.05:
        return
    severity = CRITICAL if abs(share - 0.5) >= 0.10 else WARNING
    told = [figure("share-z", first, step=first.step(-1), value=share, share=share, z=z, n=decided)]
    if flips is not None and flipping:
        told.append(last(flips))
    both = flips is not None
    yield logged(
        id,
        severity,
        first.step(-1),
        told,
        ruled_out=[ruled_out(id, "logged-order" if both else "logged-unknown")],
        source="heuristic",
    )


def _inconsistency(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "judge-inconsistency"
    flips, n = r.track("label/order_flip_fraction"), _count(r, "label/pairs")
    if flips is None:
        yield unchecked(r, id, "label/order_flip_fraction")
        return
    if (few := _few(id, n)) is not None:
        yield few
        return
    share = _end(flips)
    if share <= 0.25 or (n is not None and _z(share, 0.25, n) < 2):
        return
    severity = CRITICAL if share > 0.35 and (n is None or _z(share, 0.35, n) > 1) else WARNING
    yield logged(
        id, severity, flips.step(-1), [last(flips)], ruled_out=[ruled_out(id, "logged-ties")], source="heuristic"
    )


def _unparsed(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "judge-unparsed"
    tracks = [t for k in ("unparsed", "refused", "error") if (t := r.track(f"label/{k}_fraction")) is not None]
    if not tracks:
        yield unchecked(r, id, "label/unparsed_fraction")
        return
    n = _count(r, "label/verdicts", "label/pairs")
    if (few := _few(id, n)) is not None:
        yield few
        return
    bad = [t for t in tracks if _end(t) > 0.05]
    if bad:
        worst = max(_end(t) for t in bad)
        at = min(t.onset(t.values > 0.05, 1) or t.step(-1) for t in bad)
        yield logged(id, CRITICAL if worst > 0.25 else WARNING, at, [last(t) for t in bad], source="heuristic")


def _length(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "judge-length-bias"
    longer, n = r.track("label/longer_wins_fraction"), _count(r, "label/pairs")
    if longer is None or n is None:
        yield unchecked(r, id, "label/longer_wins_fraction" if longer is None else "label/pairs")
        return
    if (few := _few(id, n)) is not None:
        yield few
        return
    share = _end(longer)
    z = _z(share, 0.64, n)  # people prefer the longer one in .64 of the pairs
    told = [figure("share-z", longer, step=longer.step(-1), value=share, share=share, z=_z(share, 0.5, n), n=n)]
    if share >= 0.75 and z > 3:
        severity = CRITICAL if share >= 0.85 else WARNING
    elif share > 0.65 and z > 3 and n >= 1000:
        severity = WARNING
    elif share > 0.65 and z > 2:
        severity = INFO
    else:
        return
    yield logged(id, severity, longer.step(-1), told, ruled_out=[ruled_out(id, "logged-people")], source="heuristic")


def _noisy(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "noisy-labels"
    gap, n = r.track("label/gap_mean"), _count(r, "label/pairs")
    if gap is None:
        yield unchecked(r, id, "label/gap_mean")
        return
    if (few := _few(id, n)) is not None:
        yield few
        return
    if _end(gap) < 0.02:
        ties = r.track("label/tie_fraction")
        told = [last(gap), *([last(ties)] if ties is not None else [])]
        yield logged(id, WARNING, gap.step(-1), told, ruled_out=[ruled_out(id, "logged-ties")], source="heuristic")


def _diversity(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "low-diversity"
    same, distinct = r.track("sample/identical_fraction"), r.track("response/distinct_2")
    if same is None and distinct is None:
        if r.log.stage is Stage.SAMPLE:
            yield unchecked(r, id, "sample/identical_fraction", "response/distinct_2")
        return
    n = _count(r, "sample/pairs")
    if (few := _few(id, n)) is not None:
        yield few
        return
    if same is not None and _end(same) > 0.1:
        at = same.onset(same.values > 0.1, 1) or same.step(-1)
        severity = CRITICAL if _end(same) > 0.5 else WARNING
        yield logged(id, severity, at, [last(same)], ruled_out=[ruled_out(id, "logged-small")], source="heuristic")


RULES = (
    Rule(("judge-position-bias",), _LABEL, _position),
    Rule(("judge-inconsistency",), _LABEL, _inconsistency),
    Rule(("judge-unparsed",), _LABEL, _unparsed),
    Rule(("judge-length-bias",), _LABEL, _length),
    Rule(("noisy-labels",), _LABEL, _noisy),
    Rule(("low-diversity",), _SAMPLE, _diversity),
)
