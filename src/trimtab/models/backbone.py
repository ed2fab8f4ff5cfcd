"""The decoder body under a role: run whole, split at a layer boundary, or one token at a time with a cache.

Llama-like models (token embedding, a list of layers, a final norm, rotary positions, full causal attention) are run
layer by layer, which is what makes a shared trunk possible and keeps the decoding loop lean. Every other causal model
is run through its own `forward` and cannot be split. Which of the two holds is measured, not guessed from a name: a
few tokens go through both ways when a model is first wrapped, and must come out equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache, PreTrainedModel
from transformers.masking_utils import create_causal_mask

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.last_layer import last_layer

__all__ = ["Backbone", "Decoder", "positions_of"]

_PROBE_TOKENS = 6

MASK_ELEMENTS = 2**26
"""Largest attention mask [B, L, L] that is made for padding. Beyond it every row is run alone, without its padding, and
prompts are read in pieces: a padded pair of 32k tokens would have a mask of 2 GiB, and kernels copy it as floats."""


def positions_of(mask: Tensor) -> Tensor:
    """Position ids of a padded batch: `cumsum(mask) - 1`, at least 0, so that padding on the left shifts nothing.

    Args:
        mask: bool [B, L], True = a real token.

    Returns:
        int64 [B, L].
    """
    return (mask.long().cumsum(-1) - 1).clamp_(min=0)


class Backbone:
    """The body of one causal model (a view of its modules; it owns nothing).

    `splittable` is None for a model that can be run layer by layer, else the reason why it cannot.
    """

    def __init__(self, hf: PreTrainedModel) -> None:
        # `Any`: the parts below are found by name; `_missing_part` says which of them are there.
        self.body: Any = hf.base_model
        self.config = hf.config
        self.splittable: str | None = self._missing_part()
        self.recompute = False
        """Keep of each layer what it reads alone, and compute the rest again in the backward pass. Source: Chen et al.,
        arXiv 1604.06174."""

    def _missing_part(self) -> str | None:
        parts = {"embed_tokens": nn.Embedding, "layers": nn.ModuleList, "norm": nn.Module, "rotary_emb": nn.Module}
        for name, kind in parts.items():
            if not isinstance(getattr(self.body, name, None), kind):
                return f"its body has no `{name}`"
        kinds = set(getattr(self.config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            return f"its layers differ in kind ({', '.join(sorted(kinds))})"
        if getattr(self.config, "sliding_window", None) and getattr(self.config, "use_sliding_window", True):
            return "its attention is a sliding window"
        return None

    @property
    def layer_count(self) -> int:
        return int(self.config.get_text_config().num_hidden_layers)

    @property
    def embedding(self) -> nn.Module:
        return cast(nn.Module, self.body.get_input_embeddings())

    def shared_modules(self, boundary: int) -> list[nn.Module]:
        """Embedding, rotary table and the first `boundary` layers; nothing for boundary 0."""
        if boundary == 0:
            return []
        return [self.body.embed_tokens, self.body.rotary_emb, *self.body.layers[:boundary]]

    def embed(self, ids: Tensor) -> Tensor:
        """Token embeddings [B, L, D], in autocast's dtype where autocast is on.

        Without the cast a float32 embedding (a trained role) would carry a float32 residual stream and a bfloat16 one
        (a frozen role) a bfloat16 stream: two roles with equal weights would differ.
        """
        hidden = self.embedding(ids)
        kind = hidden.device.type
        return cast(Tensor, hidden.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else hidden)

    def layers(self, hidden: Tensor, mask: Tensor, positions: Tensor, first: int, last: int) -> Tensor:
        """Layers `first` to `last - 1` over a whole sequence; [B, L, D] -> [B, L, D]."""
        if first >= last:
            return hidden
        if self.rows_alone(mask):
            return self._by_row(hidden, mask, positions, first, last)
        attention, rotary = self.context(hidden, mask, positions)
        again = self.recompute and torch.is_grad_enabled()
        for layer in self.body.layers[first:last]:
            run = partial(checkpoint, layer, use_reentrant=False, preserve_rng_state=False) if again else layer
            hidden = run(
                _fit(hidden, layer), attention_mask=attention, position_embeddings=rotary, position_ids=positions
            )
        return hidden

    def rows_alone(self, mask: Tensor) -> bool:
        """Whether the mask [B, L, L] that padded rows need would be too large: see `MASK_ELEMENTS`."""
        if mask.ndim == 3 or self.config._attn_implementation != "sdpa":
            return False
        return mask.numel() * mask.shape[1] > MASK_ELEMENTS and not bool(mask.all())

    def _by_row(self, hidden: Tensor, mask: Tensor, positions: Tensor, first: int, last: int) -> Tensor:
        """As `layers`, a row at a time: without padding attention is causal, and needs no mask. Padding gives 0."""
        found = []
        for row, seen in enumerate(mask):
            at = seen.nonzero()
            start, end = (int(at[0]), int(at[-1]) + 1) if len(at) else (0, 0)
            if end - start != len(at):
                raise ValueError(f"row {row} has padding inside it")
            part = (slice(row, row + 1), slice(start, end))
            inner = self.layers(hidden[part], mask[part], positions[part], first, last) if end else hidden[part]
            found.append(F.pad(inner, (0, 0, start, mask.shape[1] - end)))
        return torch.cat(found)

    @property
    def takes_pairwise_mask(self) -> bool:
        """Whether `layers` and what is built on it take a mask [B, L, L]."""
        return self.splittable is None and self.config._attn_implementation in ("sdpa", "eager")

    def context(self, hidden: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor | None, tuple[Tensor, Tensor]]:
        """What every layer is handed: the attention mask in the model's own form, and cosines and sines.

        `mask`: bool [B, L], real tokens; or, where `takes_pairwise_mask`, bool [B, L, L]: who (dim 1) sees whom.
        """
        rotary = self.body.rotary_emb(hidden, position_ids=positions)
        if mask.ndim == 3:
            return self.own_form(mask[:, None], hidden.dtype), rotary
        attention = create_causal_mask(
            config=self.config, inputs_embeds=hidden, attention_mask=mask, cache=None, position_ids=positions
        )
        return cast("Tensor | None", attention), rotary

    def own_form(self, visible: Tensor, dtype: torch.dtype) -> Tensor:
        """bool [B, 1, S, L], True = seen, as sdpa wants it; for eager attention what is to be added to its logits."""
        if self.config._attn_implementation == "sdpa":
            return visible
        return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)

    def norm(self, hidden: Tensor) -> Tensor:
        return cast(Tensor, self.body.norm(_fit(hidden, self.body.norm)))

    def states(self, hidden: Tensor, mask: Tensor, positions: Tensor, first: int, at: Tensor) -> Tensor:
        """The layers from `first` on and the norm, at some tokens; the others' part in the last layer is not computed.

        Args:
            hidden: [B, L, D] what layer `first` reads.
            mask: bool [B, L], or [B, L, L] as for `context`.
            positions: int64 [B, L].
            first: the number of layers, where `hidden` has been through all of them.
            at: int64 [B, n] columns of the tokens.

        Returns:
            [B, n, D].
        """
        row = torch.arange(len(at), device=at.device)[:, None]
        last = self.layer_count - 1
        if first > last or not self.takes_pairwise_mask:
            return self.norm(self.layers(hidden, mask, positions, first, last + 1))[row, at]
        layer = self.body.layers[last]
        hidden = _fit(self.layers(hidden, mask, positions, first, last), layer)
        if mask.ndim == 3:
            seen = mask[row, at]
        else:
            seen = mask[:, None] & (torch.arange(mask.shape[1], device=mask.device) <= at[:, :, None])
        rotary = self.body.rotary_emb(hidden, position_ids=positions)
        found = last_layer(layer, hidden, self.own_form(seen[:, None], hidden.dtype), rotary, positions, at)
        if found is None:
            found = self.layers(hidden, mask, positions, last, last + 1)[row, at]
        return self.norm(found)

    def whole(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """The body from token ids to the normalised hidden state, [B, L] -> [B, L, D]."""
        if self.splittable is not None:
            return self.plain(mask, positions, input_ids=ids)
        return self.norm(self.layers(self.embed(ids), mask, positions, 0, self.layer_count))

    def plain(self, mask: Tensor, positions: Tensor, **inputs: Tensor) -> Tensor:
        """The model's own forward, given `input_ids` or `inputs_embeds`."""
        out = self.body(attention_mask=mask, position_ids=positions, use_cache=False, **inputs)
        return cast(Tensor, out.last_hidden_state)

    @torch.no_grad()
    def probe(self) -> None:
        """Measure what the rest relies on: causal attention, and equal results layer by layer.

        Raises:
            TrimtabError: a later token changes an earlier hidden state (an encoder), or there are no hidden states.
        """
        weights = next(self.body.parameters())
        size = int(self.config.get_text_config().vocab_size)
        row = (torch.arange(_PROBE_TOKENS, device=weights.device) * 7 + 3) % size
        ids = torch.stack([row, row, row])
        ids[1, -1] = (row[-1] + 1) % size
        mask = torch.ones_like(ids, dtype=torch.bool)
        mask[2, :2] = False
        positions = positions_of(mask)
        try:
            own = self.plain(mask, positions, input_ids=ids)
        except AttributeError as error:
            raise TrimtabError(
                ErrorKind.MODEL,
                f"{type(self.body).__name__} gives no hidden states: {error}",
                "name a model of another architecture",
            ) from error
        scale = 1e-3 if weights.dtype == torch.float32 else 5e-2
        gap = (own[0, :-1] - own[1, :-1]).abs().max()
        if not gap <= scale * own.abs().max():
            raise TrimtabError(
                ErrorKind.MODEL,
                f"{type(self.body).__name__} is no causal language model: a later token changes what stands before it",
                "name a decoder-only model (one that AutoModelForCausalLM generates with), not an encoder",
            )
        if self.splittable is None:
            split = self.norm(self.layers(self.embed(ids), mask, positions, 0, self.layer_count))
            if not torch.equal(split[mask], own[mask]):
                self.splittable = "run layer by layer it gives other hidden states than as a whole"


def _fit(hidden: Tensor, module: nn.Module) -> Tensor:
    """Outside autocast, a float32 top on a bfloat16 trunk: continue in the top's dtype."""
    if torch.is_autocast_enabled(hidden.device.type):
        return hidden
    return hidden.to(next(module.parameters()).dtype)


class _Cache:
    """Keys and values of the layers in buffers of their final size.

    Implements the one method that attention modules call. `length` is advanced by the decoder, after all layers.
    """

    def __init__(self, layer_count: int, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self.buffers: list[tuple[Tensor, Tensor] | None] = [None] * layer_count

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        held = self.buffers[layer_idx]
        if held is None:
            batch, heads, _width, dim = keys.shape
            held = (
                keys.new_empty(batch, heads, self.capacity, dim),
                values.new_empty(batch, heads, self.capacity, values.shape[-1]),
            )
            self.buffers[layer_idx] = held
        end = self.length + keys.shape[2]
        held[0][:, :, self.length : end] = keys
        held[1][:, :, self.length : end] = values
        return held[0][:, :, :end], held[1][:, :, :end]

    def repeat(self, times: int) -> None:
        """Every row `times` over, side by side."""
        for at, held in enumerate(self.buffers):
            if held is not None:
                wide = [x.new_empty(x.shape[0] * times, *x.shape[1:]) for x in held]
                for new, old in zip(wide, held, strict=True):
                    new[:, :, : self.length] = old[:, :, : self.length].repeat_interleave(times, 0)
                self.buffers[at] = (wide[0], wide[1])

    def select(self, rows: Tensor) -> None:
        """Keep only these rows of the batch."""
        self.buffers = [pair and (pair[0][rows], pair[1][rows]) for pair in self.buffers]


class Decoder:
    """One batch being decoded: `prefill` once, then `step` for each token. Call under `torch.no_grad()`.

    Args:
        backbone: the model's body.
        mask: bool [B, S], the prompt's mask, padded on the left.
        capacity: S plus the number of tokens that may follow.
    """

    def __init__(self, backbone: Backbone, mask: Tensor, capacity: int) -> None:
        self.backbone = backbone
        self.width = mask.shape[1]
        tail = mask.new_ones(mask.shape[0], capacity - self.width)
        self.mask = torch.cat([mask, tail], dim=1)
        self.positions = positions_of(self.mask)
        self.padded = not bool(mask.all())
        self.split = backbone.splittable is None
        self.cache: Any = _Cache(backbone.layer_count, capacity) if self.split else DynamicCache(config=backbone.config)
        self.rotary: tuple[Tensor, Tensor] | None = None
        self.mixed = self.split and len({next(layer.parameters()).dtype for layer in backbone.body.layers}) > 1

    def prefill(self, ids: Tensor) -> Tensor:
        """The prompt: [B, S] -> the hidden state of its last token [B, D]."""
        mask, positions = self.mask[:, : self.width], self.positions[:, : self.width]
        if not self.split:
            return self._plain(ids, mask, positions)
        body = self.backbone
        if body.rows_alone(mask):
            return self._prefill_by_pieces(ids)
        hidden = body.embed(ids)
        attention, rotary = body.context(hidden, mask, positions)
        self.rotary = body.body.rotary_emb(hidden, position_ids=self.positions)
        hidden = self._layers(hidden, attention, rotary, positions)
        self.cache.length = self.width
        return body.norm(hidden[:, -1])

    def _prefill_by_pieces(self, ids: Tensor) -> Tensor:
        """As `prefill`, so many tokens of all prompts at a time that their mask is small."""
        body, width = self.backbone, self.width
        size = max(1, MASK_ELEMENTS // ids.numel())
        column = torch.arange(width, device=ids.device)
        hidden = ids.new_empty(0)
        for at in range(0, width, size):
            end = min(at + size, width)
            piece = body.embed(ids[:, at:end])
            if self.rotary is None:
                self.rotary = body.body.rotary_emb(piece, position_ids=self.positions)
            own = column[at:end, None]
            # padding sees itself alone: a softmax over nothing is NaN in some kernels
            seen = (self.mask[:, None, :end] & (column[:end] <= own)) | (column[:end] == own)
            rotary = self.rotary[0][:, at:end], self.rotary[1][:, at:end]
            hidden = self._layers(piece, body.own_form(seen[:, None], piece.dtype), rotary, self.positions[:, at:end])
            self.cache.length = end
        return body.norm(hidden[:, -1])

    def step(self, tokens: Tensor) -> Tensor:
        """One more token a row: [B] -> its hidden state [B, D]."""
        at = self.width
        self.width = end = at + 1
        ids, positions = tokens[:, None], self.positions[:, at:end]
        if not self.split:
            return self._plain(ids, self.mask[:, :end], positions)
        assert self.rotary is not None, "step() before prefill()"
        hidden = self.backbone.embed(ids)
        rotary = self.rotary[0][:, at:end], self.rotary[1][:, at:end]
        hidden = self._layers(hidden, self._step_mask(hidden, end), rotary, positions)
        self.cache.length = end
        return self.backbone.norm(hidden[:, -1])

    def repeat(self, times: int) -> None:
        """Go on with every row `times` over, side by side: several responses to each prompt."""
        if self.split:
            self.cache.repeat(times)
        else:
            self.cache.batch_repeat_interleave(times)
        self.mask, self.positions = (x.repeat_interleave(times, 0) for x in (self.mask, self.positions))
        if self.rotary is not None:
            self.rotary = (self.rotary[0].repeat_interleave(times, 0), self.rotary[1].repeat_interleave(times, 0))

    def keep(self, rows: Tensor) -> bool:
        """Go on with these rows only (int64 indices into the present batch); False where the model's cache cannot."""
        if not self.split:
            return False
        self.cache.select(rows)
        self.mask, self.positions = self.mask[rows], self.positions[rows]
        if self.rotary is not None:
            self.rotary = self.rotary[0][rows], self.rotary[1][rows]
        return True

    def _step_mask(self, hidden: Tensor, end: int) -> Tensor | None:
        # A single query sees every real token before it, so that the mask is the padding alone.
        if not self.padded:
            return None
        return self.backbone.own_form(self.mask[:, None, None, :end], hidden.dtype)

    def _layers(
        self, hidden: Tensor, attention: Tensor | None, rotary: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        for layer in self.backbone.body.layers:
            hidden = layer(
                _fit(hidden, layer) if self.mixed else hidden,
                attention_mask=attention,
                position_embeddings=rotary,
                position_ids=positions,
                cache=self.cache,
                use_cache=True,
            )
        return hidden

    def _plain(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        out = self.backbone.body(
            input_ids=ids, attention_mask=mask, position_ids=positions, cache=self.cache, use_cache=True
        )
        return cast(Tensor, out.last_hidden_state[:, -1])


def shared_parameters(backbone: Backbone, boundary: int) -> Iterator[tuple[str, Tensor]]:
    """Named weights of the trunk, in a fixed order."""
    if boundary == 0:
        return
    yield from backbone.body.embed_tokens.named_parameters("embed_tokens")
    for index in range(boundary):
        yield from backbone.body.layers[index].named_parameters(f"layers.{index}")
