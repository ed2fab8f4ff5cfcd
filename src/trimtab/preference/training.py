"""Training of the preference model on labeled pairs by the Bradley-Terry loss.

Reads: pairs. Writes: a `PreferenceModel`. Pairs of some prompts are held out, so that accuracy and calibration speak of
prompts that were not trained on. Several members (`config.members`) are trained one after the other on one trunk, whose
output is computed once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from trimtab.config.schema import PreferenceConfig
from trimtab.data.records import Pair, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import EncoderScalar, ScoreCodec, ScoreModel, Start
from trimtab.models.kept import KeptStates, TrunkCache
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.seeds import numpy_stream, torch_stream
from trimtab.preference.dropout import Dropout
from trimtab.preference.ensemble import PreferenceEnsemble
from trimtab.preference.evaluation import pair_metrics
from trimtab.preference.length import fit_length, log_length
from trimtab.preference.model import PreferenceModel
from trimtab.preference.objective import Objective
from trimtab.preference.pairs import PairScores
from trimtab.preference.rows import readable, row_limit
from trimtab.runs.run import Run
from trimtab.training.precision import Precision
from trimtab.training.splits import hold_out
from trimtab.training.supervised import fit
from trimtab.training.targets import PairRows, check_teachable

__all__ = ["split_by_prompt", "train"]

_HEAD_STD = 0.1
"""Standard deviation of a further member's first scores, for hidden states of unit size."""


def split_by_prompt(pairs: Sequence[Pair], fraction: float, seed: int) -> tuple[list[Pair], list[Pair]]:
    """(training pairs, held-out pairs): a share of the prompts is held out whole, at least one on either side.

    Raises:
        TrimtabError: fewer than two prompts.
    """
    found = hold_out(pairs, fraction, seed, "pm")
    if found is None:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{len(pairs)} pairs over {len({pair.prompt.messages for pair in pairs})} prompts cannot be split",
            "label pairs of at least two prompts",
        )
    return found


def train(
    config: PreferenceConfig,
    base: Start,
    codec: ScoreCodec,
    pairs: Sequence[Pair],
    *,
    run: Run | None = None,
    seed: int = 0,
    precision: Precision | None = None,
    principle_weights: Mapping[str, float] | None = None,
    cache: KeptStates | None = None,
) -> PreferenceModel:
    """Train a preference model that starts from `base`, with a new scalar head; with `config.members`, several.

    A training that was stopped, killed or not, goes on from the last checkpoint in `run` to the same weights.

    Args:
        config: the `[preference]` section.
        base: the SFT model or a backbone (`models.starts.load_backbone`); it is not changed. With shared layers, only
            what lies above them is trained.
        codec: its tokenizer.
        pairs: labeled pairs; those that are too long are left out with `config.too_long = "drop"`. Those of
            `config.validation_fraction` of the prompts are held out, the same ones for every member. Training honours
            their weights; what is measured on held-out pairs counts every pair once. With `config.patience`, training
            stops when their loss no longer falls, and the best weights are taken.
        principle_weights: weight of each principle in the constitution, for `head_weights = "constitution"`; None: 1
            each.
        cache: output of the frozen layers, kept from other trainings on this base; what it lacks is left there, and the
            returned model reads it, too. None: one of this training's own.

    Returns:
        A `PreferenceModel`; with several members a `PreferenceEnsemble`, whose first member is the model that would
        have been trained alone.

    Raises:
        TrimtabError: too few prompts, a pair longer than `config.max_tokens`, no pair with a weight, or none that
            prefers one response to the other.
    """
    precision = precision or Precision("float32", base.device)
    kept, rows = readable(config, base, codec, pairs)
    of_pair = {id(pair): row for pair, row in zip(kept, rows, strict=True)}
    training, held_out = split_by_prompt(kept, config.validation_fraction, seed)
    rows = [of_pair[id(pair)] for pair in training]
    check_teachable(training, rows)
    lesson = _Lesson(
        config, base, codec, precision, training, rows, held_out, seed, principle_weights, cache or TrunkCache()
    )
    models = [lesson.member(i, run) for i in range(config.members)]
    if cache is None:
        for model in models:
            model.cache = None  # it was for the training
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
        base: Start,
        codec: ScoreCodec,
        precision: Precision,
        training: Sequence[Pair],
        rows: list[PairRows],
        held_out: Sequence[Pair],
        seed: int,
        principle_weights: Mapping[str, float] | None,
        cache: KeptStates,
    ) -> None:
        self.config, self.base, self.codec, self.precision, self.rows = config, base, codec, precision, rows
        self.limit, self.held_out, self.seed = row_limit(config, base), held_out, seed
        tokens = None
        if config.length_debias != "none":
            empty = [len(codec.pair_ids(p.prompt, Response(""))) for p in training]
            tokens = torch.tensor([[len(r) - n for r in pair] for pair, n in zip(rows, empty, strict=True)])
        self.tokens, self.objective = tokens, Objective(config, training, tokens)
        prompts = {messages: i for i, messages in enumerate(dict.fromkeys(p.prompt.messages for p in training))}
        self.prompts = [prompts[p.prompt.messages] for p in training]
        self.cache = cache
        self.principle_weights = principle_weights or dict.fromkeys(self.objective.names[1:], 1.0)

    def member(self, number: int, run: Run | None) -> PreferenceModel:
        """Train one member."""
        config, precision, seed = self.config, self.precision, self.seed
        model = _start(self.base, number, seed)
        objective = self.objective
        objective.prepare(model, seed, number)
        scorer = PreferenceModel(model, self.codec, precision, max_tokens=self.limit)
        scorer.cache = self.cache
        dropout = Dropout(model, config.dropout, config.head_dropout, seed, number)
        score_pairs = PairScores(
            model, self.rows, self.codec.pad_id, cache=self.cache, dropout=dropout,
            prompts=self.prompts if config.group_by_prompt else None,
        )  # fmt: skip
        drawn, groups = self._drawn(number)

        def loss_of(index: list[int]) -> tuple[Tensor, dict[str, float]]:
            at = [drawn[i] for i in index]
            computed = score_pairs.computed
            with precision.autocast(), dropout.on():
                chosen, rejected = score_pairs.heads(at)
            dropout.part += 1
            tokens = {
                "tokens/needed": score_pairs.needed(at) / len(at),
                "tokens/computed": (score_pairs.computed - computed) / len(at),
            }
            loss, signals = objective.loss(model, at, chosen, rejected)
            return loss, tokens | signals

        def parts_of(index: list[int]) -> list[list[int]]:
            parts = score_pairs.parts([drawn[i] for i in index], config.micro_batch_size)
            return [[index[place] for place in part] for part in parts]

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
            dropout.step, dropout.part = step, 0

        fit(
            "pm", model, loss_of, len(drawn), config, precision=precision, seed=seed, run=run, validate=validate,
            patience=config.patience, groups=groups if config.group_by_prompt else None, member=number, before=before,
            parts_of=parts_of,
        )  # fmt: skip
        return self._finished(model, scorer)

    def _finished(self, model: ScoreModel, scorer: PreferenceModel) -> PreferenceModel:
        """The trained model with its heads named, and what length has to do with its scores taken out or set apart."""
        config = self.config
        scorer.length_heads = [self.objective.finish(model)]
        scorer.weigh(self.objective.names, config.head_weights, self.principle_weights)
        if config.length_debias == "regress":
            assert self.tokens is not None
            # on pairs that were not trained on: the scores of the others follow their labels, and with them the length
            of = [p.prompt for p in self.held_out]
            sides = [p.chosen for p in self.held_out], [p.rejected for p in self.held_out]
            heads = [scorer.read(of, said).heads[0] for said in sides]
            tokens = [[scorer.response_tokens(p, r) for p, r in zip(of, said, strict=True)] for said in sides]
            # the mean over the training responses stays what it is, as an ensemble's offsets are taken there
            scorer.length_fits = [replace(fit_length(*heads, *tokens), centre=float(log_length(self.tokens).mean()))]
        return scorer

    def _drawn(self, number: int) -> tuple[list[int], list[int]]:
        """(pairs that a member learns from, which draw of a prompt each belongs to)."""
        if number == 0 or not self.config.bootstrap:
            return list(range(len(self.rows))), self.prompts
        of_prompt: dict[int, list[int]] = {}
        for pair, prompt in enumerate(self.prompts):
            of_prompt.setdefault(prompt, []).append(pair)
        draws = numpy_stream(self.seed, "pm", "bootstrap", number).integers(len(of_prompt), size=len(of_prompt))
        drawn = [(pair, draw) for draw, prompt in enumerate(draws.tolist()) for pair in of_prompt[prompt]]
        if not any(float(self.objective.weights[pair]) > 0 for pair, _ in drawn):
            raise TrimtabError(
                ErrorKind.DATA,
                f"preference.bootstrap: member {number} drew no pair with a weight",
                "train on more prompts, or set bootstrap = false",
            )
        return [pair for pair, _ in drawn], [draw for _, draw in drawn]


def _start(base: Start, number: int, seed: int) -> ScoreModel:
    """A model to train: the first from a head of zeros, the others from small random heads.

    From a head of zeros every pair starts at probability one half, whatever the scale of the model's hidden states.
    Members that all started there would differ in the order of their pairs only. A backbone that scores already keeps
    its head.
    """
    generator = torch_stream(seed, "pm", "head", number)
    if isinstance(base, CausalModel):
        if number == 0:
            return ScalarModel.from_causal(base, head_std="zero", generator=generator)
        width = int(base.hf.config.get_text_config().hidden_size)
        return ScalarModel.from_causal(base, head_std=_HEAD_STD / math.sqrt(width + 1), generator=generator)
    model = base.fork(trainable=True)
    if isinstance(model, EncoderScalar) and model.fresh:
        model.draw_head(_HEAD_STD / math.sqrt(model.linear.in_features + 1) if number else 0.0, generator)
    return model
