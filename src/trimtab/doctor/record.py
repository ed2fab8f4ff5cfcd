"""A diagnosis as JSON: what `trimtab doctor --json` prints, `findings.jsonl` keeps and hooks are sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trimtab.doctor.diagnosis import Diagnosis
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable, Prescription
from trimtab.doctor.log import Log, Skipped
from trimtab.doctor.messages.catalogue import render, title
from trimtab.doctor.telling import docs_page, fix_line, log_of, verdict

__all__ = ["as_dict", "finding_dict"]


def as_dict(diagnosis: Diagnosis, lang: str = "en") -> dict[str, Any]:
    """The diagnosis as a strict JSON object: what is not finite is null.

    Args:
        diagnosis: what `diagnose` returned.
        lang: language of the sentences in it; ids and keys are the same in all.
    """
    return {
        "status": str(diagnosis.status),
        "root_cause": diagnosis.root_cause,
        "verdict": verdict(diagnosis, lang),
        "findings": [finding_dict(f, lang, _framework(f, diagnosis)) for f in diagnosis.findings],
        "not_diagnosable": [_unchecked(item) for item in diagnosis.not_diagnosable],
        "checked": list(diagnosis.checked),
        "log": _whole(diagnosis),
        "logs": [_log(log) for log in diagnosis.logs],
        "files": dict(diagnosis.formats),
    }


def finding_dict(finding: Finding, lang: str = "en", framework: str = "trimtab") -> dict[str, Any]:
    """One finding as a JSON object.

    Args:
        finding: the finding.
        lang: language of the sentences.
        framework: whose way of writing settings `line` of a prescription follows.
    """
    return {
        "id": finding.id,
        "title": title(finding.id, lang),
        "severity": str(finding.severity),
        "onset_step": finding.onset_step,
        "because_of": finding.because_of,
        "where": finding.where,
        "cause": render(finding.cause, lang),
        "evidence": [_evidence(e, lang) for e in finding.evidence],
        "ruled_out": _all(finding.ruled_out, lang),
        "prescriptions": [_prescription(p, lang, framework) for p in finding.prescriptions],
        "source": finding.source,
        "docs": docs_page(finding.id),
    }


def _framework(finding: Finding, diagnosis: Diagnosis) -> str:
    log = log_of(finding, diagnosis)
    return "unknown" if log is None else log.framework


def _evidence(evidence: Evidence, lang: str) -> dict[str, Any]:
    return {
        "text": render(evidence.text, lang),
        "signal": evidence.signal or None,
        "step": evidence.step,
        "value": _number(evidence.value),
        "curve": [_number(value) for value in evidence.curve],
    }


def _prescription(change: Prescription, lang: str, framework: str) -> dict[str, Any]:
    return {
        "set": dict(change.set),
        "why": render(change.why, lang),
        "command": change.command or None,
        "line": fix_line(change, framework),
    }


def _unchecked(item: NotDiagnosable) -> dict[str, Any]:
    return {"id": item.id, "missing": list(item.missing), "reason": item.reason}


def _whole(diagnosis: Diagnosis) -> dict[str, Any]:
    """All that was read as one: formats, span of steps, what was skipped, keys that nothing is known of."""
    logs = diagnosis.logs
    spans = [log.steps for log in logs if log.steps is not None]
    formats = list(dict.fromkeys(diagnosis.formats.values())) or [log.format for log in logs]
    return {
        "format": formats[0] if len(formats) == 1 else ", ".join(formats) or None,
        "steps": [min(s[0] for s in spans), max(s[1] for s in spans)] if spans else None,
        "rows": sum(log.rows for log in logs),
        "skipped": [_skipped(s) for s in diagnosis.skipped or tuple(s for log in logs for s in log.skipped)],
        "unmapped_keys": list(dict.fromkeys(key for log in logs for key in log.unmapped)),
    }


def _log(log: Log) -> dict[str, Any]:
    return {
        "path": log.path,
        "format": log.format,
        "framework": log.framework,
        "stage": str(log.stage),
        "algorithm": log.algorithm or None,
        "rows": log.rows,
        "steps": None if log.steps is None else list(log.steps),
        "planned_steps": log.planned_steps,
        "truncated": log.truncated,
        "signals": {key: {"name": s.name, "unit": str(s.unit), "points": len(s)} for key, s in log.series.items()},
        "unit_unknown": dict(log.unit_unknown),
    }


def _skipped(skipped: Skipped) -> dict[str, Any]:
    return {
        "reason": skipped.reason,
        "count": skipped.count,
        "first_line": skipped.first_line,
        "example": skipped.example,
    }


def _number(value: float | None) -> float | None:
    """The number with six digits; None where it is not finite, which JSON cannot say."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def _all(messages: Sequence[Message], lang: str) -> list[str]:
    return [render(message, lang) for message in messages]
