"""`trimtab pm compare` and `trimtab pm learning-curve`: which settings, and how many labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, ProjectDirectory, Quiet, RunName

if TYPE_CHECKING:
    from trimtab.pipeline.pm_studies import Comparison, Curve
    from trimtab.preference.length import LengthFigures
    from trimtab.stats.intervals import Interval

__all__ = ["compare", "learning_curve"]

_Folds = Annotated[int, typer.Option(min=2, help="Parts that the prompts are dealt to; each is left out once.")]


def compare(
    project: ProjectDirectory = Path("."),
    name: RunName = "main",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change a setting; a list of values, as in preference.learning_rate=[1e-5, 3e-5], is compared.",
        ),
    ] = None,
    folds: _Folds = 5,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Compare settings of the preference model by k folds of the run's labeled pairs.

    Lists of values for settings of the preference section and for model.trainable are compared in all combinations,
    on the same folds. A fold that was trained is kept: what is interrupted goes on.
    """
    from trimtab.pipeline.pm_studies import compare_settings

    found = compare_settings(project, name, settings or [], folds=folds, say=output.say)
    if as_json:
        items = [row.as_dict() for row in found.rows]
        rest = {"run": str(found.run), "folds": found.folds, "length_accuracy": found.length_accuracy}
        output.emit_json(output.listing("combinations", items, **rest))
    else:
        _print_comparison(found)


def _print_comparison(found: Comparison) -> None:
    from trimtab.figures import figure, share

    keys = list(found.rows[0].settings)
    rows = [
        (
            *(output.safe(row.settings[key]) for key in keys),
            _interval(row.measured.accuracy, percent=True),
            "" if row.lead is None else _points(row.lead),
            _interval(row.measured.log_loss),
            figure(row.measured.ece),
            *_of_length(row.measured.length),
            output.age(row.measured.seconds),
        )
        for row in found.rows
    ]
    names = [key.removeprefix("preference.") for key in keys]
    figures = ("accuracy", "points against the first", "log loss", "ece", "length r", "chosen shorter", "debias")
    output.emit_table((*names, *figures, "training"), rows)
    first = found.rows[0].measured
    output.emit_text(
        f"\n{first.pairs} pairs in {found.folds} folds by prompt, about {first.trained_on:.0f} to train on; intervals "
        f'are 95 %, over prompts. "The longer wins" gets {share(found.length_accuracy)}; log loss 0.693 is a coin.'
    )
    output.emit_text(
        '"length r" is the correlation of score and log length within pairs, "chosen shorter" the accuracy where the '
        'chosen response is the shorter one, "debias" the points of accuracy that taking length out has added.'
    )
    if len(found.rows) > 2:
        output.emit_text("The best of several looks better than it is: go by the differences that exclude 0.")


def _of_length(found: LengthFigures | None) -> tuple[str, str, str]:
    """Correlation with length, accuracy where the chosen response is shorter, and the change by the debias."""
    if found is None:
        return "", "", ""
    shorter = found.accuracy.get("shorter")
    return (
        _interval(found.correlation),
        "" if shorter is None else _interval(shorter, percent=True),
        "" if found.change is None else _points(found.change["all"]),
    )


def learning_curve(
    project: ProjectDirectory = Path("."),
    name: RunName = "main",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; can be repeated.")
    ] = None,
    folds: _Folds = 5,
    sizes: Annotated[int, typer.Option(min=1, help="Numbers of pairs, each half of the next.")] = 5,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Say what more labels would buy: accuracy against the number of pairs, and a forecast for twice as many.

    Each size is measured on the same held-out folds. A fold that was trained is kept: what is interrupted goes on.
    """
    from trimtab.pipeline.pm_studies import learning_curve as measure_curve

    found = measure_curve(project, name, settings or [], folds=folds, sizes=sizes, say=output.say)
    if as_json:
        points = [point.as_dict() for point in found.points]
        told = None if found.forecast is None else found.forecast.as_dict()
        output.emit_json(output.listing("points", points, run=str(found.run), folds=found.folds, forecast=told))
    else:
        _print_curve(found)


def _print_curve(found: Curve) -> None:
    from trimtab.figures import figure

    output.emit_table(
        ("pairs", "accuracy", "log loss", "ece", "training"),
        [
            (
                round(point.trained_on),
                _interval(point.accuracy, percent=True),
                _interval(point.log_loss),
                figure(point.ece),
                output.age(point.seconds),
            )
            for point in found.points
        ],
    )
    output.emit_text("\n" + _told(found))


def _told(found: Curve) -> str:
    told = found.forecast
    if told is None:
        return "Too few sizes for a forecast: it takes three, so raise --sizes or label more prompts."
    gain = f"{_points(told.gain)} points of accuracy"
    twice = f"Twice the pairs ({round(2 * told.pairs)})"
    law = f"accuracy = {told.law.ceiling:.3f} - {told.law.amount:.3g} * pairs^-{told.law.exponent:.2f}"
    if told.verdict == "cannot tell":
        return f"Cannot tell what twice the pairs would buy: {gain} by the fit {law}."
    if told.verdict == "little":
        return f"{twice} would bring little: {gain} by the fit {law}."
    return f"{twice} would bring about {gain} by the fit {law}."


def _interval(value: Interval, *, percent: bool = False) -> str:
    from trimtab.figures import with_interval

    return with_interval(value.mean, value.low, value.high, percent=percent)


def _points(value: Interval) -> str:
    """A difference of two shares in percentage points."""
    from trimtab.figures import with_interval

    return with_interval(100 * value.mean, 100 * value.low, 100 * value.high, sign=True)
