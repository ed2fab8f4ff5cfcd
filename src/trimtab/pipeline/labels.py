"""The label stage: judges from the settings, their verdicts, labels, pairs, and how good the judges look."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from trimtab.data.pairs import read_candidates, write_pairs
from trimtab.data.records import CandidatePair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.active import choose
from trimtab.labeling.aggregate import Label, aggregate, weigh_judges
from trimtab.labeling.budget import Budget, Estimate
from trimtab.labeling.labels import LabelSummary, estimate_labels, label_pairs, summarise, to_pairs
from trimtab.labeling.protocol import JudgeIdentity, Outcome
from trimtab.labeling.rounds import label_in_rounds
from trimtab.labeling.store import LabelStore
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.second_opinion import second_opinion
from trimtab.runs.files import write_jsonl
from trimtab.runs.progress import Progress, progress

__all__ = ["estimate_stage", "run_label"]


def run_label(shop: Workshop) -> dict[str, Any]:
    """Label the run's pairs (see `pipeline.work`)."""
    config, target = shop.project.config.label, shop.run.artifact("label")
    everything = read_candidates(shop.run.artifact("sample") / "pairs.jsonl")
    budget = Budget(config.max_cost, config.max_calls)
    judges = shop.judges(budget)
    counter = _Counter(budget, min(config.budget_pairs or len(everything), len(everything)))
    began = time.monotonic()

    def ask(pairs: Sequence[CandidatePair]) -> list[Label]:
        return label_pairs(
            pairs, judges, shop.project.constitution, aggregation=config.aggregation, store=store, budget=budget,
            progress=counter.of_round(len(pairs)), **_asked(shop),
        )  # fmt: skip

    with LabelStore(shop.project.label_store) as store:
        with counter.bar:
            candidates, labels = _chosen(shop, everything, ask)
        seconds = time.monotonic() - began
        opinion = second_opinion(shop, candidates, labels, store) if config.audit_sample else {}
    pairs = to_pairs(candidates, labels, abstain=config.abstain)
    write_jsonl(target / "labels.jsonl", (_record(label) for label in labels))
    write_pairs(target / "pairs.jsonl", pairs)
    summary = summarise(labels)
    signals = _signals(labels, summary, candidates, len(pairs))
    shop.run.log("label", 0, signals | _spent(summary, budget, seconds))
    constitution = shop.project.constitution
    return {
        "judge": ", ".join(dict.fromkeys(judge.identity.name for judge in judges)),
        "constitution": constitution.name,
        "constitution_hash": constitution.hash,
        "principles": [{"id": p.id, "text": p.text, "weight": p.weight} for p in constitution.principles],
        "candidates": len(everything),
        "choose": config.choose,
        "labels": summary.n,
        "pairs": len(pairs),
        "outcomes": {str(outcome): count for outcome, count in summary.counts.items()},
        "mean_strength": summary.mean_strength,
        "mean_order_gap": summary.mean_order_gap,
        "flipped": summary.flipped,
        "first_share": summary.first_share,
        "mean_mass": summary.mean_mass,
        "verdicts": summary.verdicts,
        "verdict_outcomes": {str(outcome): count for outcome, count in summary.verdict_counts.items()},
        "calls": budget.calls,
        "tokens": summary.tokens,
        "cost": summary.cost,
        "judges": _cards(labels) if len(judges) > 1 else [],
        "by_principle": _by_principle(labels),
        "second_opinion": opinion,
    }


def estimate_stage(shop: Workshop) -> list[Estimate]:
    """What labeling the run's pairs would ask and pay, judge by judge; nobody is asked.

    Raises:
        TrimtabError: there are no pairs yet.
    """
    path = shop.run.artifact("sample") / "pairs.jsonl"
    if not path.is_file():
        raise TrimtabError(ErrorKind.RUN, f"{path}: no pairs have been sampled yet", "run first: trimtab sample")
    config, pairs = shop.project.config, read_candidates(path)
    if config.label.budget_pairs is not None:
        # which pairs an active choice comes to is not known before the verdicts are: any will do
        some = choose(pairs, config.label.budget_pairs, rule="random", seed=config.project.seed)
        pairs = [pairs[i] for i in some.tolist()]
    judges, constitution, store = shop.judges(), shop.project.constitution, None
    if shop.project.label_store.is_file():
        store = LabelStore(shop.project.label_store)
    try:
        return estimate_labels(pairs, judges, constitution, store=store, **_asked(shop))
    finally:
        if store is not None:
            store.close()


def _chosen(
    shop: Workshop, pairs: Sequence[CandidatePair], ask: Callable[[Sequence[CandidatePair]], list[Label]]
) -> tuple[Sequence[CandidatePair], list[Label]]:
    """The pairs that get a label, and their labels."""
    config = shop.project.config
    label = config.label
    if label.choose == "all" or label.budget_pairs is None:
        return pairs, ask(pairs)
    chosen, labels = label_in_rounds(pairs, label.budget_pairs, ask, how=label.choose, seed=config.project.seed)
    if label.aggregation == "dawid-skene":
        # judges are weighed by all of their votes, not by those of a round
        principles = {p.id: p.weight for p in shop.project.constitution.counted}
        labels = weigh_judges(labels, weights=principles if label.principles == "each" else None)
    return chosen, labels


def _asked(shop: Workshop) -> dict[str, Any]:
    """What decides which questions there are."""
    config = shop.project.config
    label = config.label
    return {
        "both_orders": label.both_orders,
        "samples": label.samples,
        "principles": label.principles,
        "seed": config.project.seed,
        "batch_size": label.batch_size,
    }


class _Counter:
    """A progress bar over all rounds that shows what has been spent."""

    def __init__(self, budget: Budget, pairs: int) -> None:
        self.bar: Progress = progress(None, "label")
        self._budget, self._pairs = budget, pairs
        self._before = self._round = 0

    def of_round(self, pairs: int) -> Callable[[int, int], None]:
        """What a round over so many pairs reports to."""
        self._before += self._round

        def report(done: int, total: int) -> None:
            self._round = total
            if self.bar.total is None:
                self.bar.start_from(done, round(total * self._pairs / max(pairs, 1)))
            cost = {"cost": self._budget.cost} if self._budget.cost else {}
            self.bar.advance(self._before + done - self.bar.done, **cost)

        return report


def _record(label: Label) -> dict[str, Any]:
    return {
        "pair_id": label.pair_id,
        "outcome": label.outcome,
        "p_first": label.p_first,
        "order_gap": label.order_gap,
        "mass": label.mass,
        "principles": dict(label.principles),
        "constitution": label.constitution,
        "votes": len(label.votes),
    }


def _signals(
    labels: Sequence[Label], summary: LabelSummary, candidates: Sequence[CandidatePair], kept: int
) -> dict[str, float | int | None]:
    decided = [
        (label.p_first, pair) for label, pair in zip(labels, candidates, strict=True) if label.p_first is not None
    ]
    of_length = [
        (p > 0.5) == (len(pair.first.text) > len(pair.second.text))
        for p, pair in decided
        if p != 0.5 and len(pair.first.text) != len(pair.second.text)
    ]
    shares = {
        f"label/{outcome}_fraction": n / max(summary.verdicts, 1) for outcome, n in summary.verdict_counts.items()
    }
    shares.pop("label/ok_fraction")
    return {
        "label/pairs": summary.n,
        **shares,
        "label/order_flip_fraction": summary.flipped,
        "label/first_slot_fraction": summary.first_share,
        "label/p_first_mean": mean(p for p, _ in decided) if decided else None,
        "label/gap_mean": summary.mean_strength,
        "label/mass_mean": summary.mean_mass,
        "label/longer_wins_fraction": mean(of_length) if of_length else None,
        "label/kept_fraction": kept / max(summary.n, 1),
    }


def _spent(summary: LabelSummary, budget: Budget, seconds: float) -> dict[str, float | int | None]:
    answered = budget.answered - budget.found
    return {
        "label/verdicts": summary.verdicts,
        "label/from_store_fraction": budget.found / budget.questions if budget.questions else None,
        "label/calls": budget.calls,
        "label/tokens": summary.tokens,
        "label/cost": summary.cost,
        "rate/verdicts_per_s": answered / seconds if answered and seconds > 0 else None,
    }


def _cards(labels: Sequence[Label]) -> list[dict[str, Any]]:
    """Each judge's wording by itself: how often it answered, flipped, named the first place, and what it cost."""
    votes: dict[JudgeIdentity, list[Label]] = {}
    for label in labels:
        for identity in dict.fromkeys(vote.judge for vote in label.votes):
            own = aggregate(label.pair_id, [vote for vote in label.votes if vote.judge == identity])
            votes.setdefault(identity, []).append(own)
    cards = []
    for identity, mine in votes.items():
        summary = summarise(mine)
        wording = f"/{identity.wording}" if identity.wording else ""
        cards.append(
            {
                "name": f"{identity.name}{wording} {identity.model[:60]}".strip(),
                "usable": summary.usable,
                "flipped": summary.flipped,
                "first_share": summary.first_share,
                "mean_strength": summary.mean_strength,
                "mean_mass": summary.mean_mass,
                "unparsed": summary.verdict_counts[Outcome.UNPARSED] / max(summary.verdicts, 1),
                "tokens": summary.tokens,
                "cost": summary.cost,
            }
        )
    return cards


def _by_principle(labels: Sequence[Label]) -> dict[str, dict[str, float | int]]:
    """How often each principle was asked about alone, and how decided its scores are."""
    scores: dict[str, list[float]] = {}
    for label in labels:
        for principle, p in label.principles.items():
            scores.setdefault(principle, []).append(p)
    return {k: {"labels": len(v), "mean_strength": mean(abs(p - 0.5) for p in v)} for k, v in scores.items()}
