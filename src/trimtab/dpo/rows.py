"""Labeled pairs as rows of tokens, for a policy to give probabilities to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimtab.config.schema import DPOConfig
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec

__all__ = ["TokenPair", "readable"]


class TokenPair(NamedTuple):
    """Prompt and chosen, prompt and rejected response; the first `prompt` tokens of both are the prompt's."""

    prompt: int
    chosen: list[int]
    rejected: list[int]

    @property
    def width(self) -> int:
        """Tokens of the longer row."""
        return max(len(self.chosen), len(self.rejected))

    @property
    def response_tokens(self) -> tuple[int, int]:
        """Tokens of the chosen and of the rejected response."""
        return len(self.chosen) - self.prompt, len(self.rejected) - self.prompt


def readable(
    config: DPOConfig, policy: CausalModel, codec: TextCodec, pairs: Sequence[Pair]
) -> tuple[list[Pair], list[TokenPair]]:
    """The pairs that are not too long, and their rows; a response ends with EOS where it is finished.

    Raises:
        TrimtabError: one is longer than `config.max_tokens` or the model's context and `config.too_long` is "error", or
            all are; or a response has no token.
    """
    limit = min(config.max_tokens, policy.context_length or config.max_tokens)
    rows = [_tokens(codec, pair) for pair in pairs]
    long = [i for i, row in enumerate(rows) if row.width > limit]
    if long and (config.too_long == "error" or len(long) == len(pairs)):
        first, room = pairs[long[0]], limit == config.max_tokens
        rest = f" ({len(long)} of {len(pairs)} pairs are too long, the longest has {max(r.width for r in rows)} tokens)"
        more = "raise dpo.max_tokens (at most the model's context)" if room else "take a model that reads more"
        raise TrimtabError(
            ErrorKind.DATA,
            f"pair {first.id!r}: prompt {first.prompt.id!r} with its response has {rows[long[0]].width} tokens, the "
            f"most is {limit}{rest}",
            f'{more}, shorten the texts, or leave such pairs out: dpo.too_long = "drop"',
        )
    kept = [i for i, row in enumerate(rows) if row.width <= limit]
    return [pairs[i] for i in kept], [rows[i] for i in kept]


def _tokens(codec: TextCodec, pair: Pair) -> TokenPair:
    prompt = codec.prompt_ids(pair.prompt)
    chosen, rejected = (codec.response_ids(r, pair.prompt.id) for r in (pair.chosen, pair.rejected))
    if not chosen or not rejected:
        raise TrimtabError(
            ErrorKind.DATA,
            f"pair {pair.id!r}: the {'rejected' if chosen else 'chosen'} response has no token",
            "leave out empty responses that were cut off: they have no probability",
        )
    return TokenPair(len(prompt), prompt + chosen, prompt + rejected)
