"""`trimtab explain`: a failure that the doctor can find, in words: what it is, its signals, what to do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from trimtab.cli import output
from trimtab.cli.doctor import Language, columns
from trimtab.cli.options import JsonOutput, Panel, Quiet
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    app.command("explain", rich_help_panel=Panel.HEALTH)(explain)


def explain(
    finding: Annotated[
        str | None, typer.Argument(metavar="FINDING", help="A finding's id; without it all are listed.")
    ] = None,
    lang: Annotated[Language, typer.Option("--lang", help="Language of the sentences.")] = Language.EN,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Explain a finding of the doctor: what it is, its signals, what could look like it, what to do."""
    from trimtab.doctor.explained import Explanation, explained

    known = explained(lang)
    if finding is None:
        _list(list(known.values()), as_json)
        return
    if finding not in known:
        from difflib import get_close_matches

        near = get_close_matches(finding, known, 1, cutoff=0.5)
        hint = f"did you mean {near[0]}? " if near else ""
        raise TrimtabError(ErrorKind.USAGE, f"no finding of the name {finding!r}", f"{hint}trimtab explain lists them")
    found: Explanation = known[finding]
    if as_json:
        output.emit_json(found.as_dict())
        return
    output.emit_lines(found.lines(columns(), lang))


def _list(known: list[Any], as_json: bool) -> None:
    if as_json:
        output.emit_json(output.listing("findings", [{"id": e.id, "title": e.title} for e in known]))
        return
    output.emit_table(("finding", "in a few words"), [(e.id, e.title) for e in known])
