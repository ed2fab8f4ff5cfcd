"""Log-probabilities of a small model, with what several rows begin with read once."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from trimtab.models.loading import load_causal_lm, load_codec
from trimtab.models.tokens import right_pad

__all__ = ["SmallModel"]


class SmallModel:
    """A causal model in bfloat16 (twice as fast as float32 on one thread) behind its chat template."""

    def __init__(self, name: str) -> None:
        self.codec = load_codec(name)
        self._role = load_causal_lm(name, "bfloat16", "cpu", codec=self.codec)
        self._body = self._role.hf.model
        # the keyword has another name in later versions of transformers
        known = inspect.signature(type(self._body).forward).parameters
        self._keyword = "cache" if "cache" in known else "past_key_values"

    @torch.no_grad()
    def _hidden(self, rows: Sequence[list[int]], most: int) -> tuple[int, Tensor]:
        """(length of the beginning that was read once, at most `most`; hidden states [B, L, D] from there on)."""
        common = next((i for i in range(most) if len({row[i] for row in rows}) > 1), most)
        cache = DynamicCache(config=self._role.hf.config)
        if common:
            self._body(torch.tensor([rows[0][:common]]), use_cache=True, **{self._keyword: cache})
            cache.batch_repeat_interleave(len(rows))
        # padding at the end is seen by nothing before it
        ids, _ = right_pad([row[common:] for row in rows], self.codec.pad_id)
        return common, self._body(ids, use_cache=True, **{self._keyword: cache}).last_hidden_state

    @torch.no_grad()
    def sums(self, rows: Sequence[tuple[list[int], list[int]]]) -> list[float]:
        """Log-probability of each (prompt ids, response ids)'s response, summed over its tokens, in nats."""
        # the last token of a prompt predicts the first of the response: it is always left to the second pass
        most = min(len(prompt) for prompt, _ in rows) - 1
        common, hidden = self._hidden([prompt + response for prompt, response in rows], most)
        found = []
        for (prompt, response), states in zip(rows, hidden, strict=True):
            start = len(prompt) - 1 - common
            logits = self._role.lm_logits(states[start : start + len(response)]).float()
            found.append(-float(F.cross_entropy(logits, torch.tensor(response), reduction="sum")))
        return found

    @torch.no_grad()
    def masses(self, rows: Sequence[list[int]], answers: Sequence[Sequence[int]]) -> list[list[float]]:
        """Probability that the next token of each row is one of each answer's tokens."""
        common, hidden = self._hidden(rows, min(map(len, rows)) - 1)
        last = torch.stack([states[len(row) - 1 - common] for states, row in zip(hidden, rows, strict=True)])
        p = F.softmax(self._role.lm_logits(last).float(), -1)
        return [[float(row[list(ids)].sum()) for ids in answers] for row in p]

    def tokens_of(self, *words: str) -> list[int]:
        """Single tokens that spell one of these words, alone or after a blank."""
        texts = [text for word in words for text in (word, f" {word}")]
        spelled = [self.codec.tokenizer(text, add_special_tokens=False).input_ids for text in texts]
        return sorted({ids[0] for ids in spelled if len(ids) == 1})
