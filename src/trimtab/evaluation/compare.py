"""The statistics of a comparison: rows of scored responses in, win rate and differences with intervals out.

Everything is computed over pairs: a response of the policy and one of the reference to the same prompt, in all
combinations. Prompts, not pairs, are what the bootstrap draws, because responses to one prompt are not independent.
No torch, no model: a saved `samples.jsonl` can be compared again at any time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.stats.intervals import Interval, bootstrap_mean, wilson
from trimtab.stats.text import distinct_n

__all__ = [
    "LENGTH_TOLERANCE",
    "POLICY",
    "REFERENCE",
    "Estimate",
    "LengthChange",
    "MeasureResult",
    "SideSummary",
    "WinRate",
    "compare_samples",
]

POLICY, REFERENCE = "policy", "reference"
LENGTH_TOLERANCE = 0.1
"""Two lengths match when they differ by at most this share of the longer one."""

_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its interval; low and high are None where a single prompt says nothing about the spread.

    `n` counts pairs, `prompts` the prompts that they belong to.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    prompts: int

    def excludes(self, x: float) -> bool:
        """Whether the interval is known and does not hold `x`."""
        return self.low is not None and self.high is not None and not self.low <= x <= self.high


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """One measure on both sides.

    Args:
        name: of the scorer.
        policy, reference: mean scores over pairs.
        difference: policy minus reference, paired by prompt.
        win_rate: share of pairs in which the policy's response scores higher; ties count one half.
        ties: share of pairs with equal scores.
        length_matched: the win rate among the pairs of nearly equal length; None where there is no such pair.
    """

    name: str
    policy: float
    reference: float
    difference: Estimate
    win_rate: Estimate
    ties: float
    length_matched: Estimate | None


@dataclass(frozen=True, slots=True)
class LengthChange:
    """Response length in tokens, EOS included: both means and policy minus reference."""

    policy: float
    reference: float
    difference: Estimate


@dataclass(frozen=True, slots=True)
class SideSummary:
    """What one side's responses look like.

    `finished`: share that ended with an EOS token of their own. `distinct_2`: distinct word pairs over all word pairs;
    it falls with the amount of text, so compare it only between sides that have as many responses.
    """

    responses: int
    finished: float
    distinct_2: float


@dataclass(frozen=True, slots=True)
class WinRate:
    """The trained policy against the reference on held-out prompts; the first measure decides.

    Args:
        measures: one result a measure, in the order given.
        length: change of the response length.
        policy, reference: what either side's responses look like.
        prompts: prompts with responses of both sides.
        incomplete_prompts: prompts left out because one side has no response yet.
        pairs: pairs compared.
        level: of the intervals.
        resamples, seed: of the bootstrap.
        length_tolerance: see `MeasureResult.length_matched`.
    """

    measures: tuple[MeasureResult, ...]
    length: LengthChange
    policy: SideSummary
    reference: SideSummary
    prompts: int
    incomplete_prompts: int
    pairs: int
    level: float
    resamples: int
    seed: int
    length_tolerance: float

    @property
    def win_rate(self) -> Estimate:
        """The win rate by the first measure."""
        return self.measures[0].win_rate

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON, without NaN."""
        return {"schema_version": _SCHEMA_VERSION, **asdict(self), "measures": [asdict(m) for m in self.measures]}

    def signals(self) -> dict[str, float]:
        """The figures that the signal table declares for the stage `eval`."""
        rate = self.win_rate
        figures: dict[str, float | None] = {
            "eval/win_rate": rate.value,
            "eval/win_rate_low": rate.low,
            "eval/win_rate_high": rate.high,
            "eval/prompts": self.prompts,
            "eval/length_change": self.length.difference.value,
            "response/length_mean": self.length.policy,
            "response/finished_fraction": self.policy.finished,
            "response/distinct_2": self.policy.distinct_2,
            **{f"eval/{m.name}": m.policy for m in self.measures},
        }
        return {key: value for key, value in figures.items() if value is not None}

    def table(self) -> str:
        """The result as a few aligned lines of text."""
        from trimtab.evaluation.table import table

        return table(self)


@dataclass(frozen=True, slots=True)
class _Row:
    """A scored response."""

    prompt: str
    side: str
    index: int
    text: str
    tokens: int
    finished: bool
    scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Sampling:
    """How the intervals are made."""

    resamples: int
    seed: int
    level: float


@dataclass(frozen=True, slots=True)
class _Pairs:
    """All pairs of rows: int64 [P] indices of the policy's and of the reference's row, and the prompt of each pair."""

    policy: NDArray[np.int64]
    reference: NDArray[np.int64]
    prompt: NDArray[np.int64]


def compare_samples(
    rows: Iterable[Mapping[str, Any]],
    measures: Sequence[str] | None = None,
    *,
    resamples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
    length_tolerance: float = LENGTH_TOLERANCE,
) -> WinRate:
    """Compare scored responses of two models to the same prompts.

    Args:
        rows: one mapping a response: `prompt_id`, `side` ("policy" or "reference"), `index` (which response to the
            prompt; default 0), `response`, `tokens`, `finished`, `scores` (measure -> number). Of rows with the same
            prompt_id, side and index the last one counts. Other keys are ignored.
        measures: names of the measures, the deciding one first; None: those of the first row.
        resamples: bootstrap samples of the prompts.
        seed: of the bootstrap.
        level: of the intervals, in (0, 1).
        length_tolerance: pairs whose lengths differ by at most this share of the longer one are length-matched.

    Raises:
        TrimtabError: a row that is broken or lacks a measure (the row is named), no measure, or no prompt that both
            sides responded to.
    """
    parsed = _parse(rows)
    names = list(measures) if measures is not None else (list(parsed[0].scores) if parsed else [])
    prompts = {row.prompt: i for i, row in enumerate({row.prompt: row for row in parsed}.values())}
    pairs = _pair_up(parsed, prompts)
    if not names:
        raise TrimtabError(
            ErrorKind.CONFIG, "there is no measure to compare by", "name one in eval.measures, such as rule:length"
        )
    if not len(pairs.prompt):
        raise TrimtabError(ErrorKind.DATA, "there is no prompt that both sides responded to", "sample both sides first")
    sampling = _Sampling(resamples, seed, level)
    tokens = np.array([row.tokens for row in parsed], dtype=np.float64)
    matched = _length_matched(tokens[pairs.policy], tokens[pairs.reference], length_tolerance)
    results = tuple(_measure(name, _scores(parsed, name), pairs, matched, sampling) for name in names)
    complete = len(np.unique(pairs.prompt))
    return WinRate(
        measures=results,
        length=LengthChange(*_means(tokens, pairs), _difference(tokens, pairs, sampling)),
        policy=_side(parsed, pairs.policy),
        reference=_side(parsed, pairs.reference),
        prompts=complete,
        incomplete_prompts=len(prompts) - complete,
        pairs=len(pairs.prompt),
        level=level,
        resamples=resamples,
        seed=seed,
        length_tolerance=length_tolerance,
    )


def _parse(rows: Iterable[Mapping[str, Any]]) -> list[_Row]:
    """The rows, one a key, ordered by prompt (first appearance), side and index, whatever order they came in."""
    latest: dict[tuple[str, str, int], _Row] = {}
    first: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        parsed = _row(row, number)
        first.setdefault(parsed.prompt, len(first))
        latest[parsed.prompt, parsed.side, parsed.index] = parsed
    return sorted(latest.values(), key=lambda row: (first[row.prompt], row.side, row.index))


def _row(row: Mapping[str, Any], number: int) -> _Row:
    try:
        scores = {str(name): float(value) for name, value in row["scores"].items()}
        parsed = _Row(
            str(row["prompt_id"]), str(row["side"]), int(row.get("index", 0)), str(row["response"]), int(row["tokens"]),
            bool(row["finished"]), scores,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TrimtabError(
            ErrorKind.DATA,
            f"evaluation row {number} is broken: {type(error).__name__}: {error}",
            "a row has prompt_id, side, response, tokens, finished and scores",
        ) from None
    if parsed.side not in (POLICY, REFERENCE):
        raise TrimtabError(
            ErrorKind.DATA, f"evaluation row {number}: side is {parsed.side!r}", f'it is "{POLICY}" or "{REFERENCE}"'
        )
    return parsed


def _pair_up(rows: Sequence[_Row], prompts: Mapping[str, int]) -> _Pairs:
    sides: dict[str, tuple[list[int], list[int]]] = {prompt: ([], []) for prompt in prompts}
    for i, row in enumerate(rows):
        sides[row.prompt][row.side == REFERENCE].append(i)
    triples = [(a, b, prompts[p]) for p, (policy, reference) in sides.items() for a in policy for b in reference]
    columns = np.array(triples, dtype=np.int64).reshape(-1, 3)
    return _Pairs(columns[:, 0], columns[:, 1], columns[:, 2])


def _scores(rows: Sequence[_Row], name: str) -> NDArray[np.float64]:
    for row in rows:
        if not math.isfinite(row.scores.get(name, math.nan)):
            raise TrimtabError(
                ErrorKind.DATA,
                f"the {row.side}'s response {row.index} to prompt {row.prompt!r} has no finite score by {name!r}",
                f"its scores: {', '.join(row.scores) or 'none'}",
            )
    return np.array([row.scores[name] for row in rows])


def _measure(
    name: str, scores: NDArray[np.float64], pairs: _Pairs, matched: NDArray[np.bool_], sampling: _Sampling
) -> MeasureResult:
    gap = scores[pairs.policy] - scores[pairs.reference]
    outcome = (1 + np.sign(gap)) / 2
    policy, reference = _means(scores, pairs)
    return MeasureResult(
        name=name,
        policy=policy,
        reference=reference,
        difference=_difference(scores, pairs, sampling),
        win_rate=_share(outcome, pairs.prompt, sampling),
        ties=float(np.mean(gap == 0)),
        length_matched=_share(outcome[matched], pairs.prompt[matched], sampling) if matched.any() else None,
    )


def _means(x: NDArray[np.float64], pairs: _Pairs) -> tuple[float, float]:
    return float(x[pairs.policy].mean()), float(x[pairs.reference].mean())


def _difference(x: NDArray[np.float64], pairs: _Pairs, sampling: _Sampling) -> Estimate:
    gaps = x[pairs.policy] - x[pairs.reference]
    found = bootstrap_mean(gaps, pairs.prompt.tolist(), sampling.resamples, sampling.seed, sampling.level)
    return _estimate(found, pairs.prompt)


def _share(outcome: NDArray[np.float64], prompts: NDArray[np.int64], sampling: _Sampling) -> Estimate:
    """A share of outcomes 0, 1/2 or 1. Where all are equal the bootstrap would claim certainty: then Wilson's."""
    n = len(np.unique(prompts))
    if n > 1 and np.all(outcome == outcome[0]):
        return _estimate(wilson(float(outcome[0]) * n, n, sampling.level), prompts)
    found = bootstrap_mean(outcome, prompts.tolist(), sampling.resamples, sampling.seed, sampling.level)
    return _estimate(found, prompts)


def _estimate(interval: Interval, prompts: NDArray[np.int64]) -> Estimate:
    low, high = (None if math.isnan(x) else x for x in (interval.low, interval.high))
    return Estimate(interval.mean, low, high, len(prompts), len(np.unique(prompts)))


def _length_matched(a: NDArray[np.float64], b: NDArray[np.float64], tolerance: float) -> NDArray[np.bool_]:
    matched: NDArray[np.bool_] = np.abs(a - b) <= tolerance * np.maximum(a, b)
    return matched


def _side(rows: Sequence[_Row], indices: NDArray[np.int64]) -> SideSummary:
    own = [rows[i] for i in np.unique(indices)]
    return SideSummary(len(own), sum(row.finished for row in own) / len(own), distinct_n([row.text for row in own], 2))
