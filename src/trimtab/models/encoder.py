"""Encoders as preference models, and the codec of their pairs of texts; `trimtab.models.starts` loads them.

A BERT-like encoder is transformers' sequence classifier with one label: pooled as that architecture pools, its dense
layers and its last linear layer, the head. Text goes in as the encoder's tokenizer takes a pair (prompt, response).
`ScalarModel` and `EncoderScalar` have in common what preference training and scoring use.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.heads import first_head
from trimtab.models.narration import without_bars
from trimtab.models.roles import CausalModel, Role, ScalarModel, disable_dropout
from trimtab.models.tokens import TextCodec, check_text
from trimtab.models.writing import writing_weights

__all__ = [
    "EncoderScalar",
    "PairCodec",
    "ScoreCodec",
    "ScoreModel",
    "Start",
]

_PROBE_TOKENS = 6


class PairCodec:
    """The tokenizer of an encoder: prompt and response as a pair of texts, with the special tokens it puts around them.

    A prompt of several messages is one `role: content` line a message. An encoder has no token for the end of a
    response: whether it was cut off is not seen. Before an empty response transformers puts no separator.

    A row's numbers are `segment * vocabulary_size + token id`, where the segment is the tokenizer's token type (0 for
    the prompt, 1 for the response, where it tells them apart): which tokens belong to which text cannot be read off the
    ids of texts that spell out a separator.

    Args:
        tokenizer: a transformers tokenizer.
        vocabulary_size: rows of the model's embedding.

    Raises:
        TrimtabError: the embedding lacks a row, or there is no padding token.
    """

    chat = False

    def __init__(self, tokenizer: Any, vocabulary_size: int) -> None:
        self.tokenizer, self.vocabulary_size = tokenizer, vocabulary_size
        name = tokenizer.name_or_path or type(tokenizer).__name__
        largest = max(tokenizer.get_vocab().values())
        if largest >= vocabulary_size:
            raise TrimtabError(
                ErrorKind.MODEL,
                f"tokenizer and model do not fit: {name} has token ids up to {largest}, the model has "
                f"{vocabulary_size} embedding rows",
                "take both from one directory, or resize the model's embedding",
            )
        if tokenizer.pad_token_id is None:
            raise TrimtabError(
                ErrorKind.MODEL, f"the tokenizer {name} has no padding token", "set pad_token in tokenizer_config.json"
            )
        self.pad_id = int(tokenizer.pad_token_id)

    def pair_ids(self, prompt: Prompt, response: Response) -> list[int]:
        """The row of a prompt with a response; see the class.

        Raises:
            TrimtabError: a text holds half a character.
        """
        for message in prompt.messages:
            check_text(message.content, f'prompt "{prompt.id}"')
        check_text(response.text, f'the response to prompt "{prompt.id}"')
        read = self.tokenizer(prompt.text, response.text, truncation=False, verbose=False)
        segments = read.get("token_type_ids") or [0] * len(read["input_ids"])
        return [s * self.vocabulary_size + i for s, i in zip(segments, read["input_ids"], strict=True)]

    def pair_text(self, prompt: Prompt, response: Response) -> dict[str, str]:
        """What a text-classification pipeline of plain transformers takes for the same row."""
        return {"text": prompt.text, "text_pair": response.text}

    def save(self, directory: Path | str) -> None:
        """Write the tokenizer beside a model."""
        with writing_weights(directory):
            self.tokenizer.save_pretrained(str(directory))


class EncoderScalar(nn.Module):
    """A preference model on an encoder: one number for a whole text. Shares nothing with other models.

    Dropout is off for good, as in `Role`.

    Args:
        hf: a transformers sequence classifier with one label that pools a text into one vector.
        compute_dtype: what forward and backward passes compute in; default: the dtype of the weights.
        fresh: its head has not been trained, and may be drawn anew.
        probe: measure that it is what it should be.

    Raises:
        TrimtabError: it gives no single vector for a text, or padding changes what it gives.
    """

    hf: PreTrainedModel
    boundary = 0
    """Layers shared with other models: never any."""

    def __init__(
        self,
        hf: PreTrainedModel,
        *,
        compute_dtype: torch.dtype | None = None,
        fresh: bool = False,
        probe: bool = True,
    ) -> None:
        super().__init__()
        self.hf, self.fresh = hf, fresh
        self.compute_dtype = compute_dtype or hf.dtype
        disable_dropout(hf)
        self.linear = _head(hf)
        """The layer whose rows are the heads; see `trimtab.models.heads`."""
        self._takes_segments = "token_type_ids" in inspect.signature(hf.forward).parameters
        if probe:
            self._probe()

    def train(self, mode: bool = True) -> Self:
        """Does nothing but keep the evaluation mode: a score must be the same each time it is asked for."""
        return super().train(False)

    @property
    def device(self) -> torch.device:
        return cast(torch.device, next(self.hf.parameters()).device)

    @property
    def context_length(self) -> int | None:
        """Longest pair in tokens, special ones included; None where nothing says."""
        config: Any = self.hf.config.get_text_config()
        for name, module in self.hf.named_modules():
            # RoBERTa and its kin count positions from the padding index on.
            if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
                return int(cast(Any, module).num_embeddings - cast(Any, module).padding_idx - 1)
        length = getattr(config, "max_position_embeddings", None)
        return int(length) if length else None

    @property
    def vocabulary_size(self) -> int:
        return int(self.hf.config.get_text_config().vocab_size)

    @property
    def layer_count(self) -> int:
        return int(self.hf.config.get_text_config().num_hidden_layers)

    def features(self, ids: Tensor, mask: Tensor, *, trunk: Tensor | None = None) -> Tensor:
        """What the head reads: rows of a `PairCodec` int64 [B, L], mask bool [B, L] -> [B, D]. `trunk`: there is none.

        Raises:
            TrimtabError: the head is handed something else than one vector a row.
        """
        kept: list[Tensor] = []

        def keep(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor]:
            kept.append(inputs[0])
            return (inputs[0].to(cast(nn.Linear, module).weight.dtype),)

        size = self.vocabulary_size
        inputs = {"input_ids": ids % size, "attention_mask": mask.long()}
        if self._takes_segments:
            inputs["token_type_ids"] = ids // size
        handle = self.linear.register_forward_pre_hook(keep)
        try:
            self.hf(**inputs)
        finally:
            handle.remove()
        if len(kept) != 1 or kept[0].shape[:-1] != ids.shape[:1]:
            raise self._refused("its head does not read one vector for a whole text")
        return kept[0]

    def scalars(self, features: Tensor) -> Tensor:
        """The (first) head alone, in float32: [B, D] -> [B]."""
        return first_head(self.linear, features)

    def score(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Rows of a `PairCodec` int64 [B, L], mask bool [B, L] -> float32 [B]."""
        return self.scalars(self.features(ids, mask))

    forward = score

    def draw_head(self, std: float, generator: torch.Generator | None = None) -> None:
        """Draw the head's weights anew with this standard deviation (0: all scores are 0); its bias becomes 0."""
        with torch.no_grad():
            self.linear.weight.copy_(torch.randn(self.linear.weight.shape, generator=generator) * std)
            if self.linear.bias is not None:
                self.linear.bias.zero_()

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Parameters that take a gradient, each once."""
        return [p for p in self.parameters() if p.requires_grad]

    def own_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters, named as in the transformers model."""
        return cast("Iterator[tuple[str, nn.Parameter]]", self.hf.named_parameters())

    def own_state(self) -> dict[str, Tensor]:
        """All weights by name, detached."""
        return {name: p.detach() for name, p in self.own_parameters()}

    def load_own_state(self, state: Mapping[str, Tensor]) -> None:
        """Copy weights saved from `own_state` back in place.

        Raises:
            TrimtabError: names or shapes differ.
        """
        Role.load_own_state(cast(Role, self), state)

    def fork(self, trainable: bool) -> Self:
        """A copy that shares nothing; `trainable`: in float32 and taking gradients, else frozen, in `compute_dtype`."""
        copied = type(self)(copy.deepcopy(self.hf), compute_dtype=self.compute_dtype, fresh=self.fresh, probe=False)
        for parameter in copied.hf.parameters():
            parameter.data = parameter.data.to(torch.float32 if trainable else self.compute_dtype)
            parameter.requires_grad_(trainable)
        return copied

    def save_pretrained(self, directory: Path | str, *, pad_id: int, dtype: torch.dtype | None = None) -> None:
        """Write a directory that plain transformers loads (safetensors and config.json).

        Args:
            directory: where to; made if need be.
            pad_id: written to the configuration.
            dtype: of the file; default: that of the weights.

        Raises:
            TrimtabError: the disk is full, or the directory cannot be written to.
        """
        config = self.hf.config
        config.pad_token_id = pad_id
        dtype = dtype or next(self.hf.parameters()).dtype
        state = {n: t.to(dtype) if t.is_floating_point() else t for n, t in self.hf.state_dict().items()}
        with writing_weights(directory):
            with without_bars():
                self.hf.save_pretrained(str(directory), state_dict=state)
            config.dtype = dtype
            config.save_pretrained(str(directory))

    @torch.no_grad()
    def _probe(self) -> None:
        size, pad = self.vocabulary_size, self.hf.config.pad_token_id or 0
        tokens = [i for i in range(min(size, _PROBE_TOKENS + 4)) if i != pad][-_PROBE_TOKENS:]
        ids = torch.tensor([[*tokens, pad, pad]], device=self.device)
        mask = torch.ones_like(ids, dtype=torch.bool)
        mask[:, -2:] = False
        alone, padded = self.features(ids[:, :-2], mask[:, :-2]), self.features(ids, mask)
        scale = 1e-3 if self.hf.dtype == torch.float32 else 5e-2
        if not (alone - padded).abs().max() <= scale * alone.abs().max():
            raise self._refused("what it gives for a text depends on the padding behind it")

    def _refused(self, why: str) -> TrimtabError:
        return TrimtabError(
            ErrorKind.MODEL,
            f"{type(self.hf).__name__} cannot be a preference model: {why}",
            "name a causal language model, or an encoder such as BERT, RoBERTa, DeBERTa, MiniLM or ModernBERT",
        )


ScoreModel = ScalarModel | EncoderScalar
"""What gives a score."""
ScoreCodec = TextCodec | PairCodec
"""And what makes its rows."""
Start = CausalModel | ScalarModel | EncoderScalar
"""What the training of a preference model can start from; it is not changed."""


def _head(hf: PreTrainedModel) -> nn.Linear:
    """The last linear layer, which gives the one number."""
    inside = set(hf.base_model.modules()) if hf.base_model is not hf else set()
    heads = hf.config.num_labels
    found = [m for m in hf.modules() if isinstance(m, nn.Linear) and m.out_features == heads and m not in inside]
    if not found:
        raise TrimtabError(
            ErrorKind.MODEL,
            f"{type(hf).__name__} has no linear layer that gives one number",
            "name an encoder such as BERT, RoBERTa, DeBERTa, MiniLM or ModernBERT",
        )
    return found[-1]
