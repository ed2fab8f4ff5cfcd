"""Log-probabilities of given responses under a causal model."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trimtab.models.roles import CausalModel

__all__ = ["ResponseLogprobs", "hidden_logprobs", "response_logprobs"]

# Logits held at once where no gradient is wanted: 2**26 float32 numbers are 256 MiB.
_CHUNK_LOGITS = 2**26


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
    batch, width = targets.shape
    flat, wanted = hidden.reshape(batch * width, -1), targets.reshape(-1)
    rows = flat.shape[0]
    if not want_logits and not torch.is_grad_enabled():
        rows = max(1, min(rows, _CHUNK_LOGITS // model.vocabulary_size))
    pieces = [
        _piece(model, flat[at : at + rows], wanted[at : at + rows], temperature, want_entropy)
        for at in range(0, max(flat.shape[0], 1), max(rows, 1))
    ]
    logprobs = torch.cat([p[0] for p in pieces]).view(batch, width)
    entropy = torch.cat([p[1] for p in pieces if p[1] is not None]).view(batch, width) if want_entropy else None
    logits = pieces[0][2].view(batch, width, -1) if want_logits else None
    return ResponseLogprobs(logprobs, entropy, logits)


def _piece(
    model: CausalModel, hidden: Tensor, targets: Tensor, temperature: float, want_entropy: bool | Literal["gradient"]
) -> tuple[Tensor, Tensor | None, Tensor]:
    logits = model.lm_logits(hidden).float()
    if temperature != 1.0:
        logits = logits / temperature
    # Fused log-softmax and gather, in float32 whatever autocast says.
    logprobs = -F.cross_entropy(logits, targets, reduction="none")
    if not want_entropy:
        return logprobs, None, logits
    with torch.set_grad_enabled(want_entropy == "gradient" and torch.is_grad_enabled()):
        return logprobs, _entropy(logits), logits


def _entropy(logits: Tensor) -> Tensor:
    logp = F.log_softmax(logits, dim=-1)
    return -(logp.exp() * logp).sum(-1)
