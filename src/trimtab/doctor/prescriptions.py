"""What to change: from a finding to knobs, from a knob to the key of the framework at hand."""

from __future__ import annotations

from trimtab.doctor.finding import Finding, Prescription
from trimtab.doctor.log import Log

__all__ = ["prescribe"]


def prescribe(finding: Finding, log: Log | None) -> tuple[Prescription, ...]:
    """The changes to try for a finding, first thing first.

    Args:
        finding: what is wrong.
        log: where it was found; None for judgments and data. Its framework decides the names of the keys, its config
            the new values.
    """
    return ()
