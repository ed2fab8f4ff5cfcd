"""How good a scorer is on labeled pairs: accuracy with interval, calibration, margin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.preference.calibration import sigmoid
from trimtab.scoring import Scorer, checked_scores
from trimtab.stats.calibration import brier, ece, log_loss
from trimtab.stats.intervals import Interval, bootstrap_mean, paired_bootstrap

__all__ = ["PairMetrics", "evaluate", "pair_metrics"]

_BINS = 10


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


def _win_share(difference: np.ndarray) -> np.ndarray:
    wins: np.ndarray = (np.sign(difference) + 1) / 2
    return wins
