"""Fit a calibration on held-out pairs and say, on pairs that it was not fitted on, what it brought.

Every figure "after" is cross-fitted: the prompts are cut into folds, and the pairs of a fold are judged by a map that
was fitted (and, for `auto`, chosen) on the other folds. The map that is kept is fitted on all pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.preference.calibration import METHODS, Calibration, Method, fit, sigmoid
from trimtab.scoring import Scorer, checked_scores
from trimtab.stats.calibration import Reliability, reliability
from trimtab.stats.intervals import Interval, clustered_share
from trimtab.stats.resampling import bootstrap_sums, percentile_interval

__all__ = ["BINS", "FIGURES", "CalibrationReport", "calibrate", "calibrate_margins"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Choice = Literal["auto", "temperature", "platt", "isotonic"]

BINS = 10
FIGURES = ("ece", "brier", "log_loss")


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """A calibration, and its figures on pairs that it was not fitted on.

    Args:
        calibration: fitted on all pairs.
        asked: the method that was asked for.
        folds: the parts that the prompts were cut into.
        before: `ece`, `brier` and `log_loss` of sigmoid(margin), with 95 % bootstrap intervals over prompts.
        after: of the cross-fitted probabilities.
        change: after minus before, on the same resamples; below 0 is better.
        methods: cross-fitted log loss of every method, nats a pair.
        reliability_before: ten equal bins of P(first wins), every pair in both orders.
        reliability_after: the same, cross-fitted.
        shares_before: of each bin, the share that won with its 95 % interval over prompts.
        shares_after: the same, cross-fitted.
        accuracy: share of pairs whose chosen response scores higher, a tie counts half; calibration leaves it alone.
    """

    calibration: Calibration
    asked: Choice
    folds: int
    before: Mapping[str, Interval]
    after: Mapping[str, Interval]
    change: Mapping[str, Interval]
    methods: Mapping[str, float]
    reliability_before: Reliability
    reliability_after: Reliability
    shares_before: tuple[Interval, ...]
    shares_after: tuple[Interval, ...]
    accuracy: float

    def save(self, directory: Path, data: str = "") -> Path:
        """Keep the calibration in the model's directory, with these figures; `data` is the pairs file's sha256."""
        return replace(self.calibration, data=data).save(directory, self.as_dict())

    @property
    def says_nothing(self) -> bool:
        """Whether the fitted temperature is at its bound: the margins do not say which response is better."""
        return self.calibration.temperature > 999

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        own = self.calibration
        return {
            "method": own.method,
            "asked": self.asked,
            "temperature": own.temperature,
            "slope": own.slope,
            "pairs": own.pairs,
            "prompts": own.prompts,
            "folds": self.folds,
            "accuracy": self.accuracy,
            "says_nothing": self.says_nothing,
            **{
                name: {key: value._asdict() for key, value in figures.items()}
                for name, figures in (("before", self.before), ("after", self.after), ("change", self.change))
            },
            "methods": dict(self.methods),
            "reliability": {
                "before": _bins(self.reliability_before, self.shares_before),
                "after": _bins(self.reliability_after, self.shares_after),
            },
        }


def calibrate(
    scorer: Scorer, pairs: Sequence[Pair], method: Choice = "auto", *, folds: int = 5, seed: int = 0,
    resamples: int = 2000,
) -> CalibrationReport:  # fmt: skip
    """Score the pairs and calibrate the margins; see `calibrate_margins`. Nothing is written: `calibration.save` does.

    Args:
        scorer: anything that scores responses; its scores are taken as they come.
        pairs: labeled pairs that it was not trained on.

    Raises:
        TrimtabError: fewer than two prompts, or scores that are no finite numbers.
    """
    if not pairs:
        raise TrimtabError(ErrorKind.DATA, "there are no pairs to calibrate on", "name a file with pairs")
    prompts = [p.prompt for p in pairs]
    margins = checked_scores(scorer, prompts, [p.chosen for p in pairs]) - checked_scores(
        scorer, prompts, [p.rejected for p in pairs]
    )
    labels = [1.0 if p.p_chosen is None else p.p_chosen for p in pairs]
    number: dict[Any, int] = {}
    groups = np.array([number.setdefault(p.messages, len(number)) for p in prompts])
    report = calibrate_margins(margins, labels, groups, method, folds=folds, seed=seed, resamples=resamples)
    return replace(report, calibration=replace(report.calibration, scores=getattr(scorer, "combination", "")))


def calibrate_margins(
    margins: ArrayLike, labels: ArrayLike, groups: Ints, method: Choice = "auto", *, folds: int = 5, seed: int = 0,
    resamples: int = 2000,
) -> CalibrationReport:  # fmt: skip
    """Calibrate margins that are known already.

    `auto` takes the method with the least cross-fitted log loss, but temperature unless another is better by more than
    one standard error over prompts (the one-standard-error rule of Breiman et al., 1984).

    Args:
        margins: [n] score of the chosen minus score of the rejected response.
        labels: [n] P(chosen wins), 1 for a hard label.
        groups: [n] number of each pair's prompt: a prompt is never on both sides of a fold.
        method: which map, or `auto`.
        folds: at least 2; at most the number of prompts is used.
        seed: of the folds and of the bootstrap.
        resamples: of the bootstrap over prompts. An ECE from few pairs is too large, and its resamples more so.

    Raises:
        TrimtabError: fewer than two prompts or folds, and as `fit`.
    """
    x, y = np.asarray(margins, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    groups = np.unique(groups, return_inverse=True)[1]
    count = int(groups.max()) + 1 if len(groups) else 0
    if count < 2 or folds < 2:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{len(x)} pairs over {count} prompts in {folds} folds cannot be calibrated",
            "half of them measures what the other half fits: give pairs of at least two prompts",
        )
    of_method = {name: _cross_fitted(x, y, groups, name, folds, seed) for name in METHODS}
    after = _cross_fitted(x, y, groups, "auto", folds, seed) if method == "auto" else of_method[method]
    chosen = _best(of_method, y, groups) if method == "auto" else method
    before = sigmoid(x)
    drawn = _drawn_figures(before, after, y, groups, resamples, seed)
    fitted = replace(fit(chosen, x, y), prompts=count)
    return CalibrationReport(
        fitted, method, min(folds, count), *drawn,
        methods={"none": _log_losses(before, y).mean().item()}
        | {name: _log_losses(p, y).mean().item() for name, p in of_method.items()},
        reliability_before=reliability(*_both(before, y), BINS),
        reliability_after=reliability(*_both(after, y), BINS),
        shares_before=_shares(before, y, groups),
        shares_after=_shares(after, y, groups),
        accuracy=float(((np.sign(x) + 1) / 2).mean()),
    )  # fmt: skip


def _cross_fitted(x: Floats, y: Floats, groups: Ints, method: Choice, folds: int, seed: int) -> Floats:
    """[n] P(chosen wins) of each pair, from a map that has not seen its prompt."""
    prompts = np.unique(groups)
    order = np.random.default_rng([seed, len(prompts)]).permutation(len(prompts))
    fold_of = np.empty(len(prompts), dtype=np.int64)
    fold_of[order] = np.arange(len(prompts)) % min(folds, len(prompts))
    fold = fold_of[np.searchsorted(prompts, groups)]
    p = np.empty(len(x))
    for k in np.unique(fold):
        seen, held_out = fold != k, fold == k
        own = method
        if own == "auto":
            own = "temperature"
            if len(np.unique(groups[seen])) > 1:
                inner = {m: _cross_fitted(x[seen], y[seen], groups[seen], m, folds, seed) for m in METHODS}
                own = _best(inner, y[seen], groups[seen])
        p[held_out] = fit(own, x[seen], y[seen]).probability(x[held_out])
    return p


def _best(of_method: Mapping[Method, Floats], y: Floats, groups: Ints) -> Method:
    losses = {name: _log_losses(p, y) for name, p in of_method.items()}
    best = min(METHODS, key=lambda name: float(losses[name].mean()))
    gain = losses["temperature"] - losses[best]
    index = np.unique(groups, return_inverse=True)[1]
    # of the mean over pairs that come in groups
    error = float(np.sqrt((np.bincount(index, gain - gain.mean()) ** 2).sum())) / len(y)
    return best if float(gain.mean()) > error else "temperature"


def _log_losses(p: Floats, y: Floats) -> Floats:
    """[n] cross entropies, p held 1e-12 away from 0 and 1."""
    held = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(-(y * np.log(held) + (1 - y) * np.log1p(-held)), dtype=np.float64)


def _both(p: Floats, y: Floats) -> tuple[Floats, Floats]:
    return np.concatenate([p, 1 - p]), np.concatenate([y, 1 - y])


def _columns(p: Floats, y: Floats) -> Floats:
    """[n, 2 + BINS] what the figures are sums of: squared error, cross entropy, and p - y by bin over both orders."""
    gaps = np.zeros((len(p), BINS))
    for q, outcome in ((p, y), (1 - p, 1 - y)):
        at = np.searchsorted(np.arange(1, BINS) / BINS, q, side="right")
        np.add.at(gaps, (np.arange(len(p)), at), q - outcome)
    return np.column_stack([(p - y) ** 2, _log_losses(p, y), gaps])


def _drawn_figures(
    before: Floats, after: Floats, y: Floats, groups: Ints, resamples: int, seed: int
) -> tuple[dict[str, Interval], dict[str, Interval], dict[str, Interval]]:
    """Figures before, after, and their differences, with intervals from common resamples of the prompts."""
    rows = np.column_stack([np.ones(len(y)), _columns(before, y), _columns(after, y)])
    drawn, whole = bootstrap_sums(rows, groups, resamples, seed), rows.sum(axis=0, keepdims=True)

    def figures(sums: Floats, side: int) -> dict[str, Floats]:
        own = sums[:, 1 + side * (2 + BINS) :][:, : 2 + BINS] / sums[:, :1]
        return {"ece": np.abs(own[:, 2:]).sum(axis=1) / 2, "brier": own[:, 0], "log_loss": own[:, 1]}

    at, of = [figures(whole, side) for side in (0, 1)], [figures(drawn, side) for side in (0, 1)]

    def intervals(point: Mapping[str, Floats], resampled: Mapping[str, Floats]) -> dict[str, Interval]:
        return {
            name: Interval(float(point[name][0]), *percentile_interval(resampled[name]), len(y)) for name in FIGURES
        }

    return (
        intervals(at[0], of[0]),
        intervals(at[1], of[1]),
        intervals(
            {name: at[1][name] - at[0][name] for name in FIGURES}, {name: of[1][name] - of[0][name] for name in FIGURES}
        ),
    )


def _shares(p: Floats, y: Floats, groups: Ints) -> tuple[Interval, ...]:
    """Of each bin, over both orders of every pair, the share that won."""
    both_p, both_y = _both(p, y)
    bins, both = np.searchsorted(np.arange(1, BINS) / BINS, both_p, side="right"), np.tile(groups, 2)
    return tuple(clustered_share(both_y[bins == i], both[bins == i]) for i in range(BINS))


def _bins(table: Reliability, shares: Sequence[Interval]) -> list[dict[str, float | int | None]]:
    """The bins as JSON; of an empty one only its edges and its count of 0."""
    return [
        {
            "low": i / BINS, "high": (i + 1) / BINS, "count": int(n),
            "mean_p": float(p) if n else None, "mean_y": float(y) if n else None,
            "y_low": share.low if n else None, "y_high": share.high if n else None,
        }
        for i, (n, p, y, share) in enumerate(zip(*table, shares, strict=True))
    ]  # fmt: skip
