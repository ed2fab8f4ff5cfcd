"""Log-probabilities of given responses under a causal model."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trimtab.models.chosen import chosen_logprobs
from trimtab.models.roles import CausalModel

__all__ = ["ResponseLogprobs", "hidden_logprobs", "response_logprobs"]


class ResponseLogprobs(NamedTuple):
    """What `response_logprobs` returns; entries on padding are arbitrary (finite) and need masking."""

    logprobs: Tensor
    """float32 [B, T], nats."""
    entropy: Tensor | None
    """float32 [B, T], nats; without a gradient unless one was asked for."""
    logits: Tensor | None
    """float32 [B, T, V], divided by the temperature."""


def response_logprobs(
    model: CausalModel,
    ids: Tensor,
    mask: Tensor,
    prompt_width: int,
    temperature: float,
    *,
    trunk: Tensor | None = None,
    want_entropy: bool | Literal["gradient"] = False,
    want_logits: bool = False,
) -> ResponseLogprobs:
    """Log-probability of every response token given what stands before it, over the full vocabulary.

    Args:
        model: policy or reference.
        ids: int64 [B, L], prompts padded on the left to S tokens, then responses padded on the right to T.
        mask: bool [B, L], True = a real token.
        prompt_width: S; T = L - S is at least 1.
        temperature: > 0; the one that responses are sampled at.
        trunk: the shared layers' output [B, L, D] for these ids, where it is known.
        want_entropy: also the entropy of each position's distribution; "gradient": differentiable.
        want_logits: also all logits (B T V numbers).

    Returns:
        `ResponseLogprobs` over the T response positions; gradients flow through `logprobs` and `logits`.
    """
    hidden = model.hidden(ids, mask, trunk=trunk)[:, prompt_width - 1 : -1]
    return hidden_logprobs(
        model, hidden, ids[:, prompt_width:], temperature, want_entropy=want_entropy, want_logits=want_logits
    )


def hidden_logprobs(
    model: CausalModel,
    hidden: Tensor,
    targets: Tensor,
    temperature: float,
    *,
    want_entropy: bool | Literal["gradient"] = False,
    want_logits: bool = False,
) -> ResponseLogprobs:
    """As `response_logprobs`, from the hidden states that predict the tokens.

    Args:
        model: its head is used.
        hidden: [B, T, D], normalised; position t predicts `targets[:, t]`.
        targets: int64 [B, T].
        temperature: > 0.
        want_entropy: see `response_logprobs`.
        want_logits: see `response_logprobs`.
    """
    flat, wanted = hidden.reshape(-1, hidden.shape[-1]).contiguous(), targets.reshape(-1)
    if not want_logits and want_entropy != "gradient" and (factors := model.head_operands(flat)):
        found = chosen_logprobs(*factors, wanted, temperature, want_entropy=bool(want_entropy))
        logprobs, entropy, logits = found.logprobs, found.entropy, None
    else:
        logits = model.lm_logits(flat).float()
        if temperature != 1.0:
            logits = logits / temperature
        # Fused log-softmax and gather, in float32 whatever autocast says.
        logprobs = -F.cross_entropy(logits, wanted, reduction="none")
        with torch.set_grad_enabled(want_entropy == "gradient" and torch.is_grad_enabled()):
            entropy = _entropy(logits) if want_entropy else None
    shape = targets.shape
    return ResponseLogprobs(
        logprobs.view(shape),
        None if entropy is None else entropy.view(shape),
        logits.view(*shape, -1) if want_logits and logits is not None else None,
    )


def _entropy(logits: Tensor) -> Tensor:
    logp = F.log_softmax(logits, dim=-1)
    return -(logp.exp() * logp).sum(-1)
