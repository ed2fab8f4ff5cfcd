"""Aggregates that somebody else counted of judges: the same bands, and more restraint.

A table of several judges is a comparison, not one judge at work: nothing in it is critical. A single row is the judge
that made the labels, and may be.
"""

from __future__ import annotations

from trimtab.doctor.detector import Verdicts
from trimtab.doctor.detectors import judge_bands as bands
from trimtab.doctor.detectors.judgment_rule import (
    JudgmentRule,
    evidence,
    found,
    loudest,
    missing,
    share,
    underpowered,
    z_of,
)
from trimtab.doctor.finding import Finding, NotDiagnosable, Severity
from trimtab.doctor.judgments import JudgeStatistics, JudgmentMaterial

__all__ = ["DETECTORS"]

WARNING, CRITICAL = Severity.WARNING, Severity.CRITICAL


def _look(material: JudgmentMaterial) -> Verdicts:
    rows = [row for row in material.statistics if not row.people]
    people = next((row for row in material.statistics if row.people), None)
    said = [
        verdict
        for row in rows
        for verdict in (*_place(row), *_swap(row), *_longer(row, people), *_own(row), *_agreement(row), *_failed(row))
    ]
    several = len(rows) > 1
    for finding in loudest(v for v in said if isinstance(v, Finding)):
        yield finding.at_most(WARNING) if several else finding
    unchecked = [v for v in said if isinstance(v, NotDiagnosable)]
    for id in dict.fromkeys(v.id for v in unchecked):
        of_id = [v for v in unchecked if v.id == id]
        if len(of_id) == len(rows):
            yield of_id[0]


def _name(row: JudgeStatistics) -> str:
    return row.name or "judge"


def _place(row: JudgeStatistics) -> Verdicts:
    id = "judge-position-bias"
    if row.first is None or row.n is None:
        yield missing(id, "the share of verdicts for the response shown first, with the number of verdicts")
        return
    z, off = z_of(row.first * row.n, row.n), abs(row.first - 0.5)
    if abs(z) > bands.SURE and off > bands.PLACE_WARNING:
        q = share(row.first * row.n, row.n)
        told = [evidence(id, "share", q.mean, judge=_name(row), n=row.n, low=q.low, high=q.high, z=z)]
        yield found(id, CRITICAL if off >= bands.PLACE_CRITICAL else WARNING, told, source=bands.ANNOTATORS,
                    cause="cause-first" if z > 0 else "cause-second", ruled_out=("chance",),
                    values={"judge": _name(row), "z": abs(z)})  # fmt: skip


def _swap(row: JudgeStatistics) -> Verdicts:
    id = "judge-inconsistency"
    if row.flips is None:
        yield missing(id, "the share of pairs whose two orders name different winners")
        return
    pairs = row.n or 100
    q = share((1 - row.flips) * pairs, pairs)
    if q.high < bands.SWAP_WARNING:
        told = [evidence(id, "share", q.mean, judge=_name(row), low=q.low, high=q.high)]
        yield found(id, CRITICAL if q.high < bands.SWAP_CRITICAL else WARNING, told, source=bands.ZHENG,
                    values={"judge": _name(row)})  # fmt: skip


def _longer(row: JudgeStatistics, people: JudgeStatistics | None) -> Verdicts:
    id = "judge-length-bias"
    if row.longer is None or row.n is None:
        yield missing(id, "the share of verdicts for the longer response, with the number of verdicts")
        return
    z, q = z_of(row.longer * row.n, row.n), share(row.longer * row.n, row.n)
    known = None if people is None else people.longer
    excess = q.low > known + bands.LENGTH_EXCESS if known is not None else row.n >= bands.LENGTH_LARGE_N
    if z > bands.SURE and row.longer >= bands.LENGTH_WARNING and excess:
        told = [
            evidence(id, "share", q.mean, judge=_name(row), n=row.n, low=q.low, high=q.high, z=z),
            evidence(id, "people", bands.PEOPLE_LONGER if known is None else known),
        ]
        yield found(id, CRITICAL if row.longer >= bands.LENGTH_CRITICAL else WARNING, told, source=bands.ANNOTATORS,
                    cause="cause-longer", ruled_out=("chance",), values={"judge": _name(row), "z": z})  # fmt: skip
    elif known is None and row.n < bands.LENGTH_LARGE_N and row.longer >= bands.LENGTH_WARNING:
        yield underpowered(id, row.n, bands.PEOPLE_LONGER, 2 * bands.LENGTH_EXCESS, "verdicts")


def _own(row: JudgeStatistics) -> Verdicts:
    id = "judge-self-preference"
    if row.own is None:
        yield missing(id, "the share of verdicts for the judge's own responses, with their number")
        return
    n = row.own_n
    if n is None:
        yield missing(id, "the number of verdicts on the judge's own responses")
        return
    z, q = z_of(row.own * n, n), share(row.own * n, n)
    if row.own > bands.OWN_WARNING and z > bands.SURE:
        told = [evidence(id, "share", q.mean, judge=_name(row), n=n, low=q.low, high=q.high, z=z)]
        yield found(id, CRITICAL if row.own > bands.OWN_CRITICAL else WARNING, told, source=bands.HEURISTIC,
                    ruled_out=("chance",), values={"judge": _name(row), "z": z})  # fmt: skip
    elif n < 100 and q.high > bands.OWN_CRITICAL:
        yield underpowered(id, n, 0.5, bands.OWN_WARNING - 0.5, "verdicts on the judge's own responses")


def _agreement(row: JudgeStatistics) -> Verdicts:
    id = "judge-disagreement"
    if row.agreement is None or row.n is None:
        yield missing(id, "agreement with people or reference labels, with the number of verdicts")
        return
    q = share(row.agreement * row.n, row.n)
    # below one half by more than chance; a published table measures agreement in ways of its own
    if q.high < 0.55:
        told = [evidence(id, "gold", q.mean, judge=_name(row), n=row.n, low=q.low, high=q.high)]
        yield found(id, WARNING, told, source="AlpacaFarm: two people agree in 66 %", ruled_out=("chance",),
                    values={"judge": _name(row), "n": row.n})  # fmt: skip


def _failed(row: JudgeStatistics) -> Verdicts:
    id = "judge-unparsed"
    if row.unparsed is None:
        return
    n = row.n or 100
    q = share(row.unparsed * n, n)
    if q.low > bands.UNPARSED_WARNING:
        told = [evidence(id, "rate", q.mean, judge=_name(row))]
        yield found(id, CRITICAL if q.low > bands.UNPARSED_CRITICAL else WARNING, told, source=bands.HEURISTIC,
                    cause="cause-unparsed", values={"judge": _name(row)})  # fmt: skip


_IDS = (
    "judge-position-bias", "judge-inconsistency", "judge-length-bias", "judge-self-preference", "judge-disagreement",
    "judge-unparsed",
)  # fmt: skip

DETECTORS = (JudgmentRule(_IDS, lambda material: bool(material.statistics), _look),)
"""On tables of aggregates."""
