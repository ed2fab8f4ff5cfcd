"""Judges: do they look at the place, contradict themselves, prefer length or themselves, answer at all?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from trimtab.doctor.detector import Verdicts
from trimtab.doctor.detectors import judge_bands as bands
from trimtab.doctor.detectors.judge_counts import (
    failures,
    lengths,
    own,
    places,
    repeats,
    swaps,
    templates,
)
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
from trimtab.doctor.finding import Finding, NotDiagnosable, Severity
from trimtab.doctor.judgments import JudgmentMaterial
from trimtab.labeling.verdicts import VerdictTable
from trimtab.stats.agreement import krippendorff_alpha
from trimtab.stats.intervals import bootstrap_mean
from trimtab.stats.significance import two_proportion_test

__all__ = ["DETECTORS"]

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL

JudgeLook = Callable[[str, VerdictTable], Verdicts]


def _judges(material: JudgmentMaterial) -> Iterator[tuple[str, VerdictTable]]:
    assert material.verdicts is not None
    for name in material.verdicts.judge.names:
        yield name, material.verdicts.of_judge(name)


def _each_judge(material: JudgmentMaterial, look: JudgeLook) -> Verdicts:
    """What `look` says of every judge: one finding of each id, and what could be checked of none."""
    said = [v for name, table in _judges(material) for v in look(name, table)]
    findings = [v for v in said if isinstance(v, Finding)]
    yield from loudest(findings)
    unchecked = [v for v in said if isinstance(v, NotDiagnosable)]
    checked_judges = len(list(_judges(material)))
    for id in dict.fromkeys(v.id for v in unchecked):
        of_id = [v for v in unchecked if v.id == id]
        if len(of_id) == checked_judges:
            yield of_id[0]


# position and consistency


def _position(name: str, table: VerdictTable) -> Verdicts:
    id = "judge-position-bias"
    if not (table.order > 0).any() or (counted := places(table)) is None:
        yield missing(id, "verdicts on the same pairs with the responses exchanged (order 21)")
        return
    first, n, both = counted
    interval, z = share(first, n), z_of(first, n)
    off = abs(interval.mean - 0.5) if n else 0.0
    if abs(z) > bands.SURE and off > bands.PLACE_WARNING:
        told = [evidence(id, "share", interval.mean, judge=name, n=n, low=interval.low, high=interval.high, z=z)]
        severity = CRITICAL if off >= bands.PLACE_CRITICAL else WARNING
        yield found(id, severity, told, source=bands.ANNOTATORS, cause="cause-first" if z > 0 else "cause-second",
                    ruled_out=("quality" if both else "quality-drawn", "chance"),
                    values={"judge": name, "z": abs(z)})  # fmt: skip
    elif n < 400 and max(abs(interval.low - 0.5), abs(interval.high - 0.5)) > bands.PLACE_CRITICAL:
        yield underpowered(id, n, 0.5, bands.PLACE_WARNING, "verdicts")


def _consistency(name: str, table: VerdictTable) -> Verdicts:
    id = "judge-inconsistency"
    swapped, again = swaps(table), repeats(table)
    if not swapped.n and not again.n:
        yield missing(id, "verdicts on the same pairs in both orders or repeated verdicts (sample)")
        return
    told, severities, leaning = [], [], False
    if swapped.n:
        alike = share(swapped.same, swapped.n)
        decided = swapped.n - swapped.half
        # a tie against a winner is half a contradiction; a judge that seldom names two winners is merely cautious
        soft = share(swapped.n - swapped.opposite - swapped.half / 2, swapped.n)
        if alike.high < bands.SWAP_WARNING and soft.mean < bands.SWAP_WARNING + 0.1:
            severities.append(
                CRITICAL if alike.mean < bands.SWAP_CRITICAL and soft.mean < bands.SWAP_WARNING else WARNING
            )
            told.append(evidence(id, "swap", alike.mean, judge=name, n=swapped.n, low=alike.low, high=alike.high,
                                 opposite=swapped.opposite, half=swapped.half))  # fmt: skip
            noise = _noise(1 - swapped.opposite / max(decided, 1))
            told.append(evidence(id, "ceiling", 1 - noise, noise=noise))
            leaning = abs(2 * swapped.first - swapped.opposite) > 0.5 * max(swapped.opposite, 1)
    if again.n:
        same = share(again.same, again.n)
        if same.high < bands.REPEAT_WARNING:
            severities.append(CRITICAL if same.mean < bands.REPEAT_CRITICAL else WARNING)
            told.append(evidence(id, "repeat", same.mean, judge=name, n=again.n, low=same.low, high=same.high))
    if severities:
        worst = max(severities, key=lambda s: s.rank)
        because = "judge-position-bias" if leaning and any(
            isinstance(f, Finding) for f in _position(name, table)) else None  # fmt: skip
        yield found(id, worst, told, source=bands.ZHENG,
                    cause="cause-place" if leaning else "cause", ruled_out=("ties",) if swapped.n else (),
                    values={"judge": name, "half": swapped.half}, because_of=because)  # fmt: skip
    elif max(swapped.n, again.n) < 30:
        yield underpowered(id, max(swapped.n, again.n), 0.85, 0.1, "pairs")


def _noise(alike: float) -> float:
    """Error rate of a single verdict whose two copies agree with probability (1 - e)^2 + e^2."""
    return 0.5 * (1 - math.sqrt(max(2 * alike - 1, 0.0)))


# agreement


def _disagreement(name: str, table: VerdictTable) -> Verdicts:
    id = "judge-disagreement"
    known = table.take((table.gold > 0) & (table.winner >= 0))
    if not len(known):
        yield missing(id, "reference labels (gold) or a second judge on the same pairs")
        return
    right = np.where(known.winner == 0, 0.5, known.winner == known.gold)
    pairs, index = np.unique(known.pair.codes, return_inverse=True)
    k = float((np.bincount(index, right) / np.bincount(index)).sum())
    agreed = share(k, len(pairs))
    if agreed.high < bands.PEOPLE_AGREE:
        severity = CRITICAL if agreed.mean < 0.55 and agreed.high < 0.62 else WARNING
        told = [evidence(id, "gold", agreed.mean, judge=name, n=len(pairs), low=agreed.low, high=agreed.high)]
        cause = "cause-reversed" if agreed.high < 0.5 else "cause"
        yield found(id, severity, told, source="AlpacaFarm: two people agree in 66 %", cause=cause,
                    ruled_out=("chance",), values={"judge": name, "n": len(pairs)},
                    because_of=next((f.id for look in (_position, _consistency) for f in look(name, table)
                                     if isinstance(f, Finding)), None))  # fmt: skip
    elif len(pairs) < 50:
        yield underpowered(id, len(pairs), bands.PEOPLE_AGREE, 0.1, "pairs with a reference label")


def _panel(material: JudgmentMaterial) -> Verdicts:
    """Several judges or people on the same pairs."""
    table = material.verdicts
    assert table is not None
    id = "judge-disagreement"
    single = list(_each_judge(material, _disagreement))
    yield from (v for v in single if isinstance(v, Finding))
    votes = _votes(table)
    if votes is None:
        yield from (v for v in single if isinstance(v, NotDiagnosable))
        return
    alpha = krippendorff_alpha(votes)
    low, high = _alpha_interval(votes)
    told = [evidence(id, "alpha", alpha, raters=votes.shape[1], n=len(votes), low=low, high=high)]
    values = {"raters": votes.shape[1]}
    source = "Krippendorff's bands (not checked against the paper)"
    if any(isinstance(v, Finding) for v in single):
        return
    if high < bands.ALPHA_POOR:
        yield found(id, WARNING, told, source=source, cause="cause-panel", values=values)
    elif high < bands.ALPHA_TENTATIVE:
        yield found(id, INFO, told, source=source, cause="cause-panel", values=values)


def _votes(table: VerdictTable) -> np.ndarray[tuple[int, int], np.dtype[np.int64]] | None:
    """[pairs, raters] votes 0 tie, 1, 2, -1 missing, of the pairs that two or more raters judged; None if under 20."""
    raters = len(table.judge.names)
    if raters < 2:
        return None
    votes = np.full((len(table.pair.names), raters), -1, dtype=np.int64)
    rows = table.winner >= 0
    votes[table.pair.codes[rows], table.judge.codes[rows]] = table.winner[rows]
    votes = votes[(votes >= 0).sum(axis=1) >= 2]
    return votes if len(votes) >= 20 else None


def _alpha_interval(votes: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> tuple[float, float]:
    """95 % bootstrap interval of alpha over pairs."""
    rng = np.random.default_rng(0)
    drawn = [krippendorff_alpha(votes[rng.integers(len(votes), size=len(votes))]) for _ in range(200)]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return float(low), float(high)


# length, self, form


def _length(name: str, table: VerdictTable) -> Verdicts:
    id = "judge-length-bias"
    longer, wanted, known = lengths(table)
    n = len(longer)
    if not n:
        yield missing(id, "lengths of both responses (length_1, length_2)")
        return
    q, z = share(int(longer.sum()), n), z_of(int(longer.sum()), n)
    told = [evidence(id, "share", q.mean, judge=name, n=n, low=q.low, high=q.high, z=z)]
    reference = int(known.sum()) >= 50
    if reference:
        g = float(wanted[known].mean())
        excess = bootstrap_mean(longer[known].astype(float) - wanted[known], resamples=500)
        told.append(evidence(id, "reference", g, n=int(known.sum()), excess=excess.mean))
        wrong = known & (longer != wanted)
        told += [evidence(id, "errors", float(longer[wrong].mean()), n=int(wrong.sum()))] if wrong.sum() >= 20 else []
        too_long = (
            q.mean >= bands.LENGTH_WARNING and z > bands.SURE and excess.mean > bands.LENGTH_EXCESS and excess.low > 0
        )
        too_short = (
            q.mean <= 1 - bands.LENGTH_WARNING
            and z < -bands.SURE
            and excess.mean < -bands.LENGTH_EXCESS
            and excess.high < 0
        )
        critical = max(q.mean, 1 - q.mean) >= bands.LENGTH_CRITICAL and abs(excess.mean) > 0.1
    else:
        told.append(evidence(id, "people", bands.PEOPLE_LONGER))
        too_long = z > bands.SURE and q.mean >= bands.LENGTH_WARNING and (
            n >= bands.LENGTH_LARGE_N or q.low > bands.PEOPLE_LONGER + bands.LENGTH_EXCESS)  # fmt: skip
        too_short = z < -bands.SURE and q.high < 1 - bands.LENGTH_WARNING
        critical = q.mean >= bands.LENGTH_CRITICAL
    if too_long or too_short:
        yield found(id, CRITICAL if critical else WARNING, told, source=bands.ANNOTATORS,
                    cause="cause-longer" if too_long else "cause-shorter",
                    ruled_out=("better" if reference else "chance",), values={"judge": name, "z": abs(z)})  # fmt: skip
    elif n < 100:
        yield underpowered(id, n, bands.PEOPLE_LONGER, 0.1, "decided verdicts")


def _self_preference(material: JudgmentMaterial) -> Verdicts:
    id = "judge-self-preference"
    table = material.verdicts
    assert table is not None
    findings, looked = [], False
    for name, of_judge in _judges(material):
        counted = own(of_judge, name)
        if counted is None:
            continue
        looked = True
        won, first, rows = counted
        q, z = share(int(won.sum()), len(won)), z_of(int(won.sum()), len(won))
        told = [evidence(id, "share", q.mean, judge=name, n=len(won), low=q.low, high=q.high, z=z)]
        other = _rate_of_others(table, of_judge, name, first, rows)
        if other is not None:
            told.append(evidence(id, "others", other))
        earned = other is not None and q.low <= other + bands.OWN_EXCESS
        if q.mean > bands.OWN_WARNING and z > bands.SURE and not earned:
            severity = CRITICAL if q.mean > bands.OWN_CRITICAL else WARNING
            not_that = ("better",) if other is not None else ("chance",)
            findings.append(
                found(id, severity, told, source=bands.HEURISTIC, values={"judge": name, "z": z}, ruled_out=not_that)
            )
    yield from loudest(findings)
    if not looked:
        yield missing(id, "the models that wrote the responses (generator_1, generator_2), one of them the judge's own")


def _rate_of_others(
    table: VerdictTable, mine: VerdictTable, name: str, first: np.ndarray[tuple[int], np.dtype[np.bool_]],
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> float | None:  # fmt: skip
    """How often the same responses win by the reference labels, or by the other judges; None if that is not known."""
    gold = mine.gold[rows]
    if (gold > 0).sum() >= 20:
        return float(np.where(first, gold == 1, gold == 2)[gold > 0].mean())
    side = dict(zip(mine.pair.codes[rows].tolist(), np.where(first, 1, 2).tolist(), strict=True))
    others = table.take((table.judge.codes != table.judge.names.index(name)) & table.decided)
    wins = [w == side[p] for p, w in zip(others.pair.codes.tolist(), others.winner.tolist(), strict=True) if p in side]
    return float(np.mean(wins)) if len(wins) >= 20 else None


def _unparsed(name: str, table: VerdictTable) -> Verdicts:
    id = "judge-unparsed"
    by_outcome = failures(table)
    failed = by_outcome["unparsed"] + by_outcome["refused"] + by_outcome["error"]
    q = share(failed, len(table))
    if q.low > bands.UNPARSED_WARNING:
        told = [evidence(id, "share", q.mean, judge=name, n=len(table), unparsed=by_outcome["unparsed"],
                         refused=by_outcome["refused"], errors=by_outcome["error"])]  # fmt: skip
        main = max(("unparsed", "refused", "error"), key=lambda k: by_outcome[k])
        severity = CRITICAL if q.low > bands.UNPARSED_CRITICAL else WARNING
        yield found(id, severity, told, source=bands.HEURISTIC, cause=f"cause-{main}", values={"judge": name})


def _template(name: str, table: VerdictTable) -> Verdicts:
    id = "judge-template-sensitivity"
    between, within = templates(table), repeats(table)
    if not between.n:
        yield missing(id, "verdicts on the same pairs under two or more templates")
        return
    flips = share(between.n - between.same, between.n)
    told = [evidence(id, "flips", flips.mean, judge=name, n=between.n, low=flips.low, high=flips.high)]
    if within.n >= 20:
        noise = (within.n - within.same) / within.n
        told.append(evidence(id, "noise", noise, n=within.n))
        p = two_proportion_test(between.n - between.same, between.n, within.n - within.same, within.n)
        beyond = p < 0.01 and flips.mean > noise
    else:
        beyond = (
            flips.low > bands.TEMPLATE_FLIPS
        )  # what even a judge that errs in one case of seven does not reach by noise
    if beyond:
        yield found(id, WARNING, told, source=bands.HEURISTIC, values={"judge": name},
                    ruled_out=("noise",) if within.n >= 20 else ())  # fmt: skip
    elif between.n < 50:
        yield underpowered(id, between.n, 0.1, 0.1, "verdicts under two templates")


def _has_verdicts(material: JudgmentMaterial) -> bool:
    return material.verdicts is not None and len(material.verdicts) > 0


def _rule(id: str, look: JudgeLook) -> JudgmentRule:
    return JudgmentRule((id,), _has_verdicts, lambda material: _each_judge(material, look))


DETECTORS = (
    _rule("judge-position-bias", _position),
    _rule("judge-inconsistency", _consistency),
    JudgmentRule(("judge-disagreement",), _has_verdicts, _panel),
    _rule("judge-length-bias", _length),
    JudgmentRule(("judge-self-preference",), _has_verdicts, _self_preference),
    _rule("judge-unparsed", _unparsed),
    _rule("judge-template-sensitivity", _template),
)
"""On the verdicts of judges, one by one."""
