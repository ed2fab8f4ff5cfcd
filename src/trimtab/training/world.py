"""The processes of a training: who this one is, and what they tell each other.

With one process every method is the identity, so that loops are written once. Values travel as tensors or as JSON;
nothing is pickled. Gradients and activations go over the devices' backend (gloo on CPUs, nccl on cuda), JSON always
over the CPUs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch import distributed as dist

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.launch import Launch

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

__all__ = ["World"]

_TIMEOUT = timedelta(minutes=30)
"""How long a process waits for the others within a training."""
_PATIENCE = timedelta(days=30)
"""How long one waits for another that does the work of other stages alone; one that ends is noticed at once."""
_SIGNS = ("gloo", "nccl", "connection closed", "connection reset", "timed out", "broken pipe")


class World:
    """`World.single()` is one process; `World.join` meets the others.

    `waited` counts the seconds spent in the methods here: communication, and waiting for slower processes.
    """

    def __init__(self, launch: Launch, device: torch.device) -> None:
        self.rank, self.size = launch.rank, launch.size
        self.device = device
        self.waited = 0.0
        self._patient: Any = None

    @classmethod
    def single(cls) -> World:
        """One process alone."""
        return cls(Launch(), torch.device("cpu"))

    @classmethod
    def join(cls, launch: Launch, device: torch.device) -> World:
        """Meet the other processes (all of them have to call this) and check that their number is the launcher's.

        Args:
            launch: see `trimtab.launch.launched`.
            device: of the models; on cuda this process takes the card of its number on the machine.

        Raises:
            TrimtabError: this torch has no distributed package, there are fewer cards than processes, or they do not
                meet.
        """
        if launch.size == 1:
            return cls(launch, device)
        if not dist.is_available():
            raise TrimtabError(
                ErrorKind.MISSING,
                "this torch was built without torch.distributed",
                "start one process without torchrun",
            )
        if device.type not in ("cpu", "cuda"):
            raise TrimtabError(
                ErrorKind.CONFIG, f"{launch.size} processes on {device.type}", "several processes train on cpu or cuda"
            )
        if ":" in str(device):
            raise TrimtabError(
                ErrorKind.CONFIG,
                f'model.device = "{device}" with {launch.size} processes: all would share one card',
                'set model.device = "cuda": every process takes the card of its number',
            )
        backend = "gloo"
        if device.type == "cuda":
            cards = torch.cuda.device_count()
            if launch.local_rank >= cards:
                raise TrimtabError(
                    ErrorKind.CONFIG,
                    f"process {launch.local_rank} of this machine finds {cards} cards",
                    "start at most as many processes a machine as it has cards: torchrun --nproc_per_node",
                )
            device = torch.device("cuda", launch.local_rank)
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        world = cls(launch, device)
        with world.waiting("meeting the others"):
            if not dist.is_initialized():
                dist.init_process_group(backend, rank=launch.rank, world_size=launch.size, timeout=_TIMEOUT)
            world._patient = dist.new_group(backend="gloo", timeout=_PATIENCE)
        found = len(set(world.hear(launch.rank)))
        if dist.get_world_size() != launch.size or found != launch.size:
            raise TrimtabError(
                ErrorKind.USAGE,
                f"the launcher said {launch.size} processes, {found} met",
                "start them with one torchrun, or with the same --nnodes and --rdzv-id on every machine",
            )
        return world

    def leave(self, *, failed: bool = False) -> None:
        """Part from the others.

        Args:
            failed: they may be in the middle of something. On cuda the end of this process has to do then: nccl would
                wait for them.
        """
        if self._patient is not None and not (failed and self.device.type == "cuda"):
            dist.destroy_process_group()
        self._patient = None

    @property
    def first(self) -> bool:
        """Whether this is process 0: the one that writes, runs callbacks and talks."""
        return self.rank == 0

    @cached_property
    def mesh(self) -> DeviceMesh:
        """All processes in a row, as sharded weights need them."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh(self.device.type, (self.size,))

    def share(self, count: int) -> slice:
        """This process's equal part of `count` things in a row; all of them where they cannot be `parted`."""
        if not self.parted(count):
            return slice(0, count)
        part = count // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def parted(self, count: int) -> bool:
        """Whether `count` things are worth parting, and can be parted equally."""
        return self.size > 1 and count > 0 and count % self.size == 0

    # ---- tensors

    def sum(self, x: Tensor) -> Tensor:
        """The sum over all processes, in place; every process gets the same bits."""
        if self.size > 1:
            with self.waiting("adding up"):
                dist.all_reduce(x)
        return x

    def gather(self, x: Tensor) -> Tensor:
        """The tensors of all processes, of one shape and dtype, one after another along dimension 0."""
        if self.size == 1:
            return x
        # As bytes: not every backend knows every dtype.
        raw = x.detach().contiguous().view(-1).view(torch.uint8)
        parts = [torch.empty_like(raw) for _ in range(self.size)]
        with self.waiting("gathering"):
            dist.all_gather(parts, raw)
        return torch.cat([part.view(x.dtype).view(x.shape) for part in parts])

    # ---- JSON

    def tell(self, value: Any, *, patient: bool = False) -> Any:
        """The JSON value of process 0, on every process.

        Args:
            patient: it may take hours until process 0 says something.
        """
        if self.size == 1:
            return value
        group = self._patient if patient else None
        data = _encoded(value) if self.first else torch.empty(0, dtype=torch.uint8)
        length = torch.tensor([len(data)])
        with self.waiting("listening to process 0"):
            dist.broadcast(length, 0, group=group)
            data = data if self.first else torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(data, 0, group=group)
        return value if self.first else _decoded(data)

    def hear(self, value: Any) -> list[Any]:
        """The JSON values of all processes, by rank."""
        if self.size == 1:
            return [value]
        data = _encoded(value)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        with self.waiting("listening to the others"):
            dist.all_gather(lengths, torch.tensor([len(data)]))
            longest = max(int(n) for n in lengths)
            parts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(parts, torch.nn.functional.pad(data, (0, longest - len(data))))
        return [_decoded(part[: int(n)]) for part, n in zip(parts, lengths, strict=True)]

    def largest(self, value: int) -> int:
        """The largest of the processes' numbers."""
        return max(int(number) for number in self.hear(value))

    def add_up(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Sums of figures that every process has under the same names; with one process they are what they were."""
        if self.size == 1:
            return dict(figures)
        names = sorted(figures)
        values = self.sum(torch.tensor([figures[name] for name in names], dtype=torch.float64, device=self.device))
        return dict(zip(names, values.tolist(), strict=True))

    def mean(self, figures: Mapping[str, float]) -> dict[str, float]:
        """Means over the processes of figures by name; one that some processes lack is averaged over the others."""
        rows = self.hear(dict(figures))
        names = dict.fromkeys(name for row in rows for name in row)
        found = {name: [row[name] for row in rows if name in row] for name in names}
        return {name: values[0] if len(values) == 1 else sum(values) / len(values) for name, values in found.items()}

    def same(self, what: str, facts: Mapping[str, Any]) -> None:
        """Refuse processes that do not agree.

        Args:
            what: they should agree on.
            facts: JSON by name.

        Raises:
            TrimtabError: names the first process and fact that differ from those of process 0.
        """
        rows = self.hear(dict(facts))
        for rank, row in enumerate(rows):
            for name, value in rows[0].items():
                if row.get(name) != value:
                    raise TrimtabError(
                        ErrorKind.CHECK,
                        f"process {rank} and process 0 differ in {what}: {name} is {_short(row.get(name))} there and "
                        f"{_short(value)} here",
                        "all processes need the same project, settings, packages and kind of machine",
                    )

    # ---- errors and time

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Time spent with the others counts as waiting; a lost process becomes a `TrimtabError`."""
        began = time.perf_counter()
        try:
            with self.guard(what):
                yield
        finally:
            self.waited += time.perf_counter() - began

    @contextmanager
    def guard(self, what: str) -> Iterator[None]:
        """Tell in plain words that another process is lost; errors of other kinds pass.

        Args:
            what: this process was doing.
        """
        try:
            yield
        except RuntimeError as error:  # torch has no one class for them
            if self.size == 1 or not (isinstance(error, dist.DistError) or _about_others(error)):
                raise
            raise TrimtabError(
                ErrorKind.FAILED,
                f"process {self.rank} of {self.size} lost another one while {what}: {str(error).splitlines()[0][:200]}",
                "its own message says why it ended; the same command goes on from the last checkpoint",
            ) from error


def _about_others(error: RuntimeError) -> bool:
    text = str(error).lower()
    return any(sign in text for sign in _SIGNS)


def _encoded(value: Any) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode("utf-8")), dtype=torch.uint8)


def _decoded(data: Tensor) -> Any:
    return json.loads(data.numpy().tobytes().decode("utf-8"))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
