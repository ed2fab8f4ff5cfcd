"""`trimtab runs`: the runs of a project."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, ProjectDirectory, Quiet

if TYPE_CHECKING:
    from trimtab.runs.run import Run

__all__ = ["register", "runs_directory"]


def register(app: typer.Typer) -> None:
    app.command("runs", rich_help_panel=Panel.LOOK)(runs)


def runs(project: ProjectDirectory = Path("."), as_json: JsonOutput = False, quiet: Quiet = False) -> None:
    """List the runs of a project, oldest first."""
    from trimtab.errors import TrimtabError
    from trimtab.runs.listing import list_runs

    root = runs_directory(project)
    broken: list[tuple[Path, TrimtabError]] = []
    rows = [_row(run) for run in list_runs(root, on_broken=lambda path, error: broken.append((path, error)))]
    if as_json:
        unreadable = [{"path": str(path), "message": error.message} for path, error in broken]
        output.emit_json(output.listing("runs", rows, path=str(root), unreadable=unreadable))
        return
    for path, error in broken:
        output.say(f"skipped {output.safe(path)}: {output.safe(error.message)}")
    if not rows:
        output.say(f"no runs in {output.safe(root)}")
        return
    from trimtab.figures import figure

    headers = ("run", "status", "stages done", "score", "kl (nats/sequence)", "age")
    output.emit_table(
        headers,
        [
            (
                row["name"],
                row["status"],
                " ".join(row["stages_done"]),
                None if row["score"] is None else figure(row["score"]),
                None if row["kl"] is None else figure(row["kl"]),
                output.age(row["age_seconds"]),
            )
            for row in rows
        ],
        right=(3, 4, 5),
    )


def runs_directory(project: Path) -> Path:
    """Where the runs of `project` are: as its trimtab.toml says, else `runs` in it, else the directory itself.

    Raises:
        TrimtabError: there is no such directory, or its trimtab.toml does not hold.
    """
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.pipeline.project import CONFIG_NAME, Project

    if (project / CONFIG_NAME).is_file() or project.name == CONFIG_NAME:
        return Project.open(project).runs
    if not project.is_dir():
        raise TrimtabError(ErrorKind.USAGE, f"{project}: there is no such directory", "name a project's directory")
    return project / "runs" if (project / "runs").is_dir() else project


def _row(run: Run) -> dict[str, Any]:
    created = float(run.manifest["created"])
    return {
        "name": run.name,
        "path": str(run.path),
        "status": str(run.status),
        "stages_done": [name for name, record in run.stages().items() if record.status == "done"],
        "score": _last(run, "score/mean"),
        "kl": _last(run, "kl/reference"),
        "created": output.timestamp(created),
        "age_seconds": round(time.time() - created, 1),
    }


def _last(run: Run, signal: str) -> float | None:
    """The last value of a signal of the training."""
    _, values = run.signal(signal, "ppo")
    return float(values[-1]) if len(values) else None
