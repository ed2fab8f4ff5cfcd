"""Labels for pairs: ask the judges, aggregate their verdicts, choose pairs for training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trimtab.constitution import Constitution
from trimtab.data.records import CandidatePair, Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.aggregate import Label, Vote, aggregate, weigh_judges
from trimtab.labeling.asking import answer
from trimtab.labeling.budget import Budget, Estimate, estimate
from trimtab.labeling.protocol import Judge, Order, Outcome, Verdict
from trimtab.labeling.questions import PrincipleMode, Question, questions_about

if TYPE_CHECKING:
    from trimtab.labeling.store import LabelStore

__all__ = ["Label", "LabelSummary", "Vote", "aggregate", "estimate_labels", "label_pairs", "summarise", "to_pairs"]

Aggregation = Literal["mean", "dawid-skene"]

_FEWEST_RATERS = 3


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
        verdicts: verdicts behind the labels.
        verdict_counts: verdicts by outcome, every outcome present.
        first_share: share of the verdicts that name a winner which name the response shown first; None without any.
        tokens: prompt and completion tokens of the verdicts, where known; None where of none.
        cost: of the verdicts, where known; None where of none.
    """

    n: int
    counts: Mapping[Outcome, int]
    usable: float
    mean_strength: float | None
    mean_order_gap: float | None
    flipped: float | None
    mean_mass: float | None
    verdicts: int
    verdict_counts: Mapping[Outcome, int]
    first_share: float | None
    tokens: int | None
    cost: float | None


def label_pairs(
    pairs: Sequence[CandidatePair],
    judge: Judge | Sequence[Judge],
    constitution: Constitution,
    *,
    both_orders: bool = True,
    samples: int = 1,
    principles: PrincipleMode = "all",
    aggregation: Aggregation = "mean",
    seed: int = 0,
    store: LabelStore | None = None,
    batch_size: int = 16,
    budget: Budget | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Label]:
    """Ask the judges about every pair and aggregate their verdicts.

    Args:
        pairs: the candidates.
        judge: who is asked; several judges (and several wordings of one) count alike.
        constitution: what they judge by.
        both_orders: ask with either response first; a judge that does not see the order is asked once.
        samples: votes in each order.
        principles: `all` at once, one `sampled` for each pair and vote, or `each` one by one.
        aggregation: `mean`, or `dawid-skene`, which weighs the judges by how well they agree with each other.
        seed: of the sampling of principles.
        store: verdicts recorded there are not asked again (errors are); new ones are recorded as they come.
        batch_size: calls at a time.
        budget: caps on cost and calls; counts what was done.
        progress: called with (questions answered, questions in all) as answers come; recorded ones count at once.

    Returns:
        One label a pair, in the order of `pairs`, failures included.

    Raises:
        TrimtabError: a judge did not return one verdict a request or fails altogether, the budget is used up (kind
            interrupted), or there are too few votes for `dawid-skene`.
        KeyboardInterrupt: stopped; every verdict that came is recorded.
    """
    judges = _panel(judge)
    asked = questions_about(
        pairs, judges, constitution, both_orders=both_orders, samples=samples, principles=principles, seed=seed
    )
    if aggregation == "dawid-skene":
        _check_raters(judges, asked, len(constitution.counted) if principles == "each" else 1)
    verdicts = answer(
        judges, [q for mine in asked for q in mine], store=store, batch_size=batch_size, budget=budget,
        progress=progress,
    )  # fmt: skip
    weights = {p.id: p.weight for p in constitution.counted} if principles == "each" else None
    labels = [
        aggregate(pair.id, [_vote(q, verdicts[q.key]) for q in mine], weights=weights, constitution=constitution.hash)
        for pair, mine in zip(pairs, asked, strict=True)
    ]
    return weigh_judges(labels, weights=weights) if aggregation == "dawid-skene" else labels


def estimate_labels(
    pairs: Sequence[CandidatePair],
    judge: Judge | Sequence[Judge],
    constitution: Constitution,
    *,
    both_orders: bool = True,
    samples: int = 1,
    principles: PrincipleMode = "all",
    seed: int = 0,
    store: LabelStore | None = None,
    batch_size: int = 16,
) -> list[Estimate]:
    """What `label_pairs` would ask and pay, judge by judge, without asking anybody. Arguments as there."""
    judges = _panel(judge)
    asked = questions_about(
        pairs, judges, constitution, both_orders=both_orders, samples=samples, principles=principles, seed=seed
    )
    questions = {q.key: q for mine in asked for q in mine}
    found = store.find(questions) if store is not None else {}
    estimates = []
    for member in judges:
        mine = [q for q in questions.values() if q.judge == member.identity]
        known = {q.key: found[q.key] for q in mine if q.key in found and found[q.key].outcome is not Outcome.ERROR}
        missing = [q.request for q in mine if q.key not in known]
        seconds = [v.seconds for v in known.values()]
        estimates.append(
            estimate(member, member.identity, missing, seconds, questions=len(mine), concurrency=batch_size)
        )
    return estimates


def to_pairs(candidates: Sequence[CandidatePair], labels: Sequence[Label], *, abstain: float = 0.0) -> list[Pair]:
    """Labeled pairs for training: chosen is the response with the higher probability.

    Args:
        candidates: what was labeled.
        labels: one for each candidate, in the same order.
        abstain: pairs with |P(first) - .5| below this are left out, as are labels without a preference.

    Returns:
        Pairs with `p_chosen` in [.5, 1], and P(chosen > rejected) by each principle that was asked about alone; `extra`
        carries the origin, the order gap and which response was `first`.

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
        if p is None or abs(p - 0.5) < abstain:
            continue
        chosen, rejected = (candidate.first, candidate.second) if p >= 0.5 else (candidate.second, candidate.first)
        extra = {
            "origin": dict(candidate.origin),
            "order_gap": label.order_gap,
            "chosen_was": "first" if p >= 0.5 else "second",
        }
        principles = {name: by_it if p >= 0.5 else 1.0 - by_it for name, by_it in label.principles.items()}
        pairs.append(
            Pair(
                candidate.id, candidate.prompt, chosen, rejected, p_chosen=max(p, 1.0 - p), extra=extra,
                principles=principles,
            )
        )  # fmt: skip
    return pairs


def summarise(labels: Sequence[Label]) -> LabelSummary:
    """Counts and rates over `labels`, failures in the denominator."""
    both = [label for label in labels if label.order_gap is not None and label.p_first is not None]
    gaps = [label.order_gap for label in both if label.order_gap is not None]
    votes = [vote for label in labels for vote in label.votes]
    named = [vote for vote in votes if vote.verdict.p_first not in (None, 0.5)]
    tokens = [t for v in votes for t in (v.verdict.prompt_tokens, v.verdict.completion_tokens) if t is not None]
    costs = [vote.verdict.cost for vote in votes if vote.verdict.cost is not None]
    return LabelSummary(
        n=len(labels),
        counts={outcome: sum(label.outcome is outcome for label in labels) for outcome in Outcome},
        usable=sum(label.usable for label in labels) / len(labels) if labels else 0.0,
        mean_strength=_mean(abs(label.p_first - 0.5) for label in labels if label.p_first is not None),
        mean_order_gap=_mean(gaps),
        flipped=_mean(float(_flips(label)) for label in both),
        mean_mass=_mean(label.mass for label in labels if label.mass is not None),
        verdicts=len(votes),
        verdict_counts={outcome: sum(v.verdict.outcome is outcome for v in votes) for outcome in Outcome},
        first_share=_mean(float(_names_first_shown(vote)) for vote in named),
        tokens=sum(tokens) if tokens else None,
        cost=math.fsum(costs) if costs else None,
    )


def _panel(judge: Judge | Sequence[Judge]) -> list[Judge]:
    """The judges, each once: two of equal identity would give the same verdicts."""
    listed = list(judge) if isinstance(judge, Sequence) else [judge]
    return list({member.identity: member for member in listed}.values())


def _check_raters(judges: Sequence[Judge], asked: Sequence[Sequence[Question]], principles: int) -> None:
    raters = min((len(mine) // principles for mine in asked), default=_FEWEST_RATERS)
    if raters < _FEWEST_RATERS:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f'label.aggregation = "dawid-skene" weighs votes against each other, and {len(judges)} judges give only '
            f"{raters} on a question",
            f"ask more judges, wordings (label.templates) or samples, at least {_FEWEST_RATERS} votes in all; or take "
            'the "mean"',
        )


def _vote(question: Question, verdict: Verdict) -> Vote:
    request = question.request
    return Vote(question.judge, request.principle, request.order, request.sample, verdict)


def _names_first_shown(vote: Vote) -> bool:
    p = vote.verdict.p_first
    assert p is not None
    return (p > 0.5) == (vote.order is Order.FORWARD)


def _flips(label: Label) -> bool:
    """Whether the votes of the two orders prefer different responses."""
    forward, backward = (
        _mean(v.verdict.p_first for v in label.votes if v.order is order and v.verdict.p_first is not None)
        for order in Order
    )
    return forward is not None and backward is not None and (forward - 0.5) * (backward - 0.5) < 0


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else None
