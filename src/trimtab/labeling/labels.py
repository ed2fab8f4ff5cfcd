"""From verdicts to soft labels, and from labels to pairs for training.

A label is the mean over both orders of presentation (and over repeated votes within each order) of P(first > second).
Averaging cancels a judge's preference for a position only if both orders answered, so a label whose verdicts did not
all come through is no label: its outcome says why, it is not trained on, and it stays in every denominator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimtab.constitution import Constitution
from trimtab.data.records import CandidatePair, Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import Judge, JudgeRequest, Order, Outcome, Verdict, pair_hash

if TYPE_CHECKING:
    from trimtab.labeling.store import LabelStore

__all__ = ["Label", "LabelSummary", "aggregate", "label_pairs", "summarise", "to_pairs"]

_WORST_FIRST = (Outcome.ERROR, Outcome.REFUSED, Outcome.UNPARSED)


@dataclass(frozen=True, slots=True)
class Label:
    """The aggregated verdicts on one pair.

    Args:
        pair_id: id of the candidate pair.
        outcome: `ok`; `tie` if every verdict is one; else the worst of the failures.
        p_first: P(first > second); None unless ok or tie.
        order_gap: mean P(first > second) with the first response shown first minus the same with it shown second; above
            0 the judge leans to what it sees first. None unless both orders answered.
        mass: mean probability of readable answers, where the judge knows it.
        verdicts: what was aggregated, by order and sample.
    """

    pair_id: str
    outcome: Outcome
    p_first: float | None
    order_gap: float | None = None
    mass: float | None = None
    verdicts: Mapping[tuple[Order, int], Verdict] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether there is a preference to train on."""
        return self.p_first is not None


@dataclass(frozen=True, slots=True)
class LabelSummary:
    """Counts over labels; every rate is over `n` unless it says otherwise.

    Args:
        n: labels, failures included.
        counts: labels by outcome, every outcome present.
        usable: share with a preference.
        mean_strength: mean |P(first > second) - .5| over usable labels.
        mean_order_gap: mean order gap over labels where both orders answered; None without any.
        flipped: share of those where the two orders prefer different responses.
        mean_mass: mean probability of readable answers, where known.
    """

    n: int
    counts: Mapping[Outcome, int]
    usable: float
    mean_strength: float | None
    mean_order_gap: float | None
    flipped: float | None
    mean_mass: float | None


def label_pairs(
    pairs: Sequence[CandidatePair],
    judge: Judge,
    constitution: Constitution,
    *,
    both_orders: bool = True,
    samples: int = 1,
    store: LabelStore | None = None,
    batch_size: int = 16,
    progress: Callable[[int, int], None] | None = None,
) -> list[Label]:
    """Ask the judge about every pair and aggregate its verdicts.

    Args:
        pairs: the candidates.
        judge: who is asked.
        constitution: what it judges by.
        both_orders: ask with either response first; a judge that does not see the order is asked once.
        samples: votes in each order.
        store: verdicts recorded there are not asked again (errors are); new ones are recorded batch by batch.
        batch_size: requests handed to the judge at a time.
        progress: called after each batch with (questions answered, questions in all); recorded ones count at once.

    Returns:
        One label a pair, in the order of `pairs`, failures included.

    Raises:
        TrimtabError: the judge did not return one verdict a request.
    """
    orders = tuple(Order) if both_orders and judge.sees_order else (Order.FORWARD,)
    votes = [(order, sample) for order in orders for sample in range(samples)]
    hashes = [pair_hash(p) for p in pairs]
    requests = [(h, JudgeRequest(p, constitution, *vote)) for h, p in zip(hashes, pairs, strict=True) for vote in votes]
    verdicts: dict[tuple[str, Order, int], Verdict] = {}
    if store is not None:
        recorded = store.get(judge.identity, [r for _, r in requests])
        for (h, r), verdict in zip(requests, recorded, strict=True):
            if verdict is not None and verdict.outcome is not Outcome.ERROR:
                verdicts[h, r.order, r.sample] = verdict
    # two pairs of equal content are one question
    missing = {(h, r.order, r.sample): r for h, r in requests if (h, r.order, r.sample) not in verdicts}
    keys, total, done = list(missing), len(verdicts) + len(missing), len(verdicts)
    if progress is not None:
        progress(done, total)
    for start in range(0, len(keys), batch_size):
        chunk = keys[start : start + batch_size]
        verdicts.update(zip(chunk, _ask(judge, [missing[k] for k in chunk], store), strict=True))
        done += len(chunk)
        if progress is not None:
            progress(done, total)
    return [aggregate(p.id, {vote: verdicts[h, *vote] for vote in votes}) for h, p in zip(hashes, pairs, strict=True)]


def aggregate(pair_id: str, verdicts: Mapping[tuple[Order, int], Verdict]) -> Label:
    """One label from the verdicts on one pair: the mean over orders of the mean over the votes in each order.

    Args:
        pair_id: id of the pair.
        verdicts: by order and sample, at least one; they must all speak of the pair's own first and second.
    """
    failed = [o for o in _WORST_FIRST if any(v.outcome is o for v in verdicts.values())]
    masses = [v.mass for v in verdicts.values() if v.mass is not None]
    mass = math.fsum(masses) / len(masses) if masses else None
    if failed:
        return Label(pair_id, failed[0], None, None, mass, dict(verdicts))
    means = []
    for order in Order:
        votes = [v.p_first for (o, _), v in verdicts.items() if o is order and v.p_first is not None]
        if votes:
            means.append(math.fsum(votes) / len(votes))
    outcome = Outcome.TIE if all(v.outcome is Outcome.TIE for v in verdicts.values()) else Outcome.OK
    gap = means[0] - means[1] if len(means) == 2 else None
    return Label(pair_id, outcome, math.fsum(means) / len(means), gap, mass, dict(verdicts))


def to_pairs(candidates: Sequence[CandidatePair], labels: Sequence[Label], *, min_gap: float = 0.0) -> list[Pair]:
    """Labeled pairs for training: chosen is the response with the higher probability.

    Args:
        candidates: what was labeled.
        labels: one for each candidate, in the same order.
        min_gap: pairs with |P(first) - .5| below this are left out, as are labels without a preference.

    Returns:
        Pairs with `p_chosen` in [.5, 1]; `extra` carries the origin, the order gap and which response was `first`.

    Raises:
        TrimtabError: the labels are not those of the candidates.
    """
    if [c.id for c in candidates] != [label.pair_id for label in labels]:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{len(labels)} labels do not belong to these {len(candidates)} pairs",
            "label the pairs again",
        )
    pairs = []
    for candidate, label in zip(candidates, labels, strict=True):
        p = label.p_first
        if p is None or abs(p - 0.5) < min_gap:
            continue
        chosen, rejected = (candidate.first, candidate.second) if p >= 0.5 else (candidate.second, candidate.first)
        extra = {
            "origin": dict(candidate.origin),
            "order_gap": label.order_gap,
            "chosen_was": "first" if p >= 0.5 else "second",
        }
        pairs.append(Pair(candidate.id, candidate.prompt, chosen, rejected, p_chosen=max(p, 1.0 - p), extra=extra))
    return pairs


def summarise(labels: Sequence[Label]) -> LabelSummary:
    """Counts and rates over `labels`, failures in the denominator."""
    counts = {outcome: sum(label.outcome is outcome for label in labels) for outcome in Outcome}
    both = [label for label in labels if label.order_gap is not None and label.p_first is not None]
    gaps = [label.order_gap for label in both if label.order_gap is not None]
    return LabelSummary(
        n=len(labels),
        counts=counts,
        usable=sum(label.usable for label in labels) / len(labels) if labels else 0.0,
        mean_strength=_mean(abs(label.p_first - 0.5) for label in labels if label.p_first is not None),
        mean_order_gap=_mean(gaps),
        flipped=_mean(float(_flips(label)) for label in both),
        mean_mass=_mean(label.mass for label in labels if label.mass is not None),
    )


def _flips(label: Label) -> bool:
    """Whether the two orders prefer different responses: p +- gap/2 are the two orders' means."""
    assert label.p_first is not None
    assert label.order_gap is not None
    half = label.order_gap / 2
    return (label.p_first + half - 0.5) * (label.p_first - half - 0.5) < 0


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else None


def _ask(judge: Judge, requests: list[JudgeRequest], store: LabelStore | None) -> list[Verdict]:
    verdicts = judge.judge(requests)
    if len(verdicts) != len(requests):
        raise TrimtabError(
            ErrorKind.FAILED,
            f"judge {judge.identity.name!r} returned {len(verdicts)} verdicts for {len(requests)} requests",
            "a judge answers every request, a failed one with outcome error",
        )
    if store is None:
        return verdicts
    store.put(judge.identity, requests, verdicts)
    # where another process recorded a verdict in the meantime, that one counts: labels and store always agree
    kept = store.get(judge.identity, requests)
    return [k if k is not None else v for k, v in zip(kept, verdicts, strict=True)]
