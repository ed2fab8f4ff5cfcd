"""What a change of the constitution does to labels: relabel a sample under both, list the flips, say whose they are.

Every change between the two (a principle added, removed, reworded, reweighted) is also tried alone on the old
constitution: the flips that it makes alone are its own, those that no change makes alone come from several together.
All verdicts go through the project's label store, so nothing that is recorded there is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.constitution import Constitution
from trimtab.constitution.changes import Change, apply, changes
from trimtab.data.records import CandidatePair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.labels import Label
from trimtab.stats.intervals import Interval, bootstrap_mean, wilson

__all__ = ["ConstitutionDiff", "Flip", "Share", "diff_constitutions"]

LabelUnder = Callable[[Constitution, Sequence[CandidatePair]], Sequence[Label]]
"""Labels of the pairs under a constitution, one a pair."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one change does alone: flips, their share of the pairs and the mean move of P(first), with intervals."""

    change: Change
    flips: tuple[str, ...]
    flip_rate: Interval
    mean_move: Interval
    """Mean |P under the old - P with this change alone|."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A pair whose winner is another one under the new constitution."""

    pair: CandidatePair
    p_old: float
    """P(first > second) under the old constitution."""
    p_new: float
    alone: tuple[str, ...]
    """Names of the changes that flip it alone; empty: only together."""


@dataclass(frozen=True, slots=True)
class ConstitutionDiff:
    """The result; rates are over the pairs that both label."""

    changes: tuple[Change, ...]
    asked: int
    """Pairs asked about."""
    compared: int
    """Pairs with a label under both."""
    flips: tuple[Flip, ...]
    flip_rate: Interval
    mean_move: Interval
    """Mean |P under the old - P under the new|."""
    order_disagreement: float | None
    """Share of pairs whose two orders of presentation name different winners under the old constitution: how much of a
    flip rate the judge makes by itself."""
    longer_old: float | None
    """Share of decided pairs whose longer response wins, under the old constitution and under the new."""
    longer_new: float | None
    shares: tuple[Share, ...]
    """What each change does alone, the one with most flips first; empty where that was not asked."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; flips carry the texts."""
        return {
            "changes": [c.as_dict() for c in self.changes],
            "asked": self.asked,
            "compared": self.compared,
            "flip_rate": self.flip_rate._asdict(),
            "mean_move": self.mean_move._asdict(),
            "order_disagreement": self.order_disagreement,
            "longer_wins": {"old": self.longer_old, "new": self.longer_new},
            "by_change": [
                {
                    **s.change.as_dict(),
                    "flips": len(s.flips),
                    "flip_rate": s.flip_rate._asdict(),
                    "mean_move": s.mean_move._asdict(),
                }
                for s in self.shares
            ],
            "flips": [
                {
                    "pair_id": f.pair.id,
                    "prompt": f.pair.prompt.text,
                    "first": f.pair.first.text,
                    "second": f.pair.second.text,
                    "p_old": f.p_old,
                    "p_new": f.p_new,
                    "alone": list(f.alone),
                }
                for f in self.flips
            ],
        }


def diff_constitutions(
    old: Constitution,
    new: Constitution,
    pairs: Sequence[CandidatePair],
    label: LabelUnder,
    *,
    attribute: bool = True,
    resamples: int = 2000,
) -> ConstitutionDiff:
    """Label the pairs under both constitutions and under every change alone.

    Args:
        old: the constitution so far.
        new: the one that is to replace it.
        pairs: a sample of pairs.
        label: asks the judge; called once for each constitution that differs.
        attribute: also label under every change alone, where there are several.
        resamples: of the prompts, for the intervals.

    Raises:
        TrimtabError: no pair has a label under both.
    """
    found = changes(old, new)
    before = list(label(old, pairs))
    after = list(label(new, pairs)) if found else before
    both = [
        (pair, a, b)
        for pair, a, b in zip(pairs, before, after, strict=True)
        if a.p_first is not None and b.p_first is not None
    ]
    if not both:
        raise TrimtabError(
            ErrorKind.DATA,
            f"none of {len(pairs)} pairs has a label under both constitutions",
            "see what the judge answered: trimtab label",
        )
    compared = [pair for pair, _, _ in both]
    p_old, p_new = _p([a for _, a, _ in both]), _p([b for _, _, b in both])
    shares = _shares(old, new, found, compared, p_old, p_new, label, resamples) if attribute else []
    flipped = _flipped(p_old, p_new)
    names = {s.change.name: set(s.flips) for s in shares}
    return ConstitutionDiff(
        changes=tuple(found),
        asked=len(pairs),
        compared=len(both),
        flips=tuple(
            Flip(pair, float(o), float(n), tuple(name for name, ids in names.items() if pair.id in ids))
            for pair, o, n, flip in zip(compared, p_old, p_new, flipped, strict=True)
            if flip
        ),
        flip_rate=_rate(flipped, compared, resamples),
        mean_move=_mean(np.abs(p_new - p_old), compared, resamples),
        order_disagreement=_orders([a for _, a, _ in both]),
        longer_old=_longer(compared, p_old),
        longer_new=_longer(compared, p_new),
        shares=tuple(sorted(shares, key=lambda s: (-len(s.flips), s.change.name))),
    )


def _shares(
    old: Constitution,
    new: Constitution,
    found: Sequence[Change],
    pairs: Sequence[CandidatePair],
    p_old: NDArray[np.float64],
    p_new: NDArray[np.float64],
    label: LabelUnder,
    resamples: int,
) -> list[Share]:
    shares = []
    for change in found:
        p = p_new
        if len(found) > 1:
            try:
                alone = apply(old, new, change)
            except TrimtabError:
                continue  # removing the only principle leaves nothing to ask about
            p = _p(label(alone, pairs))
        known = np.isfinite(p)
        inside = [pair for pair, ok in zip(pairs, known, strict=True) if ok]
        if not inside:
            continue
        flipped = _flipped(p_old[known], p[known])
        shares.append(
            Share(
                change,
                tuple(pair.id for pair, flip in zip(inside, flipped, strict=True) if flip),
                _rate(flipped, inside, resamples),
                _mean(np.abs(p[known] - p_old[known]), inside, resamples),
            )
        )
    return shares


def _p(labels: Sequence[Label]) -> NDArray[np.float64]:
    return np.array([np.nan if label.p_first is None else label.p_first for label in labels])


def _flipped(p_old: NDArray[np.float64], p_new: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The winner is the other one; from or to exactly one half is no flip."""
    flipped: NDArray[np.bool_] = (p_old - 0.5) * (p_new - 0.5) < 0
    return flipped


def _rate(flipped: NDArray[np.bool_], pairs: Sequence[CandidatePair], resamples: int) -> Interval:
    rate = float(flipped.mean())
    if 0 < rate < 1:
        return _mean(flipped.astype(float), pairs, resamples)
    # all alike: resampling cannot say how sure that is; the prompts are what was drawn
    prompts = len({pair.prompt.messages for pair in pairs})
    return wilson(rate * prompts, prompts)._replace(n=len(pairs))


def _mean(values: NDArray[np.float64], pairs: Sequence[CandidatePair], resamples: int) -> Interval:
    return bootstrap_mean(values, [pair.prompt.messages for pair in pairs], resamples)


def _orders(labels: Sequence[Label]) -> float | None:
    gaps = [(label.p_first, label.order_gap) for label in labels if label.order_gap is not None]
    if not gaps:
        return None
    # p +- gap / 2 are the means of the two orders
    return sum((p + g / 2 - 0.5) * (p - g / 2 - 0.5) < 0 for p, g in gaps if p is not None) / len(gaps)


def _longer(pairs: Sequence[CandidatePair], p: NDArray[np.float64]) -> float | None:
    decided = [
        (x > 0.5) == (len(pair.first.text) > len(pair.second.text))
        for pair, x in zip(pairs, p, strict=True)
        if x != 0.5 and len(pair.first.text) != len(pair.second.text)
    ]
    return sum(decided) / len(decided) if decided else None
