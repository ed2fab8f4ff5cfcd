"""Gradients and losses: none, too large, not a number, running away."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.doctor import trends
from trimtab.doctor.detectors.reading import Reading, Track
from trimtab.doctor.detectors.rule import (
    CRITICAL,
    INFO,
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
from trimtab.doctor.log import Floats, Log, Series, Stage

__all__ = ["RULES"]

TRAINED = frozenset({Stage.POLICY, Stage.DIRECT, Stage.PREFERENCE_MODEL, Stage.SFT, Stage.UNKNOWN})
_GRADIENTS = ("policy/gradient_norm", "gradient_norm")
_SPREADS = ("score/group_std", "score/std", "reward/std")
_VITAL = (
    "policy/loss",
    "value/loss",
    "loss/train",
    "policy/gradient_norm",
    "value/gradient_norm",
    "gradient_norm",
    "loss/total",
)
LARGE = 100.0


def _aligned(log: Log, at: Series, *keys: str) -> Floats:
    """[N] the first of `keys` at the steps of `at`; NaN where it was not logged there."""
    other = log.get(*keys)
    out = np.full(len(at), np.nan)
    if other is not None:
        where = np.clip(np.searchsorted(other.steps, at.steps), 0, len(other) - 1)
        same = other.steps[where] == at.steps
        out[same] = other.values[where[same]]
    return out


def _no_gradient(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "no-gradient"
    series = r.log.get(*_GRADIENTS)
    if series is None:
        yield unchecked(r, id, *_GRADIENTS)
        return
    zero = series.values == 0
    if r.log.stage in (Stage.POLICY, Stage.UNKNOWN):
        # where all responses score alike there is nothing to learn from, and zero is right
        spread = _aligned(r.log, series, *_SPREADS)
        alike = _aligned(r.log, series, "group/zero_std_fraction")
        known = np.isfinite(spread) | np.isfinite(alike)
        signal = ~((spread == 0) | (alike >= 1)) & known
        if not known.any():
            advantage = _aligned(r.log, series, "advantage/std")
            signal = advantage > 0 if np.isfinite(advantage).any() else np.ones(len(zero), bool)
        zero = zero & signal
    rows = int(zero.sum())
    if not rows or (len(zero) >= 20 and rows < max(2, 0.2 * len(zero))):
        return
    at = int(series.steps[int(np.argmax(zero))])
    track = r.track(series.key)
    assert track is not None
    told = [figure("rows-zero", track, step=at, value=0.0, rows=rows, of=len(zero))]
    spread_track = r.track(*_SPREADS)
    if spread_track is not None:
        told.append(ends(spread_track))
    yield finding(
        id,
        by_rows(rows),
        at,
        told,
        ruled_out=[ruled_out(id, "no-signal"), ruled_out(id, "loss-zero")],
        source="ms-swift#5890",
    )


def _spikes(values: Floats) -> np.ndarray:
    """Where a value is ten times the median of the 25 before it and of the whole, or above 100 and three times it."""
    n = len(values)
    middle = np.empty(n)
    for i in range(n):
        middle[i] = np.median(values[max(0, i - 25) : i]) if i >= 5 else np.inf
    base = np.maximum(middle, float(np.median(values)))
    # below 1, the usual clip, a spike reaches the weights as it is and is small: most batches had no signal then
    return (values > 1) & ((values > 10 * base) | ((values > LARGE) & (values > 3 * base)))


def _exploding(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "exploding-gradients"
    track = r.track(*_GRADIENTS)
    if track is None:
        yield unchecked(r, id, *_GRADIENTS)
        return
    if not r.long(track):
        yield too_short(r, id, *_GRADIENTS)
        return
    _, values = track.series.finite
    steps, _ = track.series.finite
    if len(values) > 5000:  # spikes are told from blocks there: the largest of each
        size = -(-len(values) // 5000)
        whole = len(values) // size * size
        steps, values = steps[:whole:size], values[:whole].reshape(-1, size).max(axis=1)
    warm = max(5, len(values) // 20)
    high = _spikes(values)
    high[:warm] = False
    window = min(50, len(values))
    crowd = int(np.convolve(high.astype(int), np.ones(window, int), "valid").max(initial=0))
    smooth = track.smooth
    sustained = track.late > LARGE and track.late > 5 * max(track.early, 1e-12)
    climbing = track.late > 10 * track.early and track.late > 10 and track.trend.rises
    if crowd < 3 and not sustained and not climbing:
        return
    if crowd >= 3:
        at = int(steps[int(np.argmax(high))])
        told = [
            figure(
                "spikes",
                track,
                step=int(steps[int(np.argmax(values))]),
                value=float(values.max()),
                count=int(high.sum()),
                middle=float(np.median(values)),
                highest=float(values.max()),
            )
        ]
    else:
        at = track.onset(smooth > 3 * track.early) or track.step(0)
        told = [ends(track)]
    severity = CRITICAL if sustained and track.late > 10 * LARGE else WARNING
    out = [ruled_out(id, "first-steps", warm=warm), ruled_out(id, "level")]
    yield finding(id, severity, at, told, ruled_out=out, source="heuristic")


def _not_numbers(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "nan-inf"
    vital = [s for key in _VITAL if (s := r.log.get(key)) is not None]
    vital += list(r.log.family("dpo/loss").values())
    if not vital:
        yield unchecked(r, id, "policy/loss", "loss/train", "gradient_norm")
    worst: tuple[int, Series, np.ndarray] | None = None
    for series in vital:
        bad = ~np.isfinite(series.values)
        if bad.any() and (worst is None or int(series.steps[int(np.argmax(bad))]) < worst[0]):
            worst = (int(series.steps[int(np.argmax(bad))]), series, bad)
    scale = _scale_at_floor(r)
    if worst is not None:
        yield _finding_of_nan(r, worst, scaled=bool(r.log.family("precision/")))
    elif scale is not None:
        yield scale
    else:
        yield from _logging_nan(r)


def _finding_of_nan(r: Reading, worst: tuple[int, Series, np.ndarray], scaled: bool) -> Finding:
    at, series, bad = worst
    rows = int(bad.sum())
    lasting = trends.onset(series.values, bad, 2) is not None and rows >= 2
    only_inf = bool(np.isinf(series.values[bad]).all())
    healed = bool(np.isfinite(series.values[-1])) and len(bad) >= 20 and not lasting
    severity = CRITICAL if lasting or rows >= max(2, 0.05 * len(bad)) else WARNING
    if (healed and scaled and only_inf) or _scale_settles(r, series, bad):
        severity = INFO  # a skipped update of float16's scale finding its level
    finite = series.values[np.isfinite(series.values) & (series.steps < at)]
    before = float(finite[-1]) if len(finite) else None
    track = r.track(series.key) or Track(series, series.steps.astype(float), np.zeros(len(series)), 0)
    first = "NaN" if np.isnan(series.values[int(np.argmax(bad))]) else "inf"
    told = [figure("rows-nan", track, step=at, rows=rows, of=len(bad), first=first)]
    if before is not None:
        told.append(
            figure(
                "before",
                track,
                step=int(series.steps[np.isfinite(series.values) & (series.steps < at)][-1]),
                value=before,
            )
        )
    return finding(
        "nan-inf",
        severity,
        at,
        told,
        ruled_out=[ruled_out("nan-inf", "scale"), ruled_out("nan-inf", "mean")],
        source="heuristic",
    )


def _scale_settles(r: Reading, series: Series, bad: np.ndarray) -> bool:
    """Gradients that overflow among the first steps only, while every loss is finite: these updates are skipped."""
    if not series.key.endswith("gradient_norm") or len(bad) < 20:
        return False
    losses = [s for key in _VITAL if "loss" in key and (s := r.log.get(key)) is not None]
    begin = max(20, len(bad) // 20)
    return not bad[min(begin, len(bad) // 2) :].any() and all(bool(np.isfinite(s.values).all()) for s in losses)


def _scale_at_floor(r: Reading) -> Finding | None:
    """float16's loss scale at its minimum, or more than a fifth of the updates skipped after the first fifty."""
    scale = r.track("precision/loss_scale")
    if scale is not None and len(scale) >= 3 and scale.late <= 1 < scale.start:
        at = scale.onset(scale.values <= 1) or scale.step(-1)
        return finding("nan-inf", WARNING, at, [ends(scale)], cause="scale", source="heuristic")
    overflow = r.log.get("precision/overflow")
    if overflow is not None and len(overflow) >= 20:
        late = overflow.steps >= overflow.steps[0] + 50
        rate = float(np.nanmean(overflow.values[late] > 0)) if late.any() else 0.0
        track = r.track("precision/overflow")
        if rate > 0.2 and int(late.sum()) >= 20 and track is not None:
            told = figure("skip-rate", track, step=int(overflow.steps[-1]), value=rate, rate=rate)
            return finding("nan-inf", WARNING, int(overflow.steps[late][0]), [told], cause="scale", source="heuristic")
    skipped = r.track("precision/skipped_updates")
    if skipped is not None and len(skipped) >= 3 and bool((np.diff(skipped.values) >= 0).all()):
        late = skipped.steps >= skipped.steps[0] + 50
        if int(late.sum()) >= 3:
            steps, values = skipped.steps[late], skipped.values[late]
            rate = float(values[-1] - values[0]) / max(float(steps[-1] - steps[0]), 1.0)
            if rate > 0.2:
                told = figure("skip-rate", skipped, step=int(steps[-1]), value=rate, rate=rate)
                return finding("nan-inf", WARNING, int(steps[0]), [told], cause="scale", source="heuristic")
    return None


def _logging_nan(r: Reading) -> Iterator[Finding]:
    """A metric that is no number while losses and gradients are: the mean of an empty set, most likely."""
    core = (
        "score/mean",
        "reward/mean",
        "kl/reference",
        "kl/reference_per_token",
        "policy/entropy",
        "dpo/chosen_reward",
        "dpo/rejected_reward",
        "dpo/margin",
        "accuracy/validation",
        "accuracy/train",
    )
    for key in core:
        series = r.log.series.get(key)
        if series is None or not len(series):
            continue
        bad = ~np.isfinite(series.values)
        rows = int(bad.sum())
        if rows:
            track = r.track(key) or Track(series, series.steps.astype(float), np.zeros(len(series)), 0)
            at = int(series.steps[int(np.argmax(bad))])
            first = "NaN" if np.isnan(series.values[int(np.argmax(bad))]) else "inf"
            severity = WARNING if rows == len(bad) or (rows >= 3 and rows > 0.5 * len(bad)) else INFO
            told = figure("rows-nan", track, step=at, rows=rows, of=len(bad), first=first)
            yield finding("nan-inf", severity, at, [told], cause="logging", source="trl#1447")
            return


def _diverging(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "diverging-loss"
    keys = ("value/loss",) if r.log.stage in (Stage.POLICY, Stage.UNKNOWN) else ("loss/train",)
    track = r.track(*keys)
    if track is None and r.log.stage is Stage.UNKNOWN:
        track = r.track("loss/train")
    policy = _policy_loss(r)
    if policy is not None:
        yield policy
        return
    if track is None:
        yield unchecked(r, id, *keys)
        return
    if not r.long(track):
        yield too_short(r, id, *keys)
        return
    values = np.maximum(np.abs(track.values), 1e-12)
    half = Track(track.series, track.steps[len(values) // 2 :], np.log(values[len(values) // 2 :]), track.rows)
    tenth = max(3, len(values) // 10)
    low = float(min(np.median(values[:tenth]), np.median(values[len(values) // 2 :][:tenth])))
    end = float(np.median(values[-tenth:]))
    supervised = track.series.key == "loss/train"
    factor = 1.5 if supervised else 5.0
    if end < factor * max(low, 1e-9) or not half.trend.rises or half.trend.p >= 0.01:
        return
    if end - low < 4 * track.noise and not supervised:
        return
    returns = r.track("value/return_std")
    if returns is not None and returns.late > 0 and (returns.late / max(returns.early, 1e-12)) ** 2 > 0.5 * end / low:
        return  # the returns spread as much: the error has not grown against what is to be predicted
    whole = Track(track.series, track.steps, np.log(values), track.rows)
    learned = min(int(np.argmin(whole.slow)), len(whole) - 10)  # a cold critic's first rows lie above that as well
    at = whole.since(max(learned, 0)).departure(up=True) or half.step(0)
    told = [ends(track), figure("factor", track, value=end / low, factor=end / low, low=low, end=end)]
    yield finding(
        id,
        CRITICAL if end > 100 * low else WARNING,
        at,
        told,
        ruled_out=[ruled_out(id, "cold"), ruled_out(id, "returns")],
        source="heuristic",
    )


def _policy_loss(r: Reading) -> Finding | None:
    """|loss| beyond ten times its median for five log points, together with a ratio or KL beyond its bound."""
    track = r.trending("policy/loss")
    if track is None:
        return None
    size = np.abs(track.values)
    base = float(np.median(size))
    at = track.onset(size > 10 * base, 5) if base > 0 else None
    if at is None:
        return None
    ratio, step = r.track("policy/ratio_mean"), r.track("kl/update")
    beyond = (ratio is not None and not 0.5 <= ratio.late <= 2) or (step is not None and step.late > 0.05)
    kl = r.track("kl/reference_per_token")
    beyond = beyond or (kl is not None and kl.late > 0.5)
    if not beyond:
        return None
    told = [
        figure(
            "factor",
            track,
            value=float(size.max() / base),
            factor=float(size.max() / base),
            low=base,
            end=float(size.max()),
        )
    ]
    return finding(
        "diverging-loss",
        WARNING,
        at,
        told,
        ruled_out=[ruled_out("diverging-loss", "level")],
        source="heuristic",
    )


RULES = (
    Rule(("no-gradient",), TRAINED, _no_gradient),
    Rule(("exploding-gradients",), TRAINED, _exploding),
    Rule(("nan-inf",), TRAINED, _not_numbers),
    Rule(("diverging-loss",), TRAINED, _diverging),
)
