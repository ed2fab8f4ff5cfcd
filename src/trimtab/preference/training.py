"""Training of the preference model on labeled pairs by the Bradley-Terry loss.

Reads: pairs. Writes: a `PreferenceModel`. Pairs of some prompts are held out, so that accuracy and calibration speak of
prompts that were not trained on. Several members (`config.members`) are trained one after the other on one trunk, whose
output is computed once. Left out for now: length debiasing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.config.schema import PreferenceConfig
from trimtab.core.preference import bradley_terry_loss, centering_loss
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.seeds import numpy_stream, torch_stream
from trimtab.models.tokens import TextCodec
from trimtab.preference.dropout import Dropout
from trimtab.preference.ensemble import PreferenceEnsemble
from trimtab.preference.evaluation import pair_metrics
from trimtab.preference.model import PreferenceModel
from trimtab.preference.pairs import PairScores, TrunkCache
from trimtab.runs.run import Run
from trimtab.training.precision import Precision
from trimtab.training.supervised import fit

__all__ = ["split_by_prompt", "train"]

_HEAD_STD = 0.1
"""Standard deviation of a further member's first scores, for hidden states of unit size."""


def split_by_prompt(pairs: Sequence[Pair], fraction: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """(training pairs, held-out pairs): a share of the prompts is held out whole, at least one on either side.

    Raises:
        TrimtabError: fewer than two prompts.
    """
    keys = list(dict.fromkeys(pair.prompt.messages for pair in pairs))
    if len(keys) < 2:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{len(pairs)} pairs over {len(keys)} prompts cannot be split",
            "label pairs of at least two prompts",
        )
    count = min(max(1, round(fraction * len(keys))), len(keys) - 1)
    order = numpy_stream(seed, "pm", "held-out").permutation(len(keys))
    held_out = {keys[i] for i in order[:count]}
    return [p for p in pairs if p.prompt.messages not in held_out], [p for p in pairs if p.prompt.messages in held_out]


def train(
    config: PreferenceConfig,
    base: CausalModel,
    codec: TextCodec,
    pairs: Sequence[Pair],
    *,
    run: Run | None = None,
    seed: int = 0,
    precision: Precision | None = None,
) -> PreferenceModel:
    """Train a preference model that starts from `base`, with a new scalar head; with `config.members`, several.

    A training that was stopped, killed or not, goes on from the last checkpoint in `run` to the same weights.

    Args:
        config: the `[preference]` section.
        base: the SFT model; it is not changed. With shared layers, only what lies above them is trained.
        codec: its tokenizer.
        pairs: labeled pairs; those of `config.validation_fraction` of the prompts are held out, the same ones for every
            member. Training honours their weights; what is measured on held-out pairs counts every pair once. With
            `config.patience`, training stops when their loss no longer falls, and the best weights are taken.

    Returns:
        A `PreferenceModel`; with several members a `PreferenceEnsemble`, whose first member is the model that would
        have been trained alone.

    Raises:
        TrimtabError: too few prompts, a pair longer than `config.max_tokens`, or no pair with a weight.
    """
    precision = precision or Precision("float32", base.device)
    limit = min(config.max_tokens, base.context_length or config.max_tokens)
    training, held_out = split_by_prompt(pairs, config.validation_fraction, seed)
    lesson = _Lesson(config, base, codec, precision, limit, training, held_out, seed)
    models = [lesson.member(i, run) for i in range(config.members)]
    if len(models) == 1:
        return models[0]
    ensemble = PreferenceEnsemble(models, combine=config.combine, pessimism=config.pessimism)
    ensemble.centre([row for pair in lesson.rows for row in pair])
    return ensemble


class _Lesson:
    """What the members of one training have in common: the rows, the labels, the trunk's output."""

    def __init__(
        self,
        config: PreferenceConfig,
        base: CausalModel,
        codec: TextCodec,
        precision: Precision,
        limit: int,
        training: Sequence[Pair],
        held_out: Sequence[Pair],
        seed: int,
    ) -> None:
        self.config, self.base, self.codec, self.precision, self.limit = config, base, codec, precision, limit
        self.held_out, self.seed = held_out, seed
        probe = PreferenceModel(ScalarModel.from_causal(base, head_std="zero"), codec, precision, max_tokens=limit)
        self.rows = [(probe.token_ids(p.prompt, p.chosen), probe.token_ids(p.prompt, p.rejected)) for p in training]
        self.targets = torch.tensor([_target(p, config.soft_labels) for p in training])
        self.margins = torch.tensor([config.margin_coef * (p.margin or 0.0) for p in training])
        self.weights = _weights(training)
        prompts = {messages: i for i, messages in enumerate(dict.fromkeys(p.prompt.messages for p in training))}
        self.prompts = [prompts[p.prompt.messages] for p in training]
        self.cache = TrunkCache()

    def member(self, number: int, run: Run | None) -> PreferenceModel:
        """Train one member."""
        config, precision, seed = self.config, self.precision, self.seed
        model = _start(self.base, number, seed)
        scorer = PreferenceModel(model, self.codec, precision, max_tokens=self.limit)
        dropout = Dropout(model, config.dropout, config.head_dropout, seed, number)
        score_pairs = PairScores(
            model, self.rows, self.codec.pad_id, cache=self.cache, dropout=dropout, once=config.group_by_prompt
        )
        drawn, groups = self._drawn(number)

        def loss_of(index: list[int]) -> tuple[Tensor, dict[str, float]]:
            at = [drawn[i] for i in index]
            with precision.autocast(), dropout.on():
                chosen, rejected = score_pairs(at)
            return self._loss(at, chosen, rejected), {"accuracy/train": float((chosen > rejected).float().mean())}

        def validate() -> dict[str, float]:
            metrics = pair_metrics(scorer, self.held_out)
            return {
                "loss/validation": metrics.log_loss,
                "accuracy/validation": metrics.accuracy.mean,
                "margin/mean": metrics.mean_margin,
                "calibration/ece": metrics.ece,
                "calibration/brier": metrics.brier,
            }

        def before(step: int) -> None:
            dropout.step = step

        fit(
            "pm", model, loss_of, len(drawn), config, precision=precision, seed=seed, run=run, validate=validate,
            patience=config.patience, groups=groups if config.group_by_prompt else None, member=number, before=before,
        )  # fmt: skip
        return scorer

    def _loss(self, at: list[int], chosen: Tensor, rejected: Tensor) -> Tensor:
        device, config = chosen.device, self.config
        weights = self.weights[at].to(device)
        loss = bradley_terry_loss(
            chosen,
            rejected,
            self.targets[at].to(device),
            self.margins[at].to(device),
            config.label_smoothing,
            weights,
        )
        if config.center_coef:
            loss = loss + config.center_coef * centering_loss(chosen, rejected, weights)
        return loss

    def _drawn(self, number: int) -> tuple[list[int], list[int]]:
        """(pairs that a member learns from, which draw of a prompt each belongs to)."""
        if number == 0 or not self.config.bootstrap:
            return list(range(len(self.rows))), self.prompts
        of_prompt: dict[int, list[int]] = {}
        for pair, prompt in enumerate(self.prompts):
            of_prompt.setdefault(prompt, []).append(pair)
        draws = numpy_stream(self.seed, "pm", "bootstrap", number).integers(len(of_prompt), size=len(of_prompt))
        drawn = [(pair, draw) for draw, prompt in enumerate(draws.tolist()) for pair in of_prompt[prompt]]
        if not any(float(self.weights[pair]) > 0 for pair, _ in drawn):
            raise TrimtabError(
                ErrorKind.DATA,
                f"preference.bootstrap: member {number} drew no pair with a weight",
                "train on more prompts, or set bootstrap = false",
            )
        return [pair for pair, _ in drawn], [draw for _, draw in drawn]


def _start(base: CausalModel, number: int, seed: int) -> ScalarModel:
    """A model to train: the first from a head of zeros, the others from small random heads.

    From a head of zeros every pair starts at probability one half, whatever the scale of the model's hidden states.
    Members that all started there would differ in the order of their pairs only.
    """
    if number == 0:
        return ScalarModel.from_causal(base, head_std="zero")
    width = int(base.hf.config.get_text_config().hidden_size)
    generator = torch_stream(seed, "pm", "head", number)
    return ScalarModel.from_causal(base, head_std=_HEAD_STD / math.sqrt(width + 1), generator=generator)


def _target(pair: Pair, soft: bool) -> float:
    """The label to train on; a hard one says who is better, and of a tie nothing."""
    if pair.p_chosen is None:
        return 1.0
    return pair.p_chosen if soft else (1.0 if pair.p_chosen > 0.5 else 0.0 if pair.p_chosen < 0.5 else 0.5)


def _weights(pairs: Sequence[Pair]) -> Tensor:
    """[P] the pairs' weights with mean 1, so that they change what counts and not the learning rate."""
    weights = torch.tensor([p.weight for p in pairs])
    if not float(weights.sum()) > 0:
        raise TrimtabError(ErrorKind.DATA, f"all {len(pairs)} training pairs have weight 0", "give some a weight")
    return weights / weights.mean()
