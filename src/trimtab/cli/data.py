"""`trimtab data`: check, filter and convert preference data."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, Quiet

if TYPE_CHECKING:
    from trimtab.data.readers import Options, Reading
    from trimtab.data.records import Pair

__all__ = ["register"]

_SICK = 3


class FailOn(StrEnum):
    """The least finding that makes `data check` exit with 3."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"
    NEVER = "never"


class To(StrEnum):
    """Forms that can be written."""

    PAIRS = "pairs"
    MESSAGES = "messages"
    TEXT = "text"
    DIALOGUES = "dialogues"


class Pairing(StrEnum):
    """Which pairs are made of several rated responses."""

    ALL = "all"
    BEST_WORST = "best-worst"
    BEST_REST = "best-rest"


class Ties(StrEnum):
    """What becomes of ties."""

    KEEP = "keep"
    DROP = "drop"


Data = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="Pairs: JSON lines, JSON, CSV or parquet, plain or gzip, in any known form."),
]
Out = Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help="Where to write; the suffix decides how.")]
Test = Annotated[
    Path | None, typer.Option("--test", metavar="FILE", help="Pairs to evaluate on: look for leaks into FILE.")
]
Scores = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="JSON lines with id and margin (score of chosen minus rejected), to judge labels by."
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column", metavar="OURS=THEIRS", help="Name of a column in the file, as in chosen=better; can be repeated."
    ),
]
Rating = Annotated[str, typer.Option(metavar="NAME", help="Which rating decides, for rated responses.")]
PairingOption = Annotated[Pairing, typer.Option("--pairing", help="Which pairs to make of rated responses.")]
TiesOption = Annotated[Ties, typer.Option("--ties", help="Keep ties (P(chosen) = .5) or leave them out.")]
SkipBroken = Annotated[bool, typer.Option("--skip-broken", help="Leave broken records out, and list them.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Of whatever is drawn at random.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Preference data: check, filter, convert.", no_args_is_help=False)
    group.command("check")(check)
    group.command("filter")(filter_)
    group.command("convert")(convert)
    app.add_typer(group, name="data", rich_help_panel=Panel.DATA)


def check(
    file: Data,
    test: Test = None,
    scores: Scores = None,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="The least finding that gives exit code 3; nothing else changes.")
    ] = FailOn.WARNING,
    columns: Columns = None,
    rating: Rating = "",
    pairing: PairingOption = Pairing.ALL,
    ties: TiesOption = Ties.KEEP,
    seed: Seed = 0,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Say whether pairs are fit to train on: duplicates, contradictions, imbalance, coverage, bad responses, leaks."""
    from trimtab.data.check import Level, check_file

    options = _options(columns, rating, pairing, ties)
    found = check_file(file, test=test, scores=_scores(scores), options=options, seed=seed)
    if as_json:
        output.emit_json(found.as_dict())
    else:
        output.emit_text(found.text())
    if fail_on is not FailOn.NEVER and found.at_least(Level(fail_on)):
        raise typer.Exit(_SICK)


def filter_(
    file: Data,
    out: Out,
    drop: Annotated[
        str, typer.Option(metavar="KINDS", help="Findings of data check whose pairs go, separated by commas.")
    ] = "",
    reasons: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what was dropped or changed, and why, as JSON lines.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What data check --json printed for FILE; else it is checked now."),
    ] = None,
    test: Test = None,
    scores: Scores = None,
    human: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Pairs labeled by people, mixed in; none of them is dropped.")
    ] = None,
    weight: Annotated[float, typer.Option(help="Weight of each human pair in training; the others have 1.")] = 1.0,
    merge: Annotated[bool, typer.Option("--merge", help="Make repeated comparisons one soft label.")] = False,
    turn_reversed: Annotated[
        bool, typer.Option("--turn-reversed", help="Swap the responses where p_chosen is below .5.")
    ] = False,
    balance_length: Annotated[
        bool, typer.Option("--balance-length", help="Drop pairs until the longer response wins half of the time.")
    ] = False,
    skip_broken: SkipBroken = False,
    columns: Columns = None,
    rating: Rating = "",
    pairing: PairingOption = Pairing.ALL,
    ties: TiesOption = Ties.KEEP,
    seed: Seed = 0,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Write the pairs that stay; every pair that goes or changes is counted and, with --reasons, listed."""
    from trimtab.data.check.material import counted
    from trimtab.data.convert import write
    from trimtab.data.filtering import filter_pairs
    from trimtab.runs.files import write_jsonl

    _not_over([out, reasons], [file, report, test, scores, human])
    options = _options(columns, rating, pairing, ties)
    reading = _read(file, options, skip_broken)
    result = filter_pairs(
        reading.pairs,
        drop=[kind for kind in (name.strip() for name in drop.split(",")) if kind],
        test=_pairs(test),
        scores=_scores(scores),
        report=_report(report),
        human=_pairs(human),
        weight=weight,
        turn_reversed=turn_reversed,
        merge=merge,
        balance_length=balance_length,
        seed=seed,
    )
    write(out, result.pairs)
    if reasons is not None:
        broken = [{"id": None, "action": "skipped", "reasons": {"broken": str(b)}} for b in reading.broken]
        write_jsonl(reasons, [*broken, *result.reasons()])
    counts = {"broken": len(reading.broken)} if reading.broken else {}
    counts |= result.counts()
    if as_json:
        output.emit_json(
            {
                "input": str(file),
                "output": str(out),
                "read": result.read,
                "written": len(result.pairs),
                "dropped": [{"id": p.id, "reasons": why} for p, why in result.dropped],
                "changed": [{"id": name, "change": what} for name, what in result.changed],
                "skipped": [str(b) for b in reading.broken],
                "counts": counts,
                "count": len(result.dropped),
                "truncated": False,
            }
        )
        return
    output.emit_text(f"{out}: {len(result.pairs):,} of {counted(result.read, 'pair')}")
    if counts:
        output.emit_table(("dropped for", "pairs"), [(k, f"{n:,}") for k, n in counts.items()], right=[1])
    if result.changed:
        output.say(f"{counted(len(result.changed), 'pair')} changed")
    if reasons is None and (result.dropped or result.changed):
        output.say("which and why: add --reasons FILE")


def convert(
    file: Data,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Where to write: .jsonl, .json, .csv, .tsv (also .gz) or .parquet.")
    ],
    to: Annotated[
        To,
        typer.Option(
            "--to", help="pairs: ours; messages: conversational; text: plain; dialogues: Human/Assistant transcripts."
        ),
    ] = To.PAIRS,
    skip_broken: SkipBroken = False,
    columns: Columns = None,
    rating: Rating = "",
    pairing: PairingOption = Pairing.ALL,
    ties: TiesOption = Ties.KEEP,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Turn preference data of any known form into pairs, or pairs into the forms that other tools read."""
    from trimtab.data.check.material import counted
    from trimtab.data.convert import Form, write

    _not_over([out], [file])
    reading = _read(file, _options(columns, rating, pairing, ties), skip_broken)
    written = write(out, reading.pairs, Form(to))
    if as_json:
        output.emit_json(
            {
                "input": str(file),
                "output": str(out),
                "from": str(reading.form),
                "to": str(to),
                "records": reading.records,
                "written": written,
                "skipped": [str(b) for b in reading.broken],
                "left_out": {why: n for why, n in reading.left_out.items() if n},
                "count": written,
                "truncated": False,
            }
        )
        return
    of = f"{counted(reading.records, 'record')} ({reading.form}, {reading.container})"
    output.emit_text(f"{out}: {counted(written, 'pair')} of {of}")
    for why, n in reading.left_out.items():
        if n:
            output.say(f"left out: {n:,}: {why}")


def _options(columns: list[str] | None, rating: str, pairing: Pairing, ties: Ties) -> Options:
    from trimtab.data.readers import Options
    from trimtab.errors import ErrorKind, TrimtabError

    named: dict[str, str] = {}
    for column in columns or []:
        ours, sign, theirs = column.partition("=")
        if not sign or not ours:
            raise TrimtabError(ErrorKind.USAGE, f"--column {column} is no OURS=THEIRS", "as in: --column chosen=better")
        named[ours] = theirs
    return Options(columns=named, rating=rating, pairing=pairing.value, ties=ties.value)


def _read(file: Path, options: Options, skip_broken: bool) -> Reading:
    """The pairs of a file; broken records are an error, or are listed on stderr and left out."""
    from trimtab.data.pairs import refuse_broken
    from trimtab.data.readers import read
    from trimtab.errors import ErrorKind, TrimtabError

    reading = read(file, options)
    if not skip_broken:
        refuse_broken(reading)
    elif not reading.pairs:
        first = str(reading.broken[0]) if reading.broken else ""
        raise TrimtabError(ErrorKind.DATA, f"{file}: no record of {reading.records} is a pair", first)
    for broken in reading.broken:
        output.say(f"skipped: {output.safe(broken)}")
    return reading


def _pairs(file: Path | None) -> list[Pair]:
    from trimtab.data.pairs import read_pairs

    return [] if file is None else read_pairs(file)


def _scores(file: Path | None) -> dict[str, float] | None:
    from trimtab.data.scores import read_margins

    return None if file is None else read_margins(file)


def _report(file: Path | None) -> dict[str, dict[str, str]] | None:
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.runs.files import read_json

    if file is None:
        return None
    report: dict[str, Any] = read_json(file, ErrorKind.DATA)
    findings = report.get("findings")
    known: dict[str, dict[str, str]] = {}
    if isinstance(findings, list):
        for finding in findings:
            if isinstance(finding, dict) and isinstance(finding.get("ids"), list):
                notes = finding.get("notes") if isinstance(finding.get("notes"), dict) else {}
                known[str(finding.get("id"))] = {str(i): str((notes or {}).get(i, "")) for i in finding["ids"]}
        return known
    raise TrimtabError(ErrorKind.DATA, f"{file}: no report of trimtab data check --json", "it has a list of findings")


def _not_over(outs: list[Path | None], sources: list[Path | None]) -> None:
    """Refuse to write over what is read, and to write two things to one place."""
    from trimtab.errors import ErrorKind, TrimtabError

    taken = {source.resolve(): "over its own source" for source in sources if source is not None}
    for out in outs:
        if out is None:
            continue
        if out.resolve() in taken:
            raise TrimtabError(ErrorKind.USAGE, f"{out}: would be written {taken[out.resolve()]}", "name another file")
        taken[out.resolve()] = "twice"
