"""Several processes on one project: process 0 does everything, and has the others join in when PPO trains.

Between that they wait. So one command under torchrun runs a whole project, and its other stages need no other one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trimtab.launch import launched
from trimtab.pipeline.project import Project

if TYPE_CHECKING:
    from trimtab.runs.run import Run
    from trimtab.training.world import World

__all__ = ["call", "follow", "together"]


@contextmanager
def together(project: Project) -> Iterator[World | None]:
    """The processes that work on the project, met at the start and parted from at the end; None: this one alone.

    Raises:
        TrimtabError: they are not what the launcher says, or not as many as `project.processes`.
    """
    launch = launched(project.config.project.processes)
    if launch.size == 1:
        yield None
        return
    import torch

    from trimtab.models.loading import pick_device
    from trimtab.training.world import World

    world = World.join(launch, torch.device(pick_device(project.config.model.device)))
    try:
        yield world
        if world.first:
            world.tell(None, patient=True)
    except BaseException:
        world.leave(failed=True)
        raise
    world.leave()


def call(world: World, run: Run) -> None:
    """Process 0: have the others join in the training of the run's policy."""
    world.tell({"run": run.name}, patient=True)


def follow(project: Project, world: World) -> None:
    """Every other process: join in whenever process 0 calls, until it has done its work."""
    from trimtab.pipeline.build import Workshop
    from trimtab.pipeline.work import run_ppo
    from trimtab.runs.run import Run

    while (order := world.tell(None, patient=True)) is not None:
        shop = Workshop(project, Run.open(project.runs / order["run"]), world)
        shop.use_threads()
        run_ppo(shop)
