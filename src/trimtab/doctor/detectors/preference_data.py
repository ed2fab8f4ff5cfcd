"""Preference pairs: labels that contradict each other, labels that say nothing, the same pairs over and over."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from trimtab.doctor.detector import Verdicts
from trimtab.doctor.detectors.judge_bands import HEURISTIC, LENGTH_EXCESS, PEOPLE_LONGER
from trimtab.doctor.detectors.judgment_rule import (
    JudgmentRule,
    evidence,
    found,
    loudest,
    missing,
    share,
    underpowered,
)
from trimtab.doctor.detectors.pair_counts import (
    Comparisons,
    Contradictions,
    Triads,
    comparisons_of_pairs,
    comparisons_of_verdicts,
    contradictions,
    duplicates,
    effective_number,
    openings,
    same_response,
    triads,
)
from trimtab.doctor.finding import Evidence, Finding, NotDiagnosable, Severity
from trimtab.doctor.judgments import JudgmentMaterial

__all__ = ["DETECTORS"]

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL

REPEATS_WARNING: Final = 0.10
"""Share of repeated pairs with both labels: above (heuristic)."""
REPEATS_CRITICAL: Final = 0.30
CYCLES_WARNING: Final = 0.05
"""Share of triads that go round: above, beyond what noisy labels make (random labels: .25)."""
CYCLES_CRITICAL: Final = 0.15
TRIADS: Final = 100
DUPLICATES_WARNING: Final = 0.10
DUPLICATES_CRITICAL: Final = 0.50
PROMPTS: Final = 30
"""Effective number of prompts that a set of 300 pairs or more should have (heuristic)."""
ONE_RESPONSE: Final = 0.20
ONE_OPENING: Final = 0.50
ONE_GENERATOR: Final = 0.90
LENGTH_SUSPICIOUS: Final = 0.75
NOISE_WARNING: Final = 0.10
NOISE_CRITICAL: Final = 0.25
UNDECIDED: Final = 0.40
"""Mean probability that a soft label gives to the rejected response: above, labels are close to coin tosses."""


# contradictions


def _inconsistent(material: JudgmentMaterial) -> Verdicts:
    """Contradictory repeats and cyclic triads, in pairs or in one judge's verdicts."""
    id = "inconsistent-preferences"
    said = [v for compared in _compared(material) for v in _inconsistent_in(id, compared)]
    findings = [v for v in said if isinstance(v, Finding)]
    yield from loudest(findings)
    if not findings:
        unchecked = [v for v in said if isinstance(v, NotDiagnosable)]
        yield from unchecked[:1] if len(unchecked) == len(said) else []


def _compared(material: JudgmentMaterial) -> list[Comparisons]:
    pairs = [comparisons_of_pairs(material.pairs)] if material.pairs is not None else []
    judges = comparisons_of_verdicts(material.verdicts) if material.verdicts is not None else []
    return pairs + judges


def _inconsistent_in(id: str, compared: Comparisons) -> Verdicts:
    again, rounds = contradictions(compared), triads(compared)
    if not again.repeated and rounds.n < TRIADS:
        yield missing(id, "pairs that were labeled more than once or three and more responses compared for a prompt")
        return
    told: list[Evidence] = []
    severity: Severity | None = None
    q = share(again.contradictory, again.repeated)
    if again.repeated >= 20 and q.mean > REPEATS_WARNING and q.low > REPEATS_WARNING / 2:
        severity = CRITICAL if q.low > REPEATS_CRITICAL else WARNING
        told.append(evidence(id, "repeats", q.mean, n=again.repeated, low=q.low, high=q.high))
    cyclic = _cyclic(id, again, rounds)
    if cyclic is not None:
        severity = max(cyclic[0], severity or INFO, key=lambda s: s.rank)
        told.append(cyclic[1])
    if severity is not None:
        yield found(id, severity, told, source=HEURISTIC, cause="cause" if again.repeated else "cause-cycles",
                    ruled_out=("noise",) if cyclic is not None else ("copies",))  # fmt: skip
    elif 0 < again.repeated < 20 and rounds.n < TRIADS:
        yield underpowered(id, again.repeated, REPEATS_WARNING, REPEATS_WARNING, "repeated pairs")


def _cyclic(id: str, again: Contradictions, rounds: Triads) -> tuple[Severity, Evidence] | None:
    """Whether more triads go round than noise explains: with c contradictory repeats it makes c / 2 of them cyclic."""
    if rounds.n < TRIADS:
        return None
    by_noise = again.contradictory / again.repeated / 2 if again.repeated >= 20 else 0.0
    expected = max(CYCLES_WARNING, by_noise)
    q = share(rounds.cyclic, rounds.n)
    if q.low <= expected:
        return None
    severity = CRITICAL if q.low > CYCLES_CRITICAL else WARNING
    return severity, evidence(id, "cycles", q.mean, n=rounds.n, low=q.low, high=q.high, noise=by_noise)


def _noisy(material: JudgmentMaterial) -> Verdicts:
    id = "noisy-labels"
    assert material.pairs is not None
    again = contradictions(comparisons_of_pairs(material.pairs))
    soft = material.pairs.p_chosen[np.isfinite(material.pairs.p_chosen)]
    if again.repeated >= 20:
        q = share(again.contradictory, again.repeated)
        noise, low = _noise(q.mean), _noise(q.low)
        if noise > NOISE_WARNING and low > NOISE_WARNING / 2:
            told = [
                evidence(id, "repeats", noise, contradictory=q.mean, n=again.repeated, low=low, high=_noise(q.high))
            ]
            yield found(id, CRITICAL if low > NOISE_CRITICAL else WARNING, told, source=HEURISTIC)  # fmt: skip
            return
    if len(soft) >= 50:
        doubt = float(np.minimum(soft, 1 - soft).mean())
        if doubt > UNDECIDED:
            told = [evidence(id, "soft", doubt, n=len(soft))]
            yield found(id, INFO, told, source=HEURISTIC, cause="cause-soft")
            return
    if again.repeated < 20 and len(soft) < 50 and not material.scores:
        yield missing(id, "pairs that were labeled more than once, soft labels, or scores of a preference model")


def _noise(contradictory: float) -> float:
    """Share of wrong labels where two labels of a pair differ with probability 2 e (1 - e)."""
    return 0.5 * (1 - math.sqrt(max(1 - 2 * contradictory, 0.0)))


# diversity and length


def _diversity(material: JudgmentMaterial) -> Verdicts:
    id = "low-diversity"
    pairs = material.pairs
    assert pairs is not None
    if len(pairs) < 50:
        yield NotDiagnosable(id, (f"50 pairs or more (there are {len(pairs)})",), "underpowered")
        return
    told: list[tuple[Severity, str, Evidence]] = []
    repeated = duplicates(pairs)
    if repeated > DUPLICATES_WARNING:
        severity = CRITICAL if repeated > DUPLICATES_CRITICAL else WARNING
        told.append((severity, "cause", evidence(id, "duplicates", repeated, n=len(pairs))))
    effective = effective_number(pairs.prompt)
    if effective is not None and len(pairs) >= 300 and effective < PROMPTS:
        severity = CRITICAL if effective < PROMPTS / 3 else WARNING
        told.append((severity, "cause-prompts", evidence(id, "prompts", effective, n=len(pairs))))
    common, text = same_response(pairs)
    if common > ONE_RESPONSE:
        told.append((WARNING, "cause-response", evidence(id, "response", common, text=text)))
    opening, start = openings(pairs)
    if opening > ONE_OPENING:
        told.append((INFO, "cause-response", evidence(id, "opening", opening, text=start)))
    if pairs.generators:
        names = [name for both in pairs.generators for name in both]
        top = max(set(names), key=names.count)
        if names.count(top) / len(names) > ONE_GENERATOR:
            told.append((INFO, "cause-generator", evidence(id, "generator", names.count(top) / len(names), name=top)))
    if told:
        told.sort(key=lambda each: -each[0].rank)
        yield found(id, told[0][0], [e for _, _, e in told], source=HEURISTIC, cause=told[0][1])


def _length(material: JudgmentMaterial) -> Verdicts:
    """Whoever labeled the pairs: does the longer response win more often than with people?"""
    id = "judge-length-bias"
    pairs = material.pairs
    assert pairs is not None
    longer = [len(a) > len(b) for a, b in zip(pairs.chosen, pairs.rejected, strict=True) if len(a) != len(b)]
    n = len(longer)
    q = share(sum(longer), n)
    if n and q.low > PEOPLE_LONGER + LENGTH_EXCESS:
        told = [
            evidence(id, "pairs", q.mean, n=n, low=q.low, high=q.high),
            evidence(id, "people", PEOPLE_LONGER),
        ]
        yield found(id, WARNING if q.mean >= LENGTH_SUSPICIOUS else INFO, told, source=HEURISTIC, cause="cause-pairs")
    elif n < 200:
        yield underpowered(id, n, PEOPLE_LONGER, LENGTH_SUSPICIOUS - PEOPLE_LONGER, "pairs of unequal length")


def _has_pairs(material: JudgmentMaterial) -> bool:
    return material.pairs is not None


def _has_comparisons(material: JudgmentMaterial) -> bool:
    verdicts = material.verdicts
    return material.pairs is not None or (verdicts is not None and verdicts.response_1.known)


DETECTORS = (
    JudgmentRule(("inconsistent-preferences",), _has_comparisons, _inconsistent),
    JudgmentRule(("noisy-labels",), _has_pairs, _noisy),
    JudgmentRule(("low-diversity",), _has_pairs, _diversity),
    JudgmentRule(("judge-length-bias",), _has_pairs, _length),
)
"""On preference pairs."""
