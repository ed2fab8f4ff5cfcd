"""What labeled pairs teach: the label and the weight of each, and whether they teach anything at all."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["PairRows", "check_teachable", "pair_targets", "pair_weights"]

PairRows = tuple[list[int], list[int]]
"""Token rows of the chosen and the rejected response, each with the prompt."""


def pair_targets(pairs: Sequence[Pair], soft: bool) -> Tensor:
    """[P] labels P(chosen > rejected) to train on; a hard one says who is better, and of a tie nothing."""
    return torch.tensor([_target(pair, soft) for pair in pairs])


def _target(pair: Pair, soft: bool) -> float:
    if pair.p_chosen is None:
        return 1.0
    return pair.p_chosen if soft else (1.0 if pair.p_chosen > 0.5 else 0.0 if pair.p_chosen < 0.5 else 0.5)


def pair_weights(pairs: Sequence[Pair]) -> Tensor:
    """[P] the pairs' weights with mean 1, so that they change what counts and not the learning rate.

    Raises:
        TrimtabError: all are 0.
    """
    weights = torch.tensor([p.weight for p in pairs])
    if not float(weights.sum()) > 0:
        raise TrimtabError(ErrorKind.DATA, f"all {len(pairs)} training pairs have weight 0", "give some a weight")
    return weights / weights.mean()


def check_teachable(pairs: Sequence[Pair], rows: Sequence[PairRows], *, margins: bool = True) -> None:
    """Refuse training pairs of which none prefers one text to another.

    Args:
        margins: a margin on a tie says something, too.

    Raises:
        TrimtabError: all are ties, or have the same text twice.
    """
    says = [p.p_chosen != 0.5 or (margins and bool(p.margin)) for p in pairs]
    same = sum(chosen == rejected for chosen, rejected in rows)
    if any(say and chosen != rejected for say, (chosen, rejected) in zip(says, rows, strict=True)):
        return
    raise TrimtabError(
        ErrorKind.DATA,
        f"none of {len(pairs)} training pairs prefers one response to another: {len(pairs) - sum(says)} are ties "
        f"(p_chosen = 0.5), {same} have the same tokens as chosen and as rejected",
        "train on pairs whose responses differ and whose labels say which is better",
    )
