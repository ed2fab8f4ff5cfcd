"""transformers' own `generate` as an engine: for architectures whose cache the native loop cannot carry."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel

from trimtab.models.engines.protocol import as_generated
from trimtab.models.generation import Generated, check_request, sample_tokens, uniform_draws
from trimtab.models.roles import CausalModel

__all__ = ["TransformersEngine"]


class TransformersEngine:
    """Decodes with transformers' loop and cache, and samples with our random numbers.

    The tokens are chosen in a logits processor from the whole softmax; the loop, which is told to be greedy, then finds
    one token possible at each place. So the responses are those of the native loop, up to rounding, torch's global
    generator is neither read nor moved, no [B, T, V] scores are kept, and a part of a batch gets its own numbers.
    """

    own_weights = False

    @torch.no_grad()
    def generate(
        self,
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
        """As `trimtab.models.generation.generate`; every response reads its prompt anew."""
        check_request(model, mask, max_new_tokens, temperature)
        ids, mask = (x.repeat_interleave(responses_per_prompt, 0) for x in (ids, mask))
        draws = uniform_draws(max_new_tokens, len(ids), generator, part).to(ids.device)
        ends = sorted(i for i in eos_ids if i < model.vocabulary_size)
        chosen = _Chosen(draws, temperature)
        settings = GenerationConfig(
            max_new_tokens=max_new_tokens, do_sample=False, num_beams=1, use_cache=True, disable_compile=True,
            eos_token_id=ends or None, pad_token_id=pad_id,
        )  # fmt: skip
        with _nothing_else(model.hf):
            found = model.hf.generate(
                ids, attention_mask=mask.long(), generation_config=settings, logits_processor=[chosen]
            )
        tokens = found[:, ids.shape[1] :]
        return as_generated(
            tokens.tolist(), torch.stack(chosen.logprobs, 1).tolist(), max_new_tokens=max_new_tokens, eos_ids=ends,
            pad_id=pad_id, device=ids.device,
        )  # fmt: skip

    def sync(self, model: CausalModel) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class _Chosen(LogitsProcessor):  # type: ignore[misc]
    """Leaves one token possible at each place: the one that the random numbers [T, B] choose."""

    def __init__(self, draws: Tensor, temperature: float) -> None:
        self._draws, self._temperature = draws, temperature
        self.logprobs: list[Tensor] = []
        """float32 [B] of each place so far."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        token, logprob = sample_tokens(scores, self._draws[len(self.logprobs)], self._temperature)
        self.logprobs.append(logprob)
        return torch.full_like(scores, -torch.inf).scatter_(1, token[:, None], 0.0)


@contextmanager
def _nothing_else(hf: PreTrainedModel) -> Iterator[None]:
    """Without the model's own generation settings: `generate` takes from them whatever it was not told."""
    own = hf.generation_config
    hf.generation_config = GenerationConfig()
    try:
        yield
    finally:
        hf.generation_config = own
