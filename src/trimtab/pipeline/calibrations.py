"""The calibration that PPO reads: made, or made again, where it does not fit the scores that PPO will see."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline.project import Project
from trimtab.pipeline.stages import reads_calibration
from trimtab.runs.files import file_hash, read_json
from trimtab.runs.run import Run

if TYPE_CHECKING:
    from trimtab.preference.model import PreferenceModel

__all__ = ["how_scored", "renew_calibration"]

Say = Callable[[str], None]


def renew_calibration(project: Project, run: Run, say: Say) -> None:
    """Fit the calibration that PPO is about to read on the run's held-out pairs, where it has to be.

    That is where `preference.calibrated_score` was set after the preference model was trained, or where
    `preference.combine`, `preference.pessimism` or `preference.head_weights` has changed since the calibration was
    fitted.

    Args:
        run: whose preference model is trained already.
        say: told what is done and why.

    Raises:
        TrimtabError: a calibration of other scores was fitted on pairs that are not the run's own.
    """
    directory = run.artifact("pm")
    if not reads_calibration(project) or not (directory / "model").is_dir():
        return
    from trimtab.pipeline.evaluate import calibrate_preference_model
    from trimtab.preference.calibration import CALIBRATION_FILE, Calibration
    from trimtab.preference.ensemble import combination

    config = project.config.preference
    wanted = combination(config.members, config.combine, config.pessimism, config.head_weights)
    kept = Calibration.load(directory / "model")
    if kept is None:
        if config.calibrated_score:
            say("pm: preference.calibrated_score is on: the preference model is calibrated on the held-out pairs")
            calibrate_preference_model(project, run.name)
        return
    if kept.scores == wanted:
        return
    if kept.data != file_hash(directory / "held_out.jsonl"):
        raise TrimtabError(
            ErrorKind.RUN,
            f"the preference model's calibration was fitted on {kept.scores or 'other scores'}, by pairs that are not "
            f"the run's own; the score is now {wanted or 'that of a single model'}",
            f"fit it again: trimtab pm calibrate {shlex.quote(str(project.directory))} --data FILE",
        )
    say(f"pm: the calibration was fitted on {kept.scores or 'other scores'}; it is fitted again on {wanted}")
    calibrate_preference_model(project, run.name, None, _asked(read_json(directory / "model" / CALIBRATION_FILE)))


def how_scored(project: Project, preference: PreferenceModel | None) -> dict[str, Any]:
    """`preference_score`: what PPO makes of the preference model's score, for the result of the stage.

    `divided_by`: the calibration's temperature, or 1. `win_probability`: "calibrated" or "logistic" where scores become
    one, else None. `weight`: in a mixture, else None; a mixture's win probability is the logistic of its own margin.
    """
    if preference is None:
        return {}
    reward = project.config.ppo.reward
    weight = None if isinstance(reward, str) else reward["preference"]
    wins = None
    if project.config.ppo.score_transform == "win_probability":
        wins = "calibrated" if preference.calibration is not None and weight is None else "logistic"
    return {"preference_score": {"divided_by": preference.scale, "win_probability": wins, "weight": weight}}


def _asked(record: dict[str, Any]) -> Any:
    """The method that was asked for when the calibration was made."""
    report = record.get("report")
    asked = report.get("asked") if isinstance(report, dict) else None
    return asked if asked in ("auto", "temperature", "platt", "isotonic") else "auto"
