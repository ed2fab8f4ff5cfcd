"""The value model, and what is fed to it: explained variance, scale and noise of the scores, centred advantages."""

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
    ends,
    figure,
    finding,
    ruled_out,
    too_short,
    unchecked,
)
from trimtab.doctor.finding import Evidence, Finding, NotDiagnosable

__all__ = ["RULES"]

_CRITIC_FREE = frozenset({"grpo", "rloo", "reinforce", "reinforce++", "dapo", "dr-grpo", "remax", "gspo", "cispo"})


def _not_learning(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "value-not-learning"
    if r.log.algorithm in _CRITIC_FREE and r.track("value/loss", "value/explained_variance") is None:
        return
    explained = r.track("value/explained_variance")
    if explained is not None:
        if not r.long(explained):
            yield too_short(r, id, "value/explained_variance")
        else:
            yield from _explained(r, explained)
        return
    loss = r.track("value/loss")
    if loss is None:
        if r.log.algorithm in ("ppo", ""):
            yield unchecked(r, id, "value/explained_variance", "value/loss")
        return
    if not r.long(loss):
        yield too_short(r, id, "value/explained_variance", "value/loss")
        return
    if loss.late < 0.9 * loss.start or loss.late < 0.9 * loss.early or loss.late <= 0:
        return
    if float(loss.slow.min()) < 0.7 * loss.start:
        return  # it had learned; what came later is another finding
    spread = _spread(r)
    if spread is None or loss.late < 4 * spread**2:
        return  # a flat loss may be as low as it can get: it is judged against how much the scores vary
    told = [ends(loss), figure("against", loss, value=loss.late, late=loss.late, variance=spread**2)]
    yield finding(
        id,
        WARNING,
        loss.step(0),
        told,
        cause="flat",
        ruled_out=[ruled_out(id, "cold"), ruled_out(id, "low")],
        source="Stable-Baselines3; heuristic bounds",
    )


def _spread(r: Reading) -> float | None:
    """How much returns vary between responses, as far as the log tells: the largest of several stand-ins."""
    known = [abs(t.late) for t in (r.track("value/return_std"), r.track("reward/std"), r.track("score/std")) if t]
    for key in ("score/mean", "reward/mean"):
        if (t := r.track(key)) is not None and len(t) >= 5:
            low, high = np.percentile(t.values, [2, 98])
            known.append(float(high - low))
    return max(known) if known else None


def _explained(r: Reading, track: Track) -> Iterator[Finding]:
    id = "value-not-learning"
    returns = r.track("value/return_std")
    if returns is not None and returns.late**2 < 1e-4:
        return  # returns that hardly vary make explained variance meaningless
    rest = track.since(max(1, len(track) // 10))
    if track.late < 0:
        below = rest.values < 0
        severity = CRITICAL if float(below.mean()) > 0.5 and rest.late < -0.05 else WARNING
        at = rest.onset(rest.smooth < 0) or rest.step(0)
        if at > rest.step(0) and track.slow.max() > 0.3:
            told = [
                figure(
                    "peak",
                    track,
                    step=track.step(int(np.argmax(track.slow))),
                    value=float(track.slow.max()),
                    peak=float(track.slow.max()),
                    late=track.late,
                ),
                ends(track),
            ]
        else:
            told = [
                figure("rows-below", track, step=at, value=track.late, rows=int(below.sum()), of=len(rest), bound=0.0),
                ends(track),
            ]
        out = [ruled_out(id, "cold"), ruled_out(id, "constant-returns")]
        yield finding(id, severity, at, told, ruled_out=out, source="Stable-Baselines3")
    elif track.late < 0.05 and rest.slow.max() < 0.1 and not track.trend.rises:
        out, source = [ruled_out(id, "cold")], "Stable-Baselines3; heuristic bounds"
        yield finding(id, WARNING, rest.step(0), [ends(track)], ruled_out=out, source=source)
    elif track.late < 0.2:
        yield finding(id, INFO, rest.step(0), [ends(track)], cause="weak", source="Stable-Baselines3; heuristic bounds")


def _scale(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "reward-scale"
    if r.track("score/shaped_std") is not None:
        spread = r.track("score/shaped_std")
    else:
        spread = r.track("score/std", "reward/std")
    if spread is None or len(spread) < 3:
        yield unchecked(r, id, "score/std") if spread is None else too_short(r, id, "score/std")
        return
    large, small = spread.late > 10, 0 < spread.late < 0.01
    if not large and not small:
        return
    felt = _feels(r, large, spread.late)
    told = [ends(spread), *felt]
    what = "cause" if large else "small"
    # a scale alone harms nothing where it is normalised later: a second series has to show it
    yield finding(
        id,
        WARNING if felt else INFO,
        spread.step(0),
        told,
        cause=what,
        ruled_out=[ruled_out(id, "normalised")] if felt else [],
        source="heuristic",
    )


def _feels(r: Reading, large: bool, spread: float) -> list[Evidence]:
    """Signs that the value model or the advantages feel the scale of the scores, whose spread is `spread`.

    A value loss far below its square, or returns that spread far less, are those of scores that were normalised.
    """
    out = []
    if large:
        bounds = (
            ("value/return_std", 10.0),
            ("advantage/std", 10.0),
            ("value/loss", 25.0),
            ("value/clip_fraction", 0.3),
            ("value/gradient_norm", 100.0),
        )
        for key, bound in bounds:
            least = {"value/return_std": 0.1 * spread, "value/loss": 0.02 * spread**2}.get(key, 0.0)
            t = r.track(key)
            if t is not None and min(t.early, t.late) > max(bound, least):  # a scale is there from the start
                out.append(figure("above", t, step=t.step(-1), value=t.late, bound=bound, late=t.late))
    else:
        for key, bound in (("value/return_std", 0.01), ("advantage/std", 0.01)):
            if (t := r.track(key)) is not None and 0 < t.late < bound:
                out.append(figure("below", t, step=t.step(-1), value=t.late, bound=bound, late=t.late))
        p = progress(r)
        if out and p is not None and p.improved:
            out = []  # small, and it learns all the same
    return out


def _noise(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "reward-noise"
    track, spread = r.score, r.track("score/std", "reward/std")
    if track is None or spread is None:
        yield unchecked(r, id, "score/std" if track is not None else "score/mean")
        return
    if not r.long(track) or track.rows < 30 or r.span < 60:
        yield too_short(r, id, "score/mean", "reward/mean")
        return
    p = progress(r)
    if p is None or p.improved or p.fallen or spread.late <= 0:
        return
    t = track.trend
    between = trends.noise(track.values)
    # a batch mean that jumps by half of what single responses do is the mean of four responses, or of four groups
    if between < 0.5 * spread.late:
        return
    told = [
        figure("batch-noise", track, value=between, noise=between, spread=spread.late, ratio=between / spread.late),
        figure("trend", track, value=t.change, change=t.change, low=t.change_low, high=t.change_high, p=t.p),
    ]
    yield finding(id, WARNING, track.step(0), told, ruled_out=[ruled_out(id, "swings")], source="heuristic")


def _not_centred(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "advantage-not-centred"
    if r.log.algorithm == "reinforce":
        return  # no baseline, by choice
    mean, score = r.log.get("advantage/mean"), r.log.get("score/mean")
    if mean is None or score is None:
        yield unchecked(r, id, "advantage/mean" if mean is None else "score/mean")
        return
    shared, i, j = np.intersect1d(mean.steps, score.steps, return_indices=True)
    a, s = mean.values[i], score.values[j]
    good = np.isfinite(a) & np.isfinite(s)
    shared, a, s = shared[good], a[good], s[good]
    if len(a) < 5:
        yield too_short(r, id, "advantage/mean")
        return
    size = float(np.median(np.abs(s)))
    near = np.abs(a - s) < max(0.02 * size, 1e-9)
    apart = np.abs(s) > 0.2 * size  # where the score is near zero, a centred advantage equals it by chance
    share = float((near & apart).sum() / max(1, int(apart.sum())))
    track = r.track("advantage/mean")
    assert track is not None
    if size > 0 and share > 0.3:
        at = int(shared[int(np.argmax(near & apart))])
        told = [
            figure(
                "equal",
                track,
                step=at,
                value=share,
                share=share,
                rows=int((near & apart).sum()),
                of=len(a),
                score=score.name,
            )
        ]
        yield finding(
            id,
            CRITICAL if share > 0.9 and len(a) >= 20 else WARNING,
            at,
            told,
            ruled_out=[ruled_out(id, "chosen"), ruled_out(id, "chance")],
            source="Search-R1#88",
        )
        return
    spread = r.track("advantage/std")
    if spread is None or r.log.algorithm not in _CRITIC_FREE or spread.late <= 0:
        return
    if abs(track.late) > 0.5 * spread.late and abs(track.early) > 0.5 * spread.early:
        told = [ends(track), ends(spread)]
        yield finding(id, WARNING, track.step(0), told, ruled_out=[ruled_out(id, "lengths")], source="heuristic")


RULES = (
    Rule(("value-not-learning",), POLICY, _not_learning),
    Rule(("reward-scale",), POLICY, _scale),
    Rule(("reward-noise",), POLICY, _noise),
    Rule(("advantage-not-centred",), POLICY, _not_centred),
)
