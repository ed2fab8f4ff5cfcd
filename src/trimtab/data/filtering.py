"""Pairs taken out of a data set, mixed in, merged or turned round; every change is written down with its reason.

The order is fixed, so that the same input gives the same output: human pairs are mixed in, reversed labels turned
round, repeats merged, findings dropped, lengths balanced.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab.data.check import Check, check
from trimtab.data.check.material import Material
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["ALIASES", "DROPPABLE", "Filtered", "as_human", "drop_kinds", "filter_pairs"]

DROPPABLE = (
    "duplicates",
    "near-duplicates",
    "contradictions",
    "near-contradictions",
    "cycles",
    "near-duplicate-prompts",
    "identical-responses",
    "empty",
    "truncated",
    "refusals",
    "loops",
    "wrong-language",
    "prompt-echo",
    "remnants",
    "ties",
    "reversed-labels",
    "noisy-labels",
    "leaked-prompts",
    "leaked-near-prompts",
    "leaked-passages",
)
"""Findings of `trimtab.data.check` that name pairs to drop."""

ALIASES = {
    "repeats": ("duplicates", "near-duplicates"),
    "leaks": ("leaked-prompts", "leaked-near-prompts", "leaked-passages"),
    "broken-responses": ("identical-responses", "empty", "loops", "prompt-echo", "remnants", "wrong-language"),
}
"""Several kinds under one name."""


@dataclass(slots=True)
class Filtered:
    """What a filter left, and what it did.

    Args:
        pairs: the pairs that stay, in their order; merged ones at the place of their first.
        dropped: (pair, reasons): every pair that went, with all kinds that spoke against it and why.
        changed: (id, what was done) of pairs that stay in another form.
        read: pairs that came in, human ones included.
    """

    pairs: list[Pair] = field(default_factory=list)
    dropped: list[tuple[Pair, dict[str, str]]] = field(default_factory=list)
    changed: list[tuple[str, str]] = field(default_factory=list)
    read: int = 0

    def counts(self) -> dict[str, int]:
        """How many pairs went by each reason; a pair with several reasons counts under each."""
        return dict(Counter(reason for _, reasons in self.dropped for reason in reasons).most_common())

    def reasons(self) -> list[dict[str, Any]]:
        """One record a dropped or changed pair, for a file."""
        gone = [{"id": pair.id, "action": "dropped", "reasons": reasons} for pair, reasons in self.dropped]
        kept = [{"id": name, "action": "changed", "reasons": {"change": what}} for name, what in self.changed]
        return [*gone, *kept]


def drop_kinds(names: Iterable[str]) -> tuple[str, ...]:
    """The kinds of findings behind some names, aliases resolved, each once, in a fixed order.

    Raises:
        TrimtabError: a name is no kind that can be dropped.
    """
    wanted: set[str] = set()
    for name in names:
        if name not in DROPPABLE and name not in ALIASES:
            raise TrimtabError(
                ErrorKind.USAGE,
                f"--drop {name}: there is no such kind",
                f"kinds: {', '.join((*ALIASES, *DROPPABLE))}",
            )
        wanted.update(ALIASES.get(name, (name,)))
    return tuple(kind for kind in DROPPABLE if kind in wanted)


def filter_pairs(
    pairs: Sequence[Pair],
    *,
    drop: Sequence[str] = (),
    test: Sequence[Pair] = (),
    scores: Mapping[str, float] | None = None,
    report: Mapping[str, Mapping[str, str]] | None = None,
    human: Sequence[Pair] = (),
    weight: float = 1.0,
    turn_reversed: bool = False,
    merge: bool = False,
    balance_length: bool = False,
    seed: int = 0,
) -> Filtered:
    """Filter pairs; see the module for the order.

    Args:
        pairs: the pairs.
        drop: kinds of findings, or aliases, whose pairs go.
        test: pairs to evaluate on, for the leaks.
        scores: margins by id, for noisy labels.
        report: kind -> id -> why, of a check made before; None = check now.
        human: pairs labeled by people, to be mixed in at the end; never dropped.
        weight: of each human pair in training, against 1 for the others.
        turn_reversed: swap the responses where p_chosen is below .5.
        merge: make one pair with a soft label of all that compare the same two responses, by weighted share.
        balance_length: drop pairs drawn at random until the longer response wins half of the time.
        seed: of what is drawn.

    Raises:
        TrimtabError: an unknown kind, a negative weight, or an id of a human pair that is taken.
    """
    kinds = drop_kinds(drop)
    if any(kind.startswith("leaked") for kind in kinds) and not test and report is None:
        raise TrimtabError(ErrorKind.USAGE, "leaks need a test set to look for", "--test FILE")
    result = Filtered(read=len(pairs) + len(human))
    kept = list(pairs)
    if turn_reversed:
        kept = [_turned(pair, result) for pair in kept]
    if merge:
        kept = _merged(kept, result)
    if kinds:
        found = report if report is not None else by_kind(check(kept, test=test, scores=scores, seed=seed))
        kept = _without(kept, kinds, found, result)
    if balance_length:
        kept = _balanced(kept, result, seed)
    result.pairs = [*kept, *as_human(human, weight, {p.id for p in pairs})]
    return result


def by_kind(found: Check) -> dict[str, dict[str, str]]:
    """kind -> id -> why, of a check."""
    return {f.id: {i: f.notes.get(i, "") for i in f.ids} for f in found.findings}


def _without(
    pairs: list[Pair], kinds: Sequence[str], found: Mapping[str, Mapping[str, str]], result: Filtered
) -> list[Pair]:
    kept = []
    for pair in pairs:
        reasons = {kind: found[kind][pair.id] for kind in kinds if pair.id in found.get(kind, {})}
        if reasons:
            result.dropped.append((pair, reasons))
        else:
            kept.append(pair)
    return kept


def _turned(pair: Pair, result: Filtered) -> Pair:
    if pair.p_chosen is None or pair.p_chosen >= 0.5:
        return pair
    result.changed.append((pair.id, f"turned round: p_chosen was {pair.p_chosen:g}"))
    return _swapped(pair)


def _swapped(pair: Pair) -> Pair:
    """The pair with its responses swapped, and with them the columns that speak of either."""
    other = {"chosen": "rejected", "rejected": "chosen"}
    extra = {}
    for name, value in pair.extra.items():
        side, _, rest = name.partition("_")
        extra[f"{other[side]}_{rest}" if side in other and rest else name] = value
    p = None if pair.p_chosen is None else 1 - pair.p_chosen
    margin = None if pair.margin is None else -pair.margin
    principles = {name: 1 - by_it for name, by_it in pair.principles.items()}
    return replace(
        pair, chosen=pair.rejected, rejected=pair.chosen, p_chosen=p, margin=margin, extra=extra, principles=principles
    )


def _merged(pairs: list[Pair], result: Filtered) -> list[Pair]:
    """One pair for each comparison: the share of the votes as a soft label, the side with more votes chosen."""
    material = Material(pairs)
    keys = material.keys
    groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for i, (prompt, a, b) in enumerate(zip(material.prompts, material.chosen, material.rejected, strict=True)):
        groups[(keys[prompt], *sorted((keys[a], keys[b])))].append(i)
    merged: list[Pair] = []
    for group in groups.values():
        first = pairs[group[0]]
        if len(group) == 1 or keys[material.chosen[group[0]]] == keys[material.rejected[group[0]]]:
            merged += [pairs[i] for i in group]
            continue
        same = [keys[material.chosen[i]] == keys[material.chosen[group[0]]] for i in group]
        p = [float(material.p[i]) if s else 1 - float(material.p[i]) for i, s in zip(group, same, strict=True)]
        weights = [pairs[i].weight for i in group]
        total = sum(weights)
        share = sum(w * x for w, x in zip(weights, p, strict=True)) / total if total else sum(p) / len(p)
        turned = [pairs[i] if s else _swapped(pairs[i]) for i, s in zip(group, same, strict=True)]
        soft = replace(
            first, p_chosen=None if share == 1 else share, margin=None, principles=_mean_by_principle(turned)
        )
        merged.append(_swapped(soft) if share < 0.5 else soft)
        result.changed.append((first.id, f"merged {len(group)} labels: P(chosen) = {max(share, 1 - share):.3f}"))
        result.dropped += [(pairs[i], {"merged": f"into {first.id}"}) for i in group[1:]]
    return merged


def _mean_by_principle(pairs: list[Pair]) -> dict[str, float]:
    """Weighted mean over the pairs that have a label by a principle, of each principle."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for pair in pairs:
        for name, p in pair.principles.items():
            found[name].append((pair.weight, p))
    means = {}
    for name, votes in found.items():
        total = sum(w for w, _ in votes)
        means[name] = sum(w * p for w, p in votes) / total if total else sum(p for _, p in votes) / len(votes)
    return means


def _balanced(pairs: list[Pair], result: Filtered, seed: int) -> list[Pair]:
    """Drop pairs of the side that wins more often, matched by how far the lengths differ.

    Within each band of the ratio of the lengths (in words) as many pairs stay in which the longer one wins as in which
    the shorter one does, so that neither the sign nor the size of the difference predicts the label.
    """
    material = Material(pairs)
    of = material.corpus.lengths
    a, b = of[material.chosen] + 1.0, of[material.rejected] + 1.0
    ratio = np.log2(a / b)
    band = np.minimum(np.floor(np.abs(ratio) * 4), 16).astype(np.int64)
    rng = np.random.default_rng(seed)
    gone: set[int] = set()
    for k in np.unique(band):
        longer = np.flatnonzero((band == k) & (ratio > 0) & (material.p != 0.5))
        shorter = np.flatnonzero((band == k) & (ratio < 0) & (material.p != 0.5))
        more, fewer = (longer, shorter) if len(longer) > len(shorter) else (shorter, longer)
        gone.update(rng.permutation(more)[: len(more) - len(fewer)].tolist())
    for i in sorted(gone):
        which = "longer" if ratio[i] > 0 else "shorter"
        result.dropped.append((pairs[i], {"length-balance": f"the {which} response wins here more often"}))
    return [pair for i, pair in enumerate(pairs) if i not in gone]


def as_human(human: Sequence[Pair], weight: float, taken: set[str]) -> list[Pair]:
    """Pairs labeled by people, with this weight in training, to be mixed with pairs of the ids `taken`.

    Raises:
        TrimtabError: a weight out of range, or an id that cannot be made different from those taken.
    """
    if not (0 <= weight < float("inf")):
        raise TrimtabError(ErrorKind.USAGE, f"--weight {weight} is out of range", "a number from 0 on")
    mixed = []
    for pair in human:
        name = f"human/{pair.id}" if pair.id in taken else pair.id
        if name in taken:
            raise TrimtabError(ErrorKind.DATA, f"the id {name!r} of a human pair is taken", "give the pairs ids")
        taken.add(name)
        mixed.append(replace(pair, id=name, weight=pair.weight * weight, extra={"labeled_by": "human", **pair.extra}))
    return mixed
