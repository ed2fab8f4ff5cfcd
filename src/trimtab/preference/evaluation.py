"""How good a scorer is on labeled pairs: accuracy with interval, calibration, margin, by principle and by length."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.preference.calibration import sigmoid
from trimtab.preference.length import LengthFigures, fit_length, length_figures
from trimtab.scoring import Scorer, checked_scores
from trimtab.stats.calibration import brier, ece, log_loss
from trimtab.stats.intervals import Interval, bootstrap_mean, paired_bootstrap

if TYPE_CHECKING:
    from trimtab.preference.model import PreferenceModel

__all__ = [
    "PairMetrics",
    "PrincipleMetrics",
    "evaluate",
    "length_metrics",
    "pair_metrics",
    "principle_metrics",
]

_BINS = 10
_FOLDS = 5


@dataclass(frozen=True)
class PairMetrics:
    """Figures over pairs.

    `accuracy`: share of pairs whose chosen response scores higher (a tie counts half), with a 95 % bootstrap interval
    over prompts. `ece`, `brier`, `log_loss` compare the probability of the score difference (the scorer's own where it
    has a calibration, else sigmoid of it) with the label; every pair counts in both orders, so that they do not depend
    on which response is called first. `length_accuracy`: what "the longer response wins" would score on the same
    pairs; `over_length`: the accuracy less that, with a 95 % bootstrap interval over prompts.
    """

    pairs: int
    prompts: int
    accuracy: Interval
    ece: float
    brier: float
    log_loss: float
    mean_margin: float
    length_accuracy: float
    over_length: Interval

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON; the accuracy with its interval is an object with mean, low, high, n."""
        return asdict(self) | {name: getattr(self, name)._asdict() for name in ("accuracy", "over_length")}


def evaluate(scorer: Scorer, pairs: Sequence[Pair], *, seed: int = 0) -> PairMetrics:
    """Score both responses of every pair and compare with the labels.

    Raises:
        TrimtabError: no pairs.
    """
    if not pairs:
        raise TrimtabError(ErrorKind.DATA, "there are no pairs to evaluate on", "name a file with at least one pair")
    return pair_metrics(scorer, pairs, seed=seed, resamples=2000)


def pair_metrics(scorer: Scorer, pairs: Sequence[Pair], *, seed: int = 0, resamples: int = 200) -> PairMetrics:
    """As `evaluate`; fewer bootstrap resamples by default, for use inside training."""
    prompts = [p.prompt for p in pairs]
    margin = checked_scores(scorer, prompts, [p.chosen for p in pairs]) - checked_scores(
        scorer, prompts, [p.rejected for p in pairs]
    )
    label = np.array([1.0 if p.p_chosen is None else p.p_chosen for p in pairs])
    wins = _win_share(margin)
    groups = {messages: i for i, messages in enumerate(dict.fromkeys(p.messages for p in prompts))}
    of_prompt = np.array([groups[p.messages] for p in prompts])
    probability = np.asarray(getattr(scorer, "probability", sigmoid)(margin))
    both_p, both_y = np.concatenate([probability, 1 - probability]), np.concatenate([label, 1 - label])
    longer = np.array([len(p.chosen.text) - len(p.rejected.text) for p in pairs], dtype=float)
    return PairMetrics(
        pairs=len(pairs),
        prompts=len(groups),
        accuracy=bootstrap_mean(wins, of_prompt, resamples=resamples, seed=seed),
        ece=ece(both_p, both_y, _BINS),
        brier=brier(both_p, both_y),
        log_loss=log_loss(both_p, both_y),
        mean_margin=float(margin.mean()),
        length_accuracy=float(_win_share(longer).mean()),
        over_length=paired_bootstrap(wins, _win_share(longer), of_prompt, resamples=resamples, seed=seed),
    )


@dataclass(frozen=True)
class PrincipleMetrics:
    """How well a head says what judges said by its principle alone, on the pairs that have a label by it.

    `decided`: pairs whose label names a response. `accuracy`: share of these whose named response scores higher by the
    head, and `overall` by the model's score; `lead`: the difference; all with 95 % bootstrap intervals over prompts.
    `ece`, `brier`, `log_loss`: of sigmoid of the head's score differences against the labels, ties included, in both
    orders.
    """

    pairs: int
    decided: int
    accuracy: Interval | None
    overall: Interval | None
    lead: Interval | None
    ece: float
    brier: float
    log_loss: float

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON; those of decided pairs are null without any."""
        intervals = {name: getattr(self, name) for name in ("accuracy", "overall", "lead")}
        return asdict(self) | {name: None if x is None else x._asdict() for name, x in intervals.items()}


def principle_metrics(
    model: PreferenceModel, pairs: Sequence[Pair], *, seed: int = 0, resamples: int = 2000
) -> dict[str, PrincipleMetrics]:
    """Figures of each head by principle, by the principle's name; heads that no pair has a label for are left out."""
    prompts = [p.prompt for p in pairs]
    sides = [p.chosen for p in pairs], [p.rejected for p in pairs]
    (scores, heads), (other_scores, other_heads) = (
        (checked_scores(model, prompts, side), model.head_scores(prompts, side)) for side in sides
    )
    found = {}
    for name in model.names[1:]:
        at = [i for i, p in enumerate(pairs) if name in p.principles]
        if not at:
            continue
        label = np.array([pairs[i].principles[name] for i in at])
        groups = [prompts[i].messages for i in at]
        margin = (heads[name] - other_heads[name])[at]
        by_score = (scores - other_scores)[at]
        p, y = sigmoid(margin), label
        both_p, both_y = np.concatenate([p, 1 - p]), np.concatenate([y, 1 - y])
        named = np.sign(label - 0.5)
        decided = np.flatnonzero(named)
        accuracy = overall = lead = None
        if len(decided):
            own, all_of_it = (_win_share((m * named)[decided]) for m in (margin, by_score))
            of = [groups[i] for i in decided]
            accuracy, overall = (bootstrap_mean(x, of, resamples, seed) for x in (own, all_of_it))
            lead = bootstrap_mean(own - all_of_it, of, resamples, seed)
        found[name] = PrincipleMetrics(
            len(at), len(decided), accuracy, overall, lead, ece(both_p, both_y, _BINS), brier(both_p, both_y),
            log_loss(both_p, both_y),
        )  # fmt: skip
    return found


def length_metrics(
    model: PreferenceModel,
    pairs: Sequence[Pair],
    *,
    cross_fit: bool = False,
    seed: int = 0,
    resamples: int = 2000,
) -> LengthFigures:
    """What length has to do with the model's score, and what its debias changed, where it is known.

    Args:
        model: with or without a debias.
        pairs: labeled ones.
        cross_fit: the pairs are those that a regression was fitted on: every fifth of the prompts is judged by one that
            was fitted on the others.
        seed: of the folds and the resamples.
        resamples: of whole prompts.
    """
    prompts, n = [p.prompt for p in pairs], len(pairs)
    both, said = prompts * 2, [p.chosen for p in pairs] + [p.rejected for p in pairs]
    tokens = np.array([model.response_tokens(p, r) for p, r in zip(both, said, strict=True)])
    keys = [p.messages for p in prompts]
    read = model.read(both, said)
    heads, before = read.heads, None
    if read.raw is not None:
        biased = model.score_of_heads(model.levelled(read.raw))
        before = biased[:n] - biased[n:]
        if cross_fit and any(model.length_fits):
            heads = _cross_fitted(read.raw, tokens, keys, seed)
    scores = model.score_of_heads(heads)
    return length_figures(
        scores[:n] - scores[n:], tokens[:n], tokens[n:], keys, before=before, seed=seed, resamples=resamples
    )


def _cross_fitted(raw: np.ndarray, tokens: np.ndarray, keys: Sequence[Hashable], seed: int) -> np.ndarray:
    """Heads [k, H, 2 P] less what length explains of them on the other folds' pairs; chosen responses first."""
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    fold = (np.random.default_rng([seed, len(number)]).permutation(len(number)) % _FOLDS)[[number[key] for key in keys]]
    heads, n = raw.copy(), len(keys)
    for k in range(_FOLDS):
        seen, left_out = fold != k, np.tile(fold == k, 2)
        chosen, rejected = (np.flatnonzero(seen) + start for start in (0, n))
        if not (tokens[chosen] != tokens[rejected]).any():
            continue
        for member in range(len(raw)):
            fit = fit_length(raw[member][:, chosen], raw[member][:, rejected], tokens[chosen], tokens[rejected])
            heads[member][:, left_out] = fit.apply(raw[member][:, left_out], tokens[left_out])
    # each fold has a centre of its own, which differences within a pair know nothing of
    return heads


def _win_share(difference: np.ndarray) -> np.ndarray:
    wins: np.ndarray = (np.sign(difference) + 1) / 2
    return wins
