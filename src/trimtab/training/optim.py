"""The optimiser of one model: AdamW with parameter groups, a learning-rate schedule and the gradient's norm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from trimtab.core.schedules import learning_rate_factor
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.training.sharding import add_gradients, is_sharded, local, part_like, whole_like
from trimtab.training.world import World

__all__ = ["Optimiser", "norm_of", "parameter_groups"]

T = TypeVar("T")


def parameter_groups(module: nn.Module | Iterable[nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Trainable parameters in two groups: matrices with `weight_decay`, vectors (norms, biases) without.

    Args:
        module: a module or its parameters; frozen ones are left out, each parameter is taken once.
        weight_decay: AdamW's decoupled decay, >= 0.
    """
    parameters = module.parameters() if isinstance(module, nn.Module) else module
    unique = {id(p): p for p in parameters if p.requires_grad}.values()
    groups = [
        {"params": [p for p in unique if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in unique if p.ndim < 2], "weight_decay": 0.0},
    ]
    return [g for g in groups if g["params"]]


class Optimiser:
    """AdamW over a model's trainable parameters, its learning rate following a schedule counted in updates.

    An update is: `forward` and `backward`, once or more, `add_up`, `Precision.unscale`, `gradient_norm`,
    `scale_gradients`, `Precision.step`.

    Args:
        model: what is trained; its parameters must be float32.
        learning_rate: at the schedule's peak.
        total_updates: length of the schedule.
        weight_decay: decoupled, on matrices only.
        eps: AdamW's epsilon.
        schedule: "constant", "linear" or "cosine", see `core.schedules`.
        warmup_fraction: share of the updates over which the rate rises.
        world: whose processes hold the parts of a sharded model; None: one process.

    Raises:
        TrimtabError: nothing to train, or weights in less than float32.
    """

    def __init__(
        self,
        model: nn.Module,
        learning_rate: float,
        *,
        total_updates: int,
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        schedule: Literal["constant", "linear", "cosine"] = "constant",
        warmup_fraction: float = 0.0,
        world: World | None = None,
    ) -> None:
        groups = parameter_groups(model, weight_decay)
        self.parameters: list[nn.Parameter] = [p for g in groups for p in g["params"]]
        if not self.parameters or any(p.dtype != torch.float32 for p in self.parameters):
            raise TrimtabError(
                ErrorKind.MODEL,
                "the model has no float32 weights that take gradients",
                "train a fork: model.fork(trainable=True)",
            )
        self.base_learning_rate = learning_rate
        """Peak of the schedule; may be set while training goes on."""
        self.total_updates, self.schedule, self.warmup_fraction = total_updates, schedule, warmup_fraction
        self.updates = 0
        """Updates made."""
        self.last_learning_rate = 0.0
        """Rate of the update before."""
        self.norm: Tensor | None = None
        """What `gradient_norm` measured since the last update."""
        self._world = world or World.single()
        # Of a sharded parameter AdamW moves this process's part, an ordinary tensor on the parameter's own storage.
        self._moved = [nn.Parameter(local(p.detach())) if is_sharded(p) else p for p in self.parameters]
        moved = iter(self._moved)
        groups = [{**g, "params": [next(moved) for _ in g["params"]]} for g in groups]
        # One kernel for all parameters: in small models a loop over the parameters would dominate the step.
        self.torch = torch.optim.AdamW(groups, lr=learning_rate, eps=eps, fused=True)

    @property
    def next_learning_rate(self) -> float:
        """Rate of the update to come."""
        factor = learning_rate_factor(self.updates, self.total_updates, self.schedule, self.warmup_fraction)
        return self.base_learning_rate * factor

    def forward(self, run: Callable[..., T], *given: Any) -> T:
        """A forward pass with gradients of the model, `run(*given)`, that ends in a loss."""
        return run(*given)

    def backward(self, loss: Tensor) -> None:
        """The backward pass of what `forward` gave; gradients add up until `clear`."""
        loss.backward()

    def add_up(self) -> None:
        """Make the gradients those of all processes' losses together; once an update, before anything reads them."""
        add_gradients(self.parameters, self._world)

    def gradient_of(self, parameter: Tensor) -> Tensor | None:
        """What this process holds of a parameter's gradient; None where the update gave it none."""
        return None if parameter.grad is None else local(parameter.grad)

    def _gradients(self, sharded: bool | None = None) -> list[Tensor]:
        """Gradients, of sharded parameters this process's part; `sharded`: of such parameters only, or of the rest."""
        return [
            local(p.grad)
            for p in self.parameters
            if p.grad is not None and (sharded is None or is_sharded(p) == sharded)
        ]

    def gradient_norm(self) -> Tensor:
        """Euclidean norm over all gradients, a float32 scalar tensor."""
        if any(is_sharded(p) for p in self.parameters):
            parts = self._world.sum(norm_of(self._gradients(sharded=True), self._world.device).square())
            self.norm = (parts + norm_of(self._gradients(sharded=False), self._world.device).square()).sqrt()
        else:
            self.norm = norm_of(self._gradients())
        return self.norm

    def scale_gradients(self, norm: Tensor, max_norm: float) -> None:
        """Multiply all gradients by min(1, max_norm / norm); `norm` may be joint with another model's."""
        gradients = self._gradients()
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        # times 1 changes nothing, but reads and writes them all
        if gradients and not bool(factor == 1.0):
            torch._foreach_mul_(gradients, factor)

    def apply(self) -> None:
        """One AdamW step at the schedule's rate. Trainers call `Precision.step`, which decides whether to."""
        self.last_learning_rate = self.next_learning_rate
        for group in self.torch.param_groups:
            group["lr"] = self.last_learning_rate
        self._move()
        self.updates += 1

    def _move(self) -> None:
        for parameter, moved in zip(self.parameters, self._moved, strict=True):
            if moved is not parameter:
                moved.grad = None if parameter.grad is None else local(parameter.grad)
        self.torch.step()

    def clear(self) -> None:
        """Drop the gradients."""
        self.torch.zero_grad(set_to_none=True)
        for parameter in self.parameters:
            parameter.grad = None
        self.norm = None

    def state_dict(self) -> dict[str, Any]:
        """Moments as whole tensors, counters and rates: for `save_checkpoint`.

        The same whether parameters are sharded or not; where they are, every process has to ask.
        """
        return {
            "adamw": self._with_moments(whole_like),
            "updates": self.updates,
            "base_learning_rate": self.base_learning_rate,
            "last_learning_rate": self.last_learning_rate,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`."""
        self.torch.load_state_dict(self._with_moments(lambda p, x: local(part_like(p, x)), state["adamw"]))
        self.updates = int(state["updates"])
        self.base_learning_rate = float(state["base_learning_rate"])
        self.last_learning_rate = float(state["last_learning_rate"])

    def _with_moments(
        self, made: Callable[[Tensor, Tensor], Tensor], state: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """AdamW's state (None: of now), with `made(parameter, moment)` in the place of every moment."""
        found: dict[str, Any] = dict(self.torch.state_dict() if state is None else state)
        found["state"] = {
            number: {key: made(self.parameters[number], x) if x.ndim else x for key, x in of.items()}
            for number, of in found["state"].items()
        }
        return found


def norm_of(gradients: list[Tensor], device: torch.device | None = None) -> Tensor:
    """Euclidean norm over all of them; 0 on `device` where there are none."""
    if not gradients:
        return torch.zeros((), device=device)
    norm: Tensor = torch.stack(torch._foreach_norm(gradients)).norm()
    return norm
