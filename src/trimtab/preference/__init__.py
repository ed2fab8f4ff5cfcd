"""The preference model: a scalar score of (prompt, response), trained so that sigmoid of a difference is a preference.

`train` is the stage, `evaluate` says how good it is on pairs that it has not seen, `PreferenceModel` is the `Scorer`
that PPO and the reports use, saved so that plain transformers loads it.
"""

from trimtab.preference.evaluation import PairMetrics, evaluate
from trimtab.preference.model import PreferenceModel
from trimtab.preference.training import split_by_prompt, train

__all__ = ["PairMetrics", "PreferenceModel", "evaluate", "split_by_prompt", "train"]
