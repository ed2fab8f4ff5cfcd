"""Probes: what a scorer pays for. Works on any `Scorer`; nothing here needs torch.

`edits` is the table of counterfactual edits, `edits_file` reads a user's own, `figures` the arithmetic on scores,
`phrases` the mining of phrases that buy score, `probing` runs them all and names the faults.
"""

from trimtab.preference.probes.edits_file import EditSet, read_edits
from trimtab.preference.probes.probing import ProbeReport, probe
from trimtab.preference.probes.verdicts import Fault

__all__ = ["EditSet", "Fault", "ProbeReport", "probe", "read_edits"]
