"""How far a judge can be trusted: biases, consistency and agreement from its verdicts, with intervals and tests."""

from trimtab.labeling.audit.results import (
    Agreement,
    Audit,
    Check,
    CheckStatus,
    Estimate,
    JudgeAudit,
    PairAgreement,
    SliceAudit,
)

__all__ = ["Agreement", "Audit", "Check", "CheckStatus", "Estimate", "JudgeAudit", "PairAgreement", "SliceAudit"]
