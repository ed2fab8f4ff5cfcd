"""The step of each row, and what becomes of steps that come more than once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.doctor.importers.dialects.generic import normal
from trimtab.doctor.importers.table import Column, Table
from trimtab.doctor.log import Aggregation, Floats

__all__ = ["Timeline", "collapse", "first_of_each", "timeline"]

Steps = NDArray[np.int64]

_NAMES = (
    "step", "global_step", "_step", "steps", "current_steps", "training/global_step", "trainer/global_step",
    "global_steps",
    "training_step", "train_step", "trainer_step", "optim_step", "iteration", "iter", "iterations", "update", "updates",
    "rollout/step", "rollout_step", "batch", "time/total_timesteps", "total_timesteps", "time/iterations", "step_num",
    "num_steps", "consumed_samples", "episode", "episodes", "epoch",
)  # fmt: skip
_MINIBATCH = (
    "minibatch",
    "mini_batch",
    "minibatch_idx",
    "mini_batch_idx",
    "micro_step",
    "ppo_ep",
    "ppo_epoch",
    "inner_epoch",
)
_LARGEST = 2**62


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """Steps of a table's rows.

    Args:
        steps: [rows], never falling after `order` is applied.
        order: [kept] the rows that count, in the order of their steps; None: all rows, as they are.
        names: columns used for it.
        back: how often the step went back (a resumed run), and how many rows that made worthless.
        superseded: rows that a later one of the same or an earlier step replaced.
        unordered: the rows were not in the order of their steps at all.
        missing: rows without a step, which got that of the row before.
    """

    steps: Steps
    order: NDArray[np.int64] | None
    names: tuple[str, ...]
    back: int = 0
    superseded: int = 0
    unordered: bool = False
    missing: int = 0


def timeline(table: Table, wanted: Sequence[str] = ()) -> Timeline:
    """The steps of the rows: from the file's form, a column that counts, or the number of the row."""
    if table.steps is not None:
        return _ordered(table.steps.copy(), (), 0)
    if not table.rows:
        return Timeline(np.empty(0, np.int64), None, ())
    forms: dict[str, str] = {}
    for name in table.columns:
        for form in (name, normal(name)):
            forms.setdefault(form, name)
    usable: list[tuple[str, Steps, int]] = []
    for form in dict.fromkeys((*wanted, *_NAMES)):
        name = forms.get(form, "")
        if not name or (form == "epoch" and usable) or (form in _MINIBATCH):
            continue
        found = _counting(table, table.columns[name], strict=form in ("epoch", "batch"))
        if found is not None:
            usable.append((name, *found))
    if not usable:
        return Timeline(np.arange(1, table.rows + 1, dtype=np.int64), None, ())
    steady = [u for u in usable if not bool((np.diff(u[1]) < 0).any())]
    name, steps, missing = (steady or usable)[0]
    if not steady:
        steps = _through_epochs(table, forms, steps)
    return _ordered(steps, (name,), missing)


def _counting(table: Table, column: Column, *, strict: bool) -> tuple[Steps, int] | None:
    """The column as steps of all rows, and how many rows lack one; None where it does not count."""
    values, rows = column.values, column.rows
    good = np.isfinite(values) & (np.abs(np.where(np.isfinite(values), values, 0)) < _LARGEST)
    if not good.all():
        values, rows = values[good], rows[good]
    if len(values) == 0 or len(values) * 2 < table.rows or bool((values != np.floor(values)).any()):
        return None
    if strict and bool((np.diff(values) <= 0).any()):
        return None
    if len(values) > 1 and bool((values == values[0]).all()):
        return None
    whole = values.astype(np.int64)
    if len(whole) == table.rows:
        return whole, 0
    position = np.searchsorted(rows, np.arange(table.rows), side="right") - 1
    return whole[np.maximum(position, 0)], table.rows - len(whole)


def _through_epochs(table: Table, forms: dict[str, str], steps: Steps) -> Steps:
    """Steps that start again with every epoch, counted through."""
    column = table.columns.get(forms.get("epoch", forms.get("episode", "")))
    if column is None or len(column) != len(steps):
        return steps
    resets = np.flatnonzero(np.diff(steps) < 0) + 1
    risen = np.diff(column.values)[resets - 1] > 0
    if not risen.all():
        return steps
    offset = np.zeros(len(steps), np.int64)
    for at in resets:
        gap = 1 if steps[at] == 0 else 0
        offset[at:] = steps[at - 1] + offset[at - 1] + gap
    return steps + offset


def _ordered(steps: Steps, names: tuple[str, ...], missing: int) -> Timeline:
    falls = int((np.diff(steps) < 0).sum())
    if falls == 0:
        return Timeline(steps, None, names, missing=missing)
    if falls >= 3 and falls * 4 > len(steps) - 1:
        order = np.argsort(steps, kind="stable")
        return Timeline(steps, order, names, unordered=True, missing=missing)
    later = np.minimum.accumulate(steps[::-1])[::-1]  # the smallest step from here on
    block = np.concatenate(([True], np.diff(steps) != 0))
    ends = np.append(np.flatnonzero(block)[1:], len(steps))
    next_smallest = np.append(later, np.iinfo(np.int64).max)[ends]
    keep = steps < next_smallest[np.cumsum(block) - 1]
    return Timeline(steps, np.flatnonzero(keep), names, falls, int((~keep).sum()), missing=missing)


def collapse(steps: Steps, values: Floats, how: Aggregation) -> tuple[Steps, Floats]:
    """One value a step, of values whose steps never fall: the mean, or what `how` says."""
    if len(steps) < 2:
        return steps, values
    fresh = np.diff(steps) > 0
    if fresh.all():
        return steps, values
    starts = np.concatenate(([0], np.flatnonzero(fresh) + 1))
    with np.errstate(invalid="ignore", over="ignore"):
        if how is Aggregation.MAX:
            merged = np.maximum.reduceat(values, starts)
        elif how is Aggregation.MIN:
            merged = np.minimum.reduceat(values, starts)
        elif how is Aggregation.LAST:
            merged = values[np.append(starts[1:], len(values)) - 1]
        else:
            counts = np.diff(np.append(starts, len(values)))
            merged = np.add.reduceat(values, starts) / counts
    return steps[starts], merged


def first_of_each(steps: Steps, values: Floats) -> tuple[Steps, Floats]:
    """The first value of each step."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(steps) > 0) + 1)) if len(steps) else np.empty(0, np.int64)
    return steps[starts], values[starts]
