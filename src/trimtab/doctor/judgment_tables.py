"""The tables behind `judgments.from_records`: each kind of material is found in the columns, or is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.doctor.judgments import JudgmentMaterial

__all__ = ["recognise"]


def recognise(records: Sequence[Mapping[str, Any]], path: str) -> JudgmentMaterial | None:
    """See `judgments.from_records`."""
    return None
