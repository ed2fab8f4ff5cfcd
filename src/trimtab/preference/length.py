"""How much of a score is length: the dependence fitted and taken out, and what that costs in accuracy.

Without torch. Everything is about pairs of responses to one prompt, so a prompt that asks for long answers is no
evidence of a taste for length. The measure is the logarithm of the number of response tokens: twice as long counts the
same at ten tokens as at a thousand, and a policy that writes far longer responses than the training pairs had is
charged less and less a token, where a straight line, or a staircase fitted by monotone regression, would charge without
end or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.stats.intervals import Interval
from trimtab.stats.resampling import bootstrap_sums, percentile_interval

__all__ = ["MATCHED", "LengthFigures", "LengthFit", "fit_length", "length_figures", "log_length"]

Floats = NDArray[np.float64]

MATCHED = 0.1
"""Two responses are of one length where the longer has at most so much more, as a share of the shorter."""


@dataclass(frozen=True, slots=True)
class LengthFit:
    """The linear dependence of scores on the log of the length; `apply` takes it out.

    Args:
        slopes: of each head, in units of its score; 0.69 slope is what twice the length adds.
        centre: mean log length of the responses that it was fitted on, where nothing is subtracted.
    """

    slopes: tuple[float, ...]
    centre: float

    def apply(self, scores: ArrayLike, tokens: ArrayLike) -> Floats:
        """Scores [H, B] without what length explains; tokens [B]."""
        of_length = log_length(tokens) - self.centre
        return np.asarray(scores, dtype=np.float64) - np.array(self.slopes)[:, None] * of_length

    def as_dict(self) -> dict[str, Any]:
        """As JSON, for the model's card."""
        return {"log_length_slopes": list(self.slopes), "log_length_centre": self.centre}

    @classmethod
    def from_dict(cls, record: Any) -> Self:
        """What `as_dict` wrote.

        Raises:
            ValueError: it is something else.
        """
        known = record if isinstance(record, Mapping) else {}
        slopes, centre = known.get("log_length_slopes"), known.get("log_length_centre")
        if not isinstance(slopes, list) or not slopes or not _finite(centre) or not all(map(_finite, slopes)):
            raise ValueError("length_debias is no object of log_length_slopes and log_length_centre, finite numbers")
        return cls(tuple(map(float, slopes)), float(centre))


def log_length(tokens: ArrayLike) -> Floats:
    """log(1 + tokens), so that an empty response has a place, too."""
    return np.log1p(np.asarray(tokens, dtype=np.float64))


def fit_length(
    chosen: ArrayLike, rejected: ArrayLike, chosen_tokens: ArrayLike, rejected_tokens: ArrayLike
) -> LengthFit:
    """Least squares of score differences on differences of log length, through the origin, for each head.

    Which response is called chosen does not matter, as both differences change their sign. With one pair a prompt it is
    the regression within prompts. After `apply`, the same fit on the same pairs gives slopes of 0.

    Args:
        chosen: [H, P] scores of the chosen responses by each head.
        rejected: [H, P] of the rejected ones.
        chosen_tokens: [P] tokens of the responses.
        rejected_tokens: [P].

    Raises:
        TrimtabError: no two responses of a pair differ in length.
    """
    x, z = log_length(chosen_tokens), log_length(rejected_tokens)
    margins = np.asarray(chosen, dtype=np.float64) - np.asarray(rejected, dtype=np.float64)
    longer = x - z
    spread = float(longer @ longer)
    if not spread > 0:
        raise TrimtabError(
            ErrorKind.DATA,
            f'preference.length_debias = "regress": the two responses of each of {len(longer)} pairs are of one length',
            'there is nothing to take out: set length_debias = "none"',
        )
    return LengthFit(tuple((margins @ longer / spread).tolist()), float(np.concatenate([x, z]).mean()))


@dataclass(frozen=True, slots=True)
class LengthFigures:
    """What length has to do with a score on labeled pairs, and what taking it out did; intervals are over prompts.

    Args:
        correlation: of the score with the log length within pairs (of margins with differences of log length, through
            the origin): 0 none, 1 it is the length.
        doubling: what twice the length adds to the score, by least squares.
        accuracy: share of pairs whose chosen response scores higher, a tie counts half: `all` pairs; `matched`, whose
            lengths differ by no more than `MATCHED`; `longer` and `shorter`, where the chosen one is longer or shorter
            by more.
        before: the same three of the score without the debias; None where there is none.
        change: accuracy by kind of pair, and `correlation`, minus those before, on the same pairs.
    """

    correlation: Interval
    doubling: Interval
    accuracy: Mapping[str, Interval]
    before: LengthFigures | None = None
    change: Mapping[str, Interval] | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON; kinds of pairs that there are none of are left out."""
        own: dict[str, Any] = {
            "correlation": self.correlation._asdict(),
            "doubling": self.doubling._asdict(),
            "accuracy": {kind: value._asdict() for kind, value in self.accuracy.items()},
        }
        if self.before is not None and self.change is not None:
            own["before"] = self.before.as_dict()
            own["change"] = {kind: value._asdict() for kind, value in self.change.items()}
        return own


def length_figures(
    margins: ArrayLike,
    chosen_tokens: ArrayLike,
    rejected_tokens: ArrayLike,
    groups: Sequence[Hashable],
    *,
    before: ArrayLike | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> LengthFigures:
    """Figures of the score differences of pairs.

    Args:
        margins: [P] score of the chosen minus score of the rejected response.
        chosen_tokens: [P] their lengths.
        rejected_tokens: [P].
        groups: [P] each pair's prompt.
        before: [P] margins without the debias; None: there is none.
        resamples: of whole prompts.
        seed: of the resamples.

    Raises:
        TrimtabError: no pairs, or unequal numbers.
    """
    number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    index = np.array([number[group] for group in groups], dtype=np.int64)
    longer = log_length(chosen_tokens) - log_length(rejected_tokens)
    kinds = _kinds(np.asarray(chosen_tokens, dtype=np.float64), np.asarray(rejected_tokens, dtype=np.float64))
    sides = [_columns(margins, longer, kinds)] + ([] if before is None else [_columns(before, longer, kinds)])
    rows = np.concatenate(sides, axis=1)
    # one pair, or one prompt, has figures but no interval
    drawn = bootstrap_sums(rows, index, resamples, seed) if len(number) > 1 else np.full((2, rows.shape[1]), np.nan)
    width = sides[0].shape[1]
    counts = {kind: int(inside.sum()) for kind, inside in kinds.items()}

    def values(sums: Floats, side: int) -> dict[str, Floats]:
        return _figures(sums[:, side * width : (side + 1) * width], list(kinds))

    at = [values(rows.sum(0, keepdims=True), side) for side in range(len(sides))]
    of = [values(drawn, side) for side in range(len(sides))]

    def interval(name: str, point: Floats, resampled: Floats) -> Interval:
        return Interval(float(point[0]), *percentile_interval(resampled), counts.get(name, len(index)))

    def figures(side: int) -> LengthFigures:
        found = {name: interval(name, at[side][name], of[side][name]) for name in at[side]}
        accuracy = {kind: found[kind] for kind in kinds if counts[kind]}
        return LengthFigures(found["correlation"], found["doubling"], accuracy)

    now = figures(0)
    if before is None:
        return now
    change = {
        name: interval(name, at[0][name] - at[1][name], of[0][name] - of[1][name])
        for name in ("correlation", *now.accuracy)
    }
    return LengthFigures(now.correlation, now.doubling, now.accuracy, figures(1), change)


def _kinds(chosen: Floats, rejected: Floats) -> dict[str, NDArray[np.bool_]]:
    matched = np.maximum(chosen, rejected) <= (1 + MATCHED) * np.minimum(chosen, rejected)
    return {
        "all": np.ones(len(chosen), dtype=bool),
        "matched": matched,
        "longer": ~matched & (chosen > rejected),
        "shorter": ~matched & (chosen < rejected),
    }


def _columns(margins: ArrayLike, longer: Floats, kinds: Mapping[str, NDArray[np.bool_]]) -> Floats:
    """[P, 3 + 2 kinds] what the figures are sums of."""
    m = np.asarray(margins, dtype=np.float64)
    if m.shape != longer.shape:
        raise TrimtabError(
            ErrorKind.DATA, f"{m.size} margins for {longer.size} pairs", "give one margin a pair, and their lengths"
        )
    wins = (np.sign(m) + 1) / 2
    shares = [column for inside in kinds.values() for column in (inside, inside * wins)]
    return np.column_stack([m * m, longer * longer, m * longer, *shares])


def _figures(sums: Floats, kinds: Sequence[str]) -> dict[str, Floats]:
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.sqrt(sums[:, 0] * sums[:, 1])
        found = {
            "correlation": np.where(scale > 0, sums[:, 2] / scale, np.where(np.isnan(scale), np.nan, 0.0)),
            "doubling": math.log(2) * sums[:, 2] / sums[:, 1],
        }
        return found | {kind: sums[:, 4 + 2 * i] / sums[:, 3 + 2 * i] for i, kind in enumerate(kinds)}


def _finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
