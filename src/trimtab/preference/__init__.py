"""The preference model: a scalar score of (prompt, response), trained so that sigmoid of a difference is a preference.

`train` is the stage, `evaluate` says how good it is on pairs that it has not seen, `PreferenceModel` is the `Scorer`
that PPO and the reports use, saved so that plain transformers loads it. `calibrate` says what its margins mean,
`probe` what buys score.
"""

from trimtab.preference.calibrating import CalibrationReport, calibrate
from trimtab.preference.calibration import Calibration
from trimtab.preference.ensemble import PreferenceEnsemble, load_preference
from trimtab.preference.evaluation import PairMetrics, evaluate, length_metrics, principle_metrics
from trimtab.preference.model import PreferenceModel
from trimtab.preference.probes import ProbeReport, probe
from trimtab.preference.rows import readable
from trimtab.preference.training import split_by_prompt, train

__all__ = [
    "Calibration",
    "CalibrationReport",
    "PairMetrics",
    "PreferenceEnsemble",
    "PreferenceModel",
    "ProbeReport",
    "calibrate",
    "evaluate",
    "length_metrics",
    "load_preference",
    "principle_metrics",
    "probe",
    "readable",
    "split_by_prompt",
    "train",
]
