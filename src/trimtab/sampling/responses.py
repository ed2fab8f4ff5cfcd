"""Responses of a model to a list of prompts, in batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.generation import generate
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec, left_pad

__all__ = ["sample_responses"]


def sample_responses(
    model: CausalModel,
    codec: TextCodec,
    prompts: Sequence[Prompt],
    *,
    max_new_tokens: int,
    temperature: float,
    batch_size: int,
    generator: torch.Generator,
    systems: Sequence[str | None] | None = None,
) -> list[Response]:
    """Sample one response for each prompt, from the full distribution.

    Args:
        model: who responds.
        codec: its text codec.
        prompts: one for each response; repeat a prompt for several responses.
        max_new_tokens: longest response, end-of-text token included.
        temperature: above 0.
        batch_size: responses at a time; it changes which random numbers a response gets.
        generator: the stream of random numbers, consumed batch by batch.
        systems: a system message for each prompt, None for none; only for chat models.

    Returns:
        Responses in the order of the prompts, with their lengths and whether they ended by themselves.

    Raises:
        TrimtabError: a prompt with its response does not fit the model's context; the prompt is named.
    """
    pairs = zip(prompts, [None] * len(prompts) if systems is None else systems, strict=True)
    ids = [codec.prompt_ids_with_system(prompt, system) for prompt, system in pairs]
    _check_context(model, prompts, ids, max_new_tokens)
    responses: list[Response] = []
    half = model.compute_dtype is not torch.float32
    for start in range(0, len(ids), batch_size):
        rows, mask = left_pad(ids[start : start + batch_size], codec.pad_id)
        with torch.autocast(model.device.type, dtype=model.compute_dtype if half else None, enabled=half):
            drawn = generate(
                model,
                rows.to(model.device),
                mask.to(model.device),
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                eos_ids=codec.eos_ids,
                pad_id=codec.pad_id,
                generator=generator,
            )
        responses += codec.responses(drawn.tokens, drawn.mask, drawn.finished)
    return responses


def _check_context(model: CausalModel, prompts: Sequence[Prompt], ids: list[list[int]], max_new_tokens: int) -> None:
    context = model.context_length
    for prompt, row in zip(prompts, ids, strict=True):
        if context is not None and len(row) + max_new_tokens > context:
            raise TrimtabError(
                ErrorKind.DATA,
                f"prompt {prompt.id!r}: {len(row)} tokens and a response of up to {max_new_tokens} exceed the model's "
                f"context of {context}",
                "shorten the prompt or lower max_new_tokens",
            )
