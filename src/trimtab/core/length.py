"""Losses that keep what a score says of a response apart from how long it is: one head for quality, one for length."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from trimtab.core.masked import Number
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["length_head_loss", "pearson"]

_TINY = 1e-12
"""Added under the root: a constant has correlation 0 with everything, and the gradient stays finite."""


def pearson(x: Float[Tensor, " B"], y: Float[Tensor, " B"]) -> Float[Tensor, ""]:
    """Pearson correlation over a batch, in [-1, 1]; differentiable, and 0 where either side does not vary.

    Args:
        x: [B].
        y: [B].

    Raises:
        TrimtabError: fewer than two values.
    """
    if x.numel() < 2:
        raise TrimtabError(ErrorKind.FAILED, f"a correlation of {x.numel()} values", "give two values or more")
    a, b = x.float() - x.float().mean(), y.float() - y.float().mean()
    scale = (a.square().sum() * b.square().sum() + _TINY).sqrt()
    return (a * b).sum() / scale


def length_head_loss(
    quality: Float[Tensor, " B"],
    length: Float[Tensor, " B"],
    tokens: Float[Tensor, " B"],
    quality_weights: Float[Tensor, " D"],
    length_weights: Float[Tensor, " D"],
    length_coef: Number = 1.0,
    orthogonal_coef: Number = 1.0,
) -> Float[Tensor, ""]:
    """length_coef (|r(quality, tokens)| - r(length, tokens)) + orthogonal_coef |cos(quality_weights, length_weights)|.

    Added to the Bradley-Terry loss of the *sum* of both heads, it moves what length explains of the labels into the
    length head. r is the Pearson correlation over the responses of the batch. Source: Chen et al., arXiv 2402.07319
    (ODIN); there the product of normalised weights stands for the cosine.

    Args:
        quality: [B] scores of the quality head, of the chosen and the rejected responses.
        length: [B] scores of the length head of the same responses.
        tokens: [B] tokens of the responses.
        quality_weights: [D] of the linear head.
        length_weights: [D] of the other.
        length_coef: at least 0.
        orthogonal_coef: at least 0.

    Returns:
        Scalar, from -length_coef to length_coef + orthogonal_coef.

    Raises:
        TrimtabError: fewer than two responses.
    """
    q, w = quality_weights.float(), length_weights.float()
    cosine = (q * w).sum() / (q.square().sum() * w.square().sum() + _TINY).sqrt()
    apart = pearson(quality, tokens).abs() - pearson(length, tokens)
    return length_coef * apart + orthogonal_coef * cosine.abs()
