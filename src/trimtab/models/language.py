"""The language-model loss of demonstrations: what SFT minimises, and what PPO may mix in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.core.masked import masked_mean
from trimtab.data.demonstrations import Demonstration
from trimtab.data.records import Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec, left_pad, right_pad

__all__ = ["Example", "encode_demonstrations", "negative_log_likelihood"]

Example = tuple[list[int], list[int]]
"""Token ids of a prompt and of its response, EOS included."""


def encode_demonstrations(
    model: CausalModel, codec: TextCodec, demonstrations: Sequence[Demonstration], key: str
) -> list[Example]:
    """Tokenise demonstrations once.

    Args:
        key: the setting that names their file, for the message.

    Raises:
        TrimtabError: one is longer than the model's context.
    """
    examples = []
    for d in demonstrations:
        prompt, response = codec.prompt_ids(d.prompt), codec.response_ids(Response(d.response), d.prompt.id)
        context, length = model.context_length, len(prompt) + len(response)
        if context is not None and length > context:
            raise TrimtabError(
                ErrorKind.DATA,
                f'demonstration of prompt "{d.prompt.id}": {length} tokens ({len(prompt)} of the prompt, '
                f"{len(response)} of the response with EOS), the model's context holds {context}",
                f"shorten or leave out the demonstration in the file that {key} names, or take a model with a longer "
                "context",
            )
        examples.append((prompt, response))
    return examples


def negative_log_likelihood(model: CausalModel, pad_id: int, examples: Sequence[Example]) -> tuple[Tensor, float]:
    """Mean over the response tokens of B examples, a scalar in nats a token, and how many tokens those are."""
    prompts, prompt_mask = left_pad([prompt for prompt, _ in examples], pad_id)
    responses, response_mask = right_pad([response for _, response in examples], pad_id)
    ids = torch.cat([prompts, responses], dim=1).to(model.device)
    mask = torch.cat([prompt_mask, response_mask], dim=1).to(model.device)
    logprobs = response_logprobs(model, ids, mask, prompts.shape[1], 1.0).logprobs
    return -masked_mean(logprobs, response_mask.to(model.device)), float(response_mask.sum())
