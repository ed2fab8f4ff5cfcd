"""How far responses are from the pairs that a preference model knows, and how right it can be expected to be there.

Four views, each against what chance alone gives. A classifier that tells the responses from the reference's by the
states that the head reads (AUC): they differ, in whatever way. The Mahalanobis distance of their states, as a
percentile among unseen rows of the reference: they lie where few of its rows do. The stability index (PSI) of scores
and lengths. And the accuracy to expect: how often held-out pairs at these distances are ordered as labeled.

A policy that improves differs from what it came from, and its scores rise; that alone is no fault. The verdict
therefore asks for states outside of the reference's, or for a loss of accuracy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.preference.model import Observed, PreferenceModel
from trimtab.preference.shift_accuracy import Expected, expected_accuracy
from trimtab.preference.shift_reference import Reference, bins_for
from trimtab.stats.intervals import Interval, bootstrap_mean
from trimtab.stats.shift import Permuted, auc, cross_fitted, folds_of, ks, permuted, principal, psi
from trimtab.stats.text import length

__all__ = ["Marginal", "ShiftReport", "Verdict", "shift", "verdict_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Verdict = Literal["shifted", "moved", "same", "cannot tell"]

FEWEST: Final = 20
"""Responses and prompts below which nothing is said."""
MOVED_AUC: Final = 0.7
MOVED_PSI: Final = 0.25
OUTSIDE: Final = 0.05
"""Share of responses beyond the 99th percentile of the reference's distances."""
FAR: Final = 0.75
"""Mean percentile of the distances."""
LOST: Final = 0.05
"""Points of accuracy."""
_COMPONENTS: Final = 32
_FOLDS: Final = 5


@dataclass(frozen=True, slots=True)
class Marginal:
    """One number of every response (score, length) against the reference's.

    `psi` and `ks`, each with what 95 % of relabelings stay below and with p; `beyond`: share above the reference's
    99th percentile.
    """

    psi: Permuted
    ks: Permuted
    mean: float
    reference_mean: float
    beyond: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"psi": self.psi._asdict(), "ks": self.ks._asdict()}

    @property
    def moved(self) -> bool:
        """Another population by the usual bound, and beyond chance."""
        return self.psi.value > max(MOVED_PSI, self.psi.floor) and self.psi.p < 0.01


@dataclass(frozen=True, slots=True)
class ShiftReport:
    """A set of responses against a reference.

    Args:
        label: what the responses are called.
        responses: read.
        prompts: of how many prompts.
        unread: left out, because the model refuses them (too long).
        verdict: "shifted": outside of what the model knows, or too far for its accuracy to hold; "moved": different,
            but in its midst; "same"; "cannot tell": too few.
        domain: AUC of the classifier, with a 95 % bootstrap interval over prompts.
        domain_floor: what 95 % of relabelings stay below.
        distance: mean percentile of the distances, .5 = as unseen rows of the reference.
        outside: share of the responses beyond the 99th percentile of these.
        scores: None where they are made of something else than the reference's.
        words: lengths.
        spread: mean disagreement of the members relative to the reference's; NaN without members.
        expected: accuracy to expect.
    """

    label: str
    responses: int
    prompts: int
    unread: int
    verdict: Verdict
    domain: Interval
    domain_floor: float
    distance: Interval
    outside: Interval
    scores: Marginal | None
    words: Marginal | None
    spread: float
    expected: Expected

    @property
    def status(self) -> Literal["sick", "healthy", "inconclusive"]:
        """`sick` where shifted."""
        known: dict[Verdict, Literal["sick", "inconclusive"]] = {"shifted": "sick", "cannot tell": "inconclusive"}
        return known.get(self.verdict, "healthy")

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        intervals = {name: getattr(self, name)._asdict() for name in ("domain", "distance", "outside")}
        marginals = {
            name: None if (own := getattr(self, name)) is None else own.as_dict() for name in ("scores", "words")
        }
        return (
            {"status": self.status, **{name: getattr(self, name) for name in _PLAIN}}
            | intervals
            | marginals
            | {"expected": self.expected.as_dict()}
        )


_PLAIN: Final = ("label", "verdict", "responses", "prompts", "unread", "domain_floor", "spread")


def shift(
    model: PreferenceModel,
    reference: Reference,
    prompts: Sequence[Prompt],
    responses: Sequence[Response],
    *,
    label: str = "",
    relabelings: int = 200,
    seed: int = 0,
) -> ShiftReport:
    """Compare responses with a model's reference; see `ShiftReport`.

    Raises:
        TrimtabError: no responses, none that the model can read, or a reference of states of another width.
    """
    kept = [(p, r) for p, r in zip(prompts, responses, strict=True) if _readable(model, p, r)]
    if not kept:
        raise TrimtabError(
            ErrorKind.DATA,
            f"none of {len(responses)} responses can be read by the preference model" if responses else "no responses",
            "name a file with responses that are no longer than preference.max_tokens",
        )
    seen = model.observe([p for p, _ in kept], [r for _, r in kept])
    if seen.states.shape[1] != reference.states.shape[1]:
        raise TrimtabError(
            ErrorKind.MODEL,
            f"the reference holds states of {reference.states.shape[1]} numbers, the model's have "
            f"{seen.states.shape[1]}",
            "make the reference again with: trimtab pm shift MODEL --reference PAIRS",
        )
    if not (np.isfinite(seen.states).all() and np.isfinite(seen.scores).all()):
        raise TrimtabError(ErrorKind.MODEL, "the preference model gives scores or states that are not finite")
    number = {messages: i for i, messages in enumerate(dict.fromkeys(p.messages for p, _ in kept))}
    groups = np.array([number[p.messages] for p, _ in kept])
    words = np.array([float(length(r.text)) for _, r in kept])
    same = model.combination == reference.combination
    compared = _Compared(reference, seen, words, groups, same, relabelings, seed)
    return compared.report(label, len(responses) - len(kept))


def _readable(model: PreferenceModel, prompt: Prompt, response: Response) -> bool:
    try:
        model.token_ids(prompt, response)
    except TrimtabError:
        return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class _Compared:
    """The arithmetic on what the model gave; `groups` number the responses' prompts, apart from the reference's."""

    reference: Reference
    seen: Observed
    words: Floats
    groups: Ints
    same_scores: bool
    relabelings: int
    seed: int

    def report(self, label: str, unread: int) -> ShiftReport:
        own, seed = self.reference, self.seed
        ranks = own.percentiles(self.seen.states)
        prompts = len(np.unique(self.groups))
        domain, floor = self._domain()
        usual = own.usual
        scores = self._marginal(self.seen.scores, own.scores[usual]) if self.same_scores else None
        members = own.spread[usual].mean()
        report = ShiftReport(
            label=label, responses=len(ranks), prompts=prompts, unread=unread, verdict="cannot tell",
            domain=domain, domain_floor=floor,
            distance=bootstrap_mean(ranks, self.groups, seed=seed),
            outside=bootstrap_mean((ranks > 0.99).astype(float), self.groups, seed=seed),
            scores=scores, words=self._marginal(self.words, own.words[usual]),
            spread=float(self.seen.spread.mean() / members) if members > 0 else math.nan,
            expected=expected_accuracy(own, self.seen, self.groups, self.same_scores, seed=seed),
        )  # fmt: skip
        return replace(report, verdict=verdict_of(report))

    def _sides(self) -> tuple[NDArray[np.bool_], Ints]:
        """([n] which rows are the responses, [n] their prompts) of usual rows of the reference and responses."""
        before = self.reference.groups[self.reference.usual]
        second = np.arange(len(before) + len(self.groups)) >= len(before)
        return second, np.concatenate([before, self.groups + int(before.max()) + 1])

    def _marginal(self, values: Floats, usual: Floats) -> Marginal:
        both = np.concatenate([usual, values])
        second, groups = self._sides()
        bins = bins_for(min(len(values), len(usual)))

        def tested(statistic: Any) -> Permuted:
            return permuted(lambda s: float(statistic(both[~s], both[s])), second, groups, self.relabelings, self.seed)

        return Marginal(
            tested(lambda a, b: psi(a, b, bins)), tested(ks), float(values.mean()), float(usual.mean()),
            float((values > np.quantile(usual, 0.99)).mean()),
        )  # fmt: skip

    def _domain(self) -> tuple[Interval, float]:
        """AUC of a classifier that is fitted on other prompts, its interval, and what chance gives."""
        second, groups = self._sides()
        few = min(len(np.unique(groups[second])), len(np.unique(groups[~second]))) < _FOLDS
        if few or min(second.sum(), (~second).sum()) < FEWEST:
            return Interval(math.nan, math.nan, math.nan, int(second.sum())), math.nan
        x = principal(np.concatenate([self.reference.states[self.reference.usual], self.seen.states]), _COMPONENTS)
        fold = folds_of(groups, _FOLDS, self.seed)

        def of(side: NDArray[np.bool_]) -> float:
            found = cross_fitted(x, side, fold)
            return auc(found[side], found[~side])

        tested = permuted(of, second, groups, max(20, self.relabelings // 4), self.seed)
        found = cross_fitted(x, second, fold)
        drawn = _resampled(found, second, groups, self.relabelings, self.seed)
        low, high = np.quantile(drawn, [0.025, 0.975])
        return Interval(tested.value, float(low), float(high), int(second.sum())), tested.floor


def _resampled(x: Floats, second: NDArray[np.bool_], groups: Ints, resamples: int, seed: int) -> Floats:
    """[R] AUCs with the prompts of either side drawn anew."""
    rng = np.random.default_rng([seed, 3])
    sides = []
    for side in (second, ~second):
        index = np.unique(groups[side], return_inverse=True)[1]
        order = np.argsort(index, kind="stable")
        sides.append(np.split(x[side][order], np.cumsum(np.bincount(index))[:-1]))
    found = []
    for _ in range(resamples):
        high, low = (np.concatenate([parts[i] for i in rng.integers(len(parts), size=len(parts))]) for parts in sides)
        found.append(auc(high, low))
    return np.array(found)


def verdict_of(report: ShiftReport) -> Verdict:
    """The verdict that a report's figures call for, whatever it has."""
    few = min(report.responses, report.prompts) < FEWEST
    out = report.outside
    if not few and out.low > OUTSIDE / 2 and out.mean > OUTSIDE:
        return "shifted"
    if not few and report.distance.low > FAR:
        return "shifted"
    if not few and report.expected.loses(LOST):
        return "shifted"
    if few:
        return "cannot tell"
    different = report.domain.low > max(MOVED_AUC, report.domain_floor)
    return "moved" if different or (report.scores is not None and report.scores.moved) else "same"
