"""Heads of a preference model: one for the overall preference and, where labels have them, one for each principle.

All heads read the same hidden state. The score is a weighted mean of them, so the weights of the principles can be
changed without training anything anew.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.heads import OVERALL

__all__ = ["HeadLabels", "HeadWeights", "described", "head_labels", "head_names", "mixed", "named_weights"]

_SIGNALS = {"mean", "std", "min", "max", "shaped_mean", "shaped_std", "disagreement", "preference", "mixture"}
"""What follows `score/` in signals that have a meaning of their own."""

HeadWeights = str | Mapping[str, float]
"""`overall`, `constitution`, or a weight for each head that counts."""


@dataclass(frozen=True)
class HeadLabels:
    """What the heads by principle learn from.

    Args:
        names: of the principles.
        p_chosen: [P, K] P(chosen > rejected) by each, NaN where there is no label.
        weights: [P, K] of the pairs, with mean 1 over all pairs for each principle, 0 where there is no label.
    """

    names: tuple[str, ...]
    p_chosen: Tensor
    weights: Tensor


def head_names(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The principles that some pair has a label by, sorted.

    Raises:
        TrimtabError: there are none, or one has the name of something else.
    """
    names = tuple(sorted({name for pair in pairs for name in pair.principles}))
    if not names:
        raise TrimtabError(
            ErrorKind.DATA,
            f"preference.principle_heads = true, but none of {len(pairs)} pairs has a label by a principle",
            'ask the judges by each principle: label.principles = "each"; or set principle_heads = false',
        )
    taken = sorted({*names} & {OVERALL, *_SIGNALS})
    if taken:
        raise TrimtabError(
            ErrorKind.DATA,
            f"preference.principle_heads: no head can be named {taken[0]!r}",
            "rename the principle; its name stands for something else in signals and results",
        )
    return names


def head_labels(pairs: Sequence[Pair], names: Sequence[str], soft: bool) -> HeadLabels:
    """Labels and weights by principle.

    Args:
        pairs: of the training.
        names: of the principles.
        soft: take the probabilities; else who is better, and of a tie nothing.

    Raises:
        TrimtabError: a principle without a pair that has both a label by it and a weight.
    """
    p = np.array([[pair.principles.get(name, math.nan) for name in names] for pair in pairs]).reshape(-1, len(names))
    if not soft:
        p = np.where(np.isnan(p), p, (np.sign(p - 0.5) + 1) / 2)
    weights = np.where(np.isnan(p), 0.0, np.array([pair.weight for pair in pairs])[:, None])
    means = weights.mean(axis=0)
    for name, mean in zip(names, means, strict=True):
        if not mean > 0:
            raise TrimtabError(
                ErrorKind.DATA,
                f"no training pair with a weight has a label by the principle {name!r}",
                "label more pairs by it, or leave it out of the constitution",
            )
    return HeadLabels(tuple(names), torch.tensor(p).float(), torch.tensor(weights / means).float())


def named_weights(chosen: HeadWeights, names: Sequence[str], constitution: Mapping[str, float]) -> NDArray[np.float64]:
    """[H] weights of the heads `names`, whose absolute values sum to 1.

    Args:
        chosen: `overall`: that head alone; `constitution`: the principles by the constitution's weights (of the ones
            that have a head); or a table of heads.
        names: of all heads, the overall one first.
        constitution: weight of each principle when the model was trained.

    Raises:
        TrimtabError: there is no such head, or all weights are 0.
    """
    if chosen == OVERALL:
        table: Mapping[str, float] = {OVERALL: 1.0}
    elif isinstance(chosen, str):
        table = {name: constitution.get(name, 0.0) for name in names[1:]}
    else:
        table = chosen
    unknown = [name for name in table if name not in names]
    if unknown:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"preference.head_weights names {unknown[0]!r}, and the preference model has the heads {', '.join(names)}",
            "name heads that it has"
            if len(names) > 1
            else "train one for each principle: preference.principle_heads = true",
        )
    weights = np.array([float(table.get(name, 0.0)) for name in names])
    size = float(np.abs(weights).sum())
    if not size > 0:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"preference.head_weights = {chosen if isinstance(chosen, str) else dict(chosen)}: no head has a weight",
            f"give one of {', '.join(names)} a weight",
        )
    return weights / size


def mixed(heads: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted mean [..., B] of heads [..., H, B]; a single head is taken as it is, to the last bit."""
    of = np.flatnonzero(weights)
    if len(of) == 1 and weights[of[0]] == 1:
        return np.asarray(heads[..., of[0], :])
    return np.asarray(np.einsum("h,...hb->...b", weights, heads))


def described(chosen: HeadWeights) -> str:
    """The heads that count, as text; empty for the overall head alone."""
    if isinstance(chosen, str):
        return "" if chosen == OVERALL else "heads by the constitution's weights"
    return "heads " + " ".join(f"{name}={weight:g}" for name, weight in chosen.items())
