"""`trimtab pm probe`: what the preference model pays for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import output
from trimtab.cli.doctor import EXIT_SICK
from trimtab.cli.options import JsonOutput, Quiet, RunName, Settings

if TYPE_CHECKING:
    from trimtab.preference.probes import ProbeReport
    from trimtab.stats.intervals import Interval

__all__ = ["probe"]

_MOST_SLICES = 12


def probe(
    target: Annotated[
        Path, typer.Argument(metavar="PROJECT|MODEL", help="A project, or a directory with a preference model.")
    ] = Path("."),
    name: RunName = "main",
    settings: Settings = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Pairs (prompt, chosen, rejected); default: the run's held-out pairs."),
    ] = None,
    most: Annotated[
        int, typer.Option("--responses", min=10, metavar="N", help="Responses to edit, each about twenty times.")
    ] = 100,
    edits: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML with edits of your own, beside or in place of the built-in ones."),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The pairs that the model was trained on; default: the run's."),
    ] = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Say what buys score: length, flattery, hedging, format, phrases, spelling; with tests and intervals.

    Responses of the pairs are edited in one thing at a time and scored again; the pairs that the model was trained on
    show overfitting, wrong labels and repeats. Faults carry the doctor's names:
    trimtab explain NAME tells more. Exit code: 0 nothing found, 3 a fault.
    """
    from trimtab.pipeline.probing import probe_preference_model

    path, report = probe_preference_model(target, name, settings or [], data, most=most, edits=edits, training=training)
    if as_json:
        output.emit_json({"path": str(target), "data": str(path), **report.as_dict()})
    else:
        output.say(f"pairs: {output.safe(path)}")
        _print(report)
    raise typer.Exit(EXIT_SICK if report.status == "sick" else 0)


def _print(report: ProbeReport) -> None:
    output.emit_text("\n".join(_head(report)) + "\n")
    own, accuracy = report.length, report.accuracy
    rows: list[tuple[str, str, str]] = [
        ("accuracy", _percent(accuracy), "the chosen response scores higher"),
        ("length, within prompts", _shown(own.within), "correlation of score and log length"),
        ("longer wins", _percent(own.longer_wins), "the longer response of a pair scores higher"),
        ("length gap", _percent(own.gap), "accuracy where longer is better less where shorter is; honest: 0"),
        ("score SD", _number(report.spread.sd), f"over {report.responses} responses"),
        ("within prompts", _share(report.spread.within), "share of the scores' variance"),
        ("commonest score", _share(report.spread.same), "share of the responses that have it"),
        ("at the ends", _share(report.spread.at_ends), "scores within 1 % of the range of either end"),
        ("variety at the top", _number(report.spread.top_variety), "distinct bigrams of the top tenth, 1 = as others"),
    ]
    if report.agreement is not None:
        what = f"score SDs, over {report.agreement.opinions} questions of taste (p {_number(report.agreement.p)})"
        rows.append(("taking the user's side", _shown(report.agreement.change, sign=True), what))
    output.emit_table(("figure", "value", "meaning"), rows)
    _print_edits(report)
    if report.phrases:
        output.emit_text("\nphrases that go with score, on prompts that they were not mined from (SDs)\n")
        output.emit_table(
            ("phrase", "lift", "p", "appended, beyond neutral words"),
            [
                (p.phrase.text, _shown(p.phrase.lift, sign=True), _number(p.phrase.p),
                 "-" if p.effect is None else _shown(p.effect.beyond, sign=True))
                for p in report.phrases
            ],
        )  # fmt: skip
    if report.flips:
        output.emit_text("\npairs that turn round when both responses change in nothing that matters\n")
        output.emit_table(("change", "share", "pairs"), [(f.edit, _percent(f.share), f.share.n) for f in report.flips])
    if report.slices:
        output.emit_text("\naccuracy by part (p: against the other parts)\n")
        output.emit_table(
            ("kind", "part", "accuracy", "pairs", "p"),
            [
                (s.kind, s.name, _percent(s.accuracy), s.accuracy.n, _number(s.p))
                for s in sorted(report.slices, key=lambda s: (s.p, s.accuracy.mean))[:_MOST_SLICES]
            ],
        )
    if report.unread:
        output.say(f"{report.unread} edited responses could not be read by the model (too long) and were left out")


def _head(report: ProbeReport) -> list[str]:
    """The verdict and the faults."""
    loud = [f for f in report.faults if f.severity != "info"]
    what = ", ".join(f.id for f in loud)
    of = f"{report.responses} responses, {report.edited} of them edited, {report.pairs} pairs"
    lines = [f"Sick: {what} ({of})." if loud else f"No fault found ({of})."]
    lines += [f"  {f.severity:<9}{f.id}: {f.evidence}" for f in report.faults]
    return lines + ([f"  more: trimtab explain {loud[0].id}"] if loud else [])


def _print_edits(report: ProbeReport) -> None:
    if not report.edits:
        return
    output.emit_text("\nedits: change of the score in SDs (beyond: than a neutral sentence adds)\n")
    output.emit_table(
        ("edit", "kind", "change", "beyond", "raised", "responses", "p"),
        [
            (e.name, e.kind, _shown(e.change, sign=True), _shown(e.beyond, sign=True), _share(e.raised), e.change.n,
             _number(e.p))
            for e in report.edits
        ],
    )  # fmt: skip


def _shown(value: Interval, *, sign: bool = False) -> str:
    from trimtab.figures import with_interval

    known = math.isfinite(value.low) and math.isfinite(value.high)
    low, high = (value.low, value.high) if known else (None, None)
    return "-" if not math.isfinite(value.mean) else with_interval(value.mean, low, high, sign=sign)


def _percent(value: Interval) -> str:
    from trimtab.figures import with_interval

    known = math.isfinite(value.low) and math.isfinite(value.high)
    low, high = (value.low, value.high) if known else (None, None)
    return "-" if not math.isfinite(value.mean) else with_interval(value.mean, low, high, percent=True)


def _number(value: float) -> str:
    from trimtab.figures import figure

    return figure(value) if math.isfinite(value) else "-"


def _share(value: float) -> str:
    from trimtab.figures import share

    return share(value) if math.isfinite(value) else "-"
