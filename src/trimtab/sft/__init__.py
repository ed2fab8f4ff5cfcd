"""Supervised fine-tuning on demonstrations; its product is the reference policy.

Reads: demonstrations (prompt, response). Writes: the model, trained in place. The loss is the mean negative
log-likelihood of the response tokens, EOS included, given the prompt. Left out for now: the constitutional variant
(draft, critique, revise).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.config.schema import SFTConfig
from trimtab.core.masked import masked_mean
from trimtab.data.demonstrations import Demonstration
from trimtab.data.records import Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec, left_pad, right_pad
from trimtab.runs.run import Run
from trimtab.training.precision import Precision
from trimtab.training.supervised import fit

__all__ = ["train"]


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

    Args:
        config: the `[sft]` section.
        model: any causal model; only its weights above the shared layers are trained.
        codec: its tokenizer.
        demonstrations: prompts with the responses to imitate.
        run: where metrics and checkpoints go; with checkpoints in it, training goes on from the last.

    Raises:
        TrimtabError: no demonstrations, or one that is longer than the model's context.
    """
    precision = precision or Precision("float32", model.device)
    examples = [
        (codec.prompt_ids(d.prompt), codec.response_ids(Response(d.response), d.prompt.id)) for d in demonstrations
    ]
    for demonstration, (prompt, response) in zip(demonstrations, examples, strict=True):
        _check_length(demonstration.prompt.id, len(prompt), len(response), model.context_length)

    def loss_of(index: list[int]) -> tuple[Tensor, dict[str, float]]:
        with precision.autocast():
            loss, tokens = _negative_log_likelihood(model, codec, [examples[i] for i in index])
        return loss, {"tokens": tokens}

    fit("sft", model, loss_of, len(examples), config, precision=precision, seed=seed, run=run)
    return model


def _check_length(prompt_id: str, prompt: int, response: int, context: int | None) -> None:
    if context is not None and prompt + response > context:
        raise TrimtabError(
            ErrorKind.DATA,
            f'demonstration of prompt "{prompt_id}": {prompt + response} tokens ({prompt} of the prompt, {response} of '
            f"the response with EOS), the model's context holds {context}",
            "shorten or leave out the demonstration in the file that sft.data names, or take a model with a longer "
            "context",
        )


def _negative_log_likelihood(
    model: CausalModel, codec: TextCodec, examples: Sequence[tuple[list[int], list[int]]]
) -> tuple[Tensor, float]:
    prompts, prompt_mask = left_pad([prompt for prompt, _ in examples], codec.pad_id)
    responses, response_mask = right_pad([response for _, response in examples], codec.pad_id)
    ids = torch.cat([prompts, responses], dim=1).to(model.device)
    mask = torch.cat([prompt_mask, response_mask], dim=1).to(model.device)
    logprobs = response_logprobs(model, ids, mask, prompts.shape[1], 1.0).logprobs
    return -masked_mean(logprobs, response_mask.to(model.device)), float(response_mask.sum())
