"""DeepSpeed's ZeRO, stages 1 to 3, with an engine for each model that is trained.

An engine computes backward passes, splits what they give over the processes and moves the weights. When to move them
stays ours: policy and value model step together or not at all, their norms are measured before either moves, and a
checkpoint holds whole weights and moments, as that of one process. So gradients are added up by DeepSpeed, while norm
and clip work on this process's part of them, which DeepSpeed keeps until its step.

Source: Rajbhandari et al., arXiv 1910.02054.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from trimtab.config.project import Parallel
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import Role
from trimtab.training.optim import Optimiser, norm_of
from trimtab.training.sharding import Sharded
from trimtab.training.world import World

__all__ = ["Zero", "ZeroOptimiser", "require_deepspeed"]

R = TypeVar("R", bound=Role)
T = TypeVar("T")

_MOMENTS = ("exp_avg", "exp_avg_sq")
_BUCKET = 2**24
"""Gradients and weights that are sent at once, at most; DeepSpeed sets memory aside for so many."""


def require_deepspeed(parallel: Parallel) -> None:
    """Refuse an environment without DeepSpeed.

    Raises:
        TrimtabError: kind missing.
    """
    if importlib.util.find_spec("deepspeed") is None:
        raise TrimtabError(
            ErrorKind.MISSING,
            f'model.parallel = "{parallel}": deepspeed is not installed',
            "pip install 'trimtab[deepspeed]'; or set model.parallel = \"fsdp\", which needs no more than torch",
        )


class Zero(Sharded[R]):
    """A role that DeepSpeed splits over the processes while it is trained, once its optimiser is made.

    Args:
        role: trainable. Its own weights are given up (a fork of it, `self.role`, is trained) until `restore`.
        world: more than one process.
        parallel: "zero1", "zero2" or "zero3".

    Raises:
        TrimtabError: its layout has adapters, or DeepSpeed is not installed.
    """

    def __init__(self, role: R, world: World, parallel: Parallel) -> None:
        require_deepspeed(parallel)
        self.parallel = parallel
        super().__init__(role, world)

    def _split(self) -> None:
        """DeepSpeed splits a model and its optimiser together."""

    def optimiser(self, role: Role, learning_rate: float, **settings: Any) -> ZeroOptimiser:
        """The optimiser of `self.role`, to be made once; see `Optimiser` for its settings."""
        return ZeroOptimiser(role, learning_rate, stage=int(self.parallel[-1]), **settings)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        yield


class _Place(NamedTuple):
    """Where the part of a parameter that this process moves is."""

    flat: Tensor
    """What AdamW moves; the part is `flat[start : start + length]`."""
    start: int
    begin: int
    """The part's first element within the parameter."""
    length: int

    def of(self, whole: Tensor) -> Tensor:
        """This process's part of all of a tensor of the parameter's shape; the same storage."""
        return whole.reshape(-1)[self.begin : self.begin + self.length]

    def within(self, flat: Tensor) -> Tensor:
        """This process's part out of a tensor like `self.flat`; the same storage."""
        return flat[self.start : self.start + self.length]


class ZeroOptimiser(Optimiser):
    """AdamW over this process's part of a model's weights, within a DeepSpeed engine.

    Args:
        role: whose weights become DeepSpeed's.
        stage: 1: moments are split; 2: gradients too; 3: weights too.
        settings: of `Optimiser`.
    """

    def __init__(self, role: Role, learning_rate: float, *, stage: int, **settings: Any) -> None:
        super().__init__(role, learning_rate, **settings)
        self._stage = stage
        self._counts = [len(group["params"]) for group in self.torch.param_groups]
        with self._world.waiting("starting DeepSpeed"):
            self._engine = _engine(role, self.torch, stage, self._world)
        self._zero: Any = self._engine.optimizer
        self._places = [self._place(parameter) for parameter in self.parameters]
        self._complete = False
        self.clear()

    def _place(self, parameter: nn.Parameter) -> _Place | None:
        held = cast(Any, parameter)._hp_mapping
        if held is None:
            return None
        there, here = held.get_hp_fragment_address(), held.lp_fragment_address
        flat = self.torch.param_groups[held.param_group_index]["params"][0]
        return _Place(flat, there.start, here.start, here.numel)

    def forward(self, run: Callable[..., T], *given: Any) -> T:
        return cast(T, self._engine(run, *given))

    def backward(self, loss: Tensor) -> None:
        with self._world.guard("a backward pass"):
            self._engine.backward(loss)

    def add_up(self) -> None:
        """As in `Optimiser`; from now on each process has the gradients of its part alone."""
        self._engine.set_gradient_accumulation_boundary(True)
        with self._world.waiting("adding up"):
            if self._stage == 1:
                self._engine.allreduce_gradients()
            else:  # that has been done after every backward pass
                self._zero.finalize_gradient_accumulation_boundary()
        self._complete = True

    def gradient_of(self, parameter: Tensor) -> Tensor | None:
        if not self._complete:
            return None
        of = cast(Any, parameter)
        held = of._hp_mapping
        if held is None:
            return parameter.new_empty(0)
        return cast(Tensor, held.get_lp_grad_fragment(of._index_in_param_group))

    def _gradients(self, sharded: bool | None = None) -> list[Tensor]:
        """Those of this process's part."""
        held = cast("dict[int, list[Tensor] | None]", self._zero.averaged_gradients)
        return [gradient for of_group in held.values() for gradient in of_group or ()]

    def gradient_norm(self) -> Tensor:
        parts = self._world.sum(norm_of(self._gradients(), self._world.device).square())
        self.norm = parts.sqrt()
        return self.norm

    def _move(self) -> None:
        with self._world.waiting("moving weights"):
            self._engine.step()

    def clear(self) -> None:
        self._zero.zero_grad(set_to_none=True)
        for held in (self._zero.averaged_gradients, self._zero.all_grad_tensors):
            held.update(dict.fromkeys(held))
        self._engine.set_gradient_accumulation_boundary(False)
        self._complete = False
        self.norm = None

    def _with_moments(self, *_: Any) -> dict[str, Any]:
        """AdamW's state as if it moved whole weights."""
        groups, at = [], 0
        for group, count in zip(self.torch.state_dict()["param_groups"], self._counts, strict=True):
            groups.append({**group, "params": list(range(at, at + count))})
            at += count
        state: dict[int, dict[str, Tensor]] = {}
        if self.torch.state:
            for number, (parameter, place) in enumerate(zip(self.parameters, self._places, strict=True)):
                state[number] = {"step": self._steps()} | {key: self._whole(parameter, place, key) for key in _MOMENTS}
        return {"state": state, "param_groups": groups}

    def _steps(self) -> Tensor:
        return cast(Tensor, next(iter(self.torch.state.values()))["step"])

    def _whole(self, parameter: Tensor, place: _Place | None, key: str) -> Tensor:
        found = torch.zeros_like(parameter)
        if place is not None:
            place.of(found).copy_(place.within(self.torch.state[place.flat][key]))
        return self._world.sum(found)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._zero.refresh_fp32_params()  # the model's weights have been loaded before
        saved = state["adamw"]
        for group, of_group in zip(self.torch.param_groups, saved["param_groups"], strict=True):
            group.update({key: x for key, x in of_group.items() if key != "params"})
        self.torch.state.clear()
        if saved["state"]:
            for group in self.torch.param_groups:
                (flat,) = group["params"]
                moments = {key: torch.zeros_like(flat) for key in _MOMENTS}
                self.torch.state[flat] = {"step": saved["state"][0]["step"].clone()} | moments
            for number, place in enumerate(self._places):
                if place is not None:
                    for key in _MOMENTS:
                        part = place.of(saved["state"][number][key])
                        place.within(self.torch.state[place.flat][key]).copy_(part)
        self.updates = int(state["updates"])
        self.base_learning_rate = float(state["base_learning_rate"])
        self.last_learning_rate = float(state["last_learning_rate"])


class _Passes(nn.Module):
    """What the engine takes for the model: any pass through it that ends in a loss."""

    def __init__(self, role: Role) -> None:
        super().__init__()
        self.role = role

    def forward(self, run: Callable[..., T], *given: Any) -> T:
        return run(*given)


def _engine(role: Role, optimiser: torch.optim.Optimizer, stage: int, world: World) -> Any:
    # read when DeepSpeed is imported; it would take a card where there is one
    os.environ.setdefault("DS_ACCELERATOR", world.device.type)
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    import deepspeed

    # on CPUs DeepSpeed would compile a way of its own to add up, at every start on a new machine; gloo does
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    bucket = min(_BUCKET, sum(p.numel() for p in role.trainable_parameters()) + 1)
    zero = {"stage": stage, "overlap_comm": False, "reduce_bucket_size": bucket, "allgather_bucket_size": 2 * bucket}
    if stage < 3:
        # norms are measured here, before anything moves
        zero |= {"contiguous_gradients": stage == 2, "compute_grad_norm": False}
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": 0.0,
        "zero_optimization": zero,
        "gradient_allreduce_op": "sum" if stage < 3 else "mean",
    }
    made = deepspeed.initialize(model=_Passes(role), optimizer=optimiser, config=settings)
    return made[0]
