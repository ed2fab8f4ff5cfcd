"""Direct preference optimisation: the policy learns from labeled pairs, without a preference model.

`train` is the stage; the modules read in the order of its work: rows, logprobs, reference, lesson, training.
"""

from trimtab.dpo.lesson import split_by_prompt
from trimtab.dpo.rows import readable
from trimtab.dpo.training import DPOResult, train
from trimtab.training.probe import HeldOut

__all__ = ["DPOResult", "HeldOut", "readable", "split_by_prompt", "train"]
