"""How far a judge can be trusted: biases, consistency and agreement from its verdicts, with intervals and tests.

`audit(table)` is what `trimtab labels audit` prints; `canary(judge, constitution, pairs)` asks a judge about null
responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trimtab.labeling.audit.results import (
    BIASES,
    CHECKS,
    Agreement,
    Audit,
    Check,
    CheckStatus,
    Estimate,
    JudgeAudit,
    PairAgreement,
    SliceAudit,
)

if TYPE_CHECKING:
    from trimtab.labeling.audit.measure import audit
    from trimtab.labeling.audit.null_responses import canary, with_canary

__all__ = [
    "BIASES",
    "CHECKS",
    "Agreement",
    "Audit",
    "Check",
    "CheckStatus",
    "Estimate",
    "JudgeAudit",
    "PairAgreement",
    "SliceAudit",
    "audit",
    "canary",
    "with_canary",
]


def __getattr__(name: str) -> Any:
    # on first use: readers of results need neither the measures nor the judges
    from importlib import import_module

    homes = {"audit": "measure", "canary": "null_responses", "with_canary": "null_responses"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
