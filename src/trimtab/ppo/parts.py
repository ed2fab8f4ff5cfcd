"""Sampling a few responses at a time where not all fit into memory: the same random numbers for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from trimtab.models.generation import Generated
from trimtab.training.memory import RowLimit

__all__ = ["joined", "sample_in_parts", "size_of_parts"]


def size_of_parts(prompts: int, k: int, rows: int) -> tuple[int, int]:
    """Prompts and responses to each in a part of at most `rows` responses: equal parts of `prompts` times `k`.

    Whole prompts as long as one fits, which then is read once; else a part of one prompt's responses.
    """
    fit = [n for n in range(1, prompts + 1) if prompts % n == 0 and n * k <= rows]
    if fit:
        return fit[-1], k
    return 1, max(n for n in range(1, k + 1) if k % n == 0 and n <= max(rows, 1))


def sample_in_parts(
    sample: Callable[[Tensor, Tensor, int, tuple[int, int]], Generated],
    ids: Tensor,
    mask: Tensor,
    k: int,
    part: tuple[int, int],
    generator: torch.Generator,
    pad_id: int,
    limit: RowLimit,
) -> Generated:
    """Sample k responses to each prompt, as many at once as `limit` allows.

    Args:
        sample: from ids and mask [n, S], responses a prompt, and the part (i, n) of a batch that these are, by random
            numbers from `generator`, of which it draws those of the whole batch.
        ids: int64 [P, S].
        mask: bool [P, S].
        part: which part of a batch these prompts are.
        generator: is left as one call leaves it.
        pad_id: fills what follows the shorter parts.
    """
    state = generator.get_state()

    def work(rows: int) -> Generated:
        prompts, each = size_of_parts(len(ids), k, rows)
        count, of_prompt = len(ids) * k // (prompts * each), k // each
        found = []
        for number in range(count):
            generator.set_state(state)
            at = slice(number // of_prompt * prompts, (number // of_prompt + 1) * prompts)
            found.append(sample(ids[at], mask[at], each, (part[0] * count + number, part[1] * count)))
        return joined(found, pad_id)

    return limit.run(work, len(ids) * k)


def joined(parts: Sequence[Generated], pad_id: int) -> Generated:
    """Responses of several calls, one after another."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.tokens.shape[1] for part in parts)

    def together(tensors: Sequence[Tensor], value: float) -> Tensor:
        return torch.cat([F.pad(x, (0, width - x.shape[1]), value=value) for x in tensors])

    return Generated(
        together([part.tokens for part in parts], pad_id),
        together([part.mask for part in parts], False),
        together([part.logprobs for part in parts], 0.0),
        torch.cat([part.finished for part in parts]),
    )
