"""What a probe of a preference model found (`trimtab pm probe`), as it stands in the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trimtab.doctor.detectors.judgment_rule import JudgmentRule
from trimtab.doctor.finding import Evidence, Finding, Message, Severity
from trimtab.doctor.judgments import JudgmentMaterial

__all__ = ["DETECTORS"]

_IDS: Final = (
    "style-exploitation", "sycophancy", "pm-length-bias", "pm-narrow", "pm-self-contradiction", "pm-score-collapse",
    "pm-low-accuracy", "pm-overfit", "pm-miscalibrated", "noisy-labels", "low-diversity", "inconsistent-preferences",
)  # fmt: skip


def _rule(id: str) -> JudgmentRule:
    def wants(material: JudgmentMaterial) -> bool:
        return id in material.probed or any(fault.id == id for fault in material.faults)

    def find(material: JudgmentMaterial) -> Iterator[Finding]:
        for fault in material.faults:
            if fault.id == id:
                told = Evidence(Message("face.probed", {"what": fault.evidence}))
                cause = Message(f"{id}.what")
                yield Finding(id, Severity(fault.severity), None, (told,), cause, source="trimtab pm probe")

    return JudgmentRule((id,), wants, find)


DETECTORS = tuple(_rule(id) for id in _IDS)
"""One an id: where the probe looked for it and named nothing, it is not there as far as the probe could tell."""
