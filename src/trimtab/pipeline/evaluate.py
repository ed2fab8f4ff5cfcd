"""Measure a run's preference model on pairs: its own held-out ones or those of any file."""

from __future__ import annotations

import shlex
from pathlib import Path

from trimtab import preference
from trimtab.data.pairs import read_pairs
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.project import Project
from trimtab.runs.run import Run

__all__ = ["evaluate_preference_model"]


def evaluate_preference_model(
    project: Project, name: str, data: Path | None = None
) -> tuple[Path, preference.PairMetrics]:
    """How good the preference model of the run `name` is on labeled pairs.

    Args:
        data: a pairs file; None: the pairs that the run held out.

    Returns:
        The pairs file, and the figures.

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
    base = shop.reference()[0] if project.config.model.shared_layers else None
    return path, preference.evaluate(shop.preference_model(base), pairs, seed=project.config.project.seed)
