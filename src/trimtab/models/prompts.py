"""Prompts as token ids, ready to be sampled for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trimtab.data.records import Prompt
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.tokens import TextCodec

__all__ = ["EncodedPrompts", "encode_prompts"]


@dataclass(frozen=True)
class EncodedPrompts:
    """Prompts with their token ids, in file order."""

    prompts: Sequence[Prompt]
    ids: Mapping[str, list[int]] = field(repr=False)


def encode_prompts(
    prompts: Sequence[Prompt], codec: TextCodec, context: int | None, max_new_tokens: int
) -> EncodedPrompts:
    """Tokenise prompts once and refuse those that leave no room for a response.

    Raises:
        TrimtabError: no prompts, or a prompt longer than the model's context minus `max_new_tokens`.
    """
    if not prompts:
        raise TrimtabError(ErrorKind.DATA, "there are no prompts to sample responses for", "check prompts.train")
    ids = {}
    for prompt in prompts:
        tokens = codec.prompt_ids(prompt)
        if context is not None and len(tokens) + max_new_tokens > context:
            raise TrimtabError(
                ErrorKind.DATA,
                f"prompt {prompt.id!r} has {len(tokens)} tokens; with {max_new_tokens} new ones it exceeds the "
                f"model's context of {context}",
                "shorten the prompt or lower max_new_tokens",
            )
        ids[prompt.id] = tokens
    return EncodedPrompts(list(prompts), ids)
