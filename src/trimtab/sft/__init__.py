"""Supervised fine-tuning; its product is the reference policy. `trimtab.sft.train` is what `trimtab sft` runs.

Reads: demonstrations (prompt, response), of people or the model's own revisions (`trimtab.sampling.sample_revisions`),
or both (`mix`). Writes: the model, trained in place. The loss is the mean negative log-likelihood of the response
tokens, EOS included, given the prompt. Left out on purpose: packing (a batch is padded; masks say what counts), and a
loss on prompt tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.config.schema import SFTConfig
from trimtab.data.demonstrations import Demonstration
from trimtab.models.language import encode_demonstrations, negative_log_likelihood
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.runs.run import Run
from trimtab.sft.examples import mix, split_by_prompt
from trimtab.training.precision import Precision
from trimtab.training.supervised import fit

__all__ = ["mix", "split_by_prompt", "train"]


def train(
    config: SFTConfig,
    model: CausalModel,
    codec: TextCodec,
    demonstrations: Sequence[Demonstration],
    *,
    run: Run | None = None,
    seed: int = 0,
    precision: Precision | None = None,
) -> CausalModel:
    """Fine-tune `model` in place and return it.

    A stage that was stopped, killed or not, goes on from the last checkpoint in `run` to the same weights, bit for bit.

    Args:
        config: the `[sft]` section; `source`, `data` and what belongs to the sampling of revisions are not read here.
        model: any causal model; what takes gradients is trained. With adapters, `model.merged()` is what later stages
            start from.
        codec: its tokenizer.
        demonstrations: prompts with the responses to imitate; those of `config.validation_fraction` of the prompts are
            held out and measured (`loss/validation`, nats a token) at every checkpoint. With `config.patience`,
            training stops when that no longer falls, and the weights with the lowest are taken.
        run: where metrics and checkpoints go; with checkpoints in it, training goes on from the last.
        seed: of the order of the examples and of the split.
        precision: what is computed in; None: float32.

    Raises:
        TrimtabError: no demonstrations, or one that is longer than the model's context.
    """
    precision = precision or Precision("float32", model.device)
    training, held_out = split_by_prompt(demonstrations, config.validation_fraction, seed)
    examples, validation = (encode_demonstrations(model, codec, part, "sft.data") for part in (training, held_out))

    def loss_of(index: list[int]) -> tuple[Tensor, dict[str, float]]:
        with precision.autocast():
            loss, tokens = negative_log_likelihood(model, codec.pad_id, [examples[i] for i in index])
        return loss, {"tokens": tokens}

    @torch.no_grad()
    def validate() -> dict[str, float]:
        total = counted = 0.0
        for start in range(0, len(validation), config.batch_size):
            with precision.autocast():
                loss, tokens = negative_log_likelihood(
                    model, codec.pad_id, validation[start : start + config.batch_size]
                )
            total, counted = total + float(loss) * tokens, counted + tokens
        return {"loss/validation": total / counted}

    fit(
        "sft", model, loss_of, len(examples), config, precision=precision, seed=seed, run=run,
        validate=validate if validation else None, patience=config.patience,
    )  # fmt: skip
    return model
