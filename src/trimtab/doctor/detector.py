"""What a detector is, and how detectors are found: entry points of the group `trimtab.detectors`.

A plugin declares, in its pyproject.toml,

    [project.entry-points."trimtab.detectors"]
    mine = "my_package.detectors:DETECTORS"

where `DETECTORS` is a sequence of detectors. The built-in ones are listed in `detectors/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from trimtab.doctor.finding import Finding, NotDiagnosable

__all__ = ["GROUP", "Detector", "Verdicts"]

GROUP = "trimtab.detectors"

Verdicts = Iterable[Finding | NotDiagnosable]


@runtime_checkable
class Detector(Protocol):
    """Looks at one material (a `Log`, or a table of judgments) for certain findings."""

    @property
    def ids(self) -> Sequence[str]:
        """The findings that it may raise."""

    def reads(self, material: Any) -> bool:
        """Whether it has anything to say about this material; False: its ids are not even listed as unchecked."""

    def look(self, material: Any) -> Verdicts:
        """Findings, and ids that could not be checked. An id that is in neither was looked for and not found."""
