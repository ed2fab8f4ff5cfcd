"""Principles: which of them decide anything, and which want opposite things. Triads: preferences that go in circles."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.labeling.audit.inference import missing, rate, share_of
from trimtab.labeling.audit.results import Check, Estimate
from trimtab.labeling.audit.units import combined, majority
from trimtab.labeling.verdicts import NO_WINNER, PairTexts, VerdictTable

__all__ = ["intransitive_triads", "principle_conflict", "principle_decisiveness"]

Ints = NDArray[np.int64]

DECISIVE_LIMIT = 0.2
CONFLICT_LIMIT = 0.3
CYCLE_LIMIT = 0.05
RANDOM_CYCLES = 0.25
"""Share of cyclic triads when every preference is a coin."""
_MOST_ITEMS = 1500


def principle_decisiveness(table: VerdictTable) -> Check:
    """In how many pairs does a principle name a winner, the same in all its verdicts? The least decisive one counts."""
    name = "principle-decisiveness"
    if not table.principle.known:
        return missing(name, "principle (one principle asked at a time)")
    asked = table.take(table.principle.codes >= 0)
    questions, row, verdict = _by_principle(asked)
    # contradicted: the majority is one of several different verdicts
    same = np.ones(len(questions), dtype=bool)
    index = np.searchsorted(questions, combined(asked.pair.codes, asked.principle.codes))
    np.logical_and.at(same, index, asked.winner == verdict[index])
    decisive = same & (verdict > 0)
    details: dict[str, Any] = {}
    rates = {}
    for code, principle in enumerate(asked.principle.names):
        of = asked.principle.codes[row] == code
        if not of.any():
            continue
        estimate = share_of(decisive[of], asked.cluster[row[of]])
        rates[principle] = estimate
        mine = asked.take(asked.principle.codes == code)
        strength = np.abs(mine.p_1[np.isfinite(mine.p_1)] - 0.5)
        details[principle] = {
            "pairs": int(of.sum()),
            "verdicts": len(mine),
            "decisive": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
            "ties": float((mine.winner == 0).mean()),
            "failed": float((mine.winner == NO_WINNER).mean()),
            "mean_strength": float(strength.mean()) if len(strength) else None,
        }
    least = min(rates, key=lambda p: rates[p].value or 0.0)
    return rate(name, rates[least], DECISIVE_LIMIT, "pairs", bad_above=False, least=least, principles=details)


def principle_conflict(table: VerdictTable) -> Check:
    """How often do two principles name opposite winners of the same pair? The two that do it most count."""
    name = "principle-conflict"
    if not table.principle.known:
        return missing(name, "principle (one principle asked at a time)")
    asked = table.take(table.principle.codes >= 0)
    _, row, verdict = _by_principle(asked)
    votes = np.full((len(asked.pair.names), len(asked.principle.names)), NO_WINNER, dtype=np.int8)
    votes[asked.pair.codes[row], asked.principle.codes[row]] = verdict
    cluster = np.zeros(len(asked.pair.names), dtype=np.int64)
    cluster[asked.pair.codes] = asked.cluster
    found = []
    for a, b in combinations(range(len(asked.principle.names)), 2):
        both = (votes[:, a] > 0) & (votes[:, b] > 0)
        if both.any():
            estimate = share_of((votes[:, a] != votes[:, b])[both], cluster[both])
            found.append((asked.principle.names[a], asked.principle.names[b], estimate))
    if not found:
        return missing(name, "pairs on which two principles name a winner")
    found.sort(key=lambda f: -(f[2].low if f[2].low is not None else 0.0))
    conflicts = [
        {"first": a, "second": b, "n": e.n, "opposed": e.value, "low": e.low, "high": e.high} for a, b, e in found
    ]
    return rate(name, found[0][2], CONFLICT_LIMIT, "pairs", principles=list(found[0][:2]), conflicts=conflicts)


def _by_principle(asked: VerdictTable) -> tuple[Ints, Ints, NDArray[np.int8]]:
    return majority(asked, combined(asked.pair.codes, asked.principle.codes))


# triads


def intransitive_triads(table: VerdictTable, swap_rate: float | None) -> Check:
    """Share of triads of responses to one prompt, all three compared, whose preferences go in a circle.

    Independent errors of rate e make circles of a perfect order at the rate e (1 - e), which is half the rate at which
    two verdicts on one pair disagree: more than that, and than 5 %, is inconsistency of another kind. Coins make 25 %.

    Args:
        table: of one judge.
        swap_rate: how often two verdicts on one pair differ, where known.
    """
    name = "intransitive-triads"
    items = _items(table)
    if items is None:
        return missing(name, "response_id_1, response_id_2 and prompt_id (or the texts)")
    first, second, prompt = items
    low, high = np.minimum(first, second), np.maximum(first, second)
    forward = first == low
    aligned = np.where(forward | (table.winner <= 0), table.winner, 3 - table.winner)
    known = (first >= 0) & (second >= 0) & (first != second)
    # the same two responses may have been compared under several pairs' ids, either way round
    lined = replace(table.take(known), winner=aligned[known].astype(np.int8))
    _, row, verdict = majority(lined, combined(prompt[known], low[known], high[known]))
    decided = verdict > 0
    row, verdict = row[decided], verdict[decided]
    a, b, where = low[known][row], high[known][row], prompt[known][row]
    winner, loser = np.where(verdict == 1, a, b), np.where(verdict == 1, b, a)
    triads, circles = _count(where, winner, loser)
    total = int(triads.sum())
    if total == 0:
        return missing(name, "prompts with three responses, each compared with each")
    used = triads > 0
    noise = swap_rate / 2 if swap_rate is not None else None
    return rate(
        name,
        _share_of_counts(circles[used], triads[used]),
        max(CYCLE_LIMIT, noise or 0.0),
        "triads",
        circles=int(circles.sum()),
        prompts=int(used.sum()),
        expected_from_noise=noise,
        random=RANDOM_CYCLES,
    )


def _items(table: VerdictTable) -> tuple[Ints, Ints, Ints] | None:
    """Codes of the two responses and of the prompt of every row, one numbering for first and second."""
    if table.response_1.known and table.response_2.known:
        names = {n: i for i, n in enumerate(dict.fromkeys((*table.response_1.names, *table.response_2.names)))}
        columns = [
            np.array([names[n] for n in column.names] + [-1], dtype=np.int64)[column.codes]
            for column in (table.response_1, table.response_2)
        ]
        # an id may be used again for another prompt
        return columns[0], columns[1], _prompts(table)
    if not table.texts:
        return None
    number: dict[tuple[str, str], int] = {}
    empty = PairTexts("", "", "")
    by_pair = np.array(
        [
            [number.setdefault((t.prompt, r), len(number)) if t.prompt else -1 for r in (t.first, t.second)]
            for t in (table.texts.get(code, empty) for code in range(len(table.pair.names)))
        ],
        dtype=np.int64,
    ).reshape(-1, 2)
    prompts: dict[str, int] = {}
    of_pair = np.array(
        [
            prompts.setdefault(table.texts.get(code, empty).prompt, len(prompts))
            for code in range(len(table.pair.names))
        ],
        dtype=np.int64,
    )
    codes = table.pair.codes
    return by_pair[codes, 0], by_pair[codes, 1], of_pair[codes]


def _prompts(table: VerdictTable) -> Ints:
    """Prompt of every row; all the same where prompts are not known, for ids that say it all."""
    return table.prompt.codes.astype(np.int64) if table.prompt.known else np.zeros(len(table), dtype=np.int64)


def _count(prompt: Ints, winner: Ints, loser: Ints) -> tuple[Ints, Ints]:
    """Complete triads and circles among them for every prompt."""
    triads, circles = [], []
    order = np.argsort(prompt, kind="stable")
    bounds = np.flatnonzero(np.diff(prompt[order])) + 1
    for rows in np.split(order, bounds):
        nodes, index = np.unique(np.concatenate([winner[rows], loser[rows]]), return_inverse=True)
        if len(rows) < 3 or len(nodes) > _MOST_ITEMS:
            continue
        beats = np.zeros((len(nodes), len(nodes)))
        beats[index[: len(rows)], index[len(rows) :]] = 1
        compared = beats + beats.T
        triads.append(round(float(np.sum((compared @ compared) * compared)) / 6))
        # a circle is found from each of its three members
        circles.append(round(float(np.sum((beats @ beats) * beats.T)) / 3))
    return np.array(triads, dtype=np.int64), np.array(circles, dtype=np.int64)


def _share_of_counts(successes: Ints, trials: Ints) -> Estimate:
    """The share of successes with an interval over prompts."""
    outcomes = np.tile([1.0, 0.0], len(trials))
    counts = np.stack([successes, trials - successes], axis=1).ravel()
    return share_of(np.repeat(outcomes, counts), np.repeat(np.arange(len(trials)), trials))
