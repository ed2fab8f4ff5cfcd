"""Probe the preference model of a run, or of a directory that holds one, and let the doctor see its scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimtab import preference
from trimtab.data.pairs import read_pairs
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.loading import load_codec, load_scalar, pick_device
from trimtab.pipeline.evaluate import preference_model_and_pairs
from trimtab.pipeline.pm_results import keep_probe, seen_by_the_doctor, write_card
from trimtab.pipeline.project import CONFIG_NAME, Project
from trimtab.runs.run import Run
from trimtab.scoring import Scorer
from trimtab.training.precision import Precision

__all__ = ["probe_preference_model"]


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
        The pairs file, and the report, with the faults that only the doctor names among its faults. Of a run, it is
        kept in `artifacts/pm/probe.json`, and the model's card tells of it.

    Raises:
        TrimtabError: there is no model, no pairs, or they cannot be used.
    """
    if target.name == CONFIG_NAME or (target / CONFIG_NAME).is_file():
        project = Project.open(target, list(settings))
        path, pairs, model = preference_model_and_pairs(project, name, data)
        report = preference.probe(model, pairs, most=most, seed=project.config.project.seed)
        report = report.with_faults(seen_by_the_doctor(report, pairs))
        run = Run.open(project.runs / name)
        keep_probe(run, report, path, model.combination)
        write_card(run)
        return path, report
    path, pairs, scorer = _of_directory(target, data)
    report = preference.probe(scorer, pairs, most=most)
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
