"""Roles: a trunk and a top split at a layer boundary k, with a language-model head or a scalar head.

`trunk(ids) -> hidden` is the embedding and the first k layers, `top(hidden) -> hidden` the rest with the final norm.
k = 0: nothing is shared between roles, each has a whole model. k > 0: the trunk is frozen and the same storage in every
role; forks copy the top only. Where the head is tied to the embedding it belongs to the trunk and stays frozen with it.
With adapters all weights are frozen and one storage; forks have adapters above k, and a scalar head, of their own.

What is trained is held in float32 and computes in `compute_dtype` under autocast; what is frozen is stored in
`compute_dtype`. Policy and reference agree exactly at step 0 if the policy is forked from the reference (bfloat16
rounds the weights once, in the reference; float32 holds the rounded values exactly).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trimtab.config.layout import Layout, Lora
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.adapters import adapted, adapter_parameters, add_adapters, at_zero, fold
from trimtab.models.backbone import Backbone, positions_of
from trimtab.models.heads import LogitScaling, classifier, first_head, language_head
from trimtab.models.saving import save_role, trunk_hash

__all__ = ["CausalModel", "Role", "ScalarModel", "trunk_hash"]


class Role(nn.Module):
    """What both kinds of role have in common; use `CausalModel` or `ScalarModel`.

    Dropout is off for good: `train()` leaves the modules in evaluation mode, since a policy whose log-probabilities
    change between two passes over the same tokens has no ratio of 1.

    Args:
        hf: a transformers model with a decoder body.
        boundary: k, the number of layers in the shared, frozen trunk.
        lora: the adapters that trainable forks get; None: they get whole weights above the boundary.
        compute_dtype: what forward and backward passes compute in; default: the dtype of the weights.

    Raises:
        TrimtabError: k is out of range, the model cannot be split, or it is no causal model.
    """

    hf: PreTrainedModel

    def __init__(
        self,
        hf: PreTrainedModel,
        boundary: int = 0,
        *,
        lora: Lora | None = None,
        compute_dtype: torch.dtype | None = None,
        probe: bool = True,
    ) -> None:
        super().__init__()
        self.hf = hf
        self.boundary = boundary
        self.lora = lora
        self.compute_dtype = compute_dtype or hf.dtype
        disable_dropout(hf)
        self.backbone = Backbone(hf)
        if probe:
            self.backbone.probe()
            self._probe_head()
        self._check_boundary()
        if boundary or lora is not None:
            self.freeze_shared()

    def _probe_head(self) -> None:
        """Refuse a model whose outputs are not what its role computes from hidden states."""

    def _check_boundary(self) -> None:
        k, count = self.boundary, self.backbone.layer_count
        if not 0 <= k <= count:
            raise TrimtabError(ErrorKind.CONFIG, f"a trunk of {k} layers: the model has {count}", "choose fewer")
        if k and self.backbone.splittable is not None:
            raise TrimtabError(
                ErrorKind.MODEL,
                f'model.trainable = "{self.layout}": {type(self.hf).__name__} cannot be split, '
                f"{self.backbone.splittable}",
                'set model.trainable = "full" or "lora", or name a Llama-like model',
            )

    @property
    def layout(self) -> Layout:
        """What of this model's forks is trained."""
        return Layout(self.backbone.layer_count - self.boundary if self.boundary else None, self.lora)

    def train(self, mode: bool = True) -> Self:
        """Does nothing but keep the evaluation mode; see the class."""
        return super().train(False)

    @property
    def device(self) -> torch.device:
        return cast(torch.device, next(self.hf.parameters()).device)

    @property
    def context_length(self) -> int | None:
        """Longest prompt with response, in tokens; None where the configuration does not say."""
        length = getattr(self.hf.config.get_text_config(), "max_position_embeddings", None)
        return int(length) if length else None

    @property
    def vocabulary_size(self) -> int:
        return int(self.hf.config.get_text_config().vocab_size)

    def trunk(self, ids: Tensor, mask: Tensor, positions: Tensor | None = None) -> Tensor:
        """Embedding and the first k layers: ids int64 [B, L], mask bool [B, L] -> hidden [B, L, D]."""
        positions = positions_of(mask) if positions is None else positions
        return self.backbone.layers(self.backbone.embed(ids), mask, positions, 0, self.boundary)

    def top(self, hidden: Tensor, mask: Tensor, positions: Tensor | None = None) -> Tensor:
        """The layers above k and the final norm: [B, L, D] -> [B, L, D]."""
        positions = positions_of(mask) if positions is None else positions
        body = self.backbone
        if body.splittable is not None:
            return body.plain(mask, positions, inputs_embeds=hidden)
        return body.norm(body.layers(hidden, mask, positions, self.boundary, body.layer_count))

    def hidden(
        self, ids: Tensor, mask: Tensor, positions: Tensor | None = None, *, trunk: Tensor | None = None
    ) -> Tensor:
        """Trunk and top in one: ids int64 [B, L], mask bool [B, L] -> normalised hidden states [B, L, D].

        `trunk`: what `self.trunk` gives for the same input, where it is known; only the top is run then.
        """
        if trunk is not None:
            return self.top(trunk, mask, positions)
        return self.backbone.whole(ids, mask, positions_of(mask) if positions is None else positions)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return self.hidden(ids, mask)

    def shares_with(self, other: Role) -> bool:
        """Whether there is a trunk, and it is the very one of the other role: what it gives for a row is the same."""
        mine, theirs = (list(map(id, role.backbone.shared_modules(role.boundary))) for role in (self, other))
        return bool(mine) and mine == theirs

    @property
    def head(self) -> dict[str, nn.Parameter] | None:
        """Weights of a head that adapters do not stand for, by name: it is trained whole; None: there is none."""
        return None

    def freeze_shared(self) -> None:
        """No gradients for what is shared: the trunk, and with adapters all but those and the `head`."""
        if self.lora is not None:
            self.hf.requires_grad_(False)
        for module in self.backbone.shared_modules(self.boundary):
            module.requires_grad_(False)

    def own_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Named parameters (names as in the transformers model) that are this role's alone.

        Those above the trunk; a head tied to the embedding belongs to the trunk. With adapters: those, and the
        `head`.
        """
        if self.lora is not None:
            own = {id(p) for p in (*adapter_parameters(self.hf), *(self.head or {}).values())}
            return ((name, p) for name, p in self.hf.named_parameters() if id(p) in own)
        trunk = {id(p) for module in self.backbone.shared_modules(self.boundary) for p in module.parameters()}
        return ((name, p) for name, p in self.hf.named_parameters() if id(p) not in trunk)

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Parameters that take a gradient, each once."""
        return [p for p in self.parameters() if p.requires_grad]

    def own_state(self) -> dict[str, Tensor]:
        """`own_parameters`, detached: what a checkpoint of this role has to hold."""
        return {name: p.detach() for name, p in self.own_parameters()}

    def load_own_state(self, state: Mapping[str, Tensor]) -> None:
        """Copy weights saved from `own_state` back in place.

        Raises:
            TrimtabError: names or shapes differ.
        """
        own = dict(self.own_parameters())
        wrong = sorted(own.keys() ^ state.keys()) or sorted(n for n, p in own.items() if p.shape != state[n].shape)
        if wrong:
            raise TrimtabError(
                ErrorKind.MODEL,
                f"saved weights do not fit the model: {len(wrong)} names or shapes differ, first {wrong[0]}",
                "load them into the model and model.trainable that they were saved from",
            )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(state[name])

    @torch.no_grad()
    def mix_with(self, origin: Self, share: float) -> None:
        """Own weights w become (1 - share) w + share w_origin, in place.

        An origin without adapters has them at zero: then what the adapters add becomes (1 - share) of what it was.
        Source of the idea: Wortsman et al., arXiv 2109.01903 (between a fine-tuned model and its origin).

        Args:
            origin: what this role was forked from, or a fork of it.
            share: in [0, 1].
        """
        there = origin.own_state()
        for name, weight in self.own_state().items():
            if name in there:
                weight.lerp_(there[name].to(weight.dtype), share)
            elif ".lora_B." in name:
                weight.mul_(1 - share)

    def fork(self, trainable: bool, generator: torch.Generator | None = None) -> Self:
        """A copy of this role that shares with it what is frozen by the layout, and nothing else.

        With adapters all base weights are shared. A trainable fork of a model without adapters gets new ones, which add
        nothing at first; a frozen fork of one whose adapters add nothing has none.

        Args:
            trainable: the copy's own weights are float32 and take gradients; else they are frozen, in `compute_dtype`.
            generator: draws new adapters; None: always the same.
        """
        return self._role_of(self._copy(), trainable, generator)

    def merged(self, dtype: torch.dtype | None = None) -> Self:
        """A frozen copy without adapters: what they add is part of the weights, in `dtype` (None: `compute_dtype`).

        Weights that they do not change are shared. A model without adapters gives a frozen fork.
        """
        return self._role_of(self.merged_hf(dtype or self.compute_dtype), trainable=False)

    def merged_hf(self, dtype: torch.dtype) -> PreTrainedModel:
        """As `merged`, the transformers model alone, all else as it is in this role."""
        hf = self._copy()
        fold(hf, dtype)
        return hf

    def _role_of(self, hf: PreTrainedModel, trainable: bool, generator: torch.Generator | None = None) -> Self:
        role = type(self)(hf, self.boundary, lora=self.lora, compute_dtype=self.compute_dtype, probe=False)
        role.backbone.splittable = self.backbone.splittable
        role._set_own(trainable, generator)
        return role

    def _copy(self) -> PreTrainedModel:
        memo: dict[int, Any] = {}
        for module in self.backbone.shared_modules(self.boundary):
            for part in module.modules():
                memo[id(part)] = part
                # A head tied to the embedding is another module with the same parameter: it must not be copied either.
                memo.update({id(t): t for t in (*part.parameters(False), *part.buffers(False))})
        if self.lora is not None:
            own = {id(p) for _, p in self.own_parameters()}
            memo.update({id(t): t for t in (*self.hf.parameters(), *self.hf.buffers()) if id(t) not in own})
        return copy.deepcopy(self.hf, memo)

    def _set_own(self, trainable: bool, generator: torch.Generator | None = None) -> None:
        if self.lora is not None and trainable and not adapted(self.hf):
            add_adapters(self.hf, self.lora, self.boundary, generator)
        elif not trainable and at_zero(self.hf):
            fold(self.hf, self.compute_dtype)
        dtype = torch.float32 if trainable else self.compute_dtype
        for _, parameter in self.own_parameters():
            parameter.data = parameter.data.to(dtype)
            parameter.requires_grad_(trainable)

    def save_pretrained(self, directory: Path | str, *, pad_id: int, dtype: torch.dtype | None = None) -> None:
        """Write a directory that plain transformers loads (safetensors and config.json).

        A model with adapters is written merged, in float32, and its adapters beside that in `adapter`, which peft loads
        onto the base model.

        Args:
            directory: where to; made if need be.
            pad_id: written to the configuration: transformers' sequence classifiers find a text's end by it.
            dtype: of the file; default float32 where any weight is float32, else the stored dtype.

        Raises:
            TrimtabError: the disk is full, or the directory cannot be written to.
        """
        save_role(self, Path(directory), pad_id=pad_id, dtype=dtype)


class CausalModel(Role):
    """A policy or a reference: a causal language model in two parts."""

    @property
    def head(self) -> dict[str, nn.Parameter] | None:
        """The language-model head where it is trained whole beside adapters."""
        return language_head(self.hf) if self.lora is not None and self.lora.head else None

    @torch.no_grad()
    def _probe_head(self) -> None:
        if self.hf.get_output_embeddings() is None:  # a body alone
            return
        ids = torch.arange(2, 6, device=self.device)[None] % self.vocabulary_size
        mask = torch.ones_like(ids, dtype=torch.bool)
        own, whole = self.lm_logits(self.hidden(ids, mask)), self.hf(input_ids=ids, use_cache=False).logits
        scale = 1e-3 if whole.dtype == torch.float32 else 5e-2
        if not (own - whole).abs().max() <= scale * whole.abs().max():
            raise TrimtabError(
                ErrorKind.MODEL,
                f"{type(self.hf).__name__} does more to its logits than its head and the scalings known here",
                "name a model of another architecture; this one's log-probabilities would be wrong",
            )

    def lm_logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of normalised hidden states [..., D], in the dtype of computation.

        The states are flattened first: a head on a non-contiguous three-dimensional slice is many times slower.
        """
        head = cast(nn.Module, self.hf.get_output_embeddings())
        flat = hidden.reshape(-1, hidden.shape[-1]).contiguous()
        if not torch.is_autocast_enabled(flat.device.type):
            flat = flat.to(next(head.parameters()).dtype)
        logits = LogitScaling.of(self.hf.config)(cast(Tensor, head(flat)))
        return logits.view(*hidden.shape[:-1], logits.shape[-1])

    def head_operands(self, hidden: Tensor) -> tuple[Tensor, Tensor] | None:
        """The factors of `lm_logits`, hidden states [N, D] and the head's weight [V, D], in the dtype of computation.

        None where the head is more than a product: it has a bias, is no linear layer, or its logits are capped.
        """
        head: Any = self.hf.get_output_embeddings()
        scaling = LogitScaling.of(self.hf.config)
        if scaling.cap is not None:
            return None
        if scaling.factor != 1.0:
            hidden = hidden * scaling.factor
        if type(head) is not nn.Linear or [name for name, _ in head.named_parameters()] != ["weight"]:
            return None
        kind = hidden.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else head.weight.dtype
        return hidden.to(dtype), head.weight.to(dtype)


class ScalarModel(Role):
    """A preference model or a value model: one number for every position, and the last one is the score.

    `hf` is a transformers sequence classifier with a bias-free linear `score` head, so that what is saved gives the
    same scores in plain transformers; `num_labels` is 1, or with heads beside the first their number.
    """

    @classmethod
    def from_causal(
        cls,
        causal: CausalModel,
        head_std: float | Literal["zero"] | None = None,
        *,
        trainable: bool = True,
        generator: torch.Generator | None = None,
    ) -> Self:
        """A scalar head on a copy of a causal model's body (its trunk shared, where there is one).

        Args:
            causal: the model to start from; it is not changed.
            head_std: standard deviation of the head's weights; "zero": all scalars start at 0; None: 1 / sqrt(D + 1).
            trainable: as in `fork`.
            generator: draws the head's weights, and new adapters.

        Raises:
            TrimtabError: transformers has no sequence classifier with a linear `score` head for this architecture.
        """
        body = causal._copy().base_model
        hf = classifier(causal.hf, body)
        head = cast(nn.Linear, hf.score)
        with torch.no_grad():
            std = 1 / math.sqrt(head.in_features + 1) if head_std is None else head_std
            if std == "zero":
                head.weight.zero_()
            else:
                # Drawn on the CPU: the same seed gives the same head on every device.
                head.weight.copy_(torch.randn(head.weight.shape, generator=generator) * std)
        role = cls(hf, causal.boundary, lora=causal.lora, compute_dtype=causal.compute_dtype, probe=False)
        role.backbone.splittable = causal.backbone.splittable
        role._set_own(trainable, generator)
        return role

    @property
    def head(self) -> dict[str, nn.Parameter]:
        """The weights of `linear` by name."""
        return {f"score.{name}": parameter for name, parameter in self.linear.named_parameters()}

    @property
    def linear(self) -> nn.Linear:
        """The layer whose rows are the heads; see `trimtab.models.heads`."""
        return cast(nn.Linear, self.hf.score)

    def scalars(self, hidden: Tensor) -> Tensor:
        """The (first) head alone, in float32: [..., D] -> [...]."""
        return first_head(self.linear, hidden)

    def values(self, ids: Tensor, mask: Tensor, *, trunk: Tensor | None = None) -> Tensor:
        """A scalar at every position: ids int64 [B, L], mask bool [B, L] -> float32 [B, L] (padding: arbitrary)."""
        return self.scalars(self.hidden(ids, mask, trunk=trunk))

    def features(self, ids: Tensor, mask: Tensor, *, trunk: Tensor | None = None) -> Tensor:
        """What the head reads for a score, the hidden state of each row's last real token: [B, L] -> [B, D]."""
        return self.states(ids, mask, last_column(mask)[:, None], trunk=trunk)[:, 0]

    def states(
        self, ids: Tensor, mask: Tensor, at: Tensor, positions: Tensor | None = None, *, trunk: Tensor | None = None
    ) -> Tensor:
        """As `hidden`, at the columns `at` int64 [B, n] alone, which costs less: [B, L] -> [B, n, D]."""
        body = self.backbone
        if body.splittable is not None:
            hidden = self.hidden(ids, mask, positions, trunk=trunk)
            return hidden[torch.arange(len(at), device=at.device)[:, None], at]
        positions = positions_of(mask) if positions is None else positions
        trunk = self.trunk(ids, mask, positions) if trunk is None else trunk
        return body.states(trunk, mask, positions, self.boundary, at)

    def score(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The scalar at each row's last real token: ids int64 [B, L], mask bool [B, L] -> float32 [B]."""
        return self.scalars(self.features(ids, mask))


def last_column(mask: Tensor) -> Tensor:
    """The column of each row's last real token: bool [B, L] -> int64 [B]."""
    return (mask.long() * torch.arange(1, mask.shape[1] + 1, device=mask.device)).argmax(-1)


def disable_dropout(hf: PreTrainedModel) -> None:
    hf.eval()
    for module in hf.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
