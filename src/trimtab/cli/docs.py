"""Pages that are made from the code: `python -m trimtab.cli.docs [--check] [DIRECTORY]`.

Writes cli.md (every command's help), settings.md (every setting), signals.md (every signal) and failures/ (every
finding of the doctor) into `docs/`. With `--check` nothing is written: the exit code says whether the files are what
the code would write now.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from trimtab.cli import output

__all__ = ["main", "pages", "stale"]

_MADE = "<!-- Made from the code by `make docs`; change it there. -->"
_WIDTH = 100
_FAILURES = "failures"


def pages() -> dict[str, str]:
    """The pages by path below `docs/`."""
    from trimtab.doctor import explained

    failures = {f"{_FAILURES}/{name}": text for name, text in explained.pages().items()}
    return {"cli.md": _cli(), "settings.md": _settings(), "signals.md": _signals(), **failures}


def stale(directory: Path) -> list[str]:
    """Paths of the pages in `directory` that are not what the code would write, or of no finding any more."""
    made = pages()
    old = [
        name
        for name, text in made.items()
        if not (directory / name).is_file() or (directory / name).read_text(encoding="utf-8") != text
    ]
    return old + [name for name in _found(directory) if name not in made]


def _found(directory: Path) -> list[str]:
    """The pages of findings that are there."""
    return sorted(path.relative_to(directory).as_posix() for path in (directory / _FAILURES).glob("*.md"))


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check the pages; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    check = "--check" in arguments
    names = [a for a in arguments if a != "--check"]
    if len(names) > 1 or any(name.startswith("-") for name in names):
        output.complain("error: usage: python -m trimtab.cli.docs [--check] [DIRECTORY]")
        return 2
    directory = Path(names[0] if names else "docs")
    if check:
        old = stale(directory)
        for name in old:
            output.complain(f"error: {directory / name} is out of date\n  make docs")
        return 1 if old else 0
    (directory / _FAILURES).mkdir(parents=True, exist_ok=True)
    made = pages()
    for name in [name for name in _found(directory) if name not in made]:
        (directory / name).unlink()
    for name, text in made.items():
        (directory / name).write_text(text, encoding="utf-8")
    output.say(f"wrote {len(made)} pages into {directory}")
    return 0


def _cli() -> str:
    from trimtab.cli.main import app

    command = typer.main.get_command(app)
    parts = [
        "# Commands",
        _MADE,
        "Data goes to stdout, narration to stderr. Exit codes: 0 ok; 1 failed; 2 usage or settings; 3 sick (doctor); "
        "4 an extra or a credential is missing; 5 inconclusive (doctor); 130 interrupted. With `--json` an error is "
        '`{"error": {"kind", "message", "hint"}}` on stdout, and lists carry `count` and `truncated`.',
    ]
    for path, text in _helps(command, "trimtab", None):
        parts.append(f"{'#' * min(len(path.split()) + 1, 3)} {path}\n\n```text\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def _helps(command: Any, name: str, parent: Any) -> Iterator[tuple[str, str]]:
    """Path and help of `command` and of the commands below it, as plain text that no terminal changes."""
    # A box's look differs between versions of rich; the plain form only says what is there.
    command.rich_markup_mode = None
    settings = {**command.context_settings, "terminal_width": _WIDTH}
    context = typer.Context(command, info_name=name, parent=parent, **settings)
    lines = command.get_help(context).splitlines()
    yield context.command_path, "\n".join(line.rstrip() for line in lines).strip("\n")
    for child, below in getattr(command, "commands", {}).items():
        yield from _helps(below, child, context)


def _settings() -> str:
    from trimtab.config.describe import fields, section_description, sections

    parts = [
        "# Settings",
        _MADE,
        "A setting's value is the default, unless `trimtab.toml` sets it, unless `--set section.key=value` does. "
        "`trimtab config show` prints every value and where it is from.",
    ]
    for section in sections():
        rows = [
            [f"`{f.key}`", f.allowed, f"`{output.json_text(f.default)}`", f.description]
            for f in fields().values()
            if f.section == section
        ]
        table = _table(["setting", "allowed", "default", "meaning"], rows)
        parts.append(f"## {section}\n\n{section_description(section)}\n\n{table}")
    parts.append(_rules())
    return "\n\n".join(parts) + "\n"


def _rules() -> str:
    from trimtab.scoring import RULES

    rows = [[f"`rule:{name}{'=...' * takes}`", meaning] for name, (_, takes, meaning) in RULES.items()]
    return (
        "## Rules\n\nBuilt-in scorers for `ppo.reward` and `eval.measures`, beside `preference` and "
        "`module:function`.\n\n" + _table(["rule", "score of a response"], rows)
    )


def _signals() -> str:
    from trimtab.runs.signals import SIGNALS, STAGES

    parts = [
        "# Signals",
        _MADE,
        "What a line of `metrics.jsonl` may hold. A healthy band is where a run of ordinary settings is expected; "
        "outside is a reason to look, not a verdict. `<name>` and `*` stand for any name.",
    ]
    for stage in STAGES:
        rows = [
            [f"`{s.key}`", s.unit, s.meaning, _band(s), ", ".join(s.stages[1:])]
            for s in SIGNALS.values()
            if s.stages[0] == stage
        ]
        if rows:
            parts.append(f"## {stage}\n\n" + _table(["signal", "unit", "meaning", "healthy", "also in"], rows))
    return "\n\n".join(parts) + "\n"


def _band(signal: Any) -> str:
    if signal.healthy is None:
        return ""
    band = output.band({"low": signal.healthy.low, "high": signal.healthy.high})
    return f"{band} ({signal.source})" if signal.source else str(band)


def _table(headers: list[str], rows: list[list[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<") if not text.startswith("`") else text


if __name__ == "__main__":
    sys.exit(main())
