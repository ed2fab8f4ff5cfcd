"""`trimtab pm shaping`: what normalising, clipping and the rest do to the scores, before PPO is started."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Quiet, RunName, Settings

if TYPE_CHECKING:
    from trimtab.pipeline.shaping import Preview

__all__ = ["shaping"]


def shaping(
    target: Annotated[
        Path, typer.Argument(metavar="PROJECT|MODEL", help="A project, or a directory with a preference model.")
    ] = Path("."),
    responses: Annotated[
        str | None,
        typer.Argument(
            metavar="RESPONSES",
            help="JSON lines with prompt and response, or RUN@STEP; default: the run's held-out pairs.",
        ),
    ] = None,
    name: RunName = "main",
    settings: Settings = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Show what each way of shaping does to the preference model's scores, and which to take."""
    from trimtab.pipeline.shaping import preview
    from trimtab.pipeline.shift import open_subject

    found = preview(open_subject(target, name, settings or []), responses)
    if as_json:
        output.emit_json({"path": str(target), **found.as_dict()})
        return
    _print(found)


def _print(found: Preview) -> None:
    of = f"{found.label}: {found.responses} responses to {found.prompts} prompts"
    output.emit_text(f"Advised: {found.advised} ({of}).\n  {found.reason}\n")
    advised = next(way for way in found.ways if way.name == found.advised)
    if advised.settings:
        section = "preference" if "calibrated_score" in advised.settings else "ppo"
        told = " ".join(f"--set {section}.{key}={output.json_text(value)}" for key, value in advised.settings.items())
        output.emit_text(f"  {told}\n")
    output.emit_table(
        ("way", "histogram", "mean", "SD", "min", "max", "clipped", "flat", "ties", "order kept", "within", "signal",
         "outliers"),
        [
            (w.name, w.histogram, _number(w.mean), _number(w.sd), _number(w.low), _number(w.high), _share(w.clipped),
             _share(w.saturated), _share(w.ties), _share(w.kept), _number(w.within), _number(w.signal),
             _share(w.outliers))
            for w in found.ways
        ],
    )  # fmt: skip
    output.emit_text(
        "flat: less than a tenth of a small change is passed on. ties, order kept: of pairs of one prompt.\n"
        f"within: SD within prompts. signal: that relative to the noise ({found.noise}).\n"
    )
    for way, why in found.missing:
        output.emit_text(f"not shown: {way}: {why}\n")


def _number(value: float) -> str:
    from trimtab.figures import figure

    return figure(value) if math.isfinite(value) else "-"


def _share(value: float) -> str:
    from trimtab.figures import share

    return share(value) if math.isfinite(value) else "-"
