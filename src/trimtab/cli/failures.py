"""How a failure is told: one line and a hint on stderr, or with --json one object on stdout; and the exit code."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from typing import Any

from trimtab.cli import output
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["EXTRAS", "as_trimtab_error", "report"]

EXTRAS = {
    "gguf": "train",
    "pyarrow": "parquet",
    "jaxtyping": "train",
    "safetensors": "train",
    "tokenizers": "train",
    "torch": "train",
    "transformers": "train",
    "vaderSentiment": "demo",
}
"""Packages that only an extra installs, with the extra."""


def as_trimtab_error(error: Exception) -> TrimtabError:
    """`error` in the terms of the closed set of kinds; what is nobody's error but ours says so."""
    if isinstance(error, TrimtabError):
        return error
    if isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        if package in EXTRAS:
            extra = EXTRAS[package]
            return TrimtabError(ErrorKind.MISSING, f"{package} is not installed", f"pip install 'trimtab[{extra}]'")
    if isinstance(error, OSError):
        return TrimtabError(ErrorKind.FAILED, str(error) or type(error).__name__)
    if hasattr(error, "format_message"):  # every usage error of typer's parser
        return TrimtabError(ErrorKind.USAGE, error.format_message().rstrip("."), _usage_hint(error))
    return TrimtabError(
        ErrorKind.FAILED,
        f"unexpected {type(error).__name__}: {error}".rstrip(": "),
        "this is a bug in Trimtab: please report it, with the traceback that TRIMTAB_DEBUG=1 shows",
    )


def report(error: Exception, *, as_json: bool, debug: bool) -> int:
    """Tell the user about `error`; returns the exit code."""
    told = as_trimtab_error(error)
    if debug and told is not error:
        traceback.print_exception(error, file=sys.stderr)
    if as_json and not isinstance(error, output.StreamError):  # where stdout is what failed, stderr has to do
        with suppress(OSError):
            output.emit_json({"error": {"kind": str(told.kind), "message": told.message, "hint": told.hint}})
            return told.exit_code
    lines = [f"error: {_indented(told.message)}"]
    if told.hint:
        lines.append(f"  {_indented(told.hint)}")
    with suppress(OSError):
        output.complain("\n".join(lines))
    return told.exit_code


def _indented(text: str) -> str:
    """Later lines are indented: no text from elsewhere can pass for a line of ours."""
    return text.replace("\n", "\n  ")


def _usage_hint(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context is not None else "trimtab --help"
