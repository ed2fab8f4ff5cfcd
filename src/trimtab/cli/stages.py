"""One command a stage: `sft`, `sample`, `label`, `ppo`, `dpo`, `eval`, `report` (and, in `pm.py`, `pm train`)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trimtab.cli import output
from trimtab.cli.label import label
from trimtab.cli.options import Again, JsonOutput, Panel, ProjectDirectory, Quiet, RunName, Settings

if TYPE_CHECKING:
    from trimtab.pipeline.stages import StageName

__all__ = ["emit_figures", "register", "stage"]

_HELP: dict[StageName, str] = {
    "sft": "Fine-tune on demonstrations, or on revisions by the constitution; makes the reference policy.",
    "sample": "Sample pairs of responses to be compared.",
    "label": "",  # has options of its own
    "ppo": "Train the policy with PPO, RLOO or GRPO.",
    "dpo": "Train the policy with DPO, on the labeled pairs themselves.",
    "eval": "Compare the trained policy with the reference on held-out prompts.",
    "report": "Write report.html and print what it says.",
}


def register(app: typer.Typer) -> None:
    for name, text in _HELP.items():
        if name == "label":
            app.command(name, rich_help_panel=Panel.STAGES)(label)
        else:
            app.command(name, help=text, rich_help_panel=Panel.STAGES)(_command(name))


def _command(stage_name: StageName) -> Any:
    def command(
        project: ProjectDirectory = Path("."),
        name: RunName = "main",
        settings: Settings = None,
        again: Again = False,
        as_json: JsonOutput = False,
        quiet: Quiet = False,
    ) -> None:
        stage(stage_name, project, name, settings or [], again=again, as_json=as_json)

    return command


def stage(stage_name: StageName, project: Path, name: str, settings: list[str], *, again: bool, as_json: bool) -> None:
    """Run one stage and print its result; of several processes the first one prints."""
    from trimtab.pipeline.processes import follow, together
    from trimtab.pipeline.project import Project
    from trimtab.pipeline.runner import run_stage
    from trimtab.runs.files import read_json

    began = time.time()
    opened = Project.open(project, settings)
    setting = opened.config.project.algorithm
    chosen = any(item.partition("=")[0].strip() == "project.algorithm" for item in settings)
    if stage_name in ("ppo", "dpo") and setting != stage_name and not chosen:
        opened = Project.open(project, [f"project.algorithm={stage_name}", *settings])
    with together(opened) if stage_name == "ppo" else nullcontext() as world:
        if world is not None and not world.first:
            output.set_quiet(True)
            follow(opened, world)
            return
        run = run_stage(opened, stage_name, name, again=again, say=output.say, world=world)
    if opened.config.project.algorithm != setting:
        output.say(
            f'note: run, eval and report go by project.algorithm = "{setting}"; for this policy set it to '
            f'"{stage_name}", in trimtab.toml or with --set'
        )
    record = run.stage(stage_name)
    result = read_json(run.artifact(stage_name) / "result.json")
    if as_json:
        output.emit_json(
            {
                "run": run.name,
                "path": str(run.path),
                "stage": stage_name,
                "status": str(record.status),
                "attempt": record.attempt,
                "ran": (record.ended or 0) >= began,
                "result": result,
            }
        )
    elif stage_name == "report":
        from trimtab.report import summary

        output.emit_text(summary(run))
    else:
        emit_figures(result)


def emit_figures(result: Mapping[str, Any]) -> None:
    """Print a stage's result as one `name value` a line."""
    output.emit_table(("figure", "value"), [(name, _figure(value)) for name, value in _flat(result)])


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Leaves of a JSON object with dotted names; an estimate with its interval is a leaf, other lists are counted."""
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and "name" in item for item in value):
        value = {item["name"]: {key: inner for key, inner in item.items() if key != "name"} for item in value}
    if isinstance(value, Mapping) and not _is_estimate(value):
        return [leaf for key, item in value.items() for leaf in _flat(item, f"{prefix}.{key}" if prefix else str(key))]
    return [(prefix, f"{len(value)} items" if isinstance(value, list) else value)]


def _is_estimate(value: Mapping[str, Any]) -> bool:
    return {"low", "high"} <= set(value) and ("mean" in value or "value" in value)


def _figure(value: Any) -> str | None:
    from trimtab.figures import figure, with_interval

    if isinstance(value, Mapping):
        mean = value.get("mean", value.get("value"))
        return None if mean is None else with_interval(mean, value["low"], value["high"])
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figure(value)
    return None if value is None else str(value)
