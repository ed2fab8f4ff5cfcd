"""What the labels go along with besides quality: length, and who wrote, labeled or contributed the pairs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.data.check.findings import DataFinding, Level
from trimtab.data.check.material import Material, counted, percent
from trimtab.data.records import Pair
from trimtab.stats.intervals import Interval, wilson

__all__ = ["composition", "label_findings", "length_findings", "lengths", "source_findings"]

Floats = NDArray[np.float64]

COLUMNS = {
    "source": ("source", "dataset", "origin", "subset", "motivation_app"),
    "annotator": ("annotator", "annotator_id", "rater", "worker", "worker_id"),
    "group": ("group", "annotator_group", "country", "locale"),
    "judge": ("judge", "judge_model", "labeler"),
    "principle": ("principle", "principle_id", "aspect"),
    "split": ("split",),
    "tag": (),
}
"""What the pool is made of -> names of columns that say so, the first one present is taken; tags have a place of their
own, and generators are read from `chosen_model` and `rejected_model` (or `model`)."""


def share_by_prompt(values: Floats, prompts: NDArray[np.int64]) -> Interval:
    """Mean of 0/1 values with a Wilson interval for as many trials as pairs of the same prompt are worth.

    The variance of the mean with prompts as clusters, over the one of independent pairs, divides the number of trials.
    """
    n = len(values)
    if n == 0:
        return wilson(0, 0)
    _, index = np.unique(prompts, return_inverse=True)
    mean = float(values.mean())
    sums = np.bincount(index, values - mean)
    independent = mean * (1 - mean) * n
    effect = max(float(sums @ sums) / independent, 1.0) if independent > 0 else 1.0
    trials = max(1, round(n / effect))
    k = mean * trials
    interval = wilson(min(max(k, 0.0), trials), trials)
    return Interval(mean, interval.low, interval.high, n)


def lengths(material: Material) -> dict[str, Any]:
    """How often the longer response is chosen, by words; equal lengths and ties of the label are left out."""
    of = material.corpus.lengths
    a, b = of[material.chosen], of[material.rejected]
    decided = (a != b) & (material.p != 0.5)
    longer = np.where(material.p > 0.5, a > b, b > a)[decided]
    interval = share_by_prompt(longer.astype(np.float64), material.prompts[decided])
    return {
        "longer_wins": interval.mean,
        "low": interval.low,
        "high": interval.high,
        "n": int(decided.sum()),
        "median_words_chosen": float(np.median(a)),
        "median_words_rejected": float(np.median(b)),
    }


def length_findings(material: Material, figures: Mapping[str, Any]) -> Iterator[DataFinding]:
    """Longer responses win much more often than people let them (64 %), or much more rarely.

    Thresholds: people prefer the longer response in about 64 % of comparisons (AlpacaEval); from 75 % on the length
    alone explains most labels.
    """
    share, n = figures["longer_wins"], figures["n"]
    if n < 50 or not math.isfinite(share):
        return
    z = abs(share - 0.5) / (0.5 / math.sqrt(n))
    lean = max(share, 1 - share)
    if z <= 3 or lean < 0.65:
        return
    which = "longer" if share > 0.5 else "shorter"
    low, high = figures["low"], figures["high"]
    if share < 0.5:
        low, high = 1 - high, 1 - low
    yield DataFinding(
        "length-imbalance",
        Level.CRITICAL if low >= 0.85 else Level.WARNING,
        f"The {which} response is chosen in {100 * lean:.0f} % [{100 * low:.0f}, {100 * high:.0f}] of "
        f"{counted(n, 'pair')}. "
        "A preference model can learn length instead of quality.",
        "Balance: trimtab data filter FILE -o OUT --balance-length",
        n,
        lean,
        (),
        {},
        dict(figures),
    )


def composition(pairs: list[Pair]) -> dict[str, dict[str, Any]]:
    """Who and what the pairs come from: for each kind of origin that the file names, counts and how even they are.

    Returns:
        kind -> {"counts": {value: pairs}, "named": pairs that say it, "effective": exp(entropy), "largest": share}.
        For `generator` a pair counts once for each of its two responses, and `wins` is the share that were chosen.
    """
    found: dict[str, dict[str, Any]] = {}
    for kind, columns in COLUMNS.items():
        values = [t for p in pairs for t in p.prompt.tags] if kind == "tag" else _values(pairs, columns)
        if values:
            found[kind] = _spread(Counter(values))
    generators: Counter[str] = Counter()
    wins: Counter[str] = Counter()
    duels: Counter[str] = Counter()
    for p in pairs:
        chosen, rejected = _generators(p)
        generators.update(g for g in (chosen, rejected) if g)
        if chosen and rejected and chosen != rejected:
            wins[chosen] += 1
            duels.update((chosen, rejected))
    if generators:
        found["generator"] = _spread(generators)
        found["generator"]["wins"] = {g: wins[g] / duels[g] for g in generators if duels[g]}
        found["generator"]["duels"] = {g: duels[g] for g in generators if duels[g]}
    return found


def _values(pairs: list[Pair], columns: tuple[str, ...]) -> list[str]:
    values = []
    for p in pairs:
        value = next((p.extra[c] for c in columns if p.extra.get(c) not in (None, "")), None)
        if isinstance(value, str | int) and not isinstance(value, bool):
            values.append(str(value))
    return values


def _generators(pair: Pair) -> tuple[str, str]:
    def named(*columns: str) -> str:
        return next((str(pair.extra[c]) for c in columns if isinstance(pair.extra.get(c), str)), "")

    both = named("model", "generator")
    return named("chosen_model", "chosen_generator") or both, named("rejected_model", "rejected_generator") or both


def _spread(counts: Counter[str]) -> dict[str, Any]:
    total = sum(counts.values())
    shares = [n / total for n in counts.values()]
    effective = math.exp(-math.fsum(s * math.log(s) for s in shares))
    return {"counts": dict(counts.most_common()), "named": total, "effective": effective, "largest": max(shares)}


def source_findings(pairs: list[Pair], made_of: Mapping[str, Mapping[str, Any]]) -> Iterator[DataFinding]:
    """One generator wrote nearly everything, one generator nearly always wins, or a judge labels its own kind."""
    n = len(pairs)
    generator = made_of.get("generator")
    if generator and n >= 50 and generator["largest"] > 0.9:
        name = next(iter(generator["counts"]))
        yield DataFinding(
            "one-generator",
            Level.WARNING,
            f"{percent(generator['counts'][name], generator['named'])} of the responses come from one model, {name}.",
            "Add responses of other models or temperatures: a preference model trained on one learns its habits.",
            generator["counts"][name],
            generator["largest"],
        )
    for name, share in (generator or {}).get("wins", {}).items():
        duels = generator["duels"][name]  # type: ignore[index]
        if duels >= 50 and duels >= 0.5 * n and wilson(share * duels, duels).low > 0.8:
            yield DataFinding(
                "generator-decides",
                Level.WARNING,
                f"Responses of {name} win {100 * share:.0f} % of {counted(duels, 'comparison')} with other models: who "
                "wrote a response nearly decides its label.",
                "Add pairs with both responses of one model, so that the preference model must look at quality.",
                duels,
                share,
            )
    judge, source = made_of.get("judge"), made_of.get("source")
    if judge and generator and set(judge["counts"]) & set(generator["counts"]):
        same = sorted(set(judge["counts"]) & set(generator["counts"]))
        yield DataFinding(
            "judge-is-generator",
            Level.INFO,
            f"{', '.join(same)} both wrote and judged responses.",
            "Check for self-preference: trimtab labels audit FILE",
            len(same),
            0.0,
        )
    if source and n >= 50 and len(source["counts"]) > 1 and source["largest"] > 0.9:
        name = next(iter(source["counts"]))
        yield DataFinding(
            "one-source",
            Level.INFO,
            f"{percent(source['counts'][name], source['named'])} of the pairs come from one of "
            f"{len(source['counts'])} sources, {name}.",
            "What the others hold is hardly learned; give them a weight.",
            source["counts"][name],
            source["largest"],
        )


# labels


def label_findings(material: Material) -> tuple[dict[str, Any], list[DataFinding]]:
    """How strong the labels are: figures, and what is odd about them."""
    soft = np.array([p.p_chosen is not None for p in material.pairs])
    p, n = material.p, len(material)
    margins = np.array([p.margin for p in material.pairs if p.margin is not None], dtype=np.float64)
    edges = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    strength = np.maximum(p, 1 - p)[soft]
    figures: dict[str, Any] = {
        "hard": int((~soft).sum()),
        "soft": int(soft.sum()),
        "ties": int((p == 0.5).sum()),
        "strength": {
            f"{low:g}-{high:g}": int(((strength >= low) & ((strength < high) | (high == 1.0))).sum())
            for low, high in pairwise(edges)
        },
        "margin_quantiles": [float(q) for q in np.quantile(margins, [0.05, 0.25, 0.5, 0.75, 0.95])]
        if len(margins)
        else [],
        "weights": sorted({pair.weight for pair in material.pairs})[:20],
    }
    found = []
    reversed_ = np.flatnonzero(p < 0.5)
    if len(reversed_):
        found.append(
            DataFinding(
                "reversed-labels",
                Level.WARNING,
                f"{counted(len(reversed_), 'pair')} {'has' if len(reversed_) == 1 else 'have'} p_chosen below .5: the "
                "rejected response is the preferred one. Trainers that ignore p_chosen learn the opposite.",
                "Turn them round: trimtab data filter FILE -o OUT --turn-reversed",
                len(reversed_),
                len(reversed_) / n,
                material.ids(reversed_),
            )
        )
    ties = np.flatnonzero(p == 0.5)
    if len(ties) > 0.2 * n:
        found.append(
            DataFinding(
                "ties",
                Level.INFO if len(ties) < 0.5 * n else Level.WARNING,
                f"{counted(len(ties), 'pair')} ({percent(len(ties), n)}) are ties: they say little about quality.",
                "Leave them out, or ask for finer labels: trimtab data filter FILE -o OUT --drop ties",
                len(ties),
                len(ties) / n,
                material.ids(ties),
            )
        )
    return figures, found
