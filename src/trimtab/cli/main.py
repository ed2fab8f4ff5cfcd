"""The entry point `trimtab`: the commands and, around them, how errors become messages and exit codes.

Nothing heavy is imported before a command needs it: `trimtab --help` answers at once and without torch.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from trimtab import __version__
from trimtab.cli import (
    config,
    constitution,
    data,
    doctor,
    explain,
    failures,
    init,
    labels,
    labels_io,
    output,
    pm,
    review,
    run,
    runs,
    show,
    signals,
    stages,
)
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.launch import several

__all__ = ["app", "main"]

app = typer.Typer(
    name="trimtab",
    help="Train language models from AI feedback, and learn when, since when and why the training goes wrong.",
    epilog="Start with: trimtab init DIR, then trimtab run DIR. Data goes to stdout, narration to stderr.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (
    init, run, stages, pm, doctor, explain, review, constitution, labels, labels_io, data, runs, show, config, signals,
):  # fmt: skip
    group.register(app)

_INTERRUPTED = 130
_debug = False


def _print_version(value: bool) -> None:
    if value:
        output.emit_text(f"trimtab {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an unexpected error (so does TRIMTAB_DEBUG=1).")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    global _debug
    _debug = debug or os.environ.get("TRIMTAB_DEBUG", "") not in ("", "0", "false")
    if context.invoked_subcommand not in (None, "run", "ppo") and several():
        raise TrimtabError(
            ErrorKind.USAGE,
            f"trimtab {context.invoked_subcommand} works in one process, and a launcher started several",
            "start it without torchrun; trimtab run and trimtab ppo train in several",
        )
    if context.invoked_subcommand is None:
        raise TrimtabError(ErrorKind.USAGE, "no command given", "trimtab --help lists the commands")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        argv: the arguments; None: those of the process.

    Returns:
        The exit code: 0 ok, 1 failed, 2 usage or config, 3 sick, 4 something is missing, 5 inconclusive, 130
        interrupted.
    """
    global _debug
    _debug = False
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    _print_anything()
    output.set_quiet(False)
    try:
        code = typer.main.get_command(app)(args=arguments, prog_name="trimtab", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost boundary: what gets here is told and ends the process
        return failures.report(error, as_json=as_json, debug=_debug)
    if code == _INTERRUPTED:
        interrupted = TrimtabError(ErrorKind.INTERRUPTED, "interrupted", "")
        return failures.report(interrupted, as_json=as_json, debug=False)
    return code if isinstance(code, int) else 0


def _print_anything() -> None:
    """A locale that lacks a character costs that character, not the command; a closed stream costs what goes there."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    sys.exit(main())
