"""What the detectors on training logs say."""

from __future__ import annotations

from trimtab.doctor.messages import Text, policy_drift, policy_figures, policy_preference, policy_training

__all__ = ["MESSAGES"]

MESSAGES: dict[str, Text] = {
    **policy_figures.MESSAGES,
    **policy_drift.MESSAGES,
    **policy_training.MESSAGES,
    **policy_preference.MESSAGES,
}
