"""`trimtab run`: every stage of a project that is out of date."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import (
    ExistingRun,
    JsonOutput,
    Panel,
    ProjectDirectory,
    Quiet,
    RunName,
    Settings,
    StageChoice,
)

if TYPE_CHECKING:
    from trimtab.pipeline.project import Project
    from trimtab.pipeline.stages import StageName, StageState
    from trimtab.runs.run import Run

__all__ = ["register", "report_path"]


def register(app: typer.Typer) -> None:
    app.command("run", rich_help_panel=Panel.PROJECT)(run)


def run(
    project: ProjectDirectory = Path("."),
    name: RunName = "main",
    settings: Settings = None,
    until: Annotated[StageChoice | None, typer.Option(help="The last stage to run.")] = None,
    start: Annotated[
        StageChoice | None,
        typer.Option("--from", help="Run this stage and what follows, even if up to date."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run and why; run nothing.")] = False,
    existing: Annotated[
        ExistingRun,
        typer.Option(help="Where there is such a run: go on with it, make NAME-2, overwrite it, or fail."),
    ] = ExistingRun.RESUME,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Run the stages that are out of date: sft, sample, label, pm, ppo or dpo, eval, report.

    An interrupted run goes on where it stopped. Under torchrun the policy is trained by all processes.
    """
    from trimtab.pipeline.processes import follow, together
    from trimtab.pipeline.project import Project
    from trimtab.pipeline.runner import run_project

    opened = Project.open(project, settings or [])
    last: StageName | None = until.value if until else None
    first: StageName | None = start.value if start else None
    if dry_run:
        _print_plan(opened, name, last, first, existing, as_json)
        return
    began = time.time()
    with together(opened) as world:
        if world is not None and not world.first:
            output.set_quiet(True)
            follow(opened, world)
            return
        done = run_project(opened, name, until=last, start=first, existing=existing.value, say=output.say, world=world)
    _print_result(opened, done, began, project, as_json)


def report_path(run: Run) -> Path | None:
    """Where the run's report is, if there is one."""
    path = run.path / "report.html"
    return path if path.is_file() else None


def _print_plan(
    project: Project, name: str, until: StageName | None, start: StageName | None, existing: ExistingRun, as_json: bool
) -> None:
    """Print every stage's state and which of them would run."""
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.pipeline.runner import plan_run
    from trimtab.pipeline.stages import plan
    from trimtab.runs.manifest import MANIFEST_NAME, check_run_name
    from trimtab.runs.run import Run

    path = project.runs / check_run_name(name)
    taken = (path / MANIFEST_NAME).is_file()
    if taken and existing == ExistingRun.FAIL:
        raise TrimtabError(ErrorKind.RUN, f"{path}: there is a run of this name", "--existing resume | new | overwrite")
    fresh = taken and existing in (ExistingRun.NEW, ExistingRun.OVERWRITE)
    free = _free_name(project.runs, name) if fresh else name
    states = plan(project, Run.open(path) if taken and not fresh else None)
    chosen = {state.name for state in plan_run(project, free, until=until, start=start)}
    shown = free if existing == ExistingRun.NEW else name
    if as_json:
        rows = [_stage_row(state, state.name in chosen) for state in states]
        output.emit_json(_envelope(shown, project.runs / shown, True, rows, None, None))
        return
    rows_of_text = [
        (
            state.name,
            "up to date" if state.up_to_date else state.status,
            "yes" if state.name in chosen else "no",
            state.why,
        )
        for state in states
    ]
    output.emit_table(("stage", "status", "runs", "why"), rows_of_text)


def _print_result(project: Project, run: Run, began: float, directory: Path, as_json: bool) -> None:
    from trimtab.pipeline.stages import plan
    from trimtab.report import summary

    told, path = summary(run), report_path(run)
    if as_json:
        rows = [_stage_row(state, (run.stage(state.name).ended or 0) >= began) for state in plan(project, run)]
        output.emit_json(_envelope(run.name, run.path, False, rows, told, path))
        return
    output.emit_text(told)
    if not all(state.up_to_date for state in plan(project, run) if state.needed):
        output.say(f"next: trimtab run {output.safe(shlex.quote(str(directory)))} --run {shlex.quote(run.name)}")


def _stage_row(state: StageState, runs: bool) -> dict[str, Any]:
    return {
        "name": state.name,
        "purpose": state.purpose,
        "needed": state.needed,
        "status": str(state.status),
        "up_to_date": state.up_to_date,
        "why": state.why,
        "run": runs,
    }


def _envelope(
    name: str, path: Path, dry_run: bool, stages: list[dict[str, Any]], summary: str | None, report: Path | None
) -> dict[str, Any]:
    return {
        "run": name,
        "path": str(path),
        "dry_run": dry_run,
        **output.listing("stages", stages),
        "summary": summary,
        "report": None if report is None else str(report),
    }


def _free_name(root: Path, name: str) -> str:
    """The name that `--existing new` would take, without taking it."""
    number = 2
    while (root / f"{name}-{number}").exists():
        number += 1
    return f"{name}-{number}"
