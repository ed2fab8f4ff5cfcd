"""`trimtab pm calibrate`: make the margins of the preference model mean what they say."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, ProjectDirectory, Quiet, RunName, Settings
from trimtab.errors import ErrorKind, TrimtabError

if TYPE_CHECKING:
    from trimtab.preference.calibrating import CalibrationReport

__all__ = ["calibrate"]

_BAR = 20


class CalibrationMethod(StrEnum):
    """The maps from margins to probabilities."""

    AUTO = "auto"
    TEMPERATURE = "temperature"
    PLATT = "platt"
    ISOTONIC = "isotonic"


def calibrate(
    project: ProjectDirectory = Path("."),
    name: RunName = "main",
    settings: Settings = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Pairs (prompt, chosen, rejected); default: the run's held-out pairs."),
    ] = None,
    method: Annotated[
        CalibrationMethod,
        typer.Option(help="auto: the one with the least log loss on pairs that it was not fitted on."),
    ] = CalibrationMethod.AUTO,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the reliability diagram, before and after, as SVG.")
    ] = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Fit what a margin of scores means in probability, show what that brings, and keep it with the model.

    All figures after calibration are cross-fitted by prompt. The order of scores never changes. PPO with
    score_transform = "win_probability", the report and pm eval use what is kept; plain transformers loads the model as
    before. preference.calibrated_score = true also divides the score that PPO sees by the temperature.
    """
    from trimtab.pipeline.evaluate import calibrate_preference_model
    from trimtab.pipeline.project import Project
    from trimtab.report.reliability import picture
    from trimtab.runs.files import atomic_write_text

    if plot is not None and plot.suffix.lower() != ".svg":
        raise TrimtabError(ErrorKind.USAGE, f"--plot {plot}: the picture is SVG", "name a file that ends in .svg")
    opened = Project.open(project, settings or [])
    path, kept, report = calibrate_preference_model(opened, name, data, method.value)
    if plot is not None:
        atomic_write_text(plot, picture(report.as_dict()))
    if as_json:
        about = {"run": name, "path": str(opened.runs / name), "data": str(path), "kept": str(kept)}
        output.emit_json({**about, "plot": None if plot is None else str(plot), **report.as_dict()})
        return
    output.say(f"pairs: {output.safe(path)}")
    _print(report)
    output.say(f"kept in {output.safe(kept)}")
    if plot is not None:
        output.say(f"drawn in {output.safe(plot)}")


def _print(report: CalibrationReport) -> None:
    from trimtab.figures import figure, with_interval

    output.emit_text(_verdict(report) + "\n")
    output.emit_table(
        ("figure", "before", "after", "change", "meaning"),
        [
            (
                name.replace("_", " "),
                *(
                    with_interval(each[name].mean, each[name].low, each[name].high, sign=sign)
                    for each, sign in ((report.before, False), (report.after, False), (report.change, True))
                ),
                meaning,
            )
            for name, meaning in (
                ("ece", "expected calibration error, 0 is best"),
                ("brier", "squared error of the probability; 0.25 is a coin on hard labels, less on soft ones"),
                ("log_loss", "nats a pair, 0.693 is a coin"),
            )
        ],
    )
    losses = ", ".join(f"{name} {figure(value)}" for name, value in report.methods.items())
    output.emit_text(f"log loss by method: {losses}\n")
    output.emit_text(reliability_text(report))
    if report.calibration.pairs < 100:
        output.say(
            f"{report.calibration.pairs} pairs are few: some hundreds tell a temperature, and isotonic needs more"
        )


def _verdict(report: CalibrationReport) -> str:
    from trimtab.figures import figure

    own = report.calibration
    if report.says_nothing:
        return (
            f"The margins do not tell which response is better (accuracy {figure(100 * report.accuracy)} %): every "
            "probability is now near one half."
        )
    change = report.change["log_loss"]
    confident = "overconfident" if own.temperature > 1 else "too careful"
    effect = (
        f"the margins were {confident}, and calibrating them helps"
        if change.high < 0
        else "no difference to the margins as they were that these pairs could show"
        if change.low <= 0
        else "calibrating makes them worse on pairs that it was not fitted on: leave it out, or give more pairs"
    )
    return (
        f"Calibrated by {own.method} (temperature {figure(own.temperature)}) on {own.pairs} pairs of {own.prompts} "
        f"prompts: {effect}."
    )


def reliability_text(report: CalibrationReport) -> str:
    """The reliability diagram as text: what happened where p was predicted, by bin, before and after.

    A bar ends where the chosen share is; the mark stands at the predicted probability. Only the upper half is shown:
    every pair counts in both orders, so that the lower half mirrors it.
    """
    lines = ["reliability: # share that won, | probability predicted"]
    for title, table in (("before", report.reliability_before), ("after", report.reliability_after)):
        lines.append(f"  {title:<8}{'p':>6}{'won':>7}{'pairs':>7}")
        for count, p, y in list(zip(*table, strict=True))[len(table.counts) // 2 :]:
            if count:
                bar = ["#" if i < round(_BAR * y) else "." for i in range(_BAR)]
                bar[min(int(_BAR * p), _BAR - 1)] = "|"
                lines.append(f"  {'':<8}{p:6.2f}{y:7.2f}{count:7d}  {''.join(bar)}")
    return "\n".join(lines)
