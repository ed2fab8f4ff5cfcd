"""`trimtab show`: one run, its stages, settings, last signals and artifacts."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, Quiet
from trimtab.cli.runs import runs_directory

if TYPE_CHECKING:
    from trimtab.runs.run import Run

__all__ = ["find_run", "register"]


def register(app: typer.Typer) -> None:
    app.command("show", rich_help_panel=Panel.LOOK)(show)


def show(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's name, or its directory.")],
    project: Annotated[
        Path, typer.Argument(metavar="PROJECT", help="The project whose run it is, where RUN is a name.")
    ] = Path("."),
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Show a run: stages, settings that are not the defaults, last signals, artifacts."""
    found = find_run(run, project)
    facts = _facts(found)
    if as_json:
        output.emit_json(facts)
    else:
        _print(facts)


def find_run(run: str, project: Path) -> Run:
    """The run of this name in the project, or in the directory that `run` names.

    Raises:
        TrimtabError: there is none.
    """
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.runs.listing import list_runs
    from trimtab.runs.manifest import MANIFEST_NAME
    from trimtab.runs.run import Run

    if (Path(run) / MANIFEST_NAME).is_file():
        return Run.open(run)
    root = runs_directory(project)
    if (root / run / MANIFEST_NAME).is_file():
        return Run.open(root / run)
    names = [other.name for other in list_runs(root)]
    hint = f"there are: {', '.join(names)}" if names else "trimtab runs PROJECT lists a project's runs"
    raise TrimtabError(ErrorKind.RUN, f"no run {run!r} in {root}, and no run's directory of that name", hint)


def _facts(run: Run) -> dict[str, Any]:
    manifest = run.manifest
    return {
        "name": run.name,
        "path": str(run.path),
        "status": str(run.status),
        "created": output.timestamp(float(manifest["created"])),
        "seed": run.seed,
        "parent": manifest.get("parent"),
        "versions": manifest.get("versions", {}),
        "stages": _stages(run),
        "settings": _settings(run),
        "signals": _signals(run),
        "artifacts": _artifacts(run),
        "broken_lines": run.broken_lines(),
    }


def _stages(run: Run) -> list[dict[str, Any]]:
    rows = []
    for name, record in run.stages().items():
        started, ended = record.started, record.ended
        until = time.time() if ended is None and run.locked else ended
        rows.append(
            {
                "name": name,
                "status": str(record.status),
                "attempt": record.attempt,
                "started": output.timestamp(started),
                "ended": output.timestamp(ended),
                "seconds": None if started is None or until is None else round(until - started, 1),
            }
        )
    return rows


def _settings(run: Run) -> list[dict[str, Any]]:
    """The settings that differ from the defaults; a setting that this version does not know counts as one."""
    from trimtab.config.describe import fields

    rows = []
    for section, values in run.config.items():
        for name, value in values.items() if isinstance(values, dict) else ():
            known = fields().get(f"{section}.{name}")
            default = known.default if known else None
            if known is None or value != default:
                rows.append({"key": f"{section}.{name}", "value": value, "default": default})
    return rows


def _signals(run: Run) -> list[dict[str, Any]]:
    """The last value of every signal of every stage."""
    from trimtab.runs.signals import RESERVED, lookup

    last: dict[tuple[str, str], tuple[int, float]] = {}
    for record in run.metrics():
        for key, value in record.items():
            if key not in RESERVED and value is not None:
                last[record["stage"], key] = (record["step"], value)
    rows = []
    for (stage, key), (step, value) in last.items():
        declared = lookup(key)
        number = float(value)
        band = declared.healthy if declared else None
        rows.append(
            {
                "stage": stage,
                "key": key,
                "step": step,
                "value": number,
                "nonfinite": None if math.isfinite(number) else str(number),
                "unit": declared.unit if declared else None,
                "healthy": None if band is None else {"low": band.low, "high": band.high},
                "inside": None if band is None else band.holds(number),
            }
        )
    return rows


def _artifacts(run: Run) -> list[dict[str, Any]]:
    """What the stages wrote, two levels deep, relative to the run; the size of a directory is that of its files."""
    root = run.path / "artifacts"
    paths = [child for stage in sorted(root.glob("*")) for child in (sorted(stage.glob("*")) or [stage])]
    paths += [path for path in (run.path / "report.html",) if path.is_file()]
    return [
        {"path": path.relative_to(run.path).as_posix(), "bytes": sum(p.stat().st_size for p in _files(path))}
        for path in paths
    ]


def _files(path: Path) -> list[Path]:
    return [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]


def _print(facts: dict[str, Any]) -> None:
    from trimtab.figures import figure
    from trimtab.runs.progress import duration

    output.emit_text(f"{output.safe(facts['name'])}: {facts['status']}, seed {facts['seed']}, made {facts['created']}")
    output.emit_text(output.safe(facts["path"]))
    if facts["parent"] is not None:
        output.emit_text(f"from {output.safe(facts['parent'])}")
    output.emit_text("")
    output.emit_table(
        ("stage", "status", "attempt", "started", "took"),
        [
            (
                s["name"],
                s["status"],
                s["attempt"],
                s["started"],
                None if s["seconds"] is None else duration(s["seconds"]),
            )
            for s in facts["stages"]
        ],
        right=(2, 4),
    )
    _section(
        ("setting", "value", "default"),
        [(s["key"], output.json_text(s["value"]), output.json_text(s["default"])) for s in facts["settings"]],
    )
    _section(
        ("stage", "signal", "value", "unit", "step", "healthy", ""),
        [
            (
                s["stage"],
                s["key"],
                s["nonfinite"] or figure(s["value"]),
                s["unit"],
                s["step"],
                output.band(s["healthy"]),
                "outside" if s["inside"] is False else "",
            )
            for s in facts["signals"]
        ],
        right=(2, 4),
    )
    _section(("artifact", "bytes"), [(a["path"], a["bytes"]) for a in facts["artifacts"]], right=(1,))
    for name, lines in facts["broken_lines"].items():
        output.say(f"{name}: skipped {len(lines)} broken lines (first: line {lines[0]})")


def _section(headers: tuple[str, ...], rows: list[tuple[Any, ...]], right: tuple[int, ...] = ()) -> None:
    if rows:
        output.emit_text("")
        output.emit_table(headers, rows, right)
