"""The doctor's answer: a status, one root cause, the findings in order, and what could not be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trimtab.doctor.finding import Finding, NotDiagnosable, Severity
from trimtab.doctor.log import Log, Skipped

__all__ = ["Diagnosis", "Status"]


class Status(StrEnum):
    """What the doctor can say of the whole."""

    HEALTHY = "healthy"
    """The checks that matter were made and none fired."""
    SICK = "sick"
    """At least one finding is a warning or worse."""
    INCONCLUSIVE = "inconclusive"
    """Too little could be read to say either."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `diagnose` returns.

    Args:
        status: healthy, sick, inconclusive.
        root_cause: id of the finding that explains the others; None without a loud finding.
        findings: in the order of the story: by onset, consequences after their cause.
        not_diagnosable: checks that could not be made.
        checked: ids that were looked for.
        logs: the training logs read (with format, rows, unmapped keys).
        formats: what each file that was read was recognised as, by path.
        skipped: what could not be read, over all files.
    """

    status: Status
    root_cause: str | None
    findings: tuple[Finding, ...]
    not_diagnosable: tuple[NotDiagnosable, ...]
    checked: tuple[str, ...]
    logs: tuple[Log, ...]
    formats: dict[str, str]
    skipped: tuple[Skipped, ...] = ()

    def loudest(self) -> Severity | None:
        """The highest severity among the findings; None without findings."""
        return max((f.severity for f in self.findings), key=lambda s: s.rank, default=None)

    def of(self, ids: Sequence[str]) -> tuple[Finding, ...]:
        """The findings with one of `ids`."""
        return tuple(f for f in self.findings if f.id in ids)
