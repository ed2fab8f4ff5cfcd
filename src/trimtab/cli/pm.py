"""`trimtab pm`: train the preference model, say how good it is on any pairs, calibrate it, probe it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import output
from trimtab.cli.options import Again, JsonOutput, Panel, ProjectDirectory, Quiet, RunName, Settings
from trimtab.cli.pm_beside import print_beside
from trimtab.cli.pm_calibrate import calibrate
from trimtab.cli.pm_compare import compare, learning_curve
from trimtab.cli.pm_probe import probe
from trimtab.cli.pm_shaping import shaping
from trimtab.cli.pm_shift import shift
from trimtab.cli.stages import stage

if TYPE_CHECKING:
    from trimtab.preference.evaluation import PairMetrics

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="The preference model: train, measure, calibrate, probe, compare.", no_args_is_help=False)
    group.command("train")(train)
    group.command("eval")(evaluate)
    group.command("calibrate")(calibrate)
    group.command("probe")(probe)
    group.command("shift")(shift)
    group.command("shaping")(shaping)
    group.command("compare")(compare)
    group.command("learning-curve")(learning_curve)
    app.add_typer(group, name="pm", rich_help_panel=Panel.STAGES)


def train(
    project: ProjectDirectory = Path("."),
    name: RunName = "main",
    settings: Settings = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Pairs to train on instead of the judge's (preference.data): hh-rlhf, TRL's and others' forms.",
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="What it starts from (preference.backbone), as in all-minilm-l6-v2."),
    ] = None,
    again: Again = False,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Train the preference model on the labeled pairs and measure it on held-out ones.

    With --data no judge and no prompts are needed; where PROJECT has no trimtab.toml yet, one that names the pairs is
    written.
    """
    from trimtab.pipeline.project import CONFIG_NAME, Project
    from trimtab.pipeline.scaffold import project_of_pairs

    changes = list(settings or [])
    if data is not None and project.name != CONFIG_NAME and not (project / CONFIG_NAME).exists():
        output.say(f"made {output.safe(project_of_pairs(project, data, backbone))}")
    else:
        changes += [f"preference.data={data.resolve()}"] if data is not None else []
        changes += [f"preference.backbone={backbone}"] if backbone is not None else []
    stage("pm", project, name, changes, again=again, as_json=as_json)
    directory = Project.open(project, changes).runs / name / "artifacts" / "pm" / "model"
    output.say(f"model: {output.safe(directory)}")


def evaluate(
    project: ProjectDirectory = Path("."),
    name: RunName = "main",
    settings: Settings = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Pairs (prompt, chosen, rejected); default: the run's held-out pairs."),
    ] = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Measure the run's preference model: accuracy, calibration, log loss, by length and by principle."""
    from trimtab.pipeline.evaluate import evaluate_preference_model
    from trimtab.pipeline.project import Project

    opened = Project.open(project, settings or [])
    path, metrics, beside = evaluate_preference_model(opened, name, data)
    if as_json:
        figures = {**metrics.as_dict(), **beside}
        output.emit_json({"run": name, "path": str(opened.runs / name), "data": str(path), **figures})
    else:
        output.say(f"pairs: {output.safe(path)}")
        _print(metrics)
        print_beside(beside)


def _print(metrics: PairMetrics) -> None:
    from trimtab.figures import figure, with_interval

    accuracy = metrics.accuracy
    output.emit_table(
        ("figure", "value", "meaning"),
        [
            ("pairs", metrics.pairs, f"for {metrics.prompts} prompts"),
            (
                "accuracy",
                with_interval(accuracy.mean, accuracy.low, accuracy.high, percent=True),
                "the chosen response scores higher; 95 % interval over prompts",
            ),
            (
                "longer wins",
                with_interval(metrics.length_accuracy, None, None, percent=True),
                "what choosing the longer response would get",
            ),
            (
                "lead over it",
                with_interval(
                    100 * metrics.over_length.mean,
                    100 * metrics.over_length.low,
                    100 * metrics.over_length.high,
                    sign=True,
                ),
                "points of accuracy more, on the same pairs",
            ),
            ("ece", figure(metrics.ece), "expected calibration error, 0 is best"),
            (
                "brier",
                figure(metrics.brier),
                "mean squared error of the probability; of a coin 0.25 on hard labels, less on soft",
            ),
            ("log loss", figure(metrics.log_loss), "nats a pair, 0.693 is a coin"),
            ("mean margin", figure(metrics.mean_margin), "score of the chosen minus score of the rejected"),
        ],
    )
