"""What commands print: data on stdout (text, tables, JSON), narration on stderr, nothing that a terminal would obey.

Run names, settings and model output come from elsewhere; `safe` shows their control characters instead of sending them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from trimtab.figures import finite

__all__ = [
    "StreamError",
    "age",
    "band",
    "complain",
    "emit_json",
    "emit_lines",
    "emit_table",
    "emit_text",
    "json_text",
    "listing",
    "safe",
    "say",
    "set_quiet",
    "timestamp",
]

Align = Literal["left", "right"]

_STYLES = {
    "done": "green",
    "up to date": "green",
    "failed": "red",
    "interrupted": "yellow",
    "running": "cyan",
    "pending": "dim",
    "outside": "yellow",
}
_quiet = False


class StreamError(OSError):
    """What was printed could not be written where stdout leads."""


def set_quiet(quiet: bool) -> None:
    """Whether narration and progress stay silent (`--quiet`); errors and data are still printed."""
    global _quiet
    _quiet = quiet
    if quiet:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # transformers reads it when it is first imported
    if quiet or "trimtab.runs.progress" in sys.modules:
        from trimtab.runs import progress

        progress.set_quiet(quiet)


def safe(text: object, *, keep_newlines: bool = False) -> str:
    """`text` with every character that cannot be printed (control, bidirectional, surrogate) shown as an escape."""
    return "".join(
        c if c.isprintable() or (c == "\n" and keep_newlines) else c.encode("unicode_escape").decode("ascii")
        for c in str(text)
    )


def say(text: str) -> None:
    """Tell the person at the terminal what is going on."""
    if not _quiet:
        complain(text)


def complain(text: str) -> None:
    """Print an error, quiet or not."""
    _write(sys.stderr, safe(text, keep_newlines=True) + "\n")


def emit_text(text: str) -> None:
    """Print text that was asked for; lines stay lines, other control characters are shown."""
    _write(sys.stdout, safe(text, keep_newlines=True).rstrip("\n") + "\n")


def emit_json(value: Any) -> None:
    """Print one JSON document; numbers that are not finite become null, so that every parser can read it."""
    _write(sys.stdout, json.dumps(finite(value), indent=2, allow_nan=False) + "\n")


def json_text(value: Any) -> str:
    """A setting's value on one line, for a cell."""
    return json.dumps(value, ensure_ascii=False)


def listing(key: str, items: Sequence[Any], **rest: Any) -> dict[str, Any]:
    """The envelope of a list: the items under `key`, how many, and whether there are more."""
    return {key: list(items), "count": len(items), "truncated": False, **rest}


def emit_table(headers: Sequence[str], rows: Sequence[Sequence[object]], right: Sequence[int] = ()) -> None:
    """Print rows in columns; nothing is cut off, however narrow the terminal.

    Args:
        headers: column titles.
        rows: cells; None is shown as a dash.
        right: columns that are aligned to the right.
    """
    from rich.cells import cell_len
    from rich.text import Text

    cells = [["-" if cell is None else safe(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(headers, *cells, strict=True)]

    def line(row: Sequence[str], style: str = "") -> Text:
        text = Text(style=style)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True)):
            pad = " " * (width - cell_len(cell))
            text.append(pad if i in right else "")
            text.append(cell, style=_STYLES.get(cell, ""))
            text.append("" if i in right else pad)
            text.append("  " if i < len(row) - 1 else "")
        text.rstrip()
        return text

    _write(sys.stdout, _rendered([line(headers, "bold"), *(line(row) for row in cells)]))


def emit_lines(lines: Sequence[Sequence[tuple[str, str]]]) -> None:
    """Print lines of (text, style) parts as they are, in the colours that stdout takes."""
    from rich.text import Text

    made = []
    for parts in lines:
        line = Text()
        for text, style in parts:
            line.append(safe(text), style=style)
        line.rstrip()
        made.append(line)
    _write(sys.stdout, _rendered(made))


def age(seconds: float) -> str:
    """A duration in its largest unit: `12 s`, `5 min`, `3 h`, `2 d`."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def timestamp(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def band(healthy: dict[str, float | None] | None) -> str | None:
    """A healthy band as `0 to 10`, `at least 0.5` or `at most 3`."""
    if healthy is None:
        return None
    low, high = healthy["low"], healthy["high"]
    if low is None or high is None:
        return f"at most {high:g}" if low is None else f"at least {low:g}"
    return f"{low:g} to {high:g}"


def _rendered(lines: Sequence[Any]) -> str:
    """Lines with the colours that stdout takes: rich looks at the terminal, NO_COLOR, FORCE_COLOR and TERM."""
    from rich.console import Console

    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False, soft_wrap=True)
    with console.capture() as captured:
        for line in lines:
            console.print(line)
    return captured.get()


def _write(stream: TextIO, text: str) -> None:
    """Write at once; a reader that has gone away (`| head`) is no error of ours."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _abandon(stream)
    except OSError as error:  # a full disk
        _abandon(stream)
        raise StreamError(error.errno, error.strerror) from None


def _abandon(stream: TextIO) -> None:
    """Send what is still buffered nowhere: it would raise again when the interpreter exits."""
    with suppress(OSError, ValueError):  # no stream of the system's
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
