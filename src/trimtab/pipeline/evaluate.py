"""Measure, calibrate and probe a run's preference model on pairs: its own held-out ones or those of any file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Literal

from trimtab import preference
from trimtab.data.pairs import read_pairs
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.pm_figures import figures_beside
from trimtab.pipeline.pm_results import keep_calibration, write_card
from trimtab.pipeline.project import Project
from trimtab.runs.files import file_hash
from trimtab.runs.run import Run

__all__ = ["calibrate_preference_model", "evaluate_preference_model", "preference_model_and_pairs"]


def evaluate_preference_model(
    project: Project, name: str, data: Path | None = None
) -> tuple[Path, preference.PairMetrics, dict[str, Any]]:
    """How good the preference model of the run `name` is on labeled pairs.

    Args:
        data: a pairs file; None: the pairs that the run held out.

    Returns:
        The pairs file; the figures, by the calibration where there is one, but for the pairs that it was fitted on; and
        those by length and by principle, see `figures_beside`.

    Raises:
        TrimtabError: there is no such run, no preference model in it, or the pairs cannot be used.
    """
    path, pairs, model = preference_model_and_pairs(project, name, data)
    if model.calibration is not None and model.calibration.data == file_hash(path):
        model.calibration = None
    seed = project.config.project.seed
    own = file_hash(path) == file_hash(Run.open(project.runs / name).artifact("pm") / "held_out.jsonl")
    return path, preference.evaluate(model, pairs, seed=seed), figures_beside(model, pairs, seed, held_out=own)


def calibrate_preference_model(
    project: Project,
    name: str,
    data: Path | None = None,
    method: Literal["auto", "temperature", "platt", "isotonic"] = "auto",
) -> tuple[Path, Path, preference.CalibrationReport]:
    """Fit the calibration of the run's preference model and keep it beside the model.

    Args:
        data: a pairs file; None: the pairs that the run held out.

    Returns:
        The pairs file, the file of the calibration, and the report.

    Raises:
        TrimtabError: as `evaluate_preference_model`; or the pairs are of fewer than two prompts.
    """
    path, pairs, model = preference_model_and_pairs(project, name, data)
    report = preference.calibrate(model, pairs, method, seed=project.config.project.seed)
    run = Run.open(project.runs / name)
    kept = report.save(run.artifact("pm") / "model", file_hash(path))
    keep_calibration(run, report, kept=True)
    write_card(run)
    return path, kept, report


def preference_model_and_pairs(
    project: Project, name: str, data: Path | None = None
) -> tuple[Path, list[Pair], preference.PreferenceModel]:
    """The pairs file, its pairs, and the run's preference model; its scores are raw, whatever `calibrated_score` says.

    Raises:
        TrimtabError: there is no such run, no preference model in it, or the pairs cannot be used.
    """
    run = Run.open(project.runs / name)
    directory = run.artifact("pm")
    if not (directory / "model").is_dir():
        make = f"trimtab run {shlex.quote(str(project.directory))} --run {shlex.quote(run.name)} --until pm"
        raise TrimtabError(ErrorKind.RUN, f"{run.path}: has no preference model yet", make)
    path = directory / "held_out.jsonl" if data is None else data
    pairs = read_pairs(path)
    shop = Workshop(project, run)
    shop.use_threads()
    config = project.config.preference
    shares = project.config.model.layout.shares and config.backbone is None
    base = shop.reference()[0] if shares else None
    model = preference.load_preference(
        directory / "model", shop.precision, base, combine=config.combine, pessimism=config.pessimism,
        head_weights=config.head_weights,
    )  # fmt: skip
    return path, pairs, model
