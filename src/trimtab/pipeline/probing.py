"""Probe the preference model of a run, or of a directory that holds one, and let the doctor see its scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab import preference
from trimtab.data.pairs import read_pairs
from trimtab.data.records import Pair
from trimtab.doctor.driver import diagnose_materials
from trimtab.doctor.judgments import from_records
from trimtab.doctor.messages.catalogue import render
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.loading import load_codec, load_scalar, pick_device
from trimtab.pipeline.evaluate import preference_model_and_pairs
from trimtab.pipeline.project import CONFIG_NAME, Project
from trimtab.preference.probes import Fault
from trimtab.scoring import Scorer
from trimtab.training.precision import Precision

__all__ = ["probe_preference_model", "seen_by_the_doctor"]


def probe_preference_model(
    target: Path, name: str, settings: Sequence[str] = (), data: Path | None = None, *, most: int = 100
) -> tuple[Path, preference.ProbeReport]:
    """Probe a preference model.

    Args:
        target: a project, or a directory that holds a sequence classifier with one label, ours or anybody's.
        name: of the run, where `target` is a project.
        settings: `--set` of a project.
        data: a pairs file; None: the pairs that the run held out.
        most: responses that are edited.

    Returns:
        The pairs file, and the report, with the faults that only the doctor names among its faults.

    Raises:
        TrimtabError: there is no model, no pairs, or they cannot be used.
    """
    scorer: Scorer
    if target.name == CONFIG_NAME or (target / CONFIG_NAME).is_file():
        project = Project.open(target, list(settings))
        path, pairs, scorer = preference_model_and_pairs(project, name, data)
        seed = project.config.project.seed
    else:
        path, pairs, scorer = _of_directory(target, data)
        seed = 0
    report = preference.probe(scorer, pairs, most=most, seed=seed)
    return path, report.with_faults(seen_by_the_doctor(report, pairs))


def _of_directory(target: Path, data: Path | None) -> tuple[Path, list[Pair], Scorer]:
    if not (target / "config.json").is_file():
        raise TrimtabError(
            ErrorKind.USAGE, f"{target}: is neither a project ({CONFIG_NAME}) nor a model (config.json)",
            "name a project, or a directory with a sequence classifier of one label",
        )  # fmt: skip
    if data is None:
        raise TrimtabError(ErrorKind.USAGE, f"{target}: a model by itself has no pairs", "name some with --data FILE")
    pairs = read_pairs(data)
    precision = Precision("float32", pick_device("auto"))
    if (target / "trimtab.json").is_file():
        return data, pairs, preference.load_preference(target, precision)
    codec = load_codec(str(target))
    return data, pairs, preference.PreferenceModel(load_scalar(target, device=precision.device), codec, precision)


def seen_by_the_doctor(report: preference.ProbeReport, pairs: Sequence[Pair]) -> list[Fault]:
    """What the doctor finds in the scores of the pairs, in its own words."""
    records: list[dict[str, Any]] = [
        {
            "id": pair.id, "prompt": pair.prompt.text, "chosen": pair.chosen.text, "rejected": pair.rejected.text,
            "chosen_score": float(chosen), "rejected_score": float(rejected),
        }
        for pair, (chosen, rejected) in zip(pairs, report.pair_scores, strict=True)
        if pair.p_chosen is None or pair.p_chosen > 0.5
    ]  # fmt: skip
    material = from_records(records, "pairs") if records else None
    if material is None:
        return []
    return [
        Fault(finding.id, finding.severity.value, render(finding.evidence[0].text) if finding.evidence else "")
        for finding in diagnose_materials([material]).findings
        if finding.id.startswith("pm-")
    ]
