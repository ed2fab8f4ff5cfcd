"""The loop of the stages that learn from a fixed set of examples: SFT, the preference model and DPO.

A stage hands in its loss for a list of examples; the loop shuffles, updates, logs, checkpoints and resumes. The order
of examples is derived from (seed, stage, epoch), so a resumed stage sees what the undisturbed one would have seen.
With `patience`, the loop stops when the validation loss no longer falls, and the best weights are taken.
Examples that belong together are kept in one update where `groups` says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

from torch import Tensor

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.encoder import EncoderScalar
from trimtab.models.roles import Role
from trimtab.runs.progress import progress
from trimtab.runs.run import Run
from trimtab.training.checkpoint import latest_checkpoint, load_checkpoint, prune, save_checkpoint, step_path
from trimtab.training.optim import Optimiser
from trimtab.training.passes import Passes
from trimtab.training.precision import Precision

__all__ = ["Recipe", "fit"]

LossOf = Callable[[list[int]], tuple[Tensor, Mapping[str, float]]]
"""Indices of examples -> (mean loss to minimise, signals to log)."""
PartsOf = Callable[[list[int]], list[list[int]]]
"""Indices of an update's examples -> the same in the parts that are in memory at once."""


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
    model: Role | EncoderScalar,
    loss_of: LossOf,
    examples: int,
    recipe: Recipe,
    *,
    precision: Precision,
    seed: int,
    run: Run | None = None,
    validate: Callable[[], Mapping[str, float]] | None = None,
    patience: int | None = None,
    groups: Sequence[int] | None = None,
    member: int = 0,
    before: Callable[[int], None] | None = None,
    parts_of: PartsOf | None = None,
    schedule: Literal["constant", "linear", "cosine"] = "linear",
    probe: Callable[[int], Mapping[str, float]] | None = None,
    keep: int = 1,
) -> list[dict[str, float]]:
    """Train `model` in place by AdamW; returns the logged signals of every update.

    Args:
        stage: name of the stage in metrics, checkpoints and progress.
        loss_of: called with the indices of an update's examples.
        examples: how many there are; the last update of a pass may have fewer than `recipe.batch_size`.
        validate: signals on held-out examples, computed before the first update, at every checkpoint and at the end.
        patience: stop after so many checkpoints without a lower `loss/validation`, and end with the weights of the
            lowest; None: run to the end and keep the last weights.
        groups: which group each example belongs to; those of one are in the same update, which then has at most
            `recipe.batch_size` examples, or the whole of a larger group. None: each stands alone.
        member: of an ensemble; all but member 0 see another order, keep checkpoints in a directory of their own and
            log their signals as `member/<member>/<signal>`.
        before: called before each update with the number of updates made, such as to seed what is drawn in it.
        parts_of: cuts an update into parts, each with a backward pass of its own, which then add up to the update's
            gradient. Loss and signals must be means over the examples. None: an update is one part.
        schedule: of the learning rate after the warm-up, see `core.schedules`.
        probe: signals of what is only looked at, where `validate` would be called, with the number of updates made.
        keep: checkpoints kept, the newest ones.

    Raises:
        TrimtabError: no examples.
    """
    if examples == 0:
        raise TrimtabError(ErrorKind.DATA, f"{stage}: there is nothing to train on", "check the data file")
    passes = Passes((seed, stage), member, examples, recipe.batch_size, recipe.epochs, groups)
    total = passes.total
    optimiser = Optimiser(
        model, recipe.learning_rate, total_updates=total, weight_decay=recipe.weight_decay, schedule=schedule,
        warmup_fraction=recipe.warmup_fraction,
    )  # fmt: skip
    best = _Best(patience)
    book = None if run is None else _Book(run, stage, member)
    step, history = _resume(book, model, optimiser, precision, best, total)

    def measured(at: int) -> dict[str, float]:
        return dict({} if validate is None else validate()) | dict({} if probe is None else probe(at))

    with progress(total, stage if member == 0 else f"{stage} member {member}", done=step) as bar:
        if step == 0 and book is not None and (first := measured(0)):
            book.log(0, first)
        while step < total and not best.given_up:
            if before is not None:
                before(step)
            parts = [passes.update(step)] if parts_of is None else parts_of(passes.update(step))
            row = _update(loss_of, parts, optimiser, recipe.max_grad_norm, precision)
            step += 1
            if history and "tokens" in row:
                row["tokens"] += history[-1]["tokens"]
            due = step == total or step % recipe.checkpoint_every == 0
            if due:
                row |= measured(step)
                best.note(row, model)
            history.append({"step": step, **row})
            if book is not None:
                book.log(step, row)
                if due:
                    _checkpoint(book, model, optimiser, precision, best, step, keep)
            bar.advance(1, loss=row["loss/train"])
    best.restore(model)
    return history


class _Book:
    """Where a member's signals and checkpoints go in a run; the lines of all members have one step axis."""

    def __init__(self, run: Run, stage: str, member: int) -> None:
        self.run, self.stage, self.member = run, stage, member

    @property
    def checkpoints(self) -> Path:
        directory = self.run.checkpoint_dir(self.stage)
        return directory if self.member == 0 else directory / f"member-{self.member}"

    def log(self, step: int, signals: Mapping[str, float]) -> None:
        prefix = "" if self.member == 0 else f"member/{self.member}/"
        self.run.log(self.stage, step, {f"{prefix}{key}": value for key, value in signals.items()})

    def history(self, step: int) -> list[dict[str, float]]:
        """What was logged up to `step`, as the loop that logged it held it."""
        rows = [row for row in self.run.metrics(self.stage) if 0 < row["step"] <= step]
        if self.member == 0:
            return rows
        prefix = f"member/{self.member}/"
        return [
            {"step": row["step"], **{k.removeprefix(prefix): v for k, v in row.items() if k.startswith(prefix)}}
            for row in rows
        ]


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

    def note(self, row: Mapping[str, float], model: Role | EncoderScalar) -> None:
        if self.patience is None:
            return
        if row["loss/validation"] < self.loss:
            self.loss, self.waited = row["loss/validation"], 0
            self.weights = {name: weight.detach().clone() for name, weight in model.own_state().items()}
        else:
            self.waited += 1

    def restore(self, model: Role | EncoderScalar) -> None:
        if self.weights:
            model.load_own_state(self.weights)

    def state_dict(self) -> dict[str, Any] | None:
        return None if self.patience is None else {"loss": self.loss, "waited": self.waited, "weights": self.weights}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        if state is not None and self.patience is not None:
            self.loss, self.waited = float(state["loss"]), int(state["waited"])
            self.weights = dict(state["weights"])


def _update(
    loss_of: LossOf, parts: list[list[int]], optimiser: Optimiser, max_grad_norm: float, precision: Precision
) -> dict[str, float]:
    count = sum(len(part) for part in parts)
    row: dict[str, float] = defaultdict(float)
    for part in parts:
        share = len(part) / count
        loss, signals = loss_of(part)
        precision.scale(share * loss).backward()
        for key, value in ({"loss/train": float(loss.detach())} | dict(signals)).items():
            row[key] += share * value
    precision.unscale(optimiser)
    norm = optimiser.gradient_norm()
    optimiser.scale_gradients(norm, max_grad_norm)
    precision.step([optimiser])
    return {"gradient_norm": float(norm), "learning_rate": optimiser.last_learning_rate, **row}


def _checkpoint(
    book: _Book,
    model: Role | EncoderScalar,
    optimiser: Optimiser,
    precision: Precision,
    best: _Best,
    step: int,
    keep: int,
) -> None:
    state = {
        "step": step,
        "model": model.own_state(),
        "optimiser": optimiser.state_dict(),
        "precision": precision.state_dict(),
        "best": best.state_dict(),
    }
    save_checkpoint(step_path(book.checkpoints, step), state)
    prune(book.checkpoints, keep)


def _resume(
    book: _Book | None, model: Role | EncoderScalar, optimiser: Optimiser, precision: Precision, best: _Best, total: int
) -> tuple[int, list[dict[str, float]]]:
    if book is None:
        return 0, []
    path = latest_checkpoint(book.checkpoints)
    if path is None:
        if book.member == 0:
            book.run.rewind(book.stage, -1)  # an attempt that stopped before its first checkpoint begins again
        return 0, []
    state = load_checkpoint(path)
    model.load_own_state(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    precision.load_state_dict(state["precision"])
    best.load_state_dict(state.get("best"))
    step = int(state["step"])
    # Of a member that had come to its end nothing is taken back: others' lines may lie after it. Others write the same
    # lines again, which replace the old ones.
    if book.member == 0 and step < total and not best.given_up:
        book.run.rewind(book.stage, step)
    return step, book.history(step)
