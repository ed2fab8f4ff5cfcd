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
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn

from trimtab.config.project import Parallel
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import Role
from trimtab.training.optim import Optimiser, norm_of
from trimtab.training.sharding import Sharded, assembled
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
        self._passes_alone: Callable[[], AbstractContextManager[None]] = nullcontext
        super().__init__(role, world)

    def _split(self) -> None:
        """DeepSpeed splits a model and its optimiser together."""

    def optimiser(self, role: Role, learning_rate: float, **settings: Any) -> ZeroOptimiser:
        """The optimiser of `self.role`, to be made once; see `Optimiser` for its settings."""
        made = ZeroOptimiser(role, learning_rate, stage=int(self.parallel[-1]), **settings)
        self._passes_alone = made.passes_alone
        return made

    @contextmanager
    def gathered(self) -> Iterator[None]:
        with self._passes_alone():
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
        self._shapes = [parameter.shape for parameter in self.parameters]
        self._group_sizes = [len(group["params"]) for group in self.torch.param_groups]
        with self._world.waiting("starting DeepSpeed"):
            self._engine = _engine(self.parameters, role, self.torch, stage, self._world)
        self._zero: Any = self._engine.optimizer
        self._places = [self._place(*of) for of in zip(self.parameters, self._shapes, strict=True)]
        self._complete = False
        self.clear()

    def _place(self, parameter: Any, shape: torch.Size) -> _Place:
        if self._stage == 3:
            group, start, padded = self._zero.grad_position[self._zero.get_param_id(parameter)]
            begin = min(padded * self._world.rank, shape.numel())
            return _Place(self._flats[group], start, begin, min(padded, shape.numel() - begin))
        held = parameter._hp_mapping
        if held is None:  # all of it is another process's
            return _Place(self._flats[0], 0, 0, 0)
        there, here = held.get_hp_fragment_address(), held.lp_fragment_address
        return _Place(self._flats[held.param_group_index], there.start, here.start, here.numel)

    @property
    def _flats(self) -> list[Tensor]:
        """What AdamW moves, in DeepSpeed's order."""
        zero = self._zero
        found = zero.fp32_partitioned_groups_flat if self._stage == 3 else zero.single_partition_of_fp32_groups
        return cast("list[Tensor]", found)

    # ---- passes

    def forward(self, run: Callable[..., T], *given: Any) -> T:
        return cast(T, self._engine(run, *given))

    def backward(self, loss: Tensor) -> None:
        with self._world.guard("a backward pass"):
            self._engine.backward(loss)

    @contextmanager
    def passes_alone(self) -> Iterator[None]:
        """Here the model has all its weights and may be run without the engine and without gradients."""
        if self._stage < 3:
            yield
            return
        hooks = self._zero.parameter_offload
        with assembled(self.parameters):
            # they would give up a layer's weights after each pass through it
            hooks._remove_module_hooks()
            hooks.forward_hooks, hooks.backward_hooks = [], []
            try:
                yield
            finally:
                hooks.setup_zero_stage3_hooks()

    # ---- updates

    def add_up(self) -> None:
        """As in `Optimiser`; from now on each process has the gradients of its part alone."""
        self._engine.set_gradient_accumulation_boundary(True)
        with self._world.waiting("adding up"):
            if self._stage == 1:
                self._engine.allreduce_gradients()
            else:  # that has been done after every backward pass
                self._zero.finalize_gradient_accumulation_boundary()
        self._complete = True
        if self._stage == 3:
            for parameter, place in zip(self.parameters, self._places, strict=True):
                gradient = self._zero.get_local_fp32_grad_for_param(parameter)
                gradient.mul_(self._world.size)  # DeepSpeed has averaged
                gradient[place.length :].zero_()  # padding, with anything in it

    def gradient_of(self, parameter: Tensor) -> Tensor | None:
        if not self._complete:
            return None
        of = cast(Any, parameter)
        place = next(place for p, place in zip(self.parameters, self._places, strict=True) if p is parameter)
        if not place.length:
            return parameter.new_empty(0)
        if self._stage == 3:
            return cast(Tensor, self._zero.get_local_fp32_grad_for_param(of)[: place.length])
        return cast(Tensor, of._hp_mapping.get_lp_grad_fragment(of._index_in_param_group))

    def _gradients(self, sharded: bool | None = None) -> list[Tensor]:
        held = cast("dict[int, list[Tensor] | None]", self._zero.averaged_gradients)
        return [gradient for of_group in held.values() for gradient in of_group or ()]

    def gradient_norm(self) -> Tensor:
        parts = self._world.sum(norm_of(self._gradients(), self._world.device).double().square())
        self.norm = parts.sqrt().float()
        return self.norm

    def _move(self) -> None:
        with self._world.waiting("moving weights"):
            self._engine.step()
        if not self._engine.was_step_applied():
            raise TrimtabError(
                ErrorKind.FAILED,
                "DeepSpeed left out an update whose gradients are finite",
                f'set model.parallel = "fsdp" in place of "zero{self._stage}"; the last checkpoint is intact',
            )

    def clear(self) -> None:
        self._zero.zero_grad(set_to_none=True)
        for held in (self._zero.averaged_gradients, getattr(self._zero, "all_grad_tensors", {})):
            held.update(dict.fromkeys(held))
        self._engine.set_gradient_accumulation_boundary(False)
        self._complete = False
        self.norm = None

    # ---- state

    def _with_moments(self, *_: Any) -> dict[str, Any]:
        """AdamW's state as it would be if it moved whole weights."""
        groups, at = [], 0
        for group, size in zip(self.torch.param_groups, self._group_sizes, strict=True):
            rest = {key: x for key, x in group.items() if key != "params"}
            groups.append(rest | {"params": list(range(at, at + size))})
            at += size
        state: dict[int, dict[str, Tensor]] = {}
        if self.torch.state:
            step = next(iter(self.torch.state.values()))["step"]
            for number, (shape, place) in enumerate(zip(self._shapes, self._places, strict=True)):
                state[number] = {"step": step} | {key: self._whole(shape, place, key) for key in _MOMENTS}
        return {"state": state, "param_groups": groups}

    def _whole(self, shape: torch.Size, place: _Place, key: str) -> Tensor:
        found = torch.zeros(shape, device=self._world.device)
        place.of(found).copy_(place.within(self.torch.state[place.flat][key]))
        return self._world.sum(found)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._zero.refresh_fp32_params()  # the model's weights have been loaded before
        saved = state["adamw"]
        for group, of_group in zip(self.torch.param_groups, saved["param_groups"], strict=True):
            group.update({key: x for key, x in of_group.items() if key != "params"})
        self.torch.state.clear()
        if saved["state"]:
            for flat in self._flats:
                moments = {key: torch.zeros_like(flat) for key in _MOMENTS}
                self.torch.state[flat] = {"step": saved["state"][0]["step"].to(flat.device, copy=True)} | moments
            for number, place in enumerate(self._places):
                for key in _MOMENTS:
                    place.within(self.torch.state[place.flat][key]).copy_(place.of(saved["state"][number][key]))
        self.updates = int(state["updates"])
        self.base_learning_rate = float(state["base_learning_rate"])
        self.last_learning_rate = float(state["last_learning_rate"])


class _Passes(nn.Module):
    """What the engine takes for the model: what is trained of it, and any pass through it that ends in a loss.

    What is frozen is shared with other roles and stays out of DeepSpeed's hands.
    """

    def __init__(self, role: Role) -> None:
        super().__init__()
        self.trained = nn.ModuleList(
            module for module in role.modules() if any(p.requires_grad for p in module.parameters(recurse=False))
        )

    def forward(self, run: Callable[..., T], *given: Any) -> T:
        return run(*given)


def _engine(
    parameters: Sequence[nn.Parameter], role: Role, optimiser: torch.optim.Optimizer, stage: int, world: World
) -> Any:
    # read when DeepSpeed is imported; it would take a card where there is one
    os.environ.setdefault("DS_ACCELERATOR", world.device.type)
    import deepspeed

    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    # torch's new names for what DeepSpeed calls by the old ones
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    # on CPUs DeepSpeed would compile a way of its own to add up, at the first start on every machine; gloo does
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    bucket = min(_BUCKET, sum(p.numel() for p in parameters) + 1)
    zero = {"stage": stage, "overlap_comm": False, "reduce_bucket_size": bucket, "allgather_bucket_size": 2 * bucket}
    if stage == 3:
        # norms and biases stay whole: gathering each by itself takes longer than it saves
        whole = max((p.numel() for p in parameters if p.ndim < 2), default=0)
        zero |= {"stage3_param_persistence_threshold": whole}
    else:  # norms are measured here, before anything moves
        zero |= {"contiguous_gradients": stage == 2, "compute_grad_norm": False}
    settings = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": 0.0,
        "zero_optimization": zero,
        "gradient_allreduce_op": "mean" if stage == 3 else "sum",
    }
    return deepspeed.initialize(model=_Passes(role), optimizer=optimiser, config=settings)[0]
