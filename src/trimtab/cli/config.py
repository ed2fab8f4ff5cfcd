"""`trimtab config`: the resolved settings, their schema, and what one of them means."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, ProjectDirectory, Quiet, Settings

if TYPE_CHECKING:
    from trimtab.config.describe import FieldInfo

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The settings: show, explain, print the schema.")
    group.command("show")(show)
    group.command("schema")(schema)
    group.command("explain")(explain)
    app.add_typer(group, name="config", rich_help_panel=Panel.LOOK)


def show(
    project: ProjectDirectory = Path("."),
    settings: Settings = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Show every setting's value and where it comes from."""
    from trimtab.pipeline.project import CONFIG_NAME, Project

    opened = Project.open(project, settings or [])
    rows = opened.resolved.rows()
    if as_json:
        path = str(opened.directory / CONFIG_NAME)
        output.emit_json(output.listing("settings", [row._asdict() for row in rows], path=path))
        return
    output.emit_table(
        ("setting", "value", "from"), [(row.key, output.json_text(row.value), row.origin) for row in rows]
    )


def schema() -> None:
    """Print the JSON schema of trimtab.toml."""
    from trimtab.config.load import json_schema

    output.emit_json(json_schema())


def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A setting, as in ppo.beta, or a section, as in ppo.")],
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Say what a setting means, what it may be and what it is by default."""
    found = _find(key)
    if as_json:
        rows = [{"key": f.key, "default": f.default, "allowed": f.allowed, "meaning": f.description} for f in found]
        output.emit_json(output.listing("settings", rows))
        return
    for number, field in enumerate(found):
        output.emit_text("\n" * bool(number) + field.key)
        output.emit_text(f"  {field.description}")
        output.emit_text(f"  allowed: {field.allowed}")
        output.emit_text(f"  default: {output.json_text(field.default)}")


def _find(key: str) -> list[FieldInfo]:
    """The setting `key`, or all settings of the section `key`.

    Raises:
        TrimtabError: there is none; the nearest is named.
    """
    from trimtab.config.describe import fields, nearest_key
    from trimtab.errors import ErrorKind, TrimtabError

    found = [field for field in fields().values() if key in (field.key, field.section)]
    if not found:
        near = nearest_key(key)
        hint = f"did you mean {near}?" if near else "trimtab config show lists them all"
        raise TrimtabError(ErrorKind.CONFIG, f"there is no setting {key!r}", hint)
    return found
