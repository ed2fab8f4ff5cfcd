"""What a bag of words predicts of the labels, and which labels look wrong: by scores handed in, or by those words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.data.bag_of_words import cross_validate, difference_features
from trimtab.data.check.balance import share_by_prompt
from trimtab.data.check.findings import DataFinding, Level, level_of
from trimtab.data.check.material import Material, counted
from trimtab.data.noise import NoiseFit, fit_noise
from trimtab.stats.calibration import ece, log_loss

__all__ = ["WordsModel", "noise_findings", "words_findings", "words_model"]

Floats = NDArray[np.float64]

_MOST_PAIRS = 5_000
_FEWEST_PAIRS = 200
_GROUPS = ("annotator", "annotator_id", "judge", "source")


@dataclass(frozen=True, slots=True)
class WordsModel:
    """A cross-validated bag of words.

    Args:
        index: places of the pairs that it was fitted on and tested on (those of randomly drawn prompts, at most about
            5,000).
        margins: their log-odds of the chosen response, by models that have not seen the prompt.
        figures: accuracy with interval, calibration error, log loss.
    """

    index: NDArray[np.int64]
    margins: Floats
    figures: Mapping[str, Any]


def words_model(material: Material, seed: int = 0) -> WordsModel | None:
    """Fit and test a bag of words; None for fewer than 200 pairs with a side, too few to say anything."""
    keys = material.keys
    usable = np.array(
        [
            p != 0.5 and keys[a] != keys[b]
            for p, a, b in zip(material.p, material.chosen, material.rejected, strict=True)
        ],
        dtype=np.bool_,
    )
    index = np.flatnonzero(usable)
    kinds, place, counts = np.unique(material.prompts[index], return_inverse=True, return_counts=True)
    if len(index) < _FEWEST_PAIRS or len(kinds) < 10:
        return None
    order = np.random.default_rng(seed).permutation(len(kinds))
    taken = np.zeros(len(kinds), dtype=np.bool_)
    taken[order[: int(np.searchsorted(np.cumsum(counts[order]), _MOST_PAIRS)) + 1]] = True
    index = index[taken[place]]
    x = difference_features(material.corpus, material.chosen[index], material.rejected[index])
    found = cross_validate(x, material.p[index], material.prompts[index], seed=seed)
    return WordsModel(index, found.margins, _figures(material, index, found.margins, seed))


def _figures(material: Material, index: NDArray[np.int64], margins: Floats, seed: int) -> dict[str, Any]:
    """Accuracy of the sign; calibration of the probabilities with the responses put in a random order."""
    labels = material.p[index]
    right = np.where(margins == 0, 0.5, (margins > 0) == (labels > 0.5)).astype(np.float64)
    accuracy = share_by_prompt(right, material.prompts[index])
    swapped = np.random.default_rng(seed).random(len(index)) < 0.5
    p = 0.5 * (1 + np.tanh(0.5 * np.where(swapped, -margins, margins)))
    y = np.where(swapped, 1 - labels, labels)
    return {
        "pairs": len(index),
        "accuracy": accuracy.mean,
        "low": accuracy.low,
        "high": accuracy.high,
        "ece": ece(p, y),
        "log_loss": log_loss(p, y),
    }


def words_findings(model: WordsModel) -> Iterator[DataFinding]:
    """Words alone predict the labels so well that a preference model need not understand anything."""
    figures = model.figures
    if figures["low"] > 0.85:
        yield DataFinding(
            "words-decide",
            Level.WARNING,
            f"A bag of words predicts {100 * figures['accuracy']:.0f} % of the labels on prompts that it has not seen: "
            "single words or phrases give the chosen response away.",
            "Look for a phrase, a format or a generator that marks one side; compare responses of one origin.",
            figures["pairs"],
            figures["accuracy"],
        )


def noise_findings(
    material: Material, index: NDArray[np.int64], margins: Floats, by: str
) -> tuple[dict[str, Any], list[DataFinding]]:
    """Labels that were probably turned over, given margins that have not seen them.

    Args:
        material: the pairs.
        index: [n] places of the pairs that have a margin.
        margins: [n] score of chosen minus score of rejected.
        by: whose margins they are, for the text.
    """
    if len(index) < _FEWEST_PAIRS:
        return {}, []
    groups = _groups(material, index)
    fit = fit_noise(margins, material.p[index], groups)
    figures: dict[str, Any] = {
        "by": by,
        "pairs": len(index),
        "rate": fit.rate,
        "low": fit.low,
        "high": fit.high,
        "slope": fit.slope,
        "expected": float(fit.posterior.sum()),
        "rates": {str(g): r for g, r in fit.rates.items()},
        "to_review": _to_review(material, index, fit),
    }
    wrong = np.flatnonzero(fit.likely())
    if not fit.evident or not len(wrong):  # close calls explain all that there is
        return figures, []
    order = wrong[np.argsort(-fit.posterior[wrong], kind="stable")]
    ids = material.ids(index[order])
    precision = float(fit.posterior[order].mean())
    share = len(ids) / len(index)
    finding = DataFinding(
        "noisy-labels",
        level_of(share, 0.01),
        f"{counted(len(ids), 'label')} of {len(index):,} {'is' if len(ids) == 1 else 'are'} probably wrong, judged by "
        f"{by}: {100 * precision:.0f} % of them by the model of the noise. In all, about {100 * fit.rate:.1f} % "
        f"[{100 * fit.low:.1f}, {100 * fit.high:.1f}] of the labels were turned over; the others that disagree with "
        "the score are close calls.",
        "Look at some; drop them: trimtab data filter FILE -o OUT --drop noisy-labels",
        len(ids),
        share,
        ids,
        {i: f"wrong with probability {p:.2f}" for i, p in zip(ids, fit.posterior[order].tolist(), strict=True)},
    )
    return figures, [finding]


def _groups(material: Material, index: NDArray[np.int64]) -> list[str] | None:
    """Who labeled each pair, where every pair says it and there are several."""
    for column in _GROUPS:
        values = [material.pairs[i].extra.get(column) for i in index.tolist()]
        if all(isinstance(v, str | int) for v in values) and 1 < len(set(values)) <= len(values) // 20:
            return [str(v) for v in values]
    return None


def _to_review(material: Material, index: NDArray[np.int64], fit: NoiseFit) -> list[str]:
    """Up to 100 labels that people should look at first: the likeliest to be wrong."""
    order = np.argsort(-fit.posterior, kind="stable")
    order = order[fit.best_f1()[order]][:100]
    return list(material.ids(index[order]))
