"""Trained weights over several processes: whole on each with summed gradients, or in parts (FSDP2).

A loss here is a sum over tokens divided by a count that every process knows, so gradients of the processes' rows are
added up, never averaged. In parts, the layers above the trunk are split along their first dimension; embedding, norm
and head, which our code reads without calling the model, stay whole on each process and are added up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor, nn

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.adapters import layer_list
from trimtab.models.roles import Role
from trimtab.training.world import World

__all__ = [
    "Sharded",
    "add_gradients",
    "assembled",
    "gathered",
    "is_sharded",
    "load_state",
    "local",
    "part_like",
    "whole_like",
    "whole_state",
]

R = TypeVar("R", bound=Role)

_BUCKET = 2**24
"""Elements that are sent at once."""


def is_sharded(x: Tensor) -> bool:
    """Whether this process holds a part of `x` alone."""
    return hasattr(x, "device_mesh")


def local(x: Tensor) -> Tensor:
    """What this process holds of `x`: the same storage."""
    return cast(Tensor, cast(Any, x).to_local()) if is_sharded(x) else x


def whole(x: Tensor) -> Tensor:
    """All of `x`, detached; every process has to ask."""
    return cast(Tensor, cast(Any, x.detach()).full_tensor()) if is_sharded(x) else x.detach()


def part_like(x: Tensor, full: Tensor) -> Tensor:
    """`full` split as `x` is, or as it is where `x` is whole."""
    if not is_sharded(x):
        return full
    from torch.distributed.tensor import distribute_tensor

    of = cast(Any, x)
    # every process has all of it: nothing is sent
    return distribute_tensor(full.to(of.device), of.device_mesh, of.placements, src_data_rank=None)


def whole_like(x: Tensor, part: Tensor) -> Tensor:
    """All of a tensor of which `part` is this process's, split as `x` is; every process has to ask."""
    if not is_sharded(x):
        return part
    from torch.distributed.tensor import DTensor

    of = cast(Any, x)
    return DTensor.from_local(
        part, of.device_mesh, of.placements, run_check=False, shape=of.shape, stride=of.stride()
    ).full_tensor()


@contextmanager
def assembled(parameters: Iterable[Tensor], *, write: bool = False) -> Iterator[bool]:
    """Here parameters that DeepSpeed has split (ZeRO-3) are whole; every process has to ask.

    Args:
        write: process 0 changes them, for all.

    Returns:
        Whether any was split.
    """
    split = [p for p in parameters if hasattr(p, "ds_tensor")]
    if not split:
        yield False
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(split, modifier_rank=0 if write else None):
        yield True


def whole_state(role: Role) -> dict[str, Tensor]:
    """`role.own_state()` with whole tensors; every process has to ask."""
    with assembled(p for _, p in role.own_parameters()) as split:
        return {name: whole(p).clone() if split else whole(p) for name, p in role.own_parameters()}


def load_state(role: Role, state: Mapping[str, Tensor]) -> None:
    """`role.load_own_state` from whole tensors, into parts too.

    Raises:
        TrimtabError: as `Role.load_own_state`.
    """
    own = dict(role.own_parameters())
    with assembled(own.values(), write=True) as split:
        if split:
            role.load_own_state(state)
            return
    fits = {name for name, parameter in own.items() if name in state and state[name].shape == parameter.shape}
    role.load_own_state({name: part_like(own[name], x) if name in fits else x for name, x in state.items()})


def add_gradients(parameters: Iterable[nn.Parameter], world: World) -> None:
    """Make every gradient the sum over the processes; a part's gradient its part of that sum."""
    if world.size == 1:
        return
    bucket: list[Tensor] = []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            continue
        if is_sharded(parameter):
            local(gradient).mul_(world.size)  # FSDP has averaged
            continue
        bucket.append(gradient)
        if sum(g.numel() for g in bucket) >= _BUCKET:
            _add(bucket, world)
            bucket = []
    _add(bucket, world)


def _add(gradients: Sequence[Tensor], world: World) -> None:
    if not gradients:
        return
    flat = world.sum(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    for gradient, found in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(found.view_as(gradient))


class Sharded(Generic[R]):
    """A role that is split over the processes while it is trained: its layers, by FSDP2.

    Args:
        role: trainable. Its own weights are given up (a fork of it, `self.role`, is trained) until `restore`.
        world: more than one process.

    Raises:
        TrimtabError: its layout has adapters, or it has no list of layers.
    """

    parallel = "fsdp"
    """The setting that asks for this."""

    def __init__(self, role: R, world: World) -> None:
        if role.lora is not None:
            raise TrimtabError(
                ErrorKind.CONFIG,
                f'model.parallel = "{self.parallel}" with adapters: they and their optimiser are too small to be '
                "worth splitting",
                'set model.parallel = "ddp"',
            )
        self._plain, self._world = role, world
        self.role: R = role.fork(trainable=True)
        for _, parameter in role.own_parameters():
            parameter.data = parameter.data.new_empty(0)
        self._split()

    def _split(self) -> None:
        from torch.distributed.fsdp import fully_shard

        count = self.role.backbone.layer_count
        self._layers = list(layer_list(self.role.hf, count)[1])[self.role.boundary :]
        for layer in self._layers:
            fully_shard(layer, mesh=self._world.mesh, reshard_after_forward=True)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Here every process has all weights and may run the role, without gradients, as often as it likes."""
        layers = cast("list[Any]", self._layers)
        with self._world.waiting("gathering weights"):
            for layer in layers:
                layer.set_reshard_after_forward(False)
                layer.unshard()
        try:
            yield
        finally:
            for layer in layers:
                layer.set_reshard_after_forward(True)
                layer.reshard()

    def restore(self) -> R:
        """Give the weights back to the role that was handed in; returns it. Every process has to ask."""
        state = whole_state(self.role)
        for name, parameter in self._plain.own_parameters():
            parameter.data = state[name].clone()
        return self._plain


@contextmanager
def gathered(sharded: Iterable[Sharded[Any]]) -> Iterator[None]:
    """`Sharded.gathered` of several."""
    with ExitStack() as stack:
        for one in sharded:
            stack.enter_context(one.gathered())
        yield
