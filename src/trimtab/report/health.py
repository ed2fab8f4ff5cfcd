"""What the doctor says of the run, in short: for the report's card and the last lines of `trimtab run`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from trimtab.doctor.diagnosis import Diagnosis
from trimtab.doctor.driver import diagnose
from trimtab.doctor.finding import Finding
from trimtab.doctor.messages.catalogue import render, title
from trimtab.doctor.telling import fix_line, log_of, verdict
from trimtab.errors import TrimtabError
from trimtab.runs.run import Run

__all__ = ["Complaint", "Health", "health"]

MOST = 4


@dataclass(frozen=True, slots=True)
class Complaint:
    """A loud finding: what, since when, why, and the first thing to try (may be empty)."""

    severity: str
    title: str
    id: str
    since: int | None
    cause: str
    root: bool
    fix: str


@dataclass(frozen=True, slots=True)
class Health:
    """The doctor's word on a run; `command` shows all of it."""

    status: str
    sentence: str
    complaints: tuple[Complaint, ...]
    more: int
    command: str

    @property
    def line(self) -> str:
        """For the end of `trimtab run`."""
        return f"Doctor: {self.sentence[:1].lower()}{self.sentence[1:]} More: {self.command}"


def health(run: Run) -> Health | None:
    """Look at the run; None where it holds nothing yet that the doctor can read."""
    if not run.metrics():
        return None
    try:
        diagnosis = diagnose(run)
    except TrimtabError:
        return None
    loud = [f for f in diagnosis.findings if f.severity.loud]
    return Health(
        status=str(diagnosis.status),
        sentence=verdict(diagnosis),
        complaints=tuple(_complaint(f, diagnosis) for f in loud[:MOST]),
        more=max(len(loud) - MOST, 0),
        command=f"trimtab doctor {shlex.quote(str(run.path))}",
    )


def _complaint(finding: Finding, diagnosis: Diagnosis) -> Complaint:
    log = log_of(finding, diagnosis)
    first = finding.prescriptions[0] if finding.prescriptions else None
    return Complaint(
        severity=str(finding.severity),
        title=title(finding.id),
        id=finding.id,
        since=finding.onset_step,
        cause=render(finding.cause),
        root=finding.id == diagnosis.root_cause,
        fix="" if first is None else fix_line(first, "unknown" if log is None else log.framework),
    )
