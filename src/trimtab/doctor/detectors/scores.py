"""Preference models, from their scores on pairs and their accuracies over folds.

Bands: held-out accuracies that people report (DeepSpeed-Chat's reference model .70, TL;DR models .75 to .80 with .65
called low, two people agree in 66 %); what has no source is heuristic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trimtab.doctor.detector import Verdicts
from trimtab.doctor.detectors.judgment_rule import (
    JudgmentRule,
    evidence,
    found,
    loudest,
    missing,
    share,
    underpowered,
    z_of,
)
from trimtab.doctor.detectors.score_figures import (
    accuracy,
    bare_logits,
    distinct_at_the_top,
    flips_of_repeats,
    label_noise,
    log_likelihood,
    rank_correlation,
)
from trimtab.doctor.finding import Evidence, Finding, NotDiagnosable, Severity
from trimtab.doctor.judgments import AccuracyRow, JudgmentMaterial, ScoreTable
from trimtab.stats.calibration import ece, fit_temperature
from trimtab.stats.intervals import Interval

__all__ = ["DETECTORS"]

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL

FAILING: Final = 0.55
NORMAL: Final = 0.65
"""Where the normal band of held-out accuracies begins."""
GOOD: Final = 0.70
"""An accuracy that the interval must exclude before the model is called weak."""
REPORTED: Final = "DeepSpeed-Chat's reference model, MA-RLHF issue 1, AlpacaFarm (two people agree in 66 %)"
ECE_WARNING: Final = 0.10
TEMPERATURE: Final = 1.5
CALIBRATION_N: Final = 300
FLAT: Final = 0.05
"""Standard deviation of scores, mean margin, share of the variance within pairs: below (heuristic)."""
SAME_SCORE: Final = 0.95
AT_A_BOUND: Final = 0.5
LENGTH_RHO: Final = 0.3
LENGTH_GAP: Final = 0.10
"""Accuracy where the longer response is better, less accuracy where the shorter is (heuristic)."""
LENGTH_SUSPICIOUS: Final = 0.75
LENGTH_CRITICAL: Final = 0.85
SURE: Final = 3.0
LIKELIHOOD: Final = 10.8
"""Twice the log-likelihood ratio that chance reaches once in a thousand, one degree of freedom."""
OVERFIT_GAP: Final = 0.10
CONTRADICTIONS: Final = 0.10
NOISE: Final = 0.10

ScoreLook = Callable[[ScoreTable], Verdicts]


def _each(material: JudgmentMaterial, look: ScoreLook) -> Verdicts:
    said = [v for table in material.scores for v in look(table)]
    yield from loudest(v for v in said if isinstance(v, Finding))
    unchecked = [v for v in said if isinstance(v, NotDiagnosable)]
    if len(unchecked) == len(material.scores):
        yield unchecked[0]


def _keys(table: ScoreTable) -> str:
    return table.names[0] if table.names[0] == table.names[1] else " - ".join(table.names)


# accuracy


def _low_accuracy(table: ScoreTable) -> Verdicts:
    id = "pm-low-accuracy"
    right = accuracy(table)
    if right is None:
        yield missing(id, "reference labels, or which response is the chosen one")
        return
    severity = _weakness(right)
    if severity is None:
        if right.n < 100 and right.low < NORMAL - 0.05:
            yield underpowered(id, right.n, GOOD, 0.1, "pairs")
        return
    told = [evidence(id, "share", right.mean, signal=_keys(table), n=right.n, low=right.low, high=right.high)]
    told += _worst_slice(id, table)
    told += [evidence(id, "free-coding", None)] if table.free_coding else []
    orders = ("order",) if table.same_both_orders is not None else ()
    cause = "cause-reversed" if right.high < 0.5 and not table.free_coding else "cause"
    yield found(id, severity, told, source=REPORTED, cause=cause, ruled_out=("chance", *orders),
                values={"n": right.n, "high": right.high})  # fmt: skip


def _weakness(right: Interval) -> Severity | None:
    """How weak an accuracy is; None where it is normal, or the sample cannot tell."""
    if right.n < 20 or right.mean >= NORMAL or right.high >= GOOD:
        return None
    return CRITICAL if right.mean < FAILING else WARNING


def _worst_slice(id: str, table: ScoreTable) -> list[Evidence]:
    """The part of the data with the lowest accuracy, where there are several with 30 pairs or more."""
    if not table.slice.known:
        return []
    rates = []
    for code, name in enumerate(table.slice.names):
        rows = (table.slice.codes == code) & (table.gold > 0) & np.isfinite(table.margin)
        if rows.sum() >= 30:
            rates.append((float(((table.margin > 0) == (table.gold == 1))[rows].mean()), name, int(rows.sum())))
    if len(rates) < 2:
        return []
    low, name, n = min(rates)
    return [evidence(id, "slice", low, slice=name, n=n)]


def _fold_accuracy(material: JudgmentMaterial) -> Verdicts:
    """The best of the groups decides: it is the model that one would go on with."""
    id = "pm-low-accuracy"
    rows = [(row, _over_folds(row)) for row in material.accuracies]
    best, right = max(rows, key=lambda each: each[1].mean)
    severity = _weakness(right)
    if severity is not None:
        told = [evidence(id, "folds", right.mean, group=best.group, folds=len(best.folds), low=right.low,
                         high=right.high)]  # fmt: skip
        if len(rows) > 1:
            worst, its = min(rows, key=lambda each: each[1].mean)
            told.append(evidence(id, "worst-group", its.mean, group=worst.group))
        yield found(id, severity, told, source=REPORTED, ruled_out=("chance", "split"),
                    values={"n": right.n, "high": right.high})  # fmt: skip
    elif right.n < 100 and right.low < NORMAL - 0.05:
        yield underpowered(id, right.n, GOOD, 0.1, "pairs")
    yield from _fold_overfit(best, right)


def _over_folds(row: AccuracyRow) -> Interval:
    """Mean over folds; the folds of one set of pairs are one sample of that many pairs, whatever the seeds."""
    mean = float(np.mean(row.folds))
    if row.pairs is not None:
        return share(mean * row.pairs, row.pairs)
    half = 2 * float(np.std(row.folds, ddof=1)) / math.sqrt(len(row.folds)) if len(row.folds) > 1 else 0.5
    return Interval(mean, mean - half, mean + half, 20 * len(row.folds))


def _fold_overfit(best: AccuracyRow, right: Interval) -> Verdicts:
    id = "pm-overfit"
    if best.train is None:
        yield missing(id, "accuracy on the training pairs")
    elif best.train - right.mean > OVERFIT_GAP and best.train > right.high:
        told = [evidence(id, "split", best.train - right.mean, train=best.train, held_out=right.mean, n=right.n)]
        yield found(id, WARNING, told, source="heuristic", cause="cause-split")


def _generalisation(table: ScoreTable) -> Verdicts:
    """Accuracy on the training pairs against the held-out ones, where the file says which are which."""
    id = "preference-not-generalising" if table.implicit else "pm-overfit"
    names = table.split.names
    of = {name: table.split.codes == i for i, name in enumerate(names)}
    train = [rows for name, rows in of.items() if "train" in name.lower()]
    held_out = [rows for name, rows in of.items() if "train" not in name.lower()]
    if not train or not held_out:
        return
    known = (table.gold > 0) & np.isfinite(table.margin)
    right = (table.margin > 0) == (table.gold == 1)
    a, b = (np.logical_or.reduce(rows) & known for rows in (train, held_out))
    if a.sum() < 20 or b.sum() < 20:
        return
    one, two = float(right[a].mean()), share(int(right[b].sum()), int(b.sum()))
    if one - two.mean > OVERFIT_GAP and two.high < one:
        told = [evidence(id, "split", one - two.mean, train=one, held_out=two.mean, n=two.n)]
        yield found(id, CRITICAL if two.high < FAILING else WARNING, told, source="heuristic", cause="cause-split")


# calibration and scale


def _calibration(table: ScoreTable) -> Verdicts:
    id = "pm-miscalibrated"
    margins = table.signed
    n = len(margins)
    if not n:
        yield missing(id, "reference labels, or which response is the chosen one")
    elif not bare_logits(table):
        yield NotDiagnosable(id, ("scores before any sigmoid, rating scale or clip",), "unit-unknown")
    elif bool((margins >= 0).all()) and n >= 50:
        yield missing(id, "labels that were not made from these scores")
    elif n < CALIBRATION_N:
        yield NotDiagnosable(id, (f"{CALIBRATION_N} pairs or more (there are {n})",), "underpowered")
    else:
        yield from _miscalibrated(id, table, margins)


def _miscalibrated(id: str, table: ScoreTable, margins: NDArray[np.float64]) -> Verdicts:
    # either response may stand first: both orientations, so that p covers [0, 1]
    both = np.concatenate([margins, -margins])
    outcome = np.concatenate([np.ones(len(margins)), np.zeros(len(margins))])
    error = ece(np.exp(-np.logaddexp(0, -both)), outcome)
    temperature = fit_temperature(both, outcome)
    gain = 2 * (log_likelihood(margins, temperature) - log_likelihood(margins, 1.0))
    if error <= ECE_WARNING or abs(math.log(temperature)) <= math.log(TEMPERATURE) or gain <= LIKELIHOOD:
        return
    told = [
        evidence(id, "ece", error, signal=_keys(table), n=len(margins)),
        evidence(id, "temperature", temperature, margin=float(np.abs(margins).mean())),
        evidence(id, "accuracy", float((margins > 0).mean())),
    ]
    over = temperature > 1
    right = accuracy(table)
    follows = over and right is not None and right.mean < FAILING
    yield found(id, WARNING if over else INFO, told, source="heuristic (ECE .10, n 300)",
                cause="cause-over" if over else "cause-under", ruled_out=("few",), values={"temperature": temperature},
                because_of="pm-low-accuracy" if follows else None)  # fmt: skip


def _collapse(table: ScoreTable) -> Verdicts:
    id = "pm-score-collapse"
    finite = np.isfinite(table.margin)
    margin = table.margin[finite]
    scores = np.concatenate([table.first[finite], table.second[finite]])
    if len(margin) < 20:
        yield NotDiagnosable(id, (f"20 pairs or more (there are {len(margin)})",), "underpowered")
        return
    values, counts = np.unique(scores, return_counts=True)
    same = max(float(counts.max() / counts.sum()), float((margin == 0).mean()))
    spread, mean_margin = float(scores.std()), float(np.abs(margin).mean())
    within = float((margin**2).mean() / 4 / scores.var()) if scores.var() > 0 else 0.0
    right = accuracy(table)
    informed = right is not None and right.low > FAILING
    at_a_bound = float(max(counts[0], counts[-1]) / counts.sum())
    told = [evidence(id, "spread", spread, signal=_keys(table), margin=mean_margin, n=len(margin))]
    if same > SAME_SCORE:
        told.insert(0, evidence(id, "same", same))
        yield found(id, CRITICAL, told, source="heuristic", ruled_out=("scale",))
    elif informed:
        return  # small numbers that tell good from bad are a matter of scale, not a collapse
    elif (spread < FLAT and mean_margin < FLAT) or within < FLAT**2:
        told += [evidence(id, "within", within)] if within < FLAT**2 else []
        severity = CRITICAL if right is not None and right.high < NORMAL else WARNING
        yield found(id, severity, told, source="heuristic", ruled_out=("scale",) if right is not None else ())
    elif at_a_bound > AT_A_BOUND and len(values) > 12:
        told.insert(0, evidence(id, "bound", at_a_bound))
        yield found(id, WARNING, told, source="heuristic", cause="cause-bound")


# what buys score


def _length(table: ScoreTable) -> Verdicts:
    id = "pm-length-bias"
    longer_by = table.length_1 - table.length_2
    rows = np.isfinite(table.margin) & np.isfinite(longer_by) & (longer_by != 0) & (table.margin != 0)
    n = int(rows.sum())
    if not n:
        yield missing(id, "lengths of both responses, or their texts")
        return
    margin, by = table.margin[rows], longer_by[rows]
    rho = rank_correlation(margin, by)
    picks_longer = (margin > 0) == (by > 0)
    q = share(int(picks_longer.sum()), n)
    told = [
        evidence(id, "rho", rho, signal=_keys(table), n=n),
        evidence(id, "share", q.mean, low=q.low, high=q.high),
    ]
    gold, known = table.gold[rows], table.gold[rows] > 0
    sign = 1 if rho > 0 else -1
    gap, sure = _length_gap((gold == 1) == (by > 0), picks_longer, known)
    if known.any():
        told.append(evidence(id, "gap", gap))
        biased = sign * gap > LENGTH_GAP and sure
        critical = max(q.mean, 1 - q.mean) >= LENGTH_CRITICAL or abs(gap) > 0.35
    else:
        biased = sign * (q.mean - 0.5) >= LENGTH_SUSPICIOUS - 0.5 and abs(z_of(int(picks_longer.sum()), n)) > SURE
        critical = max(q.mean, 1 - q.mean) >= LENGTH_CRITICAL
    if n >= 50 and abs(rho) > LENGTH_RHO and biased:
        yield found(id, CRITICAL if critical else WARNING, told, source="heuristic bands; AlpacaEval's people: .64",
                    cause="cause-longer" if sign > 0 else "cause-shorter",
                    ruled_out=("earned",) if known.any() else ())  # fmt: skip
    elif n < 100:
        yield underpowered(id, n, 0.5, 0.14, "pairs of unequal length")


def _length_gap(
    better_is_longer: NDArray[np.bool_], picks_longer: NDArray[np.bool_], known: NDArray[np.bool_]
) -> tuple[float, bool]:
    """Accuracy where the longer response is the better one, less accuracy where the shorter is; and whether it is
    more than chance."""
    long, short = known & better_is_longer, known & ~better_is_longer
    a, b = int(long.sum()), int(short.sum())
    if a < 10 or b < 10:
        return math.nan, False
    p, q = float(picks_longer[long].mean()), float((~picks_longer)[short].mean())
    error = math.sqrt((p * (1 - p) + 0.25 / a) / a + (q * (1 - q) + 0.25 / b) / b)
    return p - q, abs(p - q) > SURE * error


def _narrow(table: ScoreTable) -> Verdicts:
    id = "pm-narrow"
    if not table.texts:
        yield missing(id, "the texts of the responses beside their scores")
        return
    ratio = distinct_at_the_top(table)
    if ratio is None:
        yield NotDiagnosable(id, ("200 pairs or more with texts",), "underpowered")
    elif ratio[0] < 0.5:
        told = [evidence(id, "distinct", ratio[0], signal=_keys(table), top=ratio[1], n=ratio[2])]
        yield found(id, CRITICAL if ratio[0] < 0.25 else WARNING, told, source="heuristic", ruled_out=("rating",))


def _contradiction(table: ScoreTable) -> Verdicts:
    id = "pm-self-contradiction"
    flips, n = flips_of_repeats(table)
    if not n:
        yield missing(id, "scores of the same pairs again, reworded (equal pair_id)")
        return
    q = share(flips, n)
    if q.mean > CONTRADICTIONS and q.low > CONTRADICTIONS / 2 and n >= 20:
        told = [evidence(id, "flips", q.mean, signal=_keys(table), n=n, low=q.low, high=q.high)]
        yield found(id, CRITICAL if q.low > 0.25 else WARNING, told, source="heuristic")
    elif n < 50 and q.high > CONTRADICTIONS:
        yield underpowered(id, n, CONTRADICTIONS, CONTRADICTIONS, "repeated pairs")


def _noisy(table: ScoreTable) -> Verdicts:
    id = "noisy-labels"
    margins = table.signed
    if not len(margins):
        yield missing(id, "reference labels, or which response is the chosen one")
        return
    if len(margins) < CALIBRATION_N:
        yield NotDiagnosable(id, (f"{CALIBRATION_N} pairs or more (there are {len(margins)})",), "underpowered")
        return
    noise = label_noise(margins)
    if noise is not None and noise.share > NOISE and noise.low > NOISE / 2:
        told = [
            evidence(id, "plateau", noise.share, low=noise.low, high=noise.high, n=len(margins)),
            evidence(id, "confident", noise.confident, n=max(len(margins) // 10, 1)),
        ]
        yield found(id, CRITICAL if noise.low > 0.2 else WARNING, told, source="heuristic",
                    cause="cause-plateau", ruled_out=("close-calls",))  # fmt: skip


def _has_scores(material: JudgmentMaterial) -> bool:
    return bool(material.scores)


def _rule(id: str, look: ScoreLook, *more: str) -> JudgmentRule:
    def find(material: JudgmentMaterial) -> Iterator[Finding | NotDiagnosable]:
        yield from _each(material, look)

    return JudgmentRule((id, *more), _has_scores, find)


def _has_splits(material: JudgmentMaterial) -> bool:
    return any(len(table.split.names) > 1 for table in material.scores)


DETECTORS = (
    _rule("pm-low-accuracy", _low_accuracy),
    JudgmentRule(("pm-low-accuracy", "pm-overfit"), lambda material: bool(material.accuracies), _fold_accuracy),
    JudgmentRule(("pm-overfit", "preference-not-generalising"), _has_splits, lambda m: _each(m, _generalisation)),
    _rule("pm-miscalibrated", _calibration),
    _rule("pm-score-collapse", _collapse),
    _rule("pm-length-bias", _length),
    _rule("pm-narrow", _narrow),
    _rule("pm-self-contradiction", _contradiction),
    _rule("noisy-labels", _noisy),
)
"""On files of scores, and on accuracies over folds."""
