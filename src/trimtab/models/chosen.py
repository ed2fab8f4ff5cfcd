"""Log-probabilities of chosen tokens from hidden states, without all logits in memory at once, forward or backward.

Rows are taken a few at a time: their logits live only until the log-probability, the entropy and what the gradient
needs have been read off them. With p the softmax of a row's logits z = W h / temperature, and y the chosen token,

    d log p(y) / d h = (W[y] - p W) / temperature        d log p(y) / d W = (onehot(y) - p) h^T / temperature

Where the head is frozen, the first is computed with the logits, and the backward pass only multiplies it by the
incoming gradient: no logits are computed twice. Where the head is trained, p is kept if there is little of it; else the
backward pass computes it again, which costs one more multiplication by W. Source of the idea: Wijmans et al., arXiv
2411.09009.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["ChosenLogprobs", "chosen_logprobs"]

CHUNK_LOGITS = 2**23
"""Logits held at once: 32 MiB in float32."""
KEPT_LOGITS = 2**24
"""Most probabilities kept for the backward pass where the head is trained."""


class ChosenLogprobs(NamedTuple):
    """What `chosen_logprobs` returns, both float32 [N], in nats."""

    logprobs: Tensor
    entropy: Tensor | None
    """Without a gradient."""


def chosen_logprobs(
    hidden: Tensor, weight: Tensor, targets: Tensor, temperature: float, *, want_entropy: bool = False
) -> ChosenLogprobs:
    """Log-probabilities of the targets under softmax(hidden weight^T / temperature).

    Args:
        hidden: [N, D].
        weight: [V, D] of the head, in the same dtype; sums over the vocabulary are made in float32.
        targets: int64 [N], in [0, V).
        temperature: > 0.
        want_entropy: also the entropy of each row's distribution.

    Returns:
        `ChosenLogprobs`; gradients flow through `logprobs` to `hidden` and to `weight` where they take any.
    """
    # Inside `forward` gradients are always off: what is wanted has to be told.
    learning = torch.is_grad_enabled()
    apply: Any = _Chosen.apply
    logprobs, entropy = apply(hidden, weight, targets, temperature, want_entropy, learning)
    return ChosenLogprobs(logprobs, entropy if want_entropy else None)


def _chunks(rows: int, vocabulary: int) -> list[slice]:
    size = max(1, CHUNK_LOGITS // vocabulary)
    return [slice(at, min(at + size, rows)) for at in range(0, rows, size)]


class _Chosen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: float,
        want_entropy: bool,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        rows, vocabulary = hidden.shape[0], weight.shape[0]
        logprobs = torch.empty(rows, device=hidden.device)
        entropy = torch.empty(rows if want_entropy else 0, device=hidden.device)
        of_hidden, of_weight = (learning and needed for needed in ctx.needs_input_grad[:2])
        slopes = torch.empty_like(hidden) if of_hidden and not of_weight else None
        few = of_weight and rows * vocabulary <= KEPT_LOGITS
        kept = torch.empty(rows, vocabulary, device=hidden.device) if few else None
        for part in _chunks(rows, vocabulary):
            logits = _logits(hidden[part], weight, temperature)
            # One exponential serves the sum, the entropy and the gradient; less its largest logit no row overflows.
            logits.sub_(logits.amax(-1, keepdim=True))
            chosen = logits.gather(-1, targets[part, None]).squeeze(-1)
            if kept is not None:
                p = torch.exp(logits, out=kept[part])
            else:
                p = logits.exp() if want_entropy else logits.exp_()
            total = p.sum(-1)
            logprobs[part] = chosen - total.log()
            if want_entropy:
                entropy[part] = total.log() - logits.mul_(p).sum(-1) / total
            if kept is not None or slopes is not None:
                p.div_(total[:, None])
            if slopes is not None:
                slopes[part] = (weight[targets[part]] - p.to(weight.dtype) @ weight) / temperature
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropy)
        if of_weight:
            ctx.save_for_backward(hidden, weight, targets, *([] if kept is None else [kept]))
        elif slopes is not None:
            ctx.save_for_backward(slopes)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        of_hidden, of_weight = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        if not of_weight:
            (slopes,) = ctx.saved_tensors
            return slopes * gradient[:, None].to(slopes.dtype), None, None, None, None, None
        hidden, weight, targets, *kept = ctx.saved_tensors
        to_hidden = torch.empty_like(hidden) if of_hidden else None
        to_weight = torch.zeros_like(weight)
        for part in _chunks(hidden.shape[0], weight.shape[0]):
            p = kept[0][part] if kept else _logits(hidden[part], weight, ctx.temperature).softmax(-1)
            # d loss / d logits, before the temperature: gradient (onehot - p)
            slope = p * -gradient[part, None]
            slope.scatter_add_(-1, targets[part, None], gradient[part, None])
            slope = slope.div_(ctx.temperature).to(weight.dtype)
            if to_hidden is not None:
                torch.mm(slope, weight, out=to_hidden[part])
            to_weight.addmm_(slope.T, hidden[part])
        return to_hidden, to_weight, None, None, None, None


def _logits(hidden: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """Float32 logits [n, V], a tensor of their own."""
    logits = (hidden @ weight.T).float()
    return logits if temperature == 1.0 else logits.div_(temperature)
