"""Labeled pairs as rows of tokens: which of them a preference model can read, and whether they teach it anything."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.config.schema import PreferenceConfig
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import ScoreCodec, Start

__all__ = ["PairRows", "check_teachable", "readable", "row_limit"]

PairRows = tuple[list[int], list[int]]
"""Rows of the chosen and the rejected response, each with the prompt."""


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


def check_teachable(pairs: Sequence[Pair], rows: Sequence[PairRows]) -> None:
    """Refuse training pairs of which none prefers one text to another.

    Raises:
        TrimtabError: all are ties without a margin, or have the same text twice.
    """
    says = [p.p_chosen != 0.5 or bool(p.margin) for p in pairs]
    same = sum(chosen == rejected for chosen, rejected in rows)
    if any(say and chosen != rejected for say, (chosen, rejected) in zip(says, rows, strict=True)):
        return
    raise TrimtabError(
        ErrorKind.DATA,
        f"none of {len(pairs)} training pairs prefers one response to another: {len(pairs) - sum(says)} are ties "
        f"(p_chosen = 0.5), {same} have the same tokens as chosen and as rejected",
        "train on pairs whose responses differ and whose labels say which is better",
    )
