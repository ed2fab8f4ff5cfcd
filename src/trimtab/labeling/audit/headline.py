"""The four headline figures, of all verdicts of a judge and of every part of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trimtab.labeling.audit.inference import finite, share_of
from trimtab.labeling.audit.results import Estimate, SliceAudit
from trimtab.labeling.audit.units import Couples, order_couples
from trimtab.labeling.verdicts import NO_WINNER, Coded, VerdictTable
from trimtab.stats.agreement import agreement_intervals

__all__ = ["gold_kappa", "headline", "parts", "slice_members"]

Bools = NDArray[np.bool_]


def headline(table: VerdictTable, couples: Couples | None = None) -> SliceAudit:
    """Accuracy, inconsistent rate and first share of one judge's verdicts.

    - accuracy: over verdicts with a reference label; one that failed names nothing and is wrong.
    - inconsistent rate: over couples of both orders; values of {1, 2, tie, none} that differ.
    - first share: over verdicts that name a winner and whose order is known.
    """
    cluster = table.cluster
    judged = table.gold != NO_WINNER
    both = order_couples(table) if couples is None else couples
    ordered = table.decided & (table.order > 0)
    differ = table.winner[both.first] != table.winner[both.second]
    return SliceAudit(
        len(table),
        len(np.unique(table.pair.codes)),
        share_of((table.winner == table.gold)[judged], cluster[judged]),
        share_of(differ, cluster[both.first]),
        share_of(table.first_won[ordered], cluster[ordered]),
    )


def parts(table: VerdictTable, column: Coded, *, nested: bool = False) -> dict[str, SliceAudit]:
    """The headline figures of every part of a judge's verdicts.

    Args:
        table: of one judge.
        column: names the part of each row.
        nested: a part `a/b` belongs to `a` too.
    """
    if not column.known:
        return {}
    members = slice_members(column) if nested else {name: [i] for i, name in enumerate(column.names)}
    result = {}
    for name, codes in members.items():
        rows = np.flatnonzero(np.isin(column.codes, codes))
        if len(rows):
            result[name] = headline(table.take(rows))
    return result


def slice_members(column: Coded) -> dict[str, list[int]]:
    """Codes of the slices that belong to each slice and to each slice above it, parents before their children."""
    members: dict[str, list[int]] = {}
    for code, name in enumerate(column.names):
        steps = name.split("/")
        for depth in range(1, len(steps) + 1):
            members.setdefault("/".join(steps[:depth]), []).append(code)
    return {name: members[name] for name in sorted(members)}


def gold_kappa(table: VerdictTable, resamples: int, seed: int) -> Estimate:
    """Cohen's kappa of the verdicts with the reference labels, failed verdicts as a class of their own."""
    judged = np.flatnonzero(table.gold != NO_WINNER)
    if len(judged) == 0:
        return Estimate(None)
    verdict = np.where(table.winner[judged] == NO_WINNER, 3, table.winner[judged])
    votes = np.stack([verdict, table.gold[judged]], axis=1).astype(np.int64)
    found = agreement_intervals(("cohen",), votes, table.cluster[judged], 4, resamples, seed)["cohen"]
    return Estimate(finite(found.mean), finite(found.low), finite(found.high), found.n)
