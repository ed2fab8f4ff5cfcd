"""Our own runs and projects, read through `trimtab.runs`: one log a stage, in the order of the chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.doctor.importers.build import MOST_STEPS, build
from trimtab.doctor.importers.dialects import BY_NAME
from trimtab.doctor.importers.ours_preference import calibrated_rows, preference_results
from trimtab.doctor.importers.table import TableBuilder
from trimtab.doctor.judgments import JudgmentMaterial
from trimtab.doctor.log import Log, Skipped
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.reading import refuse_special
from trimtab.runs import Run, list_runs
from trimtab.runs.files import read_json
from trimtab.runs.signal_table import STAGES

__all__ = ["is_project", "is_run", "read_project", "read_run", "rows_log"]

_ABOUT = frozenset({"stage", "step", "attempt", "time", "nonfinite", "rewind_to"})
_MANIFEST = "run.json"
_PROJECT = "trimtab.toml"


def is_run(directory: Path) -> bool:
    """Whether `directory` is a run of ours."""
    return (directory / _MANIFEST).is_file()


def is_project(directory: Path) -> bool:
    """Whether `directory` is a project of ours, or the directory of its runs."""
    return (directory / _PROJECT).is_file() or any(directory.glob(f"*/{_MANIFEST}"))


def read_project(directory: Path, mapping: Mapping[str, str]) -> list[Log | JudgmentMaterial]:
    """The chain of the newest run of a project: that run, and for stages it lacks the runs it was made from.

    Raises:
        TrimtabError: no run can be read.
    """
    roots = [directory / "runs", directory] if (directory / _PROJECT).is_file() else [directory]
    runs: list[Run] = []
    broken: list[TrimtabError] = []
    for root in roots:
        runs += list_runs(root, on_broken=lambda _, error: broken.append(error))
    if not runs:
        if broken:
            raise broken[0]
        return []
    by_name = {run.name: run for run in runs}
    newest = runs[-1]
    logs: dict[str, Log] = {}
    beside: list[JudgmentMaterial] = []
    run: Run | None = newest
    seen: set[str] = set()
    while run is not None and run.name not in seen:
        seen.add(run.name)
        for material in read_run(run.path, mapping):
            if isinstance(material, Log):
                logs.setdefault(material.stage.value, material)
            elif any(log.path == material.beside for log in logs.values()):
                beside.append(material)
        parent = run.manifest.get("parent")
        run = by_name.get(str(parent).partition("@")[0]) if parent else None
    order = {name: i for i, name in enumerate(("sft", "sample", "label", "pm", "direct", "policy", "eval"))}
    return [*sorted(logs.values(), key=lambda log: order.get(log.stage.value, 99)), *beside]


def read_run(directory: Path, mapping: Mapping[str, str]) -> list[Log | JudgmentMaterial]:
    """One log for each stage of a run that logged something, the last attempt of each; and what is kept of its
    preference model.

    Raises:
        TrimtabError: the manifest cannot be read.
    """
    run = Run.open(directory)
    refuse_special(directory / "metrics.jsonl")
    by_stage: dict[str, list[dict[str, Any]]] = {}
    for row in run.metrics():
        by_stage.setdefault(str(row["stage"]), []).append(row)
    for row in by_stage.get("ppo", []):
        row.update(_shift_at(run, int(row.get("step", 0))))
    broken = [
        Skipped("lines that cannot be read", len(lines), lines[0]) for name, lines in run.broken_lines().items()
        if name == "metrics.jsonl" and lines
    ]  # fmt: skip
    config = dict(dotted(run.config))
    ordered = [s for s in STAGES if s in by_stage] + [s for s in by_stage if s not in STAGES]
    if "pm" in by_stage:
        by_stage["pm"] = calibrated_rows(run, by_stage["pm"])
    logs: list[Log | JudgmentMaterial] = [
        rows_log(by_stage[stage], f"{directory} [{stage}]", stage, config, _planned(stage, config), mapping, broken)
        for stage in ordered
    ]
    return [*logs, *(preference_results(run, f"{directory} [pm]") if "pm" in by_stage else [])]


def _shift_at(run: Run, step: int) -> dict[str, float]:
    """What `trimtab pm shift` found of the run's own responses of a step, where it was asked and could tell."""
    path = run.artifact("pm") / "shift.json"
    if not path.is_file():
        return {}
    try:
        told = read_json(path, ErrorKind.RUN)
        own = [s for s in told["sets"] if s["step"] == step and s["verdict"] != "cannot tell"]
        if not own:
            return {}
        expected = own[-1]["expected"]
        found = {
            "shift/auc": own[-1]["domain"]["mean"],
            "shift/accuracy_expected": expected["accuracy"]["mean"],
            "shift/accuracy_by_distance": expected["by_distance"]["mean"],
            "shift/accuracy_by_distance_high": expected["by_distance"]["high"],
        }
    except (TrimtabError, KeyError, TypeError):
        return {}  # the metrics are what a log is; this file beside them is a help
    return {key: float(value) for key, value in found.items() if isinstance(value, int | float)}


def rows_log(
    rows: Sequence[Mapping[str, Any]],
    path: str,
    stage: str,
    config: Mapping[str, Any],
    planned: int | None,
    mapping: Mapping[str, str],
    skipped: list[Skipped] | None = None,
) -> Log:
    """The log of records of `metrics.jsonl` of one stage."""
    builder = TableBuilder("trimtab")
    for row in rows:
        builder.add({k: v for k, v in row.items() if k not in _ABOUT and v is not None}, step=int(row.get("step", 0)))
    builder.skips.merge(skipped or [])
    builder.config = dict(config)
    builder.planned_steps = planned
    builder.hint = f"trimtab-{stage}" if f"trimtab-{stage}" in BY_NAME else "trimtab-ppo"
    return build(builder.table(), path, mapping)


def dotted(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Keys with dots and values of a nested table."""
    found: list[tuple[str, Any]] = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            found += dotted(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _planned(stage: str, config: Mapping[str, Any]) -> int | None:
    value = config.get(f"{stage}.iterations", config.get(f"{stage}.steps"))
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MOST_STEPS else None
