"""What the doctor says: findings with their evidence, and checks that it could not make.

Text is never written here: a `Message` names an entry of the catalogue (`messages/`) and its values, so that one
finding can be told in every language of the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

__all__ = ["Evidence", "Finding", "Message", "NotDiagnosable", "Prescription", "Reason", "Severity"]

Reason = Literal["missing", "unit-unknown", "too-short", "underpowered"]


class Severity(StrEnum):
    """How much a finding matters; from `warning` on a run is sick."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """0, 1, 2."""
        return list(Severity).index(self)

    @property
    def loud(self) -> bool:
        """Whether it makes a run sick."""
        return self is not Severity.INFO


@dataclass(frozen=True, slots=True)
class Message:
    """An entry of the catalogue with the values for its placeholders; numbers are formatted when it is rendered."""

    key: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One number that speaks for a finding.

    Args:
        text: the sentence.
        signal: name under which the log has it; empty for derived figures.
        step: where it was read; None for figures over the whole log.
        value: the number itself; None where it was not finite.
        curve: the series at up to about 60 points, for a sparkline; empty = none.
    """

    text: Message
    signal: str = ""
    step: int | None = None
    value: float | None = None
    curve: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Prescription:
    """One change to try.

    Args:
        set: settings by the framework's own key (`ppo.learning_rate` in our runs), value or a rule such as `x0.5`.
        why: what it does about the cause.
        command: a line to copy, where there is one.
    """

    set: Mapping[str, Any]
    why: Message
    command: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Args:
        id: from the catalog of failures (`kl-explosion`).
        severity: info, warning, critical.
        onset_step: first step at which it was so; None where the material has no steps.
        evidence: what speaks for it, strongest first.
        cause: the likely cause.
        ruled_out: what else could look like this, and why it is not that.
        prescriptions: what to change, first thing first; filled in by the driver where the detector leaves it empty.
        source: where the threshold is from.
        because_of: id of the finding that this one follows from, set by the story.
        where: file or stage it was found in, set by the driver where several were read.
    """

    id: str
    severity: Severity
    onset_step: int | None
    evidence: tuple[Evidence, ...]
    cause: Message
    ruled_out: tuple[Message, ...] = ()
    prescriptions: tuple[Prescription, ...] = ()
    source: str = ""
    because_of: str | None = None
    where: str = ""

    def at_most(self, ceiling: Severity) -> Finding:
        """The same finding, no louder than `ceiling`."""
        return self if self.severity.rank <= ceiling.rank else replace(self, severity=ceiling)


@dataclass(frozen=True, slots=True)
class NotDiagnosable:
    """A check that could not be made.

    Args:
        id: the finding that cannot be told.
        missing: what would enable it, in the names of the log's own framework where they are known; alternatives
            joined by ` or `.
        reason: `missing`: not logged; `unit-unknown`: logged in a unit that cannot be told; `too-short`: more log
            points are needed; `underpowered`: the sample could not have shown it.
    """

    id: str
    missing: tuple[str, ...]
    reason: Reason = "missing"
