"""One step of the policy: ratios that blow up, log-probabilities that do not match, too much clipping."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.doctor.detectors.log_itself import idle
from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import (
    CRITICAL,
    INFO,
    POLICY,
    WARNING,
    Rule,
    by_rows,
    ends,
    figure,
    finding,
    ruled_out,
    unchecked,
)
from trimtab.doctor.finding import Evidence, Finding, NotDiagnosable, Severity

__all__ = ["RULES"]

LEAP = 0.5
"""nats/token from old to new policy: usual are some thousandths, .05 is already a learning rate too high."""


def _ratio(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "ratio-blow-up"
    mean, top = r.track("policy/ratio_mean"), r.track("policy/ratio_max")
    leap = _leap(r)
    if mean is None and top is None and leap is None:
        yield unchecked(r, id, "policy/ratio_mean", "policy/ratio_max")
        return
    found: list[tuple[int, int, Evidence, Severity]] = [] if leap is None else [leap]
    for track, off in ((mean, _off_mean), (top, _off_top)):
        if track is None:
            continue
        _, values = track.series.finite
        bad = off(values)
        rows = int(bad.sum())
        if not rows:
            continue
        # one batch in a long log is an outlier; from two, or one in a hundred, it is a state
        lone = track is top and rows < max(2, 0.01 * len(values)) and len(values) >= 20
        worst = int(np.argmax(np.abs(np.log(np.maximum(values, 1e-12)))))
        steps, _ = track.series.finite
        told = figure(
            "rows-ratio", track, step=int(steps[worst]), value=float(values[worst]), rows=rows, of=len(values)
        )
        found.append((int(steps[int(np.argmax(bad))]), rows, told, INFO if lone else by_rows(rows)))
    if not found:
        return
    severity = max((f[3] for f in found), key=lambda s: s.rank)
    yield finding(
        id,
        severity,
        min(f[0] for f in found),
        [f[2] for f in found],
        ruled_out=[ruled_out(id, "drift")],
        source="TRL skips batches above 10",
    )


def _leap(r: Reading) -> tuple[int, int, Evidence, Severity] | None:
    """Updates so long that half a nat a token lies between the policy before and after, in one row of twenty at least.

    Of names that no framework vouches for the unit is not sure enough.
    """
    track = r.track("kl/update")
    if track is None or r.log.framework == "unknown":
        return None
    far = track.values > LEAP
    rows = int(far.sum())
    if rows < 2 or rows < 0.05 * len(track) or (len(track) < 10 and 2 * rows < len(track)):
        return None
    at = track.step(int(np.argmax(far)))
    told = figure("rows-above", track, step=at, value=float(track.values.max()), rows=rows, of=len(track), bound=LEAP)
    return at, rows, told, WARNING


def _off_mean(values: np.ndarray) -> np.ndarray:
    return (values > 2) | (values < 0.5)


def _off_top(values: np.ndarray) -> np.ndarray:
    return values > 10


def _mismatch(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "logprob-mismatch"
    keys = (
        "rollout/logprob_gap_mean",
        "policy/ratio_first",
        "check/first_ratio_deviation",
        "rollout/kl",
        "rollout/prob_ratio_error",
        "rollout/is_weight_mean",
    )
    checks = [c for c in (_gap(r), _first(r), _engine(r), _deaf_to_rate(r)) if c is not None]
    if not checks:
        if r.track(*keys) is None:
            yield unchecked(r, id, *keys[:2])
        return
    severity = max((c[0] for c in checks), key=lambda s: s.rank)
    loud = [c for c in checks if c[0] is severity]
    yield finding(
        id,
        severity,
        min(c[1] for c in loud),
        [c[2] for c in checks],
        ruled_out=[ruled_out(id, "epochs"), ruled_out(id, "spike")],
        source="verl and NeMo-RL health checks",
    )


_Check = tuple[Severity, int, Evidence]


def _gap(r: Reading) -> _Check | None:
    """Trainer against rollout engine, nats per token: .01-.02 usual, .03 look, .1 critical; or rising steadily."""
    track = r.track("rollout/logprob_gap_mean")
    if track is None:
        return None
    # our own rollout runs on the trainer's weights: bfloat16 alone makes .036 there
    bound = 0.06 if r.log.framework == "trimtab" else 0.03
    if track.late > bound and (len(track) >= 3 or bool((track.values > bound).all())):
        over = track.onset(track.smooth > bound) or track.step(0)
        bad = CRITICAL if track.late > 0.1 and track.rows >= 2 else WARNING
        start = track.departure(up=True) if r.long(track) and track.early < bound else over
        return (
            bad,
            min(over, start or over),
            figure("above", track, step=over, value=track.late, bound=bound, late=track.late),
        )
    if r.long(track) and track.trend.rises and track.trend.p < 1e-3 and track.late > max(2 * track.early, 0.02):
        return WARNING, track.departure(up=True) or track.step(0), ends(track)
    return None


def _first(r: Reading) -> _Check | None:
    """The first minibatch of a batch is sampled from the very policy that is updated: its ratio is 1."""
    track = r.track("policy/ratio_first")
    away = None if track is None else np.abs(track.values - 1)
    if track is None:
        track = r.track("check/first_ratio_deviation")
        away = None if track is None else np.abs(track.values)
    if track is None or away is None:
        return None
    bad = away > 0.02
    rows = int(bad.sum())
    if not rows or (len(track) >= 20 and rows < 0.05 * len(track)):
        return None
    at = track.step(int(np.argmax(bad)))
    severe = float(np.median(away[bad])) > 0.05
    told = figure(
        "first-ratio", track, step=at, value=float(away.max()), worst=float(away.max()), rows=rows, of=len(track)
    )
    return by_rows(rows) if severe else WARNING, at, told


_ENGINE = (
    ("rollout/prob_ratio_error", 1.05, True),
    ("rollout/kl", 0.1, False),
    ("rollout/is_weight_std", 1.0, True),
    ("rollout/chi2", 1.0, True),
)


def _engine(r: Reading) -> _Check | None:
    """Other ways to log the same gap; single spikes are tolerated, the late level counts."""
    for key, bound, plain in _ENGINE:
        track = r.track(key)
        if track is None:
            continue
        size = track.values if plain else np.abs(track.values)
        if float(np.median(size[-track.width :])) > bound and (len(track) >= 3 or bool((size > bound).all())):
            at = track.onset(size > bound) or track.step(0)
            return WARNING, at, figure("above", track, step=at, value=track.late, bound=bound, late=track.late)
    track = r.track("rollout/is_weight_mean")
    if track is not None and len(track) >= 3 and not 0.5 <= track.late <= 2:
        at = track.onset((track.values < 0.5) | (track.values > 2)) or track.step(0)
        return WARNING, at, last_of(track)
    return None


def last_of(track: Track) -> Evidence:
    """The late level."""
    return figure("last", track, step=track.step(-1), value=track.late)


def _deaf_to_rate(r: Reading) -> _Check | None:
    """A step from old to new policy that is large from the first row and does not shrink when the learning rate does.

    The optimiser does not make it, then: old log-probabilities are of another model, temperature or mask.
    """
    step, rate = r.trending("kl/update"), r.trending("policy/learning_rate", "learning_rate")
    if step is None or rate is None or step.early <= 0.05 or step.late <= 0.05:
        return None
    tail = float(rate.values[-1])
    if rate.early <= 0 or tail > 0.2 * rate.early or step.late < 0.7 * step.early:
        return None
    told = figure(
        "deaf", step, step=step.step(-1), value=step.late, early=step.early, late=step.late, rate=rate.early, tail=tail
    )
    return CRITICAL if step.late > 0.1 else WARNING, step.step(0), told


def _clip(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "clip-fraction-high"
    track = r.track("policy/clip_fraction")
    if track is None:
        yield unchecked(r, id, "policy/clip_fraction")
        return
    if len(track) < 5:
        return
    kl = r.track("kl/update", "kl/reference_per_token", "kl/reference")
    if track.late > 0.99 and (idle(r) if kl is None else abs(kl.late) < 1e-5):
        return  # nothing moves and all is clipped: the metric is wrong, which is told as such
    if track.late <= 0.3:
        return
    at = track.onset((track.smooth if len(track) >= 10 else track.values) > 0.3)
    if at is None:
        return
    severity = CRITICAL if track.late > 0.5 and len(track) >= 20 else WARNING
    told = [figure("above", track, step=at, value=track.late, bound=0.3, late=track.late), ends(track)]
    yield finding(
        id, severity, at, told, ruled_out=[ruled_out(id, "metric"), ruled_out(id, "one-update")], source="heuristic"
    )


RULES = (
    Rule(("ratio-blow-up",), POLICY, _ratio),
    Rule(("logprob-mismatch",), POLICY, _mismatch),
    Rule(("clip-fraction-high",), POLICY, _clip),
)
