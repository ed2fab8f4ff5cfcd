"""Reward hacking and length exploitation. Only a measure that nothing trains on can decide the first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np

from trimtab.doctor import trends
from trimtab.doctor.detectors.entropy import FLOOR
from trimtab.doctor.detectors.kl import past_bound
from trimtab.doctor.detectors.lengths import grown
from trimtab.doctor.detectors.progress import changed_since, judge, progress
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
from trimtab.doctor.finding import Evidence, Finding, NotDiagnosable
from trimtab.doctor.log import Stage

__all__ = ["RULES", "Measured", "independent"]

_BOOKKEEPING = re.compile(
    r"(^eval/score$|_(low|high)$|eval/(prompts|length|runtime|loss|samples|steps|epoch|num_|time)|per_second|_(std|n|count)$)"
)
_GENERAL = re.compile(r"mmlu|hellaswag|winogrande|truthfulqa|lambada|piqa|boolq|arc[-_]|perplexity|\bppl\b|pretrain")
_LOWER_IS_BETTER = re.compile(r"perplexity|\bppl\b|_ppl|error|nll|(^|[/_])loss")
_FEWEST = 4


@dataclass(frozen=True)
class Measured:
    """An independent measure: its series turned so that higher is better, and whether it is a general capability."""

    key: str
    track: Track
    general: bool


def independent(r: Reading) -> list[Measured]:
    """Measures that nothing trains on: `gold/mean` and `eval/*`, but the trained-on score and its bookkeeping."""
    keys = [k for k in r.log.series if k == "gold/mean" or (k.startswith("eval/") and not _BOOKKEEPING.search(k))]
    out = []
    for key in sorted(keys, key=lambda k: (k != "gold/mean", k)):
        track = r.track(key)
        if track is None:
            continue
        if _LOWER_IS_BETTER.search(key):
            track = Track(track.series, track.steps, -track.values, track.rows)
        out.append(Measured(key, track, bool(_GENERAL.search(key))))
    return out


def _hacking(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "reward-hacking"
    proxy = r.score
    measures = [m for m in independent(r) if not m.general]
    if proxy is None:
        if r.log.stage is not Stage.EVALUATION:
            yield unchecked(r, id, "score/mean")
        return
    enough = [m for m in measures if len(m.track) >= _FEWEST]
    if not measures:
        suspicion = _suspicion(r, proxy)
        yield suspicion if suspicion is not None else unchecked(r, id, "eval/<measure>", "gold/mean")
        return
    if not enough or not r.long(proxy):
        yield too_short(r, id, measures[0].key)
        return
    for measure in enough:
        found = _fell(r, proxy, measure) or _never(r, proxy, measure)
        if found is not None:
            yield found
            return


def _level_at(track: Track, step: float) -> tuple[float, float]:
    """Median of a series about a step, and its standard error."""
    at = int(np.searchsorted(track.steps, step))
    half = max(2, len(track) // 10)
    part = track.values[max(0, at - half) : at + half + 1]
    return float(np.median(part)), track.error(len(part))


def _fell(r: Reading, proxy: Track, measure: Measured) -> Finding | None:
    """The measure has dropped from its own best beyond its noise, while the score is higher than it was there."""
    gold = measure.track
    sigma = trends.noise(gold.values)
    width = 1 if len(gold) < 8 else 3 if len(gold) < 20 else max(3, len(gold) // 8) | 1
    smooth = trends.running_median(gold.values, width)
    at = int(np.argmax(smooth))
    tail = gold.values[-max(2, min(len(gold) // 4, gold.width)) :]
    now = float(np.median(tail))
    drop = float(smooth[at]) - now
    error = 1.25 * sigma * sqrt(1 / max(1, width) + 1 / len(tail))
    after = gold.values[at:]
    if drop <= 0 or at >= len(gold) - len(tail):
        return None
    # the best of many noisy values is flattered by two of their errors
    beyond = drop > 3 * error + 2 * 1.25 * sigma / sqrt(width) if sigma > 0 else True
    sinks = len(after) < 8 or trends.theil_sen(after, gold.steps[at:]).falls
    if not beyond or not sinks:
        return None
    then, then_error = _level_at(proxy, float(gold.steps[at]))
    higher = proxy.late - then
    firm = sqrt(then_error**2 + proxy.error(proxy.width) ** 2)
    whole = judge(gold)
    won = max(float(smooth[at]) - gold.start, 0.0)
    opposed = proxy.trend.rises and whole.track.trend.falls
    if not (higher > 2 * firm or opposed):
        return None
    material = drop > max(0.5 * won, 0.1 * abs(float(smooth[at]))) and drop > 6 * error
    told = [
        figure("peak", gold, step=gold.step(at), value=float(smooth[at]), peak=float(smooth[at]), late=now),
        figure(
            "since-then", proxy, step=proxy.step(-1), value=proxy.late, then=then, late=proxy.late, at=gold.step(at)
        ),
    ]
    out = [ruled_out("reward-hacking", "noise", drop=drop, error=error), ruled_out("reward-hacking", "convergence")]
    return finding(
        "reward-hacking",
        CRITICAL if material else WARNING,
        gold.step(at),
        told,
        ruled_out=out,
        values={"measure": gold.name},
        source="Gao, Schulman, Hilton 2022",
    )


def _never(r: Reading, proxy: Track, measure: Measured) -> Finding | None:
    """The measure has never left its floor of zero, while the scorer's credit is large or grows."""
    gold = measure.track
    if measure.key.startswith("eval/") and gold.rows < 10:
        return None
    if gold.rows < 10 or r.span < 50 or (float(np.abs(gold.values).max()) > 0.0 and gold.slow.max() > 0.01):
        return None
    parts = [t for k in r.log.family("score/") if (t := r.track(k)) is not None and _credit(k, t)]
    rises = [t for t in (proxy, *parts) if t.trend.rises or t.rise[0] > 3 * t.rise[1]]
    credited = [t for t in parts if t.late > 0.2]
    if not rises and not credited:
        return None
    best = max(credited or rises, key=lambda t: t.late)
    told = [figure("floor", gold, step=gold.step(-1), value=gold.late, late=gold.late, rows=gold.rows), ends(best)]
    out = [ruled_out("reward-hacking", "hard", scorer=best.name)]
    # wrong from the first credit on, however little it was; else from where it grows
    since = best.onset(best.slow > 0.1) if best in credited else best.departure(up=True)
    return finding(
        "reward-hacking",
        WARNING,
        since if since is not None else proxy.step(0),
        told,
        ruled_out=out,
        cause="floor",
        values={"measure": gold.name, "scorer": best.name},
        source="an independent measure decides",
    )


def _credit(key: str, track: Track) -> bool:
    """Whether a component is a share of responses that it calls right: within [0, 1], and more than a format check."""
    if key in ("score/mean", "score/std", "score/min", "score/max", "score/group_std") or "shaped" in key:
        return False
    named = re.search(r"success|correct|accura|solve|pass|proxy|judge|win", key)
    return bool(named) and float(track.values.min()) >= 0 and float(track.values.max()) <= 1


def _suspicion(r: Reading, proxy: Track) -> Finding | None:
    """The score is up a lot while length or KL has grown a lot: no more than a reason to measure."""
    p = progress(r)
    if p is None or not p.improved or p.fallen:
        return None
    length, kl = r.track("response/length_mean"), past_bound(r)
    told: list[Evidence] = [ends(proxy)]
    onset: int | None = None
    if length is not None and r.long(length) and grown(length):
        told.append(ends(length))
        onset = length.departure(up=True)
    if kl is not None and kl[0].late > 0.6 * kl[1]:
        told.append(ends(kl[0]))
        onset = onset if onset is not None else kl[0].departure(up=True)
    if len(told) < 2:
        return None
    return finding("reward-hacking", INFO, onset, told, cause="suspicion", source="RHOB's own correction")


def _length(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "length-exploitation"
    length, p = r.track("response/length_mean"), progress(r)
    if length is None:
        yield unchecked(r, id, "response/length_mean")
        return
    if not r.long(length) or p is None:
        yield too_short(r, id, "response/length_mean")
        return
    if not grown(length) or not p.improved:
        return
    at = length.departure(up=True) or length.step(0)
    told = [ends(length), ends(p.track)]
    damage = _damage(r)
    share = _share_by_length(length, p.track)
    if share is not None:
        told.append(figure("length-share", length, value=share[0], share=share[0], r=share[1]))
    bought = share is not None or changed_since(p.track, at) > 2
    if bought and (damage or share is not None):
        severity = CRITICAL if len(damage) >= 3 else WARNING
        yield finding(id, severity, at, [*told, *damage], ruled_out=[ruled_out(id, "earned")], source="heuristic")
        return
    yield finding(id, INFO, at, told, cause="watch", source="heuristic")


def _damage(r: Reading) -> list[Evidence]:
    """Signs that the growth was not earned: cut off more, far from the reference, repetitive, a measure sinks."""
    out = []
    cut = r.track("response/truncated_fraction")
    if cut is not None and cut.late > 0.1 and cut.late > cut.start + 0.05:
        out.append(ends(cut))
    kl = past_bound(r)
    if kl is not None and kl[2] is not None and r.beta != 0:
        out.append(ends(kl[0]))
    inside = r.track("response/repetition")
    if inside is not None and inside.late > 0.3 and inside.late > 2 * inside.start:
        out.append(ends(inside))
    entropy = r.track("policy/entropy")
    if entropy is not None and 0 <= entropy.late < min(0.1 * entropy.start, FLOOR):
        out.append(ends(entropy))
    for measure in independent(r):
        if len(measure.track) >= 6 and not measure.general:
            gold = judge(measure.track)
            if gold.fallen or (r.long(measure.track) and gold.flat):
                out.append(ends(measure.track))
    return out


def _share_by_length(length: Track, score: Track) -> tuple[float, float] | None:
    """Share of the score's gain that its batch-to-batch dependence on length predicts, with that correlation.

    Both series lose their slow curve first: two trends always correlate. None unless the correlation is firm (r > .3,
    p < .001) and the share above one half.
    """
    shared, i, j = np.intersect1d(length.steps, score.steps, return_indices=True)
    if len(shared) < 30:
        return None
    x = (length.values - length.slow)[i]
    y = (score.values - score.slow)[j]
    keep = slice(2, len(x) - 2)
    x, y = trends.rank(x[keep]), trends.rank(y[keep])
    if x.std() == 0 or y.std() == 0:
        return None
    r = float(np.corrcoef(x, y)[0, 1])
    if r < 0.3 or r * sqrt(len(x) - 2) / sqrt(max(1 - r * r, 1e-9)) < 3.3:
        return None
    rest_x, rest_y = (length.values - length.slow)[i], (score.values - score.slow)[j]
    slope = float((rest_x @ rest_y) / (rest_x @ rest_x))
    gain = score.late - score.start
    share = slope * (length.late - length.start) / gain if gain > 0 else 0.0
    return (share, r) if share > 0.5 else None


RULES = (
    Rule(("reward-hacking",), POLICY | {Stage.EVALUATION}, _hacking),
    Rule(("length-exploitation",), POLICY, _length),
)
