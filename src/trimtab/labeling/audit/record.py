"""An audit as JSON: every key always there, None where a figure is not known."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trimtab.labeling.audit.results import Agreement, Audit, Check, Estimate, JudgeAudit, SliceAudit

__all__ = ["as_dict"]


def as_dict(audit: Audit) -> dict[str, Any]:
    """`{"judges": {name: {"n", "accuracy", "inconsistent_rate", "first_share", "slices", "checks", ...}}, ...}`.

    A figure `x` is a number, with `x_interval` ([low, high]) and `x_n` (its denominator) beside it.
    """
    return {
        "source": audit.source,
        "n": audit.n,
        "pairs": audit.pairs,
        "clusters": audit.clusters,
        "judges": {name: _judge(judge) for name, judge in audit.judges.items()},
        "agreement": None if audit.agreement is None else _agreement(audit.agreement),
        "pool": dict(audit.pool),
        "seed": audit.seed,
        "resamples": audit.resamples,
        "notes": list(audit.notes),
    }


def _judge(judge: JudgeAudit) -> dict[str, Any]:
    return {
        "model": judge.model,
        "n": judge.n,
        "pairs": judge.pairs,
        "clusters": judge.clusters,
        "outcomes": dict(judge.outcomes),
        **_figure("accuracy", judge.accuracy),
        **_figure("inconsistent_rate", judge.inconsistent_rate),
        **_figure("first_share", judge.first_share),
        **_figure("gold_kappa", judge.gold_kappa),
        "worst": [check.id for check in judge.worst()],
        "checks": {name: _check(check) for name, check in judge.checks.items()},
        "slices": _parts(judge.slices),
        "groups": _parts(judge.groups),
        "annotators": _parts(judge.annotators),
        "templates": _parts(judge.templates),
        "principles": _parts(judge.principles),
        "cost": dict(judge.cost),
        "mass": judge.mass,
    }


def _parts(parts: Any) -> dict[str, Any]:
    return {name: _slice(part) for name, part in parts.items()}


def _slice(part: SliceAudit) -> dict[str, Any]:
    return {
        "n": part.n,
        "pairs": part.pairs,
        **_figure("accuracy", part.accuracy),
        **_figure("inconsistent_rate", part.inconsistent_rate),
        **_figure("first_share", part.first_share),
    }


def _check(check: Check) -> dict[str, Any]:
    return {
        **asdict(check),
        "status": check.status.value,
        "missing": list(check.missing),
        "details": dict(check.details),
    }


def _agreement(agreement: Agreement) -> dict[str, Any]:
    return {
        "raters": agreement.raters,
        **_figure("fleiss_kappa", agreement.fleiss),
        **_figure("krippendorff_alpha", agreement.alpha),
        **_figure("gwet_ac1", agreement.ac1),
        "reliability": dict(agreement.reliability),
        "pairwise": [
            {
                "first": pair.first,
                "second": pair.second,
                "n": pair.n,
                **_figure("raw", pair.raw),
                **_figure("cohen_kappa", pair.kappa),
                **_figure("gwet_ac1", pair.ac1),
            }
            for pair in agreement.pairwise
        ],
        "note": agreement.note,
    }


def _figure(name: str, estimate: Estimate) -> dict[str, Any]:
    known = estimate.low is not None and estimate.high is not None
    return {
        name: estimate.value,
        f"{name}_interval": [estimate.low, estimate.high] if known else None,
        f"{name}_n": estimate.n,
    }
