"""What a PPO run has learnt so far, written to checkpoints and read back; which settings may change on the way."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.core.controllers import KLController
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.ppo.retention import Best
from trimtab.ppo.shaping import ScoreShaper
from trimtab.ppo.update import Learner
from trimtab.runs.callbacks import Callback, StatefulCallback
from trimtab.runs.run import Run
from trimtab.training.checkpoint import (
    checkpoints,
    latest_checkpoint,
    load_checkpoint,
    prune,
    save_checkpoint,
    step_path,
)
from trimtab.training.sharding import load_state, whole_state
from trimtab.training.world import World

__all__ = ["RUNTIME_KNOBS", "Checkpoints", "stateful"]

RUNTIME_KNOBS = ("beta", "learning_rate", "value_learning_rate", "epochs", "clip_range", "dual_clip")
"""Settings of `[ppo]` that an `Action` may change while the run goes on."""

_STAGE = "ppo"


class Checkpoints:
    """The checkpoints of a run: process 0 writes them, all read the same.

    Args:
        run: None: nothing is kept, and there is nothing to go on from.
        world: whose processes train together.
        learner: models, optimisers, statistics.
        controller: of beta.
        shaper: of scores.
        best: whose checkpoint is kept beside the newest.
    """

    def __init__(
        self, run: Run | None, world: World, learner: Learner, controller: KLController, shaper: ScoreShaper,
        best: Best | None = None,
    ) -> None:  # fmt: skip
        self._best = best
        self._directory = None if run is None else run.checkpoint_dir(_STAGE)
        self._world, self._learner, self._controller, self._shaper = world, learner, controller, shaper

    def save(self, step: int, rest: Mapping[str, Any], keep: int, history: Sequence[Mapping[str, float]] = ()) -> None:
        """Write the checkpoint of `step`, `rest` beside what was learnt; remove all but the newest `keep` and the best.

        `rest` holds the `actions` taken, `history` the signals of the iterations.
        """
        if self._directory is None:
            return
        state = self._learning_state() | dict(rest)
        if self._world.first:
            save_checkpoint(step_path(self._directory, step), state)
            best = self.best(history, rest.get("actions", ()))
            if self._best is not None and best is None:
                warnings.warn(
                    f"ppo.keep_best: {self._best.key} was not measured after any iteration with a checkpoint so far",
                    RuntimeWarning,
                    stacklevel=2,
                )
            prune(self._directory, keep, spare=frozenset(() if best is None else (best,)))

    def best(
        self, history: Sequence[Mapping[str, float]], actions: Sequence[Mapping[str, Any]], now: int | None = None
    ) -> int | None:
        """The step of the best checkpoint, as if there were one of the step `now`, too; None: there is none.

        Where the answer decides what all processes do, they ask `told_best`.
        """
        if self._best is None or self._directory is None:
            return None
        steps = {step for step, _ in checkpoints(self._directory)} | ({now} if now is not None else set())
        return self._best.step(history, steps, actions)

    def told_best(
        self, history: Sequence[Mapping[str, float]], actions: Sequence[Mapping[str, Any]], now: int | None = None
    ) -> int | None:
        """`best` as process 0 finds it."""
        if self._best is None:
            return None
        found: int | None = self._world.tell(self.best(history, actions, now) if self._world.first else None)
        return found

    def latest(self) -> dict[str, Any] | None:
        """The newest checkpoint's content; None where there is none."""
        return None if self._directory is None else self._load(None)

    def roll_back(self, step: int | None) -> None:
        """Weights, optimisers and controllers go back to the checkpoint of `step` (None: the last).

        Raises:
            TrimtabError: there is none.
        """
        state = None if self._directory is None else self._load(step)
        if state is None:
            raise TrimtabError(
                ErrorKind.USAGE,
                f"cannot roll back to {'the last checkpoint' if step is None else f'step {step}'}: there is none",
                "a rollback needs a run with checkpoints, see ppo.checkpoint_every and ppo.keep_checkpoints",
            )
        self.take_up(state)

    def _load(self, step: int | None) -> dict[str, Any] | None:
        """What process 0 finds; the others read the same directory, so they need the same file system."""
        assert self._directory is not None
        path = latest_checkpoint(self._directory) if step is None else step_path(self._directory, step)
        name = self._world.tell(path.name if path is not None and path.is_dir() else None)
        return None if name is None else load_checkpoint(self._directory / Path(name).name)

    def _learning_state(self) -> dict[str, Any]:
        learner = self._learner
        return {
            "policy": whole_state(learner.policy),
            "value": whole_state(learner.value) if learner.value else {},
            "optimisers": {name: optimiser.state_dict() for name, optimiser in learner.optimisers.items()},
            "controller": self._controller.state_dict(),
            "moments": learner.moments.state_dict() if learner.moments else {},
            "noise": learner.noise.state_dict(),
            "shaper": self._shaper.state_dict(),
            "precision": learner.precision.state_dict(),
            "memory": learner.memory.state_dict(),
        }

    def take_up(self, state: Mapping[str, Any]) -> None:
        """Go on from what was learnt in `state`."""
        learner = self._learner
        load_state(learner.policy, state["policy"])
        if learner.value is not None:
            load_state(learner.value, state["value"])
        for name, optimiser in learner.optimisers.items():
            optimiser.load_state_dict(state["optimisers"][name])
        self._controller.load_state_dict(state["controller"])
        if learner.moments is not None:
            learner.moments.load_state_dict(state["moments"])
        learner.noise.load_state_dict(state["noise"])
        self._shaper.load_state_dict(state["shaper"])
        learner.precision.load_state_dict(state["precision"])
        if "memory" in state:
            learner.memory.load_state_dict(state["memory"])


def stateful(callbacks: Sequence[Callback]) -> list[tuple[str, StatefulCallback]]:
    """The callbacks that have a state, by place and kind."""
    return [(f"{i} {type(c).__qualname__}", c) for i, c in enumerate(callbacks) if isinstance(c, StatefulCallback)]
