"""`trimtab labels export` and `import`: a project's verdicts out to a file and back in."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli import labels, output
from trimtab.cli.options import JsonOutput, ProjectDirectory, Quiet

__all__ = ["export", "import_", "register"]


class Conflict(StrEnum):
    """What to do where the file and the store say different things."""

    FAIL = "fail"
    KEEP = "keep"
    REPLACE = "replace"


def register(root: typer.Typer) -> None:
    labels.app.command("export")(export)
    labels.app.command("import")(import_)


File = Annotated[Path, typer.Argument(metavar="FILE", help="A .jsonl or .parquet file.")]


def export(project: ProjectDirectory, file: File, as_json: JsonOutput = False, quiet: Quiet = False) -> None:
    """Write every recorded verdict to a file, one a line, with all that the store knows of it; - is stdout."""
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.labeling.exchange import export_labels, records
    from trimtab.labeling.store import LabelStore
    from trimtab.pipeline.project import Project

    path = Project.open(project).label_store
    if not path.is_file():
        raise TrimtabError(ErrorKind.DATA, f"{path}: nothing has been labeled in this project", "run: trimtab label")
    with LabelStore(path) as store:
        if str(file) == "-":
            for record in records(store):
                output.emit_text(json.dumps(record))  # all of it ASCII
            return
        count = export_labels(store, file)
    if as_json:
        output.emit_json({"path": str(file), "verdicts": count})
    else:
        output.say(f"{count} verdicts written to {file}")


def import_(
    project: ProjectDirectory,
    file: File,
    on_conflict: Annotated[
        Conflict,
        typer.Option(help="Where a recorded verdict says something else: import nothing, keep it, or replace it."),
    ] = Conflict.FAIL,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Add the verdicts of an exported file to the project's label store, so that they need not be asked for again."""
    from trimtab.labeling.exchange import import_labels
    from trimtab.labeling.store import LabelStore
    from trimtab.pipeline.project import Project

    with LabelStore(Project.open(project).label_store) as store:
        done = import_labels(store, file, on_conflict.value)
    if as_json:
        output.emit_json({"path": str(file), **done._asdict()})
        return
    output.emit_table(("verdicts", "count"), list(done._asdict().items()), right=[1])
