"""The doctor: what is wrong with this run, since when, and why. No torch, and no loop of ours needed.

`trimtab.doctor.diagnose` is what `trimtab doctor` runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.doctor.diagnosis import Diagnosis
    from trimtab.doctor.driver import diagnose
    from trimtab.doctor.finding import Finding, Severity

__all__ = ["Diagnosis", "Finding", "Severity", "diagnose"]

_HOMES = {"Diagnosis": "diagnosis", "Finding": "finding", "Severity": "finding", "diagnose": "driver"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
