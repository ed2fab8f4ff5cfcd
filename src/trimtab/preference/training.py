"""Training of the preference model on labeled pairs by the Bradley-Terry loss.

Reads: pairs. Writes: a `PreferenceModel`. Pairs of some prompts are held out, so that accuracy and calibration speak of
prompts that were not trained on. Left out for now: ensembles, length debiasing, fitted calibration.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.config.schema import PreferenceConfig
from trimtab.core.preference import bradley_terry_loss
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.seeds import numpy_stream
from trimtab.models.tokens import TextCodec
from trimtab.preference.evaluation import pair_metrics
from trimtab.preference.model import PreferenceModel
from trimtab.preference.pairs import PairScores
from trimtab.runs.run import Run
from trimtab.training.precision import Precision
from trimtab.training.supervised import fit

__all__ = ["split_by_prompt", "train"]


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
    """Train a preference model that starts from `base`, with a new scalar head.

    Args:
        config: the `[preference]` section.
        base: the SFT model; it is not changed. With shared layers, only what lies above them is trained.
        codec: its tokenizer.
        pairs: labeled pairs; those of `config.validation_fraction` of the prompts are held out. Training honours their
            weights; what is measured on held-out pairs counts every pair once.

    Raises:
        TrimtabError: too few prompts, a pair longer than `config.max_tokens`, or no pair with a weight.
    """
    precision = precision or Precision("float32", base.device)
    # From a head of zeros every pair starts at probability one half, whatever the scale of the model's hidden states.
    model = ScalarModel.from_causal(base, head_std="zero")
    limit = min(config.max_tokens, base.context_length or config.max_tokens)
    scorer = PreferenceModel(model, codec, precision, max_tokens=limit)
    training, held_out = split_by_prompt(pairs, config.validation_fraction, seed)
    rows = [(scorer.token_ids(p.prompt, p.chosen), scorer.token_ids(p.prompt, p.rejected)) for p in training]
    score_pairs = PairScores(model, rows, codec.pad_id)
    targets = torch.tensor([_target(p, config.soft_labels) for p in training])
    margins = torch.tensor([p.margin or 0.0 for p in training])
    weights = _weights(training)

    def loss_of(index: list[int]) -> tuple[Tensor, dict[str, float]]:
        with precision.autocast():
            chosen, rejected = score_pairs(index)
        loss = bradley_terry_loss(
            chosen,
            rejected,
            targets[index].to(chosen.device),
            margins[index].to(chosen.device),
            config.label_smoothing,
            weights[index].to(chosen.device),
        )
        return loss, {"accuracy/train": float((chosen > rejected).float().mean())}

    def validate() -> dict[str, float]:
        metrics = pair_metrics(scorer, held_out)
        return {
            "loss/validation": metrics.log_loss,
            "accuracy/validation": metrics.accuracy.mean,
            "margin/mean": metrics.mean_margin,
            "calibration/ece": metrics.ece,
            "calibration/brier": metrics.brier,
        }

    fit("pm", model, loss_of, len(rows), config, precision=precision, seed=seed, run=run, validate=validate)
    return scorer


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
