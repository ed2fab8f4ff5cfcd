"""Probes: what a scorer pays for. Works on any `Scorer`; nothing here needs torch.

`edits` is the table of counterfactual edits, `figures` the arithmetic on scores, `phrases` the mining of phrases that
buy score, `probing` runs them all and names the faults.
"""

from trimtab.preference.probes.probing import ProbeReport, probe
from trimtab.preference.probes.verdicts import Fault

__all__ = ["Fault", "ProbeReport", "probe"]
