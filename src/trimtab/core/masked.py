"""Statistics over the positions that count. Every other formula of the project builds on these."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from trimtab.errors import ErrorKind, TrimtabError

__all__ = [
    "EPSILON",
    "Number",
    "explained_variance",
    "keep",
    "masked_average",
    "masked_mean",
    "masked_sum",
    "masked_var",
    "require_counted",
    "require_prefix",
    "whiten",
]

EPSILON = 1e-8
"""Added to a variance before its root is taken."""

Number = int | float
"""A plain number; spelled out because a run-time type check does not take an int for a float."""


def require_counted(mask: Bool[Tensor, "*shape"]) -> None:
    """Refuse a mask that counts nothing.

    Raises:
        TrimtabError: no position is True.
    """
    if not bool(mask.any()):
        raise TrimtabError(
            ErrorKind.FAILED,
            f"nothing to average: the mask of shape {list(mask.shape)} is False everywhere",
            "at least one response of a batch must have a token",
        )


def require_prefix(mask: Bool[Tensor, "B T"]) -> None:
    """Refuse a mask that is not right-padded: in every row the True positions must be the first ones.

    Raises:
        TrimtabError: a row has a True after a False.
    """
    broken = (mask[:, 1:] & ~mask[:, :-1]).any(dim=1)
    if bool(broken.any()):
        raise TrimtabError(
            ErrorKind.CHECK,
            f"the response mask of row {int(broken.nonzero()[0])} has a gap or left padding",
            "responses are padded on the right: True for the first tokens, False after the last",
        )


def keep(x: Shaped[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """`x` as float32 where the mask is True and 0 elsewhere.

    A selection, not a product: NaN times 0 would be NaN, forwards and in the gradient.
    """
    return torch.where(mask, x.float(), 0.0)


def masked_sum(
    x: Shaped[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], dim: int | None = None
) -> Float[Tensor, "*reduced"]:
    """Sum over the counted positions; over nothing it is 0.

    Args:
        x: any shape and dtype.
        mask: the same shape.
        dim: the dimension to sum over; None = all.
    """
    kept = keep(x, mask)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(
    x: Shaped[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], dim: int | None = None
) -> Float[Tensor, "*reduced"]:
    """Mean over the counted positions.

    Args:
        x: any shape and dtype.
        mask: the same shape.
        dim: the dimension to average over (a row that counts nothing gives 0); None = all.

    Raises:
        TrimtabError: the mask is False everywhere.
    """
    require_counted(mask)
    count = mask.sum() if dim is None else mask.sum(dim).clamp(min=1)
    return masked_sum(x, mask, dim) / count


def masked_average(
    x: Shaped[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], denominator: Number | Tensor | None
) -> Float[Tensor, ""]:
    """Mean over the counted positions, or their sum divided by a given count.

    With the number of counted positions of a whole minibatch as denominator, the results of its micro-batches, however
    unequal, add up to the mean over the minibatch, and so do their gradients. A micro-batch may then count nothing.

    Args:
        x: any shape and dtype.
        mask: the same shape.
        denominator: a positive count; None = the count of this mask.

    Raises:
        TrimtabError: the mask is False everywhere and there is no denominator, or the denominator is not positive.
    """
    if denominator is None:
        return masked_mean(x, mask)
    if not bool(denominator > 0):
        raise TrimtabError(ErrorKind.FAILED, f"a loss cannot be divided by {denominator}", "the count must be positive")
    return masked_sum(x, mask) / denominator


def masked_var(
    x: Shaped[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], dim: int | None = None
) -> Float[Tensor, "*reduced"]:
    """Population variance (ddof 0) over the counted positions, in two passes.

    Args:
        x: any shape and dtype.
        mask: the same shape.
        dim: the dimension to reduce (a row that counts nothing gives 0); None = all.

    Raises:
        TrimtabError: the mask is False everywhere.
    """
    mean = masked_mean(x, mask, dim)
    centred = keep(x, mask) - (mean if dim is None else mean.unsqueeze(dim))
    return masked_mean(centred.square(), mask, dim)


def whiten(
    x: Shaped[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], shift_mean: bool = True
) -> Float[Tensor, "*shape"]:
    """Scale to variance 1 over the counted positions: (x - mean) / sqrt(var + 1e-8).

    Args:
        x: any shape and dtype.
        mask: the same shape.
        shift_mean: True: the result has mean 0 (advantages); False: it keeps the mean of `x` (rewards, where moving the
            mean would change which behaviour pays).

    Returns:
        float32, 0 where the mask is False.

    Raises:
        TrimtabError: the mask is False everywhere.
    """
    mean = masked_mean(x, mask)
    scaled = (keep(x, mask) - mean) * torch.rsqrt(masked_var(x, mask) + EPSILON)
    return keep(scaled if shift_mean else scaled + mean, mask)


def explained_variance(
    values: Float[Tensor, "*shape"], returns: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]
) -> Float[Tensor, ""]:
    """Share of the returns' variance that the values account for: 1 - Var(G - V) / Var(G).

    1 = perfect; 0 = no better than a constant; below 0 = worse than one.

    Returns:
        A scalar; NaN where the returns do not vary (to within float32), because the share is then undefined.

    Raises:
        TrimtabError: the mask is False everywhere.
    """
    target = keep(returns.detach(), mask)
    total = masked_var(target, mask)
    unexplained = masked_var(target - keep(values.detach(), mask), mask)
    rounding = 1e-12 * masked_mean(target.square(), mask)
    return torch.where(total > rounding, 1 - unexplained / total, torch.nan)
