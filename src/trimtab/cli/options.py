"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trimtab.cli import output

__all__ = [
    "Again",
    "ExistingRun",
    "JsonOutput",
    "Panel",
    "ProjectDirectory",
    "Quiet",
    "RunName",
    "Settings",
    "StageChoice",
]


class Panel(StrEnum):
    """The groups in which `trimtab --help` lists the commands."""

    PROJECT = "A project, from start to end"
    STAGES = "One stage at a time"
    HEALTH = "What goes wrong, and why"
    DATA = "Constitution, labels and data"
    LOOK = "Look"


class StageChoice(StrEnum):
    """The stages in order."""

    SFT = "sft"
    SAMPLE = "sample"
    LABEL = "label"
    PM = "pm"
    PPO = "ppo"
    DPO = "dpo"
    EVAL = "eval"
    REPORT = "report"


class ExistingRun(StrEnum):
    """What to do when there is a run of the wanted name."""

    RESUME = "resume"
    NEW = "new"
    OVERWRITE = "overwrite"
    FAIL = "fail"


def _quiet(value: bool) -> bool:
    output.set_quiet(value)
    return value


ProjectDirectory = Annotated[
    Path, typer.Argument(metavar="PROJECT", help="Directory of the project.", show_default=True)
]
RunName = Annotated[str, typer.Option("--run", metavar="NAME", help="The run.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in ppo.learning_rate=1e-5; can be repeated."),
]
JsonOutput = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No narration, no progress.", callback=_quiet)]
Again = Annotated[bool, typer.Option("--again", help="Run the stage even if it is up to date.")]
