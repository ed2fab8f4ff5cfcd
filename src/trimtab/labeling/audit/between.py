"""Between judges: how far they agree, and who makes up the pool."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.labeling.audit.inference import finite
from trimtab.labeling.audit.results import Agreement, Estimate, PairAgreement
from trimtab.labeling.audit.units import combined, majority
from trimtab.labeling.verdicts import NO_WINNER, TIE, Coded, VerdictTable
from trimtab.stats.agreement import agreement_intervals
from trimtab.stats.dawid_skene import dawid_skene
from trimtab.stats.intervals import Interval

__all__ = ["agreement_between", "pool", "vote_matrix"]

MOST_PAIRWISE = 60
"""With more judges than this the table of every two is left out."""
_FEWEST_FOR_RELIABILITY = 3


def vote_matrix(table: VerdictTable) -> NDArray[np.int64]:
    """[pairs, judges] each judge's majority on each pair: 1, 2, 0 for a tie, -1 where it gave no verdict."""
    _, row, vote = majority(table, combined(table.pair.codes, table.judge.codes))
    votes = np.full((len(table.pair.names), len(table.judge.names)), NO_WINNER, dtype=np.int64)
    votes[table.pair.codes[row], table.judge.codes[row]] = vote
    return votes


def agreement_between(table: VerdictTable, resamples: int, seed: int) -> Agreement | None:
    """Agreement between all judges of a table; None with fewer than two."""
    raters = len(table.judge.names)
    if raters < 2:
        return None
    votes = vote_matrix(table)
    cluster = np.zeros(len(table.pair.names), dtype=np.int64)
    cluster[table.pair.codes] = table.cluster
    pairwise, note = [], ""
    if raters <= MOST_PAIRWISE:
        for a, b in combinations(range(raters), 2):
            found = _two(votes[:, [a, b]], cluster, resamples, seed)
            if found is not None:
                pairwise.append(PairAgreement(table.judge.names[a], table.judge.names[b], *found))
    else:
        note = f"{raters} judges: the table of every two is left out beyond {MOST_PAIRWISE}"
    if not pairwise and raters <= MOST_PAIRWISE:
        note = "no two judges judged the same pair"
    paired = (votes >= 0).sum(axis=1) >= 2
    if not paired.any():
        return Agreement(tuple(pairwise), Estimate(None), Estimate(None), Estimate(None), raters, note=note)
    coded, classes = _coded(votes[paired])
    every = agreement_intervals(("fleiss", "alpha", "ac1"), coded, cluster[paired], classes, resamples, seed)
    return Agreement(
        tuple(pairwise),
        _estimate(every["fleiss"]),
        _estimate(every["alpha"]),
        _estimate(every["ac1"]),
        raters,
        _reliability(table, coded, classes),
        note,
    )


def _two(
    votes: NDArray[np.int64], cluster: NDArray[np.int64], resamples: int, seed: int
) -> tuple[int, Estimate, Estimate, Estimate] | None:
    common = (votes >= 0).all(axis=1)
    if not common.any():
        return None
    coded, classes = _coded(votes[common])
    found = agreement_intervals(("raw", "cohen", "ac1"), coded, cluster[common], classes, resamples, seed)
    return int(common.sum()), _estimate(found["raw"]), _estimate(found["cohen"]), _estimate(found["ac1"])


def _coded(votes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Votes as classes from 0 on: first, second and, where there are any, tie."""
    coded = np.select([votes == TIE, votes == NO_WINNER], [2, -1], votes - 1)
    return coded.astype(np.int64), 3 if (votes == TIE).any() else 2


def _reliability(table: VerdictTable, coded: NDArray[np.int64], classes: int) -> dict[str, float]:
    """What Dawid-Skene makes of each judge's accuracy, from agreement alone; needs three judges who share pairs."""
    voted = (coded >= 0).sum(axis=0)
    if (voted > 0).sum() < _FEWEST_FOR_RELIABILITY or (coded >= 0).sum(axis=1).max() < _FEWEST_FOR_RELIABILITY:
        return {}
    fitted = dawid_skene(coded, classes)
    return {
        name: float(accuracy)
        for name, accuracy, n in zip(table.judge.names, fitted.accuracy, voted, strict=True)
        if n > 0
    }


def _estimate(found: Interval) -> Estimate:
    return Estimate(finite(found.mean), finite(found.low), finite(found.high), found.n)


# the pool


def pool(table: VerdictTable) -> dict[str, Any]:
    """Who judged how much, and whose preferences the verdicts are.

    For judge, model, annotator, group, principle, template, slice and generator: verdicts, distinct pairs and share of
    each, and the effective number, exp(entropy) of the shares: 1 = one of them gave all, k = k gave equally much.
    """
    columns: dict[str, Coded] = {
        "judge": table.judge,
        "model": table.model,
        "annotator": table.annotator,
        "group": table.group,
        "principle": table.principle,
        "template": table.template,
        "slice": table.slice,
    }
    found = {name: _composition(table, column) for name, column in columns.items() if column.known}
    if table.generator_1.known or table.generator_2.known:
        found["generator"] = _generators(table)
    return found


def _composition(table: VerdictTable, column: Coded) -> dict[str, Any]:
    rows = np.flatnonzero(column.codes >= 0)
    count = np.bincount(column.codes[rows], minlength=len(column.names))
    pairs = np.unique(np.stack([column.codes[rows], table.pair.codes[rows]], axis=1), axis=0)[:, 0]
    distinct = np.bincount(pairs, minlength=len(column.names))
    shares = count / count.sum()
    members: list[dict[str, Any]] = [
        {"name": name, "verdicts": int(n), "pairs": int(p), "share": float(s)}
        for name, n, p, s in zip(column.names, count, distinct, shares, strict=True)
        if n
    ]
    members.sort(key=lambda m: -m["verdicts"])
    return {
        "members": members,
        "effective": _effective(shares),
        "largest_share": float(shares.max()),
        "missing": len(table) - len(rows),
    }


def _generators(table: VerdictTable) -> dict[str, Any]:
    """Responses judged by generator, and in how many verdicts they won."""
    shown: dict[str, list[float]] = {}
    for which, column in ((1, table.generator_1), (2, table.generator_2)):
        rows = np.flatnonzero((column.codes >= 0) & (table.winner != NO_WINNER))
        won = np.where(table.winner[rows] == which, 1.0, np.where(table.winner[rows] == TIE, 0.5, 0.0))
        count = np.bincount(column.codes[rows], minlength=len(column.names))
        wins = np.bincount(column.codes[rows], won, minlength=len(column.names))
        for name, n, w in zip(column.names, count, wins, strict=True):
            entry = shown.setdefault(name, [0.0, 0.0])
            entry[0] += float(n)
            entry[1] += float(w)
    members = [
        {"name": name, "shown": int(n), "win_share": w / n if n else None} for name, (n, w) in sorted(shown.items())
    ]
    counts = np.array([n for n, _ in shown.values()])
    total = counts.sum()
    return {
        "members": members,
        "effective": _effective(counts / total) if total else None,
        "largest_share": float(counts.max() / total) if total else None,
    }


def _effective(shares: NDArray[np.float64]) -> float:
    used = shares[shares > 0]
    return math.exp(float(-(used * np.log(used)).sum()))
