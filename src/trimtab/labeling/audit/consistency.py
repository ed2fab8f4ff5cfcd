"""Does a judge say the same again: in the other order, asked once more, in other words? And does it say anything?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trimtab.labeling.audit.inference import missing, rate, share_of, signed_share
from trimtab.labeling.audit.results import Check, Estimate, SliceAudit
from trimtab.labeling.audit.units import Couples, couples, question
from trimtab.labeling.verdicts import NO_WINNER, OUTCOMES, VerdictTable

__all__ = ["contradictory_repeats", "position_bias", "repeats", "swap_consistency", "template_consistency", "unparsed"]

POSITION_THRESHOLD = 0.05
SWAP_LIMIT = 0.2
REPEAT_LIMIT = 0.15
CONTRADICTION_LIMIT = 0.1
TEMPLATE_LIMIT = 0.1
UNPARSED_LIMIT = 0.05
_ENOUGH_COUPLES = 0.2
_ENOUGH_ORDERS = 0.1


def position_bias(table: VerdictTable, both: Couples) -> Check:
    """Share of decided verdicts for the response shown first, and whether it is one half.

    In a pair that was asked in both orders a judge without the bias names the same response, which is shown first once:
    such pairs say nothing, and the test rests on those that were not consistent (McNemar's, with clusters). Where pairs
    were asked in one order each, but not all in the same one, the orders are taken for random; where all were asked in
    the same order, quality and position cannot be told apart.
    """
    pairs = len(np.unique(table.pair.codes))
    couples_of_pairs = len(np.unique(table.pair.codes[both.first])) if len(both) else 0
    known = table.order > 0
    details: dict[str, Any] = {}
    if couples_of_pairs >= max(1.0, _ENOUGH_COUPLES * pairs):
        rows = np.concatenate([both.first, both.second])
        details["design"] = "both orders"
        first = table.first_won[both.first], table.first_won[both.second]
        decided = table.decided[both.first], table.decided[both.second]
        details["first_both_times"] = int((first[0] & first[1]).sum())
        details["second_both_times"] = int((decided[0] & decided[1] & ~first[0] & ~first[1]).sum())
        p_1 = table.p_1[both.first] - table.p_1[both.second]
        if np.isfinite(p_1).any():
            details["mean_order_gap"] = float(np.nanmean(p_1))
    else:
        share = float((table.order[known] == 1).mean()) if known.any() else math.nan
        if not _ENOUGH_ORDERS <= share <= 1 - _ENOUGH_ORDERS:
            what = "order of presentation" if not known.any() else "verdicts on the same pairs in the other order"
            return missing("position-bias", what, n=int(known.sum()))
        rows = np.flatnonzero(known)
        details["design"] = "one order a pair, taken for random"
    rows = rows[table.decided[rows]]
    if len(rows) == 0:
        return missing("position-bias", "verdicts that name a winner", **details)
    return signed_share("position-bias", table.first_won[rows], table.cluster[rows], POSITION_THRESHOLD, **details)


def swap_consistency(figures: SliceAudit, table: VerdictTable, both: Couples) -> Check:
    """The inconsistent rate against a limit; with it the noise of a single verdict that would explain it."""
    if len(both) == 0:
        return missing("swap-consistency", "verdicts on the same pairs in the other order")
    a, b = table.winner[both.first], table.winner[both.second]
    decided = (a > 0) & (b > 0)
    details: dict[str, Any] = {
        "flipped": int((decided & (a != b)).sum()),
        "tie_or_none_against_winner": int(((a != b) & ~decided).sum()),
        "both_none": int(((a == NO_WINNER) & (b == NO_WINNER)).sum()),
    }
    if decided.any():
        details["noise"] = noise_of(float((a != b)[decided].mean()))
    return rate("swap-consistency", figures.inconsistent_rate, SWAP_LIMIT, "pairs", **details)


def noise_of(disagreement: float) -> float:
    """Error rate e of single verdicts whose pairs disagree at this rate, 2 e (1 - e); one half at most."""
    return 0.5 * (1 - math.sqrt(max(0.0, 1 - 2 * disagreement)))


def repeats(table: VerdictTable) -> tuple[Check, Couples]:
    """Share of repeats of a question (same order, template, principle, annotator) that differ from the one before."""
    key = question(table, table.order, table.template.codes)
    again = couples(key, np.arange(len(table), dtype=np.int64))
    if len(again) == 0:
        return missing("repeat-consistency", "the same question asked again (sample 1, 2, ...)"), again
    differ = table.winner[again.first] != table.winner[again.second]
    estimate = share_of(differ, table.cluster[again.first])
    details: dict[str, Any] = {"noise": noise_of(float(estimate.value or 0.0))}
    return rate("repeat-consistency", estimate, REPEAT_LIMIT, "repeats", **details), again


def contradictory_repeats(table: VerdictTable) -> Check:
    """Share of questions asked more than once to which both responses were named the winner."""
    key = question(table, table.order, table.template.codes)
    questions, row, index, times = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    repeated = times > 1
    if not repeated.any():
        return missing("contradictory-repeats", "the same question asked again (sample 1, 2, ...)")
    both = np.ones(len(questions), dtype=bool)
    for winner in (1, 2):
        both &= np.bincount(index, table.winner == winner) > 0
    estimate = share_of(both[repeated], table.cluster[row[repeated]])
    return rate("contradictory-repeats", estimate, CONTRADICTION_LIMIT, "questions")


def template_consistency(table: VerdictTable, again: Couples) -> Check:
    """Share of verdicts that another wording changes, less the share that mere repetition changes."""
    key = question(table, table.order, table.sample)
    other = couples(key, table.template.codes)
    worded = (table.template.codes[other.first] >= 0) & (table.template.codes[other.second] >= 0)
    other = Couples(other.first[worded], other.second[worded])
    if len(other) == 0:
        return missing("template-consistency", "the same pairs judged under several templates")
    changed = share_of(table.winner[other.first] != table.winner[other.second], table.cluster[other.first])
    details: dict[str, Any] = {"changed": changed.value, "repeat_noise": None}
    if len(again) == 0 or changed.value is None:
        note = "repeats under one template: without them the judge's own noise counts as sensitivity"
        return rate("template-consistency", changed, TEMPLATE_LIMIT, "verdicts", note=note, **details)
    noise = share_of(table.winner[again.first] != table.winner[again.second], table.cluster[again.first])
    details["repeat_noise"] = noise.value
    return rate("template-consistency", _difference(changed, noise), TEMPLATE_LIMIT, "verdicts", **details)


def _difference(a: Estimate, b: Estimate) -> Estimate:
    """a - b with an interval from the halves of theirs (Newcombe's hybrid score interval)."""
    assert a.value is not None
    assert b.value is not None
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Estimate(a.value - b.value, None, None, a.n)
    difference = a.value - b.value
    low = difference - math.hypot(a.value - a.low, b.high - b.value)
    high = difference + math.hypot(a.high - a.value, b.value - b.low)
    return Estimate(difference, low, high, a.n)


def unparsed(table: VerdictTable) -> Check:
    """Share of calls that gave no verdict: unparsed, refused, error."""
    counts: dict[str, Any] = {o.value: int((table.status == i).sum()) for i, o in enumerate(OUTCOMES)}
    estimate = share_of(table.winner == NO_WINNER, table.cluster)
    return rate("unparsed", estimate, UNPARSED_LIMIT, "verdicts", **counts)
