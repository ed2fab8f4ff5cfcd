"""Calibration of preference probabilities: the formulas of `trimtab.stats.calibration`, importable without torch."""

from trimtab.stats.calibration import (
    Isotonic,
    Platt,
    Reliability,
    brier,
    ece,
    fit_isotonic,
    fit_platt,
    fit_temperature,
    log_loss,
    reliability,
)

__all__ = [
    "Isotonic",
    "Platt",
    "Reliability",
    "brier",
    "ece",
    "fit_isotonic",
    "fit_platt",
    "fit_temperature",
    "log_loss",
    "reliability",
]
