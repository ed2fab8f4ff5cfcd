"""From the votes on a pair to its label.

A *cell* is one judge with one wording asked about one principle (or the whole constitution). Its preference is the mean
over the orders of presentation of the mean over the votes in each order: averaging cancels a judge's preference for a
position only if both orders answered, so a cell whose orders did not all answer is none. A label is the mean over the
judges' cells of each principle, then the weighted mean over principles. A label of which half of the cells or more did
not come through is no label: its outcome says why, it is not trained on, and it stays in every denominator.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from trimtab.labeling.protocol import JudgeIdentity, Order, Outcome, Verdict
from trimtab.stats.dawid_skene import dawid_skene

__all__ = ["Label", "Vote", "aggregate", "weigh_judges"]

_WORST_FIRST = (Outcome.ERROR, Outcome.REFUSED, Outcome.UNPARSED)


class Vote(NamedTuple):
    """One verdict and what it answers: who was asked, about which principle (None: all), in which order."""

    judge: JudgeIdentity
    principle: str | None
    order: Order
    sample: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Label:
    """The aggregated verdicts on one pair.

    Args:
        pair_id: id of the candidate pair.
        outcome: `ok`; `tie` if every verdict is one; else the worst of the failures.
        p_first: P(first > second); None unless ok or tie.
        order_gap: mean P(first > second) with the first response shown first minus the same with it shown second; above
            0 the judges lean to what they see first. None unless both orders answered.
        mass: mean probability of readable answers, where a judge knows it.
        principles: P(first > second) by each principle that was asked about alone; empty where all were asked about at
            once.
        constitution: hash of the constitution that the label goes by.
        votes: what was aggregated.
    """

    pair_id: str
    outcome: Outcome
    p_first: float | None
    order_gap: float | None = None
    mass: float | None = None
    principles: Mapping[str, float] = field(default_factory=dict)
    constitution: str = ""
    votes: Sequence[Vote] = ()

    @property
    def usable(self) -> bool:
        """Whether there is a preference to train on."""
        return self.p_first is not None


class _Cell(NamedTuple):
    p: float
    gap: float | None
    votes: int


def aggregate(
    pair_id: str, votes: Sequence[Vote], *, weights: Mapping[str, float] | None = None, constitution: str = ""
) -> Label:
    """One label from the votes on one pair.

    Args:
        pair_id: id of the pair.
        votes: at least one; their verdicts speak of the pair's own first and second.
        weights: of the principles; None: each counts as often as it was voted on, which is right for principles drawn
            by weight.
        constitution: hash of what the label goes by.
    """
    masses = [v.verdict.mass for v in votes if v.verdict.mass is not None]
    mass = math.fsum(masses) / len(masses) if masses else None
    by_cell: dict[tuple[JudgeIdentity, str | None], list[Vote]] = {}
    for vote in votes:
        by_cell.setdefault((vote.judge, vote.principle), []).append(vote)
    cells: dict[str | None, list[_Cell]] = {principle: [] for _, principle in by_cell}
    complete = 0
    for (_, principle), inside in by_cell.items():
        cell = _cell(inside)
        if cell is not None:
            cells[principle].append(cell)
            complete += 1
    if 2 * complete <= len(by_cell) or not all(cells.values()):
        failed = next(o for o in _WORST_FIRST if any(v.verdict.outcome is o for v in votes))
        return Label(pair_id, failed, None, None, mass, {}, constitution, votes)
    scores = {principle: _mean(c.p for c in found) for principle, found in cells.items()}
    counts = {
        principle: float(sum(c.votes for c in found)) if weights is None or principle is None else weights[principle]
        for principle, found in cells.items()
    }
    total = math.fsum(counts.values())
    p_first = math.fsum(scores[k] * counts[k] for k in scores) / total
    gaps = {k: [c.gap for c in found if c.gap is not None] for k, found in cells.items()}
    both = math.fsum(counts[k] for k, found in gaps.items() if found)
    gap = math.fsum(_mean(found) * counts[k] for k, found in gaps.items() if found) / both if both else None
    decided = [v.verdict.outcome for v in votes if v.verdict.p_first is not None]
    outcome = Outcome.TIE if all(o is Outcome.TIE for o in decided) else Outcome.OK
    alone = {principle: score for principle, score in scores.items() if principle is not None}
    # a mean of probabilities is one, up to the last bit
    return Label(pair_id, outcome, min(max(p_first, 0.0), 1.0), gap, mass, alone, constitution, votes)


def weigh_judges(labels: Sequence[Label], *, weights: Mapping[str, float] | None = None) -> list[Label]:
    """The same labels with P(first > second) from Dawid and Skene's model instead of the mean.

    The raters are the judges' wordings, each order and each vote apart, so that one that always names a position is
    seen to know nothing. Ties are no vote. Principles that were asked about one by one are fitted one by one. The
    model takes its raters for independent: judges that err alike make its probabilities too sure.

    Args:
        labels: of the same judges, with at least three votes each.
        weights: as for `aggregate`.
    """
    usable = [i for i, label in enumerate(labels) if label.usable]
    if not usable:
        return list(labels)
    single = weights is not None and any(labels[i].principles for i in usable)
    topics: list[str | None] = (
        list(dict.fromkeys(p for i in usable for p in labels[i].principles)) if single else [None]
    )
    fitted = {topic: _posterior([labels[i] for i in usable], topic) for topic in topics}
    found = list(labels)
    for row, i in enumerate(usable):
        scores = {t: float(fitted[t][row]) for t in topics if t is None or t in labels[i].principles}
        mean = labels[i].principles if single else {None: labels[i].p_first}
        scores = {t: mean[t] if math.isnan(p) else p for t, p in scores.items()}  # type: ignore[index,misc]
        counts = {t: 1.0 if t is None or weights is None else weights[t] for t in scores}
        p_first = math.fsum(scores[t] * counts[t] for t in scores) / math.fsum(counts.values())
        alone = {t: p for t, p in scores.items() if t is not None} or labels[i].principles
        found[i] = replace(labels[i], p_first=min(max(p_first, 0.0), 1.0), principles=alone)
    return found


def _posterior(labels: Sequence[Label], topic: str | None) -> np.ndarray:
    """P(first is better) of each label; NaN where nobody decided."""
    rater: dict[tuple[JudgeIdentity, Order, int], int] = {}
    cast: list[tuple[int, int, int]] = []
    for row, label in enumerate(labels):
        for vote in label.votes:
            p = vote.verdict.p_first
            if p is None or p == 0.5 or (topic is not None and vote.principle != topic):
                continue
            column = rater.setdefault((vote.judge, vote.order, vote.sample), len(rater))
            cast.append((row, column, int(p < 0.5)))
    if not cast:
        return np.full(len(labels), np.nan)
    votes = np.full((len(labels), len(rater)), -1)
    for row, column, choice in cast:
        votes[row, column] = choice
    posterior = dawid_skene(votes, 2).posterior[:, 0]
    return np.where((votes >= 0).any(axis=1), posterior, np.nan)


def _cell(votes: Sequence[Vote]) -> _Cell | None:
    """Mean over orders of the mean over the votes in each; None where an order that was asked did not answer."""
    by_order: dict[Order, list[float]] = {vote.order: [] for vote in votes}
    for vote in votes:
        if vote.verdict.p_first is not None:
            by_order[vote.order].append(vote.verdict.p_first)
    if not all(by_order.values()):
        return None
    means = {order: _mean(found) for order, found in by_order.items()}
    gap = means[Order.FORWARD] - means[Order.REVERSED] if len(means) == 2 else None
    return _Cell(_mean(means.values()), gap, len(votes))


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)
