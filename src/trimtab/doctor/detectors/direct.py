"""Direct preference optimisation: a wrong reference, pairs learned by heart, likelihoods that sink."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import (
    CRITICAL,
    INFO,
    POLICY,
    WARNING,
    Rule,
    ends,
    figure,
    finding,
    ruled_out,
    too_short,
    unchecked,
)
from trimtab.doctor.finding import Finding, NotDiagnosable
from trimtab.doctor.log import Stage

__all__ = ["RULES"]

_DIRECT = frozenset({Stage.DIRECT})
_LN2 = log(2)
_HELD_OUT_ACCURACY = ("accuracy/validation", "held_out/dpo/accuracy")
_HELD_OUT_LOSS = ("loss/validation", "held_out/loss/train")


def _reference(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    """At the first log point the policy still is the reference: both implicit rewards are near 0."""
    id = "reference-mismatch"
    chosen, rejected = r.track("dpo/chosen_reward"), r.track("dpo/rejected_reward")
    if chosen is None:
        yield unchecked(r, id, "dpo/chosen_reward")
        return
    first = float(chosen.values[0])
    # a log point may cover many updates; what was learned in them is not there at the first
    begin = 0.05 * r.log.planned_steps if r.log.planned_steps else 25
    if chosen.steps[0] > max(begin, 1) or abs(first) <= 1:
        return
    drifted = len(chosen) >= 20 and chosen.steps[0] > 1 and abs(first) < 0.5 * abs(chosen.late)
    if drifted:
        return  # on its way from 0 to where it is now
    told = [figure("first", chosen, step=chosen.step(0), value=first)]
    if rejected is not None:
        told.append(figure("first", rejected, step=rejected.step(0), value=float(rejected.values[0])))
    severe = abs(first) > 5 and len(chosen) >= 2 and abs(float(chosen.values[1])) > 5
    yield finding(
        id,
        CRITICAL if severe else WARNING,
        chosen.step(0),
        told,
        ruled_out=[ruled_out(id, "learned")],
        source="DPO rewards are 0 at step 0 by construction",
    )


def _policy_reference(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    """Before its first update the policy is the reference: their KL is 0."""
    id = "reference-mismatch"
    start = r.track("check/kl_at_start")
    if start is not None:
        value = float(start.values[0])
        if abs(value) > 0.02:
            told = [figure("first", start, step=start.step(0), value=value)]
            yield finding(
                id,
                CRITICAL if abs(value) > 0.2 else WARNING,
                start.step(0),
                told,
                cause="policy",
                ruled_out=[ruled_out(id, "rounding")],
                source="KL is 0 at step 0 by construction",
            )
        return
    kl = r.track("kl/reference")
    if kl is None:
        yield unchecked(r, id, "check/kl_at_start", "kl/reference")
    elif not kl.series.derived and kl.steps[0] <= 1 and kl.values[0] > 1 and len(kl) >= 2 and kl.values[1] > 1:
        told = [figure("first", kl, step=kl.step(0), value=float(kl.values[0]))]
        yield finding(id, INFO, kl.step(0), told, cause="policy", source="KL is 0 at step 0 by construction")


def _overfit(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "preference-overfit"
    loss, accuracy, held = r.track("loss/train"), r.track("dpo/accuracy", "accuracy/train"), r.track(*_HELD_OUT_LOSS)
    if loss is None or (accuracy is None and held is None):
        yield unchecked(r, id, "loss/train" if loss is None else "dpo/accuracy")
        return
    told, at = [], None
    if held is not None and len(held) >= 4:
        bottom = int(np.argmin(held.values))
        after = held.values[bottom:]
        risen = float(held.values[-1] - held.values[bottom])
        worse = len(after) >= 3 and risen > max(0.03 * abs(float(held.values[bottom])), 3 * held.noise * 0.7)
        if worse and float(np.median(after[1:])) > held.values[bottom] and loss.late < loss.early:
            told += [
                figure(
                    "trough",
                    held,
                    step=held.step(bottom),
                    value=float(held.values[-1]),
                    least=float(held.values[bottom]),
                    late=float(held.values[-1]),
                ),
                ends(loss),
            ]
            at = held.step(bottom)
    if accuracy is not None and _by_heart(loss, accuracy, r):
        told += [ends(loss), ends(accuracy)]
        start = loss.onset(loss.smooth < 0.02) or loss.step(0)
        at = start if at is None else min(at, start)
    if not told:
        if len(loss) < 5 and (held is None or len(held) < 4):
            yield too_short(r, id, "loss/train")
        return
    yield finding(id, WARNING, at, told, ruled_out=[ruled_out(id, "margin")], source="OPA-DPO#10")


def _by_heart(loss: Track, accuracy: Track, r: Reading) -> bool:
    """Training loss near 0 and every pair right, early on: in the first fifth of a known plan, or of the log."""
    if len(loss) < 5:  # a few rows that all say so
        return bool(len(loss) >= 3 and loss.values.max() < 0.01 and accuracy.values.min() >= 1)
    if loss.late >= 0.02 or accuracy.late < 0.98:
        return False
    low = loss.onset(loss.smooth < 0.05, 5)
    if low is None:
        return False
    total = r.log.planned_steps or (r.log.steps[1] if r.log.steps else 0)
    return bool(low <= 0.3 * total) or (loss.late < 0.01 and accuracy.late >= 0.995)


def _not_generalising(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "preference-not-generalising"
    train, held = r.track("dpo/accuracy", "accuracy/train"), r.track(*_HELD_OUT_ACCURACY)
    if train is None or held is None:
        yield unchecked(r, id, "accuracy/validation" if held is None else "dpo/accuracy")
        return
    if not r.long(train) or len(held) < 2:
        yield too_short(r, id, "dpo/accuracy" if not r.long(train) else "accuracy/validation")
        return
    late = float(np.median(held.values[-max(1, min(3, len(held) // 2)) :]))
    tail = float(np.mean(train.values[-train.width :]))
    first = float(held.values[0])
    gap = tail - late
    weak = late < 0.55 and tail > 0.65
    if gap <= 0.15 and not (weak and gap > 0.1):
        return
    if gap <= 0.25 and late - first > 0.1 and late > 0.65:
        yield finding(id, INFO, held.step(-1), [ends(train), ends(held)], cause="gap", source="heuristic")
        return
    at = _parts_from(train, held)
    yield finding(
        id,
        CRITICAL if late < 0.5 and gap > 0.3 else WARNING,
        at,
        [ends(train), ends(held)],
        ruled_out=[ruled_out(id, "small")],
        values={"gap": gap},
        source="heuristic",
    )


def _parts_from(train: Track, held: Track) -> int:
    """First held-out evaluation from which training accuracy stays above by a tenth."""
    level = np.interp(held.steps, train.steps, train.slow)
    return held.onset(level - held.values > 0.1, 2) or held.step(-1)


def _displacement(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "likelihood-displacement"
    logp, chosen, margin = r.track("dpo/chosen_logprob"), r.track("dpo/chosen_reward"), r.track("dpo/margin")
    if logp is None and chosen is None:
        yield unchecked(r, id, "dpo/chosen_logprob", "dpo/chosen_reward")
        return
    track = logp if logp is not None else chosen
    assert track is not None
    if not r.long(track):
        yield too_short(r, id, "dpo/chosen_logprob", "dpo/chosen_reward")
        return
    if margin is None or not r.long(margin):
        yield unchecked(r, id, "dpo/margin")
        return
    rising = margin.trend.rises or margin.rise[0] > 3 * margin.rise[1]
    sunk_reward = chosen is None or (chosen.late < -1 and chosen.late < chosen.start - 3 * chosen.error(chosen.width))
    told = []
    if logp is not None:
        fall = logp.start - logp.late
        length = r.track("response/length_mean")
        per_token = fall / length.late if length is not None and length.late > 0 else 0.0
        sunk = fall > 0.2 * abs(logp.start) or per_token > 1
        sunk = sunk and fall > 3 * logp.error(logp.width)
        told.append(ends(logp))
    else:
        # without log-probabilities: an implicit reward that has fallen by what would be 20 nats at beta .1
        sunk = chosen is not None and chosen.late < -2
    if not (rising and sunk and sunk_reward):
        return
    told += [ends(t) for t in (chosen, margin) if t is not None]
    at = track.departure(up=False) or track.step(0)
    yield finding(
        id,
        WARNING,
        at,
        told,
        ruled_out=[ruled_out(id, "negative"), ruled_out(id, "diverged")],
        source="Razin et al. 2024",
    )


def _not_moving(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    """A loss that began at ln 2, where policy and reference are one, and has stayed there; margin and accuracy, too."""
    id = "policy-not-moving"
    loss, margin, accuracy = r.track("loss/train"), r.track("dpo/margin"), r.track("dpo/accuracy")
    if loss is None:
        yield unchecked(r, id, "loss/train")
        return
    if loss.rows < 50 or not r.long(loss):
        yield too_short(r, id, "loss/train")
        return
    still = (
        loss.late > 0.985 * _LN2 and abs(loss.start - _LN2) < 0.05 and not (loss.trend.falls and loss.trend.p < 0.01)
    )
    parted = margin is not None and (abs(margin.late) > 0.05 or margin.rise[0] > 3 * margin.rise[1])
    told_apart = accuracy is not None and accuracy.late > 0.55 and accuracy.rise[0] > 3 * accuracy.rise[1]
    if not still or parted or told_apart:
        return
    told = [ends(t) for t in (loss, margin) if t is not None]
    out = [ruled_out(id, "warm-up", rows=loss.rows)]
    yield finding(id, WARNING, loss.step(0), told, cause="direct", ruled_out=out, source="heuristic")


RULES = (
    Rule(("policy-not-moving",), _DIRECT, _not_moving),
    Rule(("reference-mismatch",), _DIRECT, _reference),
    Rule(("reference-mismatch",), POLICY, _policy_reference),
    Rule(("preference-overfit",), _DIRECT, _overfit),
    Rule(("preference-not-generalising",), _DIRECT, _not_generalising),
    Rule(("likelihood-displacement",), _DIRECT, _displacement),
)
