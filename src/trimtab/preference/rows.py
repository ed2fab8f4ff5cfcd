"""Labeled pairs as rows of tokens: which of them a preference model can read."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.config.schema import PreferenceConfig
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import ScoreCodec, Start
from trimtab.training.targets import PairRows

__all__ = ["readable", "row_limit"]


def row_limit(config: PreferenceConfig, base: Start) -> int:
    """Most tokens of a row: `preference.max_tokens`, at most the model's context."""
    return min(config.max_tokens, base.context_length or config.max_tokens)


def readable(
    config: PreferenceConfig, base: Start, codec: ScoreCodec, pairs: Sequence[Pair]
) -> tuple[list[Pair], list[PairRows]]:
    """The pairs that are no longer than `row_limit`, and their rows.

    Raises:
        TrimtabError: one is longer and `preference.too_long` is "error", or all are.
    """
    limit = row_limit(config, base)
    rows = [(codec.pair_ids(p.prompt, p.chosen), codec.pair_ids(p.prompt, p.rejected)) for p in pairs]
    lengths = [max(len(chosen), len(rejected)) for chosen, rejected in rows]
    long = [i for i, length in enumerate(lengths) if length > limit]
    if long and (config.too_long == "error" or len(long) == len(pairs)):
        first, room = pairs[long[0]], base.context_length is None or limit < base.context_length
        rest = f" ({len(long)} of {len(pairs)} pairs are too long, the longest has {max(lengths)} tokens)"
        more = "raise preference.max_tokens (at most the model's context)" if room else "take a model that reads more"
        raise TrimtabError(
            ErrorKind.DATA,
            f"pair {first.id!r}: prompt {first.prompt.id!r} with its response has {lengths[long[0]]} tokens; the "
            f"preference model reads {limit}{rest}",
            f'{more}, shorten the texts, or leave such pairs out: preference.too_long = "drop"',
        )
    kept = [i for i, length in enumerate(lengths) if length <= limit]
    return [pairs[i] for i in kept], [rows[i] for i in kept]
