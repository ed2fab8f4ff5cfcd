"""How a built-in detector is made, and the few sentences with figures that all of them use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.doctor.detector import Verdicts
from trimtab.doctor.detectors.names import in_words_of
from trimtab.doctor.detectors.reading import Reading, Track, reading
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable, Severity
from trimtab.doctor.log import Log, Stage

__all__ = [
    "CRITICAL",
    "INFO",
    "POLICY",
    "WARNING",
    "Rule",
    "by_rows",
    "ends",
    "figure",
    "finding",
    "last",
    "logged",
    "ruled_out",
    "too_short",
    "unchecked",
]

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL
POLICY = frozenset({Stage.POLICY, Stage.UNKNOWN})


@dataclass(frozen=True, slots=True)
class Rule:
    """A detector on training logs of certain stages, made of one function."""

    ids: Sequence[str]
    stages: frozenset[Stage]
    find: Callable[[Reading], Verdicts]

    def reads(self, material: Any) -> bool:
        """Whether it is a log of one of the stages."""
        return isinstance(material, Log) and material.stage in self.stages

    def look(self, material: Any) -> Iterator[Finding | NotDiagnosable]:
        """What the function finds."""
        yield from self.find(reading(material))


def finding(
    id: str,
    severity: Severity,
    onset: int | None,
    evidence: Iterable[Evidence],
    *,
    source: str,
    ruled_out: Iterable[Message] = (),
    cause: str = "cause",
    values: Mapping[str, Any] | None = None,
) -> Finding:
    """A finding whose cause is the catalogue's `<id>.<cause>`."""
    told = Message(f"{id}.{cause}", values or {})
    return Finding(id, severity, onset, tuple(evidence), told, tuple(ruled_out), source=source)


def logged(id: str, severity: Severity, onset: int | None, evidence: Iterable[Evidence], **rest: Any) -> Finding:
    """As `finding`, for ids that judgments and scores can show as well: these have causes of their own."""
    return finding(id, severity, onset, evidence, **{"cause": "logged", **rest})


def ruled_out(id: str, what: str, **values: Any) -> Message:
    """Something else that it could have been: the catalogue's `<id>.not-<what>`."""
    return Message(f"{id}.not-{what}", values)


def figure(what: str, track: Track, *, step: int | None = None, value: float | None = None, **values: Any) -> Evidence:
    """One figure about a series with its curve: the catalogue's `figure.<what>`."""
    shown = value if value is not None and np.isfinite(value) else None
    told = {"name": track.called, **({"step": step} if step is not None else {}), **values}
    if value is not None:
        told.setdefault("value", value)
    return Evidence(Message(f"figure.{what}", told), track.name, step, shown, track.curve)


def ends(track: Track) -> Evidence:
    """First fifth against last fifth."""
    return figure("ends", track, step=track.step(-1), value=track.late, early=track.early, late=track.late)


def last(track: Track) -> Evidence:
    """The last value."""
    return figure("last", track, step=track.step(-1), value=float(track.values[-1]))


def by_rows(rows: int) -> Severity:
    """A broken invariant: a warning where one row shows it, critical from two."""
    return CRITICAL if rows >= 2 else WARNING


def unchecked(r: Reading, id: str, *keys: str) -> NotDiagnosable:
    """`id` needs one of `keys`, and the log has none: the keys in its framework's words, or `unit-unknown`."""
    unclear = [r.log.unit_unknown[k] for k in keys if k in r.log.unit_unknown]
    if unclear:
        return NotDiagnosable(id, tuple(dict.fromkeys(unclear)), "unit-unknown")
    return NotDiagnosable(id, (" or ".join(dict.fromkeys(in_words_of(r.log.framework, k) for k in keys)),), "missing")


def too_short(r: Reading, id: str, *keys: str) -> NotDiagnosable:
    """`id` needs more log points of `keys`."""
    found = r.track(*keys)
    name = found.name if found is not None else in_words_of(r.log.framework, keys[0])
    return NotDiagnosable(id, (name,), "too-short")
