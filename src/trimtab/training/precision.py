"""Precision of forward and backward passes, and the optimiser step that goes with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, cast

import torch
from torch import Tensor

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.training.optim import Optimiser

__all__ = ["Precision"]

DTypeName = Literal["float32", "bfloat16", "float16"]
_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Precision:
    """float32, or float32 weights with bfloat16 or float16 computation under autocast.

    float16 has few exponent bits: the loss is scaled before the backward pass, and an update whose gradients overflow
    is skipped, counted, and halves the scale.

    Args:
        dtype: "float32", "bfloat16" or "float16".
        device: where the models live.
        initial_scale: the loss scale that float16 starts from.
        growth_interval: updates without overflow after which the scale doubles.

    Raises:
        TrimtabError: no such dtype.
    """

    def __init__(
        self,
        dtype: str = "float32",
        device: str | torch.device = "cpu",
        *,
        initial_scale: float = 2.0**16,
        growth_interval: int = 2000,
    ) -> None:
        if dtype not in _DTYPES:
            raise TrimtabError(ErrorKind.CONFIG, f'model.dtype = "{dtype}"', f"one of {', '.join(_DTYPES)}")
        self.dtype = cast(DTypeName, dtype)
        self.torch_dtype = _DTYPES[dtype]
        self.device = torch.device(device)
        self.skipped = 0
        """Updates skipped so far."""
        self.in_a_row = 0
        """Updates skipped since the last that was made."""
        self._scaler = torch.amp.GradScaler(
            self.device.type, init_scale=initial_scale, growth_interval=growth_interval, enabled=dtype == "float16"
        )

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of forward passes; does nothing for float32.

        float32 weights that take gradients are cast once in each outermost context, so put a whole rollout into one;
        leave it before the weights move.
        """
        if self.dtype == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.torch_dtype)

    @property
    def loss_scale(self) -> float:
        """What `scale` multiplies by; 1 but for float16."""
        return float(self._scaler.get_scale()) if self._scaler.is_enabled() else 1.0

    def scale(self, loss: Tensor) -> Tensor:
        """The loss to call `backward()` on."""
        return self._scaler.scale(loss) if self._scaler.is_enabled() else loss

    def unscale(self, optimiser: Optimiser) -> None:
        """Divide the gradients by the loss scale, once before their norm is measured."""
        if self._scaler.is_enabled():
            self._scaler.unscale_(optimiser.torch)

    def step(self, optimisers: Sequence[Optimiser], skips: int = 0) -> bool:
        """Step all optimisers, or none if any gradient is not finite; clear the gradients.

        Args:
            optimisers: those of the models that are updated together, already unscaled.
            skips: how many updates in a row may be left out for gradients that are not finite in float32 or bfloat16;
                float16 leaves out as many as its loss scale needs.

        Returns:
            Whether the weights moved.

        Raises:
            TrimtabError: gradients that are not finite in float32 or bfloat16, where no smaller loss scale would help,
                in more than `skips` updates in a row.
        """
        norms = [o.norm if o.norm is not None else o.gradient_norm() for o in optimisers]
        finite = bool(torch.stack([n.cpu() for n in norms]).isfinite().all())
        if finite:
            self.in_a_row = 0
            for optimiser in optimisers:
                optimiser.apply()
        elif not self._scaler.is_enabled() and self.in_a_row >= skips:
            raise TrimtabError(
                ErrorKind.FAILED,
                f"gradient norms {', '.join(f'{float(n):g}' for n in norms)}: not finite"
                f"{f', as in the {self.in_a_row} updates before' if self.in_a_row else ''}; no weight was changed",
                "lower the learning rate or bound the scores (ppo.score_clip); the last checkpoint is intact",
            )
        else:
            self.skipped += 1
            self.in_a_row += 1
        if self._scaler.is_enabled():
            # Not `GradScaler.step`: it decides for each optimiser alone, and one model would move without the other.
            self._scaler.update()
        for optimiser in optimisers:
            optimiser.clear()
        return finite

    def signals(self) -> dict[str, float]:
        """`precision/loss_scale` for float16; `precision/skipped_updates` for float16 and once there is one."""
        of_float16 = {"precision/loss_scale": self.loss_scale} if self._scaler.is_enabled() else {}
        skipped = {"precision/skipped_updates": float(self.skipped)} if of_float16 or self.skipped else {}
        return of_float16 | skipped

    def state_dict(self) -> dict[str, Any]:
        """Loss scale and counts of skipped updates, JSON-ready."""
        return {"skipped": self.skipped, "in_a_row": self.in_a_row, "scaler": self._scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self.skipped, self.in_a_row = int(state["skipped"]), int(state.get("in_a_row", 0))
        if state["scaler"] and self._scaler.is_enabled():
            self._scaler.load_state_dict(dict(state["scaler"]))
