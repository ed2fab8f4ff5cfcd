"""The loop of the stages that learn from a fixed set of examples: SFT and the preference model.

A stage hands in its loss for a list of examples; the loop shuffles, updates, logs, checkpoints and resumes. The order
of examples is derived from (seed, stage, epoch), so a resumed stage sees what the undisturbed one would have seen.
With `patience`, the loop stops when the validation loss no longer falls, and the best weights are taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import Role
from trimtab.models.seeds import numpy_stream
from trimtab.runs.progress import progress
from trimtab.runs.run import Run
from trimtab.training.checkpoint import latest_checkpoint, load_checkpoint, prune, save_checkpoint, step_path
from trimtab.training.optim import Optimiser
from trimtab.training.precision import Precision

__all__ = ["Recipe", "fit"]

LossOf = Callable[[list[int]], tuple[Tensor, Mapping[str, float]]]
"""Indices of an update's examples -> (mean loss to minimise, signals to log)."""


class Recipe(Protocol):
    """How long, in what portions and at what rates: the fields that `[sft]` and `[preference]` have in common."""

    @property
    def epochs(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def warmup_fraction(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def max_grad_norm(self) -> float: ...
    @property
    def checkpoint_every(self) -> int: ...


def fit(
    stage: str,
    model: Role,
    loss_of: LossOf,
    examples: int,
    recipe: Recipe,
    *,
    precision: Precision,
    seed: int,
    run: Run | None = None,
    validate: Callable[[], Mapping[str, float]] | None = None,
    patience: int | None = None,
) -> list[dict[str, float]]:
    """Train `model` in place by AdamW with a linearly falling rate; returns the logged signals of every update.

    Args:
        stage: name of the stage in metrics, checkpoints and progress.
        loss_of: called with the indices of an update's examples.
        examples: how many there are; the last update of a pass may have fewer than `recipe.batch_size`.
        validate: signals on held-out examples, computed before the first update, at every checkpoint and at the end.
        patience: stop after so many checkpoints without a lower `loss/validation`, and end with the weights of the
            lowest; None: run to the end and keep the last weights.

    Raises:
        TrimtabError: no examples.
    """
    if examples == 0:
        raise TrimtabError(ErrorKind.DATA, f"{stage}: there is nothing to train on", "check the data file")
    per_pass = -(-examples // recipe.batch_size)
    total = recipe.epochs * per_pass
    optimiser = Optimiser(
        model, recipe.learning_rate, total_updates=total, weight_decay=recipe.weight_decay, schedule="linear",
        warmup_fraction=recipe.warmup_fraction,
    )  # fmt: skip
    best = _Best(patience)
    step, history = _resume(stage, model, optimiser, precision, best, run)
    with progress(total, stage, done=step) as bar:
        if step == 0 and validate is not None and run is not None:
            run.log(stage, 0, dict(validate()))
        while step < total and not best.given_up:
            epoch, update = divmod(step, per_pass)
            order = numpy_stream(seed, stage, "order", epoch).permutation(examples)
            chosen = order[update * recipe.batch_size : (update + 1) * recipe.batch_size].tolist()
            row = _update(loss_of, chosen, optimiser, recipe.max_grad_norm, precision)
            step += 1
            if history and "tokens" in row:
                row["tokens"] += history[-1]["tokens"]
            due = step == total or step % recipe.checkpoint_every == 0
            if due and validate is not None:
                row |= validate()
                best.note(row, model)
            history.append({"step": step, **row})
            if run is not None:
                run.log(stage, step, row)
                if due:
                    _checkpoint(stage, model, optimiser, precision, best, run, step)
            bar.advance(1, loss=row["loss/train"])
    best.restore(model)
    return history


class _Best:
    """The weights with the lowest validation loss so far; keeps nothing without patience."""

    def __init__(self, patience: int | None) -> None:
        self.patience = patience
        self.loss = math.inf
        self.waited = 0
        self.weights: dict[str, Tensor] = {}

    @property
    def given_up(self) -> bool:
        return self.patience is not None and self.waited >= self.patience

    def note(self, row: Mapping[str, float], model: Role) -> None:
        if self.patience is None:
            return
        if row["loss/validation"] < self.loss:
            self.loss, self.waited = row["loss/validation"], 0
            self.weights = {name: weight.detach().clone() for name, weight in model.own_state().items()}
        else:
            self.waited += 1

    def restore(self, model: Role) -> None:
        if self.weights:
            model.load_own_state(self.weights)

    def state_dict(self) -> dict[str, Any] | None:
        return None if self.patience is None else {"loss": self.loss, "waited": self.waited, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        if state is not None and self.patience is not None:
            self.loss, self.waited = float(state["loss"]), int(state["waited"])
            self.weights = dict(state["weights"])


def _update(
    loss_of: LossOf, chosen: list[int], optimiser: Optimiser, max_grad_norm: float, precision: Precision
) -> dict[str, float]:
    loss, signals = loss_of(chosen)
    precision.scale(loss).backward()
    precision.unscale(optimiser)
    norm = optimiser.gradient_norm()
    optimiser.scale_gradients(norm, max_grad_norm)
    precision.step([optimiser])
    return {
        "loss/train": float(loss.detach()),
        "gradient_norm": float(norm),
        "learning_rate": optimiser.last_learning_rate,
        **signals,
    }


def _checkpoint(
    stage: str, model: Role, optimiser: Optimiser, precision: Precision, best: _Best, run: Run, step: int
) -> None:
    state = {
        "step": step,
        "model": model.own_state(),
        "optimiser": optimiser.state_dict(),
        "precision": precision.state_dict(),
        "best": best.state_dict(),
    }
    save_checkpoint(step_path(run.checkpoint_dir(stage), step), state)
    prune(run.checkpoint_dir(stage), keep=1)


def _resume(
    stage: str, model: Role, optimiser: Optimiser, precision: Precision, best: _Best, run: Run | None
) -> tuple[int, list[dict[str, float]]]:
    if run is None:
        return 0, []
    path = latest_checkpoint(run.checkpoint_dir(stage))
    if path is None:
        run.rewind(stage, -1)  # an attempt that stopped before its first checkpoint begins again
        return 0, []
    state = load_checkpoint(path)
    model.load_own_state(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    precision.load_state_dict(state["precision"])
    best.load_state_dict(state.get("best"))
    step = int(state["step"])
    run.rewind(stage, step)
    return step, [row for row in run.metrics(stage) if 0 < row["step"] <= step]
