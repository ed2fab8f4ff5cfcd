"""How far the policy has gone from the reference: too far, too fast, below zero, or nowhere at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.doctor import trends
from trimtab.doctor.detectors.progress import progress
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
    too_short,
    unchecked,
)
from trimtab.doctor.finding import Finding, NotDiagnosable
from trimtab.doctor.log import Estimator

__all__ = ["RULES", "past_bound"]

TOKEN_BOUND = 0.5
"""nats/token: healthy public runs stay at .03-.16, diverging ones reach 2.3-5.7."""
SEQUENCE_BOUND = 30.0
"""nats/sequence, where no length tells how much that is per token; the TRL FAQ keeps it between 0 and 10."""
SEQUENCE_LONG = 50.0
SEQUENCE_USUAL = 10.0
TOKEN_HEALTHY = 0.2
_SIGNED = frozenset({Estimator.K1, Estimator.UNKNOWN, Estimator.NONE})
PER_TOKEN = ("kl/reference_per_token", "kl/reference_k3_per_token")
_KEYS = (*PER_TOKEN, "kl/reference")


def past_bound(r: Reading) -> tuple[Track, float, int | None] | None:
    """The KL series that decides, its bound, and the step from which it stays above it (None: it does not)."""
    token, sequence = r.track(*PER_TOKEN), r.track("kl/reference")
    target = r.setting("ppo.kl_target_nats", "ppo.kl_target", "kl_target", "ppo_target")
    if token is not None:
        at = _stays_above(token, TOKEN_BOUND)
        if at is not None and sequence is not None and _only_shorter(r, token, sequence):
            return sequence, SEQUENCE_BOUND, _stays_above(sequence, SEQUENCE_BOUND)
        if at is None and sequence is not None and token.late > TOKEN_HEALTHY:
            at = _stays_above(sequence, SEQUENCE_LONG)
            if at is not None:
                return sequence, SEQUENCE_LONG, at
        return token, TOKEN_BOUND, at
    if sequence is None:
        return None
    bound = SEQUENCE_BOUND if not target else max(SEQUENCE_BOUND, 2 * target)
    return sequence, bound, _stays_above(sequence, bound)


def _only_shorter(r: Reading, token: Track, sequence: Track) -> bool:
    """Whether a KL per token is high because responses have shrunk: the logged KL of a whole response is usual."""
    length = r.track("response/length_mean")
    shrunk = length is not None and length.late < 0.5 * length.start
    return bool(token.series.derived and not sequence.series.derived and shrunk and sequence.late <= SEQUENCE_USUAL)


def _stays_above(track: Track, bound: float) -> int | None:
    """Step from which a KL lies above `bound` (spikes apart) and is above it at the end as well."""
    if len(track) < 5:
        return None
    over = (track.smooth if len(track) >= 10 else track.values) > bound
    if track.late <= bound and float(over.mean()) < 0.2:
        return None
    return track.onset(over, 5 if len(track) >= 20 else 3)


def _explosion(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "kl-explosion"
    found = past_bound(r)
    if found is None:
        yield unchecked(r, id, *_KEYS)
        return
    track, bound, at = found
    if track.rows < 5:
        yield _excerpt(r, track, bound) or too_short(r, id, *_KEYS)
        return
    if at is None:
        yield from _speed(r, track, bound)
        return
    told = [figure("above", track, step=at, value=track.late, bound=bound, late=track.late), ends(track)]
    out = [ruled_out(id, "spike"), ruled_out(id, "unit", unit=track.series.unit.value)]
    p = progress(r)
    hurt = p is not None and (p.fallen or p.flat)
    severity, cause = CRITICAL if track.late > 3 * bound and track.rows >= 20 else WARNING, "cause"
    if r.beta == 0 and not hurt:  # nothing holds it, as was chosen
        severity, cause = INFO, "free"
    yield finding(id, severity, at, told, ruled_out=out, cause=cause, values={"bound": bound}, source="TRL FAQ")


def _excerpt(r: Reading, track: Track, bound: float) -> Finding | None:
    """A few rows far out: all of two or more past four times the bound, or a single one past twenty times."""
    least = float(track.values.min())
    if r.beta == 0 or least <= (4 if len(track) >= 2 else 20) * bound:
        return None
    told = figure(
        "rows-above",
        track,
        step=track.step(0),
        value=float(track.values.max()),
        rows=len(track),
        of=len(track),
        bound=bound,
    )
    return finding(
        "kl-explosion",
        WARNING,
        track.step(0),
        [told],
        values={"bound": bound},
        ruled_out=[ruled_out("kl-explosion", "unit", unit=track.series.unit.value)],
        source="heuristic",
    )


def _speed(r: Reading, track: Track, bound: float) -> Iterator[Finding]:
    """Not yet past the bound, but doubling within five log points, twice in a row, at the end of the log."""
    if not r.long(track) or track.rows < 25 or r.beta == 0:
        return
    smooth = track.smooth
    now, before, long_before = (float(np.median(smooth[len(smooth) - k - 3 : len(smooth) - k])) for k in (0, 5, 10))
    if now < 0.4 * bound or before <= 0 or long_before <= 4 * track.noise * 0.5:
        return
    if now < 2 * before or before < 2 * long_before:
        return
    every = float(track.steps[-1] - track.steps[-6])
    due = track.step(-1) + round(every * np.log(bound / now) / np.log(now / before))
    told = figure("doubling", track, step=track.step(-1), value=now, now=now, before=before, long_before=long_before)
    yield finding(
        "kl-explosion",
        WARNING,
        track.step(-10),
        [told],
        cause="speed",
        values={"bound": bound, "due": due},
        source="heuristic",
    )


def _negative(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "negative-kl"
    sequence, token = r.track("kl/reference"), r.track("kl/reference_per_token")
    if sequence is not None:
        track, bound, deep = sequence, -1.0, -10.0
    elif token is not None:
        track, bound, deep = token, -0.05, -0.5
    else:
        yield unchecked(r, id, "kl/reference", "kl/reference_per_token")
        return
    if track.series.estimator not in _SIGNED:
        return  # cannot be negative; if it is, that is an invalid metric
    low = track.values < bound
    rows = int(low.sum())
    if len(track) < 10:
        sick = rows > 0 and 2 * rows >= len(track)
        at = track.step(int(np.argmax(low))) if sick else None
    else:
        at = track.onset(track.smooth < bound)
        if at is None and (track.values < deep).any():
            at = track.step(int(np.argmax(track.values < deep)))
            rows = int((track.values < deep).sum())
        sick = at is not None
    if not sick:
        return
    worst = int(np.argmin(track.values))
    told = figure(
        "rows-below",
        track,
        step=track.step(worst),
        value=float(track.values[worst]),
        rows=rows,
        of=len(track),
        bound=bound,
    )
    out = [ruled_out(id, "noise", bound=bound)]
    yield finding(id, by_rows(rows), at, [told], ruled_out=out, source="TRL warns below -1")


def _not_moving(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "policy-not-moving"
    token, sequence, update = r.track(*PER_TOKEN), r.track("kl/reference"), r.track("kl/update")
    still: Track | None = None
    if token is not None and r.long(token):
        if _at_zero(token, 1e-4):
            still = token
    elif sequence is not None and r.long(sequence):
        if _at_zero(sequence, 0.01):
            still = sequence
    elif update is not None and r.long(update) and (r.updates_per_batch or 1) > 1:
        if _at_zero(update, 1e-6):
            still = update
    else:
        short = token or sequence
        yield (
            too_short(r, id, *_KEYS)
            if short is not None
            else unchecked(r, id, "kl/reference_per_token", "kl/reference")
        )
        return
    p = progress(r)
    if still is None or p is None or p.improved:
        return
    out = [ruled_out(id, "start"), ruled_out(id, "one-update")]
    yield finding(id, WARNING, still.step(0), [ends(still), ends(p.track)], ruled_out=out, source="heuristic")


def _at_zero(track: Track, bound: float) -> bool:
    """Whether four fifths of a KL, warm-up apart, lie at zero: their median, and no drift in their mean."""
    rest = track.values[len(track) // 5 :]
    tail = rest[-max(3, len(rest) // 4) :]
    mean = float(np.mean(np.clip(tail, *np.percentile(tail, [5, 95]))))
    return bool(
        abs(float(np.median(tail))) <= bound and abs(float(np.median(rest))) <= bound and abs(mean) < 10 * bound
    )


def _over_constrained(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "over-constrained"
    kl, spread, p = r.trending("kl/reference"), r.track("score/std"), progress(r)
    beta = r.track("kl/beta")
    if (kl is None and r.track("kl/reference") is not None) or (p is None and r.score is not None):
        yield too_short(r, id, "kl/reference" if kl is None else "score/mean", "reward/mean")
        return
    if kl is None or spread is None or p is None or r.beta is None:
        yield unchecked(r, id, "kl/beta" if r.beta is None else "score/std" if spread is None else "kl/reference")
        return
    if r.beta <= 0 or spread.late <= 0:
        return
    level = beta.late if beta is not None else r.beta
    share = level * kl.late / spread.late
    gradient = r.track("policy/gradient_norm", "gradient_norm")
    alive = gradient is None or gradient.late > 0
    rise, error = kl.rise
    held = rise < max(3 * error, 0.25 * abs(kl.late))
    if share <= 0.5 or not alive or not held or not _stalls(p.track, spread.late) or kl.late < 0.01:
        return
    told = [figure("share", kl, value=share, share=share, beta=level, late=kl.late, spread=spread.late), ends(p.track)]
    out = [ruled_out(id, "ceiling"), ruled_out(id, "still")]
    at = kl.onset(kl.smooth > 0.5 * kl.late) or kl.step(0)  # where the balance was reached
    yield finding(id, WARNING, at, told, ruled_out=out, source="heuristic")


def _stalls(track: Track, spread: float) -> bool:
    """Whether the score's second half is level, and what it won before is under half of a response's spread."""
    half = track.since(len(track) // 2)
    level = trends.mann_kendall(half.values) > 0.05 or half.trend.change < track.noise
    return bool(level and track.late - track.start < 0.5 * spread)


RULES = (
    Rule(("kl-explosion",), POLICY, _explosion),
    Rule(("negative-kl",), POLICY, _negative),
    Rule(("policy-not-moving",), POLICY, _not_moving),
    Rule(("over-constrained",), POLICY, _over_constrained),
)
