"""What the doctor finds in a preference model's scores, and in the pairs that it was trained on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trimtab.data.records import Pair
from trimtab.doctor.driver import diagnose_materials
from trimtab.doctor.judgments import from_records
from trimtab.doctor.messages.catalogue import render
from trimtab.preference.probes import Fault
from trimtab.scoring import Scorer, checked_scores

__all__ = ["seen_by_the_doctor", "seen_in_training_pairs"]

_TRAINING_PAIRS: Final = 1000
"""Training pairs that are scored at most, taken evenly."""

Floats = NDArray[np.float64]


def seen_by_the_doctor(pairs: Sequence[Pair], scores: Floats) -> list[Fault]:
    """What the doctor finds in the scores of the pairs, in its own words.

    Args:
        pairs: labeled pairs.
        scores: [n, 2] of the chosen and the rejected response of every pair.
    """
    return _named(_scored(pairs, scores), lambda id: id.startswith("pm-"))


def seen_in_training_pairs(
    scorer: Scorer, training: Sequence[Pair], pairs: Sequence[Pair], scores: Floats
) -> list[Fault]:
    """What the doctor finds where it knows the training pairs too, in its own words.

    Overfitting: better on them than on other pairs. Wrong labels, repeats and contradictions: in the training pairs by
    themselves. Wrong labels are told by pairs that were labeled twice; scores of a poor model leave the same trace as
    wrong labels, and what was trained on wrong labels is a poor model.

    Args:
        scorer: that was trained on them.
        training: the training pairs.
        pairs: others, labeled too.
        scores: [n, 2] of the chosen and the rejected response of `pairs`.
    """
    if not training:
        return []
    some = training[:: -(-len(training) // _TRAINING_PAIRS)]
    of = [pair.prompt for pair in some]
    sides = [checked_scores(scorer, of, side) for side in ([p.chosen for p in some], [p.rejected for p in some])]
    rows = [{**row, "split": "held-out"} for row in _scored(pairs, scores)]
    rows += [{**row, "split": "train"} for row in _scored(some, np.column_stack(sides))]
    found = _named(rows, {"pm-overfit"}.__contains__)
    return found + _named(_texts(training), {"low-diversity", "inconsistent-preferences", "noisy-labels"}.__contains__)


def _texts(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    return [
        {"prompt": pair.prompt.text, "chosen": pair.chosen.text, "rejected": pair.rejected.text}
        for pair in pairs
    ]  # fmt: skip


def _scored(pairs: Sequence[Pair], scores: Floats) -> list[dict[str, Any]]:
    """Records of the pairs whose label names the chosen response; a pair that is there again says nothing new."""
    found: dict[Any, dict[str, Any]] = {}
    for pair, texts, (chosen, rejected) in zip(pairs, _texts(pairs), scores, strict=True):
        if pair.p_chosen is None or pair.p_chosen > 0.5:
            row = {"id": pair.id, **texts, "chosen_score": float(chosen), "rejected_score": float(rejected)}
            found.setdefault((texts["prompt"], frozenset((texts["chosen"], texts["rejected"]))), row)
    return list(found.values())


def _named(records: Sequence[dict[str, Any]], wanted: Callable[[str], bool]) -> list[Fault]:
    """The doctor's findings in records, those of wanted ids."""
    material = from_records(records, "pairs") if records else None
    findings = () if material is None else diagnose_materials([material]).findings
    return [
        Fault(finding.id, finding.severity.value, render(finding.evidence[0].text) if finding.evidence else "")
        for finding in findings
        if wanted(finding.id)
    ]
