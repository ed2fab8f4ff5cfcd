"""The preference model as far as its training log shows it: accuracy, overfitting, collapse, calibration, length."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import (
    CRITICAL,
    INFO,
    WARNING,
    Rule,
    ends,
    figure,
    last,
    logged,
    ruled_out,
    too_short,
    unchecked,
)
from trimtab.doctor.finding import Finding, NotDiagnosable
from trimtab.doctor.log import Stage

__all__ = ["RULES"]

_PM = frozenset({Stage.PREFERENCE_MODEL})
_LN2 = log(2)
_FIRM_FALL = 0.06
"""Fall of held-out accuracy that 400 held-out pairs show by chance once in a hundred."""

_USUAL = "human chat pairs .65-.80 usual; DeepSpeed-Chat's reference .70"


def _begun(r: Reading, track: Track) -> bool:
    """Whether enough was trained to judge a level: 20 log points, or three evaluations, past 5 % of the plan."""
    evaluation = track.series.key in ("accuracy/validation", "loss/validation")
    return (track.rows >= 20 or (evaluation and track.rows >= 3)) and (r.covered is None or r.covered >= 0.05)


def _low_accuracy(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "pm-low-accuracy"
    track = r.track("accuracy/validation", "held_out/accuracy/train", "accuracy/train")
    if track is None:
        loss = r.track("loss/validation", "loss/train")
        if loss is not None and _at_coin_flip(r, loss):
            yield logged(
                id,
                WARNING,
                loss.step(0),
                [ends(loss)],
                cause="logged-loss",
                ruled_out=[ruled_out(id, "logged-start")],
                source="human chat pairs .65-.80 usual; heuristic",
            )
            return
        yield unchecked(r, id, "accuracy/validation", "accuracy/train")
        return
    final = _final(r, track)
    if final is None:
        yield too_short(r, id, "accuracy/validation", "accuracy/train")
        return
    level, low, high = final
    told = [figure("accuracy", track, step=track.step(-1), value=level, level=level)]
    best = float(track.slow.max())
    out = [ruled_out(id, "logged-start"), ruled_out(id, "logged-peers")]
    if low is not None and high is not None:
        told.append(figure("interval", track, step=track.step(-1), value=low, low=low, high=high))
    if high is not None and high < 0.5:
        yield logged(id, CRITICAL, track.step(-1), told, cause="logged-swapped", ruled_out=out, source=_USUAL)
    elif level < 0.55 or (low is not None and low <= 0.5):
        yield logged(
            id,
            CRITICAL if level < 0.55 and track.rows >= 3 else WARNING,
            track.step(0),
            told,
            ruled_out=out,
            source=_USUAL,
        )
    elif level < 0.62 and best < 0.65 and (high is None or high < 0.65):
        yield logged(id, WARNING, track.step(0), told, cause="logged-weak", ruled_out=out, source=_USUAL)
    elif level < 0.65:
        yield logged(id, INFO, track.step(-1), told, cause="logged-weak", source=_USUAL)


def _at_coin_flip(r: Reading, loss: Track) -> bool:
    """Whether a loss began at ln 2, which is that of a coin, and has stayed there for fifty log points."""
    if loss.rows < 50 or not _begun(r, loss) or loss.late <= 0.985 * _LN2:
        return False
    return abs(loss.start - _LN2) < 0.15 and not (loss.trend.falls and loss.trend.p < 0.01)


def _final(r: Reading, track: Track) -> tuple[float, float | None, float | None] | None:
    """Accuracy at the end with its interval where logged; None where there is too little to judge."""
    low, high = r.track("accuracy/validation_low"), r.track("accuracy/validation_high")
    validated = track.series.key == "accuracy/validation"
    if validated and low is not None and high is not None and (r.covered is None or r.covered >= 0.5):
        return float(track.values[-1]), float(low.values[-1]), float(high.values[-1])
    if _begun(r, track):
        width = track.width if not validated else min(3, track.width)
        return float(np.mean(track.values[-width:])), None, None
    done = r.covered is not None and r.covered >= 0.5
    if validated and (track.rows >= 3 or done or _final_only(track)):
        return float(track.values[-1]), None, None
    return None


def _final_only(track: Track) -> bool:
    """Two evaluations, before training and after: the second is the result."""
    return track.rows == 2 and abs(float(track.values[0]) - 0.5) < 0.06 and float(track.values[1]) > 0.55


def _trained_level(held: Track) -> float:
    """Mean of the last two evaluations, of those in the last third of the training: the first may lie before it."""
    last = held.steps[-1] - (held.steps[-1] - held.steps[0]) / 3
    return float(np.mean(held.values[held.steps >= last][-2:]))


def _overfit(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "pm-overfit"
    train, held = r.track("accuracy/train"), r.track("accuracy/validation", "held_out/accuracy/train")
    loss, held_loss = r.track("loss/train"), r.track("loss/validation", "held_out/loss/train")
    if held is None and held_loss is None:
        yield unchecked(r, id, "accuracy/validation", "loss/validation")
        return
    told, at = [], None
    if train is not None and held is not None and len(held) >= 2 and train.rows >= 5:
        tail, late = float(np.mean(train.values[-train.width :])), _trained_level(held)
        high = r.track("accuracy/validation_high")
        within = high is not None and tail <= float(high.values[-1])  # few held-out pairs allow that much
        if not within and tail - late > 0.10 + 2 * train.error(train.width) * (train.rows < 50):
            told.append(
                figure("gap", train, step=train.step(-1), value=tail - late, gap=tail - late, train=tail, held=late)
            )
            at = held.step(int(np.argmax(held.values)))
    elif train is None and held is not None and len(held) >= 2 and loss is not None:
        # a pair that is told wrong costs ln 2 at least: so many are right, whatever else
        least, late = 1 - float(loss.values[-1]) / _LN2, float(np.mean(held.values[-min(2, len(held)) :]))
        if _pairwise(loss) and least - late > 0.10:
            told.append(
                figure(
                    "least-gap",
                    loss,
                    step=loss.step(-1),
                    value=float(loss.values[-1]),
                    loss=float(loss.values[-1]),
                    least=least,
                    held=late,
                )
            )
            at = held.step(int(np.argmax(held.values)))
    accuracy_fell = held is not None and len(held) >= 3 and float(held.values.max() - held.values[-1]) > _error(held)
    if held_loss is not None and len(held_loss) >= 4 and loss is not None:
        bottom = int(np.argmin(held_loss.values))
        after = held_loss.values[bottom:]
        risen = float(after[-1] - after[0])
        firm = len(after) >= 3 and risen > max(0.02, 3 * held_loss.noise * 0.7) and bool((np.diff(after)[:2] > 0).any())
        if firm and loss.late < loss.early and (accuracy_fell or told or held is None or risen > 0.1):
            told.append(
                figure(
                    "trough",
                    held_loss,
                    step=held_loss.step(bottom),
                    value=float(after[-1]),
                    least=float(after[0]),
                    late=float(after[-1]),
                )
            )
            at = held_loss.step(bottom)
    # held-out loss is the finer measure: while it still falls, a small fall of accuracy is that of a few pairs
    if accuracy_fell and held is not None and held_loss is not None and _still_low(held_loss):
        accuracy_fell = float(held.values.max() - held.values[-1]) > _FIRM_FALL
    if held is not None and accuracy_fell and loss is not None and loss.late < loss.early:
        best = int(np.argmax(held.values))
        told.append(
            figure(
                "peak",
                held,
                step=held.step(best),
                value=float(held.values[best]),
                peak=float(held.values[best]),
                late=float(held.values[-1]),
            )
        )
        at = held.step(best)
    if not told:
        return
    yield logged(id, WARNING, at, told, ruled_out=[ruled_out(id, "logged-confident")], source="heuristic")


def _pairwise(loss: Track) -> bool:
    """Whether it is the loss of Bradley and Terry: it begins at ln 2 or below, and has fallen since."""
    return 0 <= float(loss.values[-1]) < float(loss.values[0]) < 1.2 * _LN2


def _still_low(held_loss: Track) -> bool:
    """Whether the held-out loss ends near the least that it has been."""
    low = float(held_loss.values.min())
    return len(held_loss) >= 4 and float(held_loss.values[-1]) - low < max(0.01, 2 * held_loss.noise)


def _error(held: Track) -> float:
    """What a fall of held-out accuracy from its best has to exceed; the best of many is flattered by noise."""
    return max(0.02, 3.5 * held.noise if len(held) >= 5 else 0.03)


def _collapse(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "pm-score-collapse"
    spread, margins, margin = r.track("pm/score_std"), r.track("margin/std"), r.track("margin/mean")
    known = [t for t in (spread, margins) if t is not None]
    if not known and margin is None:
        yield unchecked(r, id, "pm/score_std", "margin/mean")
        return
    evaluated = [t for t in known if len(t) >= 3 or _late(r)]
    for track in evaluated:
        if track.late < 0.05:
            told = [ends(track), *([ends(margin)] if margin is not None else [])]
            at = track.onset(track.smooth < 0.05) or track.step(0)
            severity = CRITICAL if track.late < 0.005 else WARNING
            yield logged(id, severity, at, told, ruled_out=[ruled_out(id, "logged-normalised")], source="heuristic")
            return
    if margin is not None and not known and r.long(margin) and abs(margin.late) < 0.05 and abs(margin.slow).max() < 0.1:
        loss = r.track("loss/train")
        if loss is None or loss.late > 0.97 * _LN2:
            yield logged(
                id,
                WARNING,
                margin.step(0),
                [ends(margin)],
                ruled_out=[ruled_out(id, "logged-normalised")],
                source="heuristic",
            )
    elif not evaluated and (margin is None or not r.long(margin)):
        yield too_short(r, id, "pm/score_std", "margin/mean")


def _late(r: Reading) -> bool:
    return r.covered is not None and r.covered >= 0.5


def _miscalibrated(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "pm-miscalibrated"
    error, temperature, loss = (
        r.track("calibration/ece"),
        r.track("calibration/temperature"),
        r.track("calibration/log_loss"),
    )
    if error is None and temperature is None:
        yield unchecked(r, id, "calibration/ece", "calibration/temperature")
        return
    ece = float(error.values[-1]) if error is not None else None
    skew = abs(log(float(temperature.values[-1]))) if temperature is not None and temperature.values[-1] > 0 else None
    worse_than_coin = loss is not None and float(loss.values[-1]) > _LN2 + 0.01
    firm = (ece is not None and ece > 0.10 and (skew is None or skew > log(1.5) or ece > 0.15)) or (
        skew is not None and skew > log(1.5) and (worse_than_coin or (ece is not None and ece > 0.07))
    )
    told = [last(t) for t in (error, temperature, loss) if t is not None]
    if firm:
        yield logged(id, WARNING, told[0].step, told, ruled_out=[ruled_out(id, "logged-hard")], source="heuristic")
    elif skew is not None and skew > log(1.5):
        yield logged(id, INFO, told[0].step, told, source="heuristic")


def _length_bias(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "pm-length-bias"
    track = r.track("margin/length_correlation")
    if track is None:
        yield unchecked(r, id, "margin/length_correlation")
        return
    level = float(np.median(track.values[-min(3, len(track)) :]))
    if abs(level) <= 0.3:
        return
    severity = CRITICAL if abs(level) > 0.6 else WARNING
    at = track.onset(np.abs(track.values) > 0.3, min(2, len(track))) or track.step(-1)
    yield logged(
        id,
        severity,
        at,
        [last(track)],
        cause="logged" if level > 0 else "logged-shorter",
        ruled_out=[ruled_out(id, "logged-better")],
        source="heuristic",
    )


RULES = (
    Rule(("pm-low-accuracy",), _PM, _low_accuracy),
    Rule(("pm-overfit",), _PM, _overfit),
    Rule(("pm-score-collapse",), _PM, _collapse),
    Rule(("pm-miscalibrated",), _PM, _miscalibrated),
    Rule(("pm-length-bias",), _PM, _length_bias),
)
