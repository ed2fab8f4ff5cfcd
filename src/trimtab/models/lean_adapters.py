"""Adapters as decoding wants them: two products and a sum for each layer, where peft's layers have a dozen small steps.

Not merged into the weights, although that is a little faster still: in bfloat16 W + B A rounds to W wherever B A is
less than half of W's last digit, so that early in training most of what was learned would be missing from the samples
(of SmolLM2-135M's layers 6 % is kept where B is about 1e-4, 54 % at 1e-3), and merged weights are memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from trimtab.models.adapters import adapted

__all__ = ["lean_adapters"]


class _Lean(nn.Module):
    """`base(x) + (x A) B`; A [in, rank] and B [rank, out], with the scale, are copies for the time of decoding."""

    def __init__(self, base: nn.Module, a: Tensor, b: Tensor) -> None:
        super().__init__()
        self.base = base
        self.a, self.b = a, b

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        found = torch.addmm(self.base(flat), flat @ self.a, self.b)
        return found.view(*x.shape[:-1], found.shape[-1])


@contextmanager
def lean_adapters(hf: nn.Module, dtype: torch.dtype) -> Iterator[None]:
    """In here the model's adapters are lean, and those that add nothing are gone; its weights must not move.

    Args:
        hf: a model, with adapters or without; for passes without gradients.
        dtype: what it computes in.
    """
    layers = [(name.rpartition("."), layer) for name, layer in adapted(hf)]
    with torch.no_grad():
        for (parent, _, last), layer in layers:
            (adapter,) = layer.active_adapters
            a, b = layer.lora_A[adapter].weight.detach(), layer.lora_B[adapter].weight.detach()
            lean: nn.Module = layer.base_layer
            if bool(b.any()):
                scaled = (b * layer.scaling[adapter]).to(dtype)
                lean = _Lean(lean, a.to(dtype).T.contiguous(), scaled.T.contiguous())
            setattr(hf.get_submodule(parent), last, lean)
    try:
        yield
    finally:
        for (parent, _, last), layer in layers:
            setattr(hf.get_submodule(parent), last, layer)
