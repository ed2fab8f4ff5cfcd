"""The built-in detectors, in the order of the stages that they look at. Plugins come through entry points."""

from __future__ import annotations

from trimtab.doctor.detector import Detector
from trimtab.doctor.detectors import (
    direct,
    entropy,
    evaluation,
    gradients,
    hacking,
    kl,
    labels,
    lengths,
    log_itself,
    preference_model,
    progress,
    shift,
    signal,
    update,
    value,
)

__all__ = ["LOG_DETECTORS"]

LOG_DETECTORS: tuple[Detector, ...] = (
    *labels.RULES,
    *preference_model.RULES,
    *direct.RULES,
    *hacking.RULES,
    *shift.RULES,
    *signal.RULES,
    *kl.RULES,
    *update.RULES,
    *entropy.RULES,
    *gradients.RULES,
    *progress.RULES,
    *lengths.RULES,
    *value.RULES,
    *evaluation.RULES,
    *log_itself.RULES,
)
"""Those that read training logs."""
