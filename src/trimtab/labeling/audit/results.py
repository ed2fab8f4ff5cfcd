"""What an audit says: records of figures with intervals, and checks that end in one of five words.

A check whose sample could not have shown an effect of the size that matters is `underpowered`, never `ok`; a check
whose columns are missing is `not measurable` and says what it lacks. Intervals draw whole prompts (or pairs), never
single verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

__all__ = [
    "BIASES",
    "CHECKS",
    "Agreement",
    "Audit",
    "Check",
    "CheckStatus",
    "Estimate",
    "JudgeAudit",
    "PairAgreement",
    "SliceAudit",
]

CHECKS: Final = {
    "reference-agreement": "names the response that the reference label names",
    "position-bias": "prefers the response that is shown first (or second)",
    "swap-consistency": "changes its verdict with the order of presentation",
    "repeat-consistency": "changes its verdict when asked the same again",
    "contradictory-repeats": "has named both responses of a pair, asked the same several times",
    "template-consistency": "changes its verdict with the wording of its instructions, beyond its own noise",
    "unparsed": "gives no verdict that can be read",
    "length-bias": "prefers the longer (or shorter) response",
    "format-bias": "prefers lists, headings, bold or code (or their absence)",
    "self-preference": "prefers responses of its own model",
    "identity-preference": "prefers one of two responses that differ in an identity term only",
    "identity-swap": "changes its verdict when an identity term is exchanged in all texts",
    "principle-decisiveness": "gets no preference out of some principle",
    "principle-conflict": "finds that two principles prefer opposite responses",
    "intransitive-triads": "prefers a to b, b to c and c to a",
    "null-response": "prefers an empty or constant response to a real one",
}
"""Every check, in order, with what a judge does that fails it."""

BIASES: Final = frozenset({"position-bias", "length-bias", "format-bias", "self-preference", "identity-preference"})
"""The checks with a null hypothesis; their p are adjusted together. The others have a limit."""


class CheckStatus(StrEnum):
    """How a check ended."""

    OK = "ok"
    """An effect of the size that matters would have shown, and did not."""
    BIASED = "biased"
    """A bias that chance does not explain and that is large enough to matter."""
    POOR = "poor"
    """A rate or an agreement that is too low (or too high) beyond chance."""
    UNDERPOWERED = "underpowered"
    """The sample could not have shown an effect of the size that matters."""
    NOT_MEASURABLE = "not measurable"
    """A column or a kind of question is missing; `missing` says which."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with its 95 % interval over clusters.

    Args:
        value: None where nothing was counted.
        low: None where no interval can be given (a single cluster).
        high: likewise.
        n: what the figure's denominator counts.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True)
class Check:
    """One question about a judge and its answer.

    Args:
        id: `position-bias`, ... (`CHECKS` lists all).
        status: the answer.
        effect: what was measured, in `unit`; None where it could not be.
        low: of its 95 % interval.
        high: of its 95 % interval.
        p: of the null hypothesis `effect == null`, two-sided; None for checks without one.
        p_adjusted: `p` after Holm's correction over the checks of this judge.
        n: verdicts, pairs or triads that it rests on (`unit_of_n` says which).
        null: the effect of a judge without the fault.
        threshold: the smallest distance from `null` that matters (for `poor`: the limit itself).
        detectable: the smallest distance from `null` that a sample like this shows in 80 % of cases at the 5 % level;
            None where it is not known.
        unit: what `effect` is: `share`, `difference`, `rate`, `kappa`, `odds ratio`.
        unit_of_n: `verdicts`, `pairs`, `triads`, ...
        missing: what would make it measurable, or the sample large enough.
        details: further figures, JSON-able.
    """

    id: str
    status: CheckStatus
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    n: int = 0
    null: float | None = None
    threshold: float | None = None
    detectable: float | None = None
    unit: str = "share"
    unit_of_n: str = "verdicts"
    missing: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceAudit:
    """The four headline figures of one part of a judge's verdicts; see `JudgeAudit` for their denominators."""

    n: int
    pairs: int
    accuracy: Estimate
    inconsistent_rate: Estimate
    first_share: Estimate


@dataclass(frozen=True, slots=True)
class JudgeAudit:
    """Everything measured of one judge.

    Args:
        name: of the judge.
        model: behind it, where known.
        n: verdicts, failures included.
        pairs: distinct pairs.
        clusters: distinct prompts (pairs where prompts are not known): what the intervals draw.
        outcomes: verdicts by outcome (ok, tie, unparsed, refused, error), every outcome present.
        accuracy: share of verdicts with a reference label that equal it, over both orders; verdicts that failed are in
            the denominator and wrong; a tie is right only where the reference is a tie.
        inconsistent_rate: share of pairs asked in both orders (each sample, template and principle for itself) whose
            two verdicts differ as values of {1, 2, tie, none}; two failures are alike.
        first_share: share of verdicts with a known order and a winner that name the response shown first.
        slices: by slice; `a/b` counts in `a` as well.
        groups: by group of annotators.
        annotators: by annotator, where they are not the judges themselves.
        templates: by wording of the instructions.
        principles: by principle.
        checks: by id, in the order of `CHECKS`.
        gold_kappa: Cohen's kappa with the reference labels, over verdicts with one; failures are a category.
        cost: of cost, tokens and latency, where known: the sum (`cost`), `cost_per_verdict`, `cost_n`, and
            `cost_per_usable_verdict`.
        mass: mean probability of readable answers, where known.
    """

    name: str
    model: str | None
    n: int
    pairs: int
    clusters: int
    outcomes: Mapping[str, int]
    accuracy: Estimate
    inconsistent_rate: Estimate
    first_share: Estimate
    slices: Mapping[str, SliceAudit]
    groups: Mapping[str, SliceAudit]
    annotators: Mapping[str, SliceAudit]
    templates: Mapping[str, SliceAudit]
    principles: Mapping[str, SliceAudit]
    checks: Mapping[str, Check]
    gold_kappa: Estimate
    cost: Mapping[str, float]
    mass: float | None = None

    def worst(self) -> tuple[Check, ...]:
        """The checks that found something, biases first, the smallest adjusted p first."""
        bad = [c for c in self.checks.values() if c.status in (CheckStatus.BIASED, CheckStatus.POOR)]
        return tuple(sorted(bad, key=lambda c: (c.status is not CheckStatus.BIASED, c.p_adjusted or 0.0)))


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """How two judges agree on the pairs that both judged; each judge's verdict on a pair is its majority.

    Args:
        first: name of one judge.
        second: name of the other.
        n: pairs that both decided (ties included, failures not).
        raw: share of equal verdicts.
        kappa: Cohen's.
        ac1: Gwet's.
    """

    first: str
    second: str
    n: int
    raw: Estimate
    kappa: Estimate
    ac1: Estimate


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement between all judges.

    Args:
        pairwise: every two judges with pairs in common.
        fleiss: Fleiss' kappa over the pairs that all judges decided.
        alpha: Krippendorff's, nominal, missing verdicts allowed.
        ac1: Gwet's for several raters, missing verdicts allowed.
        raters: how many judges.
        reliability: by judge, the accuracy that Dawid and Skene's model gives it from the others' verdicts alone;
            empty with fewer than three judges on a pair.
        note: why something is missing, or empty.
    """

    pairwise: tuple[PairAgreement, ...]
    fleiss: Estimate
    alpha: Estimate
    ac1: Estimate
    raters: int
    reliability: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    """The audit of a verdict table.

    Args:
        source: the file, or empty.
        n: verdicts.
        pairs: distinct pairs.
        clusters: distinct prompts (or pairs).
        judges: by name, in order of first appearance.
        agreement: between judges; None with fewer than two.
        pool: who judged how much, whose preferences: counts and shares by judge, model, annotator, group, principle,
            template, slice, with the effective number of each.
        seed: of the bootstrap.
        resamples: bootstrap samples.
        notes: what the reader should know of the whole.
    """

    source: str
    n: int
    pairs: int
    clusters: int
    judges: Mapping[str, JudgeAudit]
    agreement: Agreement | None
    pool: Mapping[str, Any]
    seed: int
    resamples: int
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The audit as JSON; see `record.as_dict`."""
        from trimtab.labeling.audit.record import as_dict

        return as_dict(self)
