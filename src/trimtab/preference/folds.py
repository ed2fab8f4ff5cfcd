"""k-fold measurements of preference training: every pair is scored once, by a model that did not see its prompt.

A fold trains as the stage does, its own held-out share for early stopping included, so what is measured is what a run
would get from the pairs of the other folds.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from trimtab.config.schema import PreferenceConfig
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.figures import finite
from trimtab.models.encoder import ScoreCodec, Start
from trimtab.models.kept import KeptStates
from trimtab.models.seeds import numpy_stream
from trimtab.preference.length import LengthFigures, length_figures
from trimtab.preference.training import train
from trimtab.scoring import checked_scores
from trimtab.stats.calibration import ece
from trimtab.stats.intervals import Interval, bootstrap_mean
from trimtab.training.precision import Precision

__all__ = ["FoldScores", "Measured", "fold_of_prompts", "measure", "train_fold"]

_BINS = 10


@dataclass(frozen=True)
class FoldScores:
    """Margins (chosen minus rejected score) of the pairs of one fold, by their place in the whole list of pairs.

    `trained_on`: pairs that training was given; `seconds`: of training. `tokens`: of the chosen and of the rejected
    responses; `biased`: margins with the length left in; both may be unknown, `biased` where none is taken out.
    """

    fold: int
    index: list[int]
    margins: list[float]
    trained_on: int
    seconds: float
    tokens: tuple[list[int], list[int]] | None = None
    biased: list[float] | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "fold": self.fold, "index": self.index, "margins": self.margins, "trained_on": self.trained_on,
            "seconds": self.seconds, "tokens": self.tokens, "biased": self.biased,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Self:
        """What `as_dict` wrote."""
        known = {name: record[name] for name in ("fold", "index", "margins", "trained_on", "seconds")}
        return cls(**known, tokens=record.get("tokens"), biased=record.get("biased"))


@dataclass(frozen=True)
class Measured:
    """Figures over the pairs of all folds; intervals are 95 %, over prompts. `wins`: [P] 1, 0, or a half for a tie.

    `length`: what length has to do with the scores, where the lengths are known.
    """

    pairs: int
    accuracy: Interval
    log_loss: Interval
    ece: float
    seconds: float
    trained_on: float
    wins: np.ndarray
    length: LengthFigures | None = None

    def as_dict(self) -> dict[str, Any]:
        """All but the wins, as JSON."""
        return {
            "pairs": self.pairs, "accuracy": self.accuracy._asdict(), "log_loss": self.log_loss._asdict(),
            "ece": self.ece, "seconds": self.seconds, "trained_on": self.trained_on,
            "length": None if self.length is None else finite(self.length.as_dict()),
        }  # fmt: skip


def fold_of_prompts(pairs: Sequence[Pair], folds: int, seed: int) -> np.ndarray:
    """[P] the fold of each pair: prompts are dealt out at random, all pairs of one to the same fold.

    Raises:
        TrimtabError: fewer than two folds, or fewer than two prompts a fold.
    """
    keys = {messages: i for i, messages in enumerate(dict.fromkeys(pair.prompt.messages for pair in pairs))}
    if folds < 2 or len(keys) < 2 * folds:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{folds} folds of {len(pairs)} pairs over {len(keys)} prompts",
            "a fold needs two prompts at least, and there must be two folds: label more prompts or lower --folds",
        )
    place = np.empty(len(keys), dtype=np.int64)
    place[numpy_stream(seed, "pm", "folds").permutation(len(keys))] = np.arange(len(keys)) % folds
    return np.array([place[keys[pair.prompt.messages]] for pair in pairs])


def train_fold(
    config: PreferenceConfig,
    base: Start,
    codec: ScoreCodec,
    pairs: Sequence[Pair],
    of_fold: np.ndarray,
    fold: int,
    *,
    share: float = 1.0,
    seed: int = 0,
    precision: Precision | None = None,
    cache: KeptStates | None = None,
) -> FoldScores:
    """Train on the other folds' pairs and score this one's.

    Args:
        config: the `[preference]` section.
        base: the SFT model or a backbone.
        codec: its tokenizer.
        pairs: all of them.
        of_fold: what `fold_of_prompts` said.
        fold: the one that is left out.
        share: of the other folds' prompts, in (0, 1]; smaller shares are parts of larger ones.
        seed: of the training and of which prompts a share holds.
        precision: what is computed in.
        cache: as for `trimtab.preference.train`; folds that are given one compute the frozen layers once.

    Raises:
        TrimtabError: as `trimtab.preference.train`.
    """
    others = [i for i in range(len(pairs)) if of_fold[i] != fold]
    keys = list(dict.fromkeys(pairs[i].prompt.messages for i in others))
    order = numpy_stream(seed, "pm", "share", fold).permutation(len(keys))
    kept = {keys[i] for i in order[: max(2, round(share * len(keys)))]}
    training = [pairs[i] for i in others if pairs[i].prompt.messages in kept]
    start = time.perf_counter()
    model = train(config, base, codec, training, seed=seed, precision=precision, cache=cache)
    seconds = time.perf_counter() - start
    index = np.flatnonzero(of_fold == fold).tolist()
    prompts = [pairs[i].prompt for i in index]
    sides = [pairs[i].chosen for i in index], [pairs[i].rejected for i in index]
    chosen, rejected = (checked_scores(model, prompts, side) for side in sides)
    long, other = ([model.response_tokens(p, r) for p, r in zip(prompts, side, strict=True)] for side in sides)
    with_length = model.biased_score(prompts * 2, [*sides[0], *sides[1]])
    biased = None if with_length is None else np.subtract(*np.split(with_length, 2)).tolist()
    return FoldScores(fold, index, (chosen - rejected).tolist(), len(training), seconds, (long, other), biased)


def measure(pairs: Sequence[Pair], found: Sequence[FoldScores], *, seed: int = 0, resamples: int = 2000) -> Measured:
    """Figures over all pairs that the folds hold; every pair counts in both orders for the calibration error."""
    index = np.concatenate([fold.index for fold in found]).astype(np.int64)
    order = np.argsort(index, kind="stable")
    margins = np.concatenate([fold.margins for fold in found])[order]
    index = index[order]
    used = [pairs[i] for i in index]
    label = np.array([1.0 if pair.p_chosen is None else pair.p_chosen for pair in used])
    groups = [pair.prompt.messages for pair in used]
    wins = (np.sign(margins) + 1) / 2
    # -log sigmoid(m) = log(1 + e^-m), without overflow
    losses = label * np.logaddexp(0, -margins) + (1 - label) * np.logaddexp(0, margins)
    probability = 0.5 * (1 + np.tanh(margins / 2))
    return Measured(
        pairs=len(index),
        accuracy=bootstrap_mean(wins, groups, resamples, seed),
        log_loss=bootstrap_mean(losses, groups, resamples, seed),
        ece=ece(np.concatenate([probability, 1 - probability]), np.concatenate([label, 1 - label]), _BINS),
        seconds=float(sum(fold.seconds for fold in found)),
        trained_on=float(np.mean([fold.trained_on for fold in found])),
        wins=wins,
        length=_length(found, margins, order, groups, resamples, seed),
    )


def _length(
    found: Sequence[FoldScores],
    margins: np.ndarray,
    order: np.ndarray,
    groups: Sequence[Hashable],
    resamples: int,
    seed: int,
) -> LengthFigures | None:
    known = [fold.tokens for fold in found if fold.tokens is not None]
    if len(known) < len(found):
        return None  # folds of an older version
    chosen, rejected = (np.concatenate([tokens[side] for tokens in known])[order] for side in (0, 1))
    with_length = [fold.biased for fold in found if fold.biased is not None]
    before = np.concatenate(with_length)[order] if len(with_length) == len(found) else None
    return length_figures(margins, chosen, rejected, groups, before=before, resamples=resamples, seed=seed)
