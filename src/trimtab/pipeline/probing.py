"""Probe the preference model of a run, or of a directory that holds one, and let the doctor see its scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from trimtab import preference
from trimtab.data.pairs import read_pairs
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.loading import pick_device
from trimtab.models.starts import load_scorer
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.evaluate import preference_model_and_pairs
from trimtab.pipeline.pm_doctor import seen_by_the_doctor, seen_in_training_pairs
from trimtab.pipeline.pm_results import keep_probe, write_card
from trimtab.pipeline.project import CONFIG_NAME, Project
from trimtab.preference.probes import read_edits
from trimtab.preference.probes.edits_file import BUILT_IN
from trimtab.runs.run import Run
from trimtab.scoring import Scorer
from trimtab.training.precision import Precision

__all__ = ["probe_preference_model"]


def probe_preference_model(
    target: Path, name: str, settings: Sequence[str] = (), data: Path | None = None, *, most: int = 100,
    edits: Path | None = None, training: Path | None = None,
) -> tuple[Path, preference.ProbeReport]:  # fmt: skip
    """Probe a preference model.

    Args:
        target: a project, or a directory that holds a sequence classifier with one label, ours or anybody's.
        name: of the run, where `target` is a project.
        settings: `--set` of a project.
        data: a pairs file; None: the pairs that the run held out.
        most: responses that are edited.
        edits: a file of edits, see `read_edits`; None: the built-in ones.
        training: the pairs that the model was trained on; None: of a project those of the run.

    Returns:
        The pairs file, and the report, with the faults that only the doctor names among its faults. Of a run, it is
        kept in `artifacts/pm/probe.json`, and the model's card tells of it.

    Raises:
        TrimtabError: there is no model, no pairs, or they cannot be used.
    """
    own = BUILT_IN if edits is None else read_edits(edits)
    trained_on = None if training is None else read_pairs(training)
    if target.name == CONFIG_NAME or (target / CONFIG_NAME).is_file():
        project = Project.open(target, list(settings))
        path, pairs, model = preference_model_and_pairs(project, name, data)
        run = Run.open(project.runs / name)
        report = preference.probe(model, pairs, most=most, seed=project.config.project.seed, edits=own)
        report = _diagnosed(
            report, model, pairs, _trained_on(project, run, model) if trained_on is None else trained_on
        )
        keep_probe(run, report, path, model.combination)
        write_card(run)
        return path, report
    path, pairs, scorer = _of_directory(target, data)
    report = preference.probe(scorer, pairs, most=most, edits=own)
    return path, _diagnosed(report, scorer, pairs, trained_on or [])


def _diagnosed(
    report: preference.ProbeReport, scorer: Scorer, pairs: Sequence[Pair], training: Sequence[Pair]
) -> preference.ProbeReport:
    """With what the doctor names."""
    report = report.with_faults(seen_by_the_doctor(pairs, report.pair_scores))
    return report.with_faults(seen_in_training_pairs(scorer, training, pairs, report.pair_scores))


def _trained_on(project: Project, run: Run, model: preference.PreferenceModel) -> list[Pair]:
    """Labeled pairs of the run that were not held out and that the model can read; none where it keeps no labels."""
    try:
        labeled = Workshop(project, run).training_pairs()
    except TrimtabError as problem:
        if problem.kind is not ErrorKind.RUN:
            raise
        return []
    apart = {pair.prompt.messages for pair in read_pairs(run.artifact("pm") / "held_out.jsonl")}
    limit = model.max_tokens or sys.maxsize
    return [
        pair
        for pair in labeled
        if pair.prompt.messages not in apart
        and all(len(model.codec.pair_ids(pair.prompt, side)) <= limit for side in (pair.chosen, pair.rejected))
    ]


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
    model, codec = load_scorer(target, device=precision.device)
    return data, pairs, preference.PreferenceModel(model, codec, precision)
