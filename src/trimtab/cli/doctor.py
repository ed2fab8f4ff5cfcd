"""`trimtab doctor`: what is wrong with a run, a log, judgments or scores; since when, why, and what to change."""

from __future__ import annotations

import shutil
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, Quiet
from trimtab.errors import ErrorKind, TrimtabError

if TYPE_CHECKING:
    from trimtab.doctor.around import Around
    from trimtab.doctor.diagnosis import Diagnosis

__all__ = ["EXIT_INCONCLUSIVE", "EXIT_SICK", "Language", "columns", "register"]

EXIT_SICK, EXIT_INCONCLUSIVE = 3, 5
WIDEST = 110
_LIST = "list"


class FailOn(StrEnum):
    """From which severity on the exit code says sick."""

    WARNING = "warning"
    CRITICAL = "critical"


class Language(StrEnum):
    """Languages of the catalogue of messages."""

    EN = "en"
    ZH = "zh"


def register(app: typer.Typer) -> None:
    app.command("doctor", rich_help_panel=Panel.HEALTH)(doctor)


def doctor(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="A run, a project, a training log, or a file of judgments or scores."),
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="Exit with 3 from this severity on; nothing else changes.")
    ] = FailOn.WARNING,
    around: Annotated[
        int | None, typer.Option("--around", metavar="STEP", help="Show every signal near this step.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the diagnosis as one page, too.")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="OURS=THEIRS", help="Read the log's key THEIRS as the signal OURS; can be repeated."
        ),
    ] = None,
    lang: Annotated[Language, typer.Option("--lang", help="Language of the sentences.")] = Language.EN,
    demo: Annotated[
        str | None,
        typer.Option("--demo", metavar="NAME", help="Diagnose a drawn log of a failure; `list` names them."),
    ] = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Say what is wrong, since when, why, and what to change.

    Reads runs of Trimtab and what other frameworks leave behind; the format is recognised from the content.

    Exit code: 0 healthy, 3 sick, 5 inconclusive.
    """
    if demo == _LIST:
        _list_demos(as_json)
        return
    if html is not None:
        _check_page(html, path)
    diagnosis, near = _look(path, demo, _mapping(mapping or []), around)
    if html is not None:
        _write_page(diagnosis, html, lang)
    if as_json:
        from trimtab.doctor.record import as_dict

        shown = as_dict(diagnosis, lang)
        output.emit_json(shown if near is None else {**shown, "around": near.as_dict()})
    else:
        _print(diagnosis, near, lang)
    raise typer.Exit(_exit_code(diagnosis, fail_on))


def columns() -> int:
    """How wide a report may be here."""
    return min(shutil.get_terminal_size((100, 24)).columns, WIDEST)


def _look(
    path: Path | None, demo: str | None, mapping: dict[str, str], around: int | None
) -> tuple[Diagnosis, Around | None]:
    from trimtab.doctor.around import signals_around
    from trimtab.doctor.driver import diagnose

    if (path is None) == (demo is None):
        raise TrimtabError(
            ErrorKind.USAGE,
            "nothing to look at" if path is None else "PATH and --demo exclude each other",
            "trimtab doctor PATH, or trimtab doctor --demo NAME (--demo list names them)",
        )
    if demo is None:
        assert path is not None
        diagnosis = diagnose(path, mapping=mapping)
    else:
        drawn = _drawn()
        _known_demo(demo, drawn.NAMES)
        with tempfile.TemporaryDirectory(prefix="trimtab-demo-") as directory:
            diagnosis = diagnose(drawn.demo(demo, Path(directory)), mapping=mapping)
    return diagnosis, None if around is None else signals_around(diagnosis, around)


def _mapping(pairs: list[str]) -> dict[str, str]:
    found = {}
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise TrimtabError(
                ErrorKind.USAGE, f"--map {pair!r} is not of the form OURS=THEIRS", "as in --map score/mean=my_reward"
            )
        found[ours.strip()] = theirs.strip()
    return found


def _drawn() -> Any:
    """The module that draws logs of failures."""
    from importlib import import_module

    return import_module("trimtab.doctor.drawn")


def _known_demo(name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        from difflib import get_close_matches

        near = get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise TrimtabError(ErrorKind.USAGE, f"no demo of the name {name!r}", f"{hint}--demo list names them")


def _list_demos(as_json: bool) -> None:
    names = list(_drawn().NAMES)
    if as_json:
        output.emit_json(output.listing("demos", names))
    else:
        output.emit_text("\n".join(names))


def _check_page(target: Path, log: Path | None) -> None:
    """Refuse a place for the page that is none, or where the log itself lies.

    Raises:
        TrimtabError: it is.
    """
    if not target.name:
        raise TrimtabError(ErrorKind.USAGE, f"--html {str(target)!r} is no file", "as in --html doctor.html")
    if log is not None and target.exists() and log.exists() and target.samefile(log):
        raise TrimtabError(
            ErrorKind.USAGE, f"--html {target}: that is the log itself; the page would replace it", "name another file"
        )


def _write_page(diagnosis: Diagnosis, target: Path, lang: Language) -> None:
    from trimtab.doctor.page import write

    write(diagnosis, target, lang)
    output.say(f"wrote {target}")


def _print(diagnosis: Diagnosis, near: Around | None, lang: Language) -> None:
    from trimtab.doctor.render import report

    output.emit_lines(report(diagnosis, lang, columns(), ascii_only=not _takes_blocks()))
    if near is not None:
        output.emit_text("")
        output.emit_table(*near.table())


def _takes_blocks() -> bool:
    try:
        "▁│".encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _exit_code(diagnosis: Diagnosis, fail_on: FailOn) -> int:
    from trimtab.doctor.diagnosis import Status
    from trimtab.doctor.finding import Severity

    if diagnosis.status is Status.INCONCLUSIVE:
        return EXIT_INCONCLUSIVE
    loudest = diagnosis.loudest()
    sick = loudest is not None and loudest.rank >= Severity(fail_on.value).rank
    return EXIT_SICK if diagnosis.status is Status.SICK and sick else 0
