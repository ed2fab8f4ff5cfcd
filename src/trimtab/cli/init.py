"""`trimtab init`: a new project."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, Quiet

__all__ = ["register"]


class PresetChoice(StrEnum):
    DEMO = "demo"
    TINY = "tiny"


class ExistingFilesChoice(StrEnum):
    FAIL = "fail"
    KEEP = "keep"
    OVERWRITE = "overwrite"


def register(app: typer.Typer) -> None:
    app.command("init", rich_help_panel=Panel.PROJECT)(init)


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the project; made if missing.")],
    preset: Annotated[
        PresetChoice,
        typer.Option(help="demo: a small real model and everyday prompts; tiny: a generated language, minutes in all."),
    ] = PresetChoice.DEMO,
    existing: Annotated[
        ExistingFilesChoice,
        typer.Option(help="Where files are there: write nothing and fail, keep them, or overwrite them."),
    ] = ExistingFilesChoice.FAIL,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented trimtab.toml, a constitution and prompts."""
    from trimtab.pipeline.scaffold import init_project

    made = init_project(directory, preset.value, existing.value)
    following = f"trimtab run {shlex.quote(str(directory))}"
    if as_json:
        output.emit_json(
            {
                "project": str(directory),
                "preset": preset.value,
                "written": [str(path) for path in made.written],
                "kept": [str(path) for path in made.kept],
                "count": len(made.written),
                "truncated": False,
                "next": following,
            }
        )
        return
    for path in made.written:
        output.emit_text(f"wrote {output.safe(path)}")
    for path in made.kept:
        output.emit_text(f"kept {output.safe(path)}")
    output.say(f"next: {output.safe(following)}")
