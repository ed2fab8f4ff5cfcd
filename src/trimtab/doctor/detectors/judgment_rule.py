"""How a detector on judgments, scores or pairs is made, and the arithmetic of shares that all of them use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.doctor.detector import Verdicts
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable, Severity
from trimtab.doctor.judgments import JudgmentMaterial
from trimtab.stats.intervals import Interval, wilson
from trimtab.stats.significance import detectable_share

__all__ = ["JudgmentRule", "evidence", "found", "loudest", "missing", "share", "underpowered", "z_of"]


@dataclass(frozen=True, slots=True)
class JudgmentRule:
    """A detector on materials that are no training logs, made of two functions."""

    ids: Sequence[str]
    wants: Callable[[JudgmentMaterial], bool]
    find: Callable[[JudgmentMaterial], Verdicts]

    def reads(self, material: Any) -> bool:
        """Whether the material has the table that the rule is about."""
        return isinstance(material, JudgmentMaterial) and self.wants(material)

    def look(self, material: Any) -> Iterator[Finding | NotDiagnosable]:
        """What the function finds."""
        yield from self.find(material)


def evidence(id: str, what: str, value: float | None, *, signal: str = "", **values: Any) -> Evidence:
    """One figure: the catalogue's `<id>.<what>`; `value` is told as {value}."""
    finite = None if value is None or not math.isfinite(value) else float(value)
    return Evidence(Message(f"{id}.{what}", {"value": value, **values}), signal, value=finite)


def found(
    id: str,
    severity: Severity,
    told: Iterable[Evidence],
    *,
    source: str,
    cause: str = "cause",
    ruled_out: Iterable[str] = (),
    values: Mapping[str, Any] | None = None,
    because_of: str | None = None,
) -> Finding:
    """A finding without steps; its cause is the catalogue's `<id>.<cause>`, what was ruled out `<id>.not-<what>`."""
    shared = values or {}
    return Finding(
        id,
        severity,
        None,
        tuple(told),
        Message(f"{id}.{cause}", shared),
        tuple(Message(f"{id}.not-{what}", shared) for what in ruled_out),
        source=source,
        because_of=because_of,
    )


def missing(id: str, *what: str) -> NotDiagnosable:
    """A check that lacks something."""
    return NotDiagnosable(id, what)


def underpowered(id: str, n: int, null: float, matters: float, what: str) -> NotDiagnosable:
    """A share that was not found to differ, from a sample that could not have shown what matters.

    Args:
        id: the finding.
        n: what the share was counted over.
        null: the share of a sound judge or model.
        matters: the smallest distance from it that would matter.
        what: what is counted (`verdicts`, `pairs`).
    """
    shown = detectable_share(n, null) if n > 0 else math.nan
    wanted = math.ceil(null * (1 - null) * (2.8 / matters) ** 2)
    least = f"; {n} {what} show only effects from {shown:.2f} on" if math.isfinite(shown) else ""
    return NotDiagnosable(id, (f"{wanted} {what} or more (there are {n}{least})",), "underpowered")


def share(k: float, n: int) -> Interval:
    """A share with Wilson's 95 % interval."""
    return wilson(k, n)


def z_of(k: float, n: float, null: float = 0.5) -> float:
    """How many standard errors k of n lies from the share `null`; 0 for n = 0."""
    return (k - null * n) / math.sqrt(n * null * (1 - null)) if n else 0.0


def loudest(findings: Iterable[Finding]) -> list[Finding]:
    """One finding of each id: the loudest, with the evidence of up to three others behind its own."""
    by_id: dict[str, list[Finding]] = {}
    for each in findings:
        by_id.setdefault(each.id, []).append(each)
    merged = []
    for same in by_id.values():
        same.sort(key=lambda f: -f.severity.rank)
        first = same[0]
        others = tuple(f.evidence[0] for f in same[1:4])
        merged.append(
            Finding(first.id, first.severity, None, first.evidence + others, first.cause, first.ruled_out,
                    source=first.source, because_of=first.because_of)
        )  # fmt: skip
    return merged
