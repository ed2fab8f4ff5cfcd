"""Sampling responses: a cached decoding loop over the full softmax.

No top-k, top-p or penalties: a rollout that restricts sampling no longer comes from the distribution whose
log-probabilities are trained on. Every token of the vocabulary can be sampled, the padding token included; which
positions count follows from the lengths alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.backbone import Decoder
from trimtab.models.lean_adapters import lean_adapters
from trimtab.models.roles import CausalModel

__all__ = ["Generated", "check_request", "generate", "sample_tokens", "uniform_draws"]


class Generated(NamedTuple):
    """Responses to a batch of prompts; T is the length of the longest."""

    tokens: Tensor
    """int64 [B, T]; the padding id after a response's end."""
    mask: Tensor
    """bool [B, T]; True up to and including the EOS token."""
    logprobs: Tensor
    """float32 [B, T], nats, at the sampling temperature; 0 after a response's end."""
    finished: Tensor
    """bool [B]; the response ended with an EOS token of its own (False: it was cut off)."""


@torch.no_grad()
def generate(
    model: CausalModel,
    ids: Tensor,
    mask: Tensor,
    *,
    max_new_tokens: int,
    temperature: float,
    eos_ids: Collection[int],
    pad_id: int,
    generator: torch.Generator,
    responses_per_prompt: int = 1,
    part: tuple[int, int] = (0, 1),
) -> Generated:
    """Sample one response for each prompt, or several: the prompt is then read once for all of them.

    The random numbers are drawn before the first token, one for each row and position: what one row samples does not
    depend on when the others end. Call inside `Precision.autocast()` where the model computes in less than float32.

    Args:
        model: the policy.
        ids: int64 [B, S], prompts padded on the left (with K > 1, [B / K, S]).
        mask: bool, of the same shape.
        max_new_tokens: longest response, EOS included; at least 1.
        temperature: > 0.
        eos_ids: tokens that end a response; empty: every response has max_new_tokens.
        pad_id: fills the positions after a response's end.
        generator: the stream of random numbers.
        responses_per_prompt: K; B is then K times the number of prompts, and responses to one prompt stand together.
        part: (i, n): the prompts are part i of n equal parts of a batch, and are sampled for with the random numbers
            that they would have had in it.

    Raises:
        TrimtabError: temperature 0 or less, an empty prompt, or prompt with response longer than the model's context.
    """
    check_request(model, mask, max_new_tokens, temperature)
    draws = uniform_draws(max_new_tokens, ids.shape[0] * responses_per_prompt, generator, part)
    with lean_adapters(model.hf, model.compute_dtype):
        return _decode(model, ids, mask, draws.to(ids.device), temperature, eos_ids, pad_id)


def _decode(
    model: CausalModel,
    ids: Tensor,
    mask: Tensor,
    draws: Tensor,
    temperature: float,
    eos_ids: Collection[int],
    pad_id: int,
) -> Generated:
    """`draws`: float64 [T, B], the random numbers of every position of every response."""
    (max_new_tokens, batch), device = draws.shape, ids.device
    responses_per_prompt = batch // ids.shape[0]
    ends = torch.zeros(model.vocabulary_size, dtype=torch.bool, device=device)
    ends[[i for i in eos_ids if i < model.vocabulary_size]] = True
    tokens = torch.full((max_new_tokens, batch), pad_id, device=device)
    logprobs = torch.zeros(max_new_tokens, batch, device=device)
    lengths = torch.full((batch,), max_new_tokens, device=device)
    finished = torch.zeros(batch, dtype=torch.bool, device=device)
    decoder = Decoder(model.backbone, mask, ids.shape[1] + max_new_tokens)
    # `rows`: which responses the decoder still holds (None: all); `done`: which of those have ended.
    rows: Tensor | None = None
    done = finished.clone()
    hidden = decoder.prefill(ids)
    if responses_per_prompt > 1:
        hidden = hidden.repeat_interleave(responses_per_prompt, 0)
        decoder.repeat(responses_per_prompt)
    for t in range(max_new_tokens):
        token, logprob = sample_tokens(
            model.lm_logits(hidden), draws[t] if rows is None else draws[t, rows], temperature
        )
        token.masked_fill_(done, pad_id)
        logprob.masked_fill_(done, 0.0)
        now = ends[token] & ~done
        done = done | now
        if rows is None:
            tokens[t], logprobs[t] = token, logprob
        else:
            tokens[t, rows], logprobs[t, rows] = token, logprob
        ended = now if rows is None else torch.zeros_like(finished).index_put_((rows,), now)
        lengths.masked_fill_(ended, t + 1)
        finished |= ended
        left = done.numel() - int(done.sum())
        if left == 0 or t + 1 == max_new_tokens:
            break
        # Rows that have ended cost as much as the others: drop them once they are half of the batch.
        if 2 * left <= done.numel():
            going = (~done).nonzero().squeeze(-1)
            if decoder.keep(going):
                rows = going if rows is None else rows[going]
                token, done = token[going], done[going]
        hidden = decoder.step(token)
    width = int(lengths.max())
    keep = torch.arange(width, device=device) < lengths[:, None]
    return Generated(tokens[:width].T.contiguous(), keep, logprobs[:width].T.contiguous(), finished)


def uniform_draws(steps: int, rows: int, generator: torch.Generator, part: tuple[int, int]) -> Tensor:
    """One random number for each token that may be sampled, float64 [steps, rows]: part i of n of a batch's."""
    number, parts = part
    draws = torch.rand(steps, rows * parts, dtype=torch.float64, generator=generator, device=generator.device)
    return draws[:, number * rows : (number + 1) * rows]


def sample_tokens(logits: Tensor, draws: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Inverse-CDF sampling: logits [B, V] and uniform draws float64 [B] -> tokens int64 [B], log-probs float32 [B]."""
    logits = logits.float()
    if temperature != 1.0:
        logits = logits / temperature
    logp = F.log_softmax(logits, dim=-1)
    # float64: a cumulative sum over a large vocabulary would lose the tail in float32.
    cdf = logp.exp().cumsum(-1, dtype=torch.float64)
    # right=True never picks a token of probability 0; the clamp is for a draw that rounds to the very end.
    token = torch.searchsorted(cdf, draws[:, None] * cdf[:, -1:], right=True).clamp_(max=logits.shape[-1] - 1)
    return token.squeeze(-1), logp.gather(-1, token).squeeze(-1)


def check_request(model: CausalModel, mask: Tensor, max_new_tokens: int, temperature: float) -> None:
    """Refuse what nothing can be sampled for: see `generate`."""
    if not temperature > 0:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"temperature = {temperature}: responses are sampled, there is no greedy decoding here",
            "choose a temperature above 0",
        )
    if max_new_tokens < 1:
        raise TrimtabError(ErrorKind.CONFIG, f"max_new_tokens = {max_new_tokens}", "at least 1")
    lengths = mask.sum(-1)
    if int(lengths.min()) == 0:
        raise TrimtabError(
            ErrorKind.DATA,
            f"prompt {int(lengths.argmin())} of the batch has no token",
            "remove empty prompts; see `TextCodec.prompt_ids`",
        )
    context, longest = model.context_length, int(lengths.max())
    if context is not None and longest + max_new_tokens > context:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{longest} prompt tokens with max_new_tokens = {max_new_tokens} exceed the model's context of {context}",
            "shorten the prompt (prompts.max_tokens) or lower max_new_tokens",
        )
