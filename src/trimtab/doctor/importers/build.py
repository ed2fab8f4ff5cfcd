"""From a table of numbers to a `Log`: which quantity each column is, in which unit, at which steps."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab.doctor.importers.dialects import Dialect, Meaning, meaning_of, recognise
from trimtab.doctor.importers.dialects.base import to
from trimtab.doctor.importers.dialects.generic import normal
from trimtab.doctor.importers.steps import Timeline, collapse, first_of_each, timeline
from trimtab.doctor.importers.table import Column, Skips, Table
from trimtab.doctor.log import Estimator, Floats, Log, Series, Stage, Unit
from trimtab.doctor.quantities import nearest, quantity
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["MOST_STEPS", "build", "check_mapping"]

_PLANNED = (
    "max_steps",
    "total_steps",
    "total_timesteps",
    "num_training_steps",
    "total_training_steps",
    "num_total_steps",
)
_MOST_PER_TOKEN = 13.0  # nats: the logarithm of a vocabulary of 400,000
MOST_STEPS = 2**53
_LEAST_KL = 1e-3  # nats: below, the quotient that gives beta is noise
_MINIBATCH = ("minibatch", "mini_batch", "minibatch_idx", "mini_batch_idx")


def check_mapping(mapping: Mapping[str, str]) -> None:
    """Whether the left sides of `--map` are quantities (or `step`).

    Raises:
        TrimtabError: one is not.
    """
    for ours, theirs in mapping.items():
        if ours != "step" and (quantity(ours) is None or "<" in ours):
            near = nearest(ours)
            raise TrimtabError(
                ErrorKind.USAGE,
                f"--map {ours[:80]}={theirs[:80]}: {ours[:80]!r} is no quantity that the doctor knows",
                f"Did you mean {near!r}? " * bool(near) + "The part before `=` is the doctor's name.",
            )


@dataclass(slots=True)
class _Found:
    """A column and what it was taken for; `rank` decides between two columns of one key."""

    name: str
    column: Column
    meaning: Meaning
    rank: int


def build(table: Table, path: str, mapping: Mapping[str, str] | None = None) -> Log:
    """The log that `table` is, with every series in its canonical unit.

    Args:
        table: numbers by the log's own names.
        path: of the file, for reports.
        mapping: canonical key (or `step`) -> the log's name; goes before what the names say themselves.
    """
    mapping = mapping or {}
    skips = Skips()
    skips.merge(table.skipped)
    dialect = recognise(frozenset(table.columns), table.hint)
    found, unmapped, unknown = _assign(table, dialect, mapping, skips)
    wanted = [mapping["step"]] if "step" in mapping else list(dialect.steps)
    times = timeline(table, wanted)
    _tell(times, skips)
    series: dict[str, Series] = {}
    for key, item in found.items():
        made = _series(key, item, times)
        if len(made):
            series[key] = made
    _first_ratio(found.get("policy/ratio_mean"), table, times, series)
    _derive(series)
    if dialect.framework == "unknown":
        _distrust(series, unknown)
    shown = times.steps if times.order is None else times.steps[times.order]
    return Log(
        path=f"{path} [{table.part}]" if table.part else path,
        format=table.format,
        framework=dialect.framework,
        stage=_stage(dialect, series),
        algorithm=_algorithm(dialect, series),
        rows=table.rows,
        steps=(int(shown[0]), int(shown[-1])) if len(shown) else None,
        planned_steps=_planned(table),
        series=series,
        config=_config(table),
        skipped=skips.all,
        unmapped=tuple(n for n in unmapped if n not in times.names),
        unit_unknown=unknown,
        truncated=table.truncated,
    )


def _tell(times: Timeline, skips: Skips) -> None:
    """Say what the steps of the rows lost."""
    if times.back:
        skips.add(
            "rows of steps that were logged again later (a resumed run); the later ones count",
            None,
            f"the step went back {times.back} times" if times.back > 1 else "the step went back once",
            times.superseded,
        )
    if times.unordered:
        skips.add("rows out of the order of their steps; they were sorted")
    if times.missing:
        skips.add("rows without a step; they have that of the row before", count=times.missing)


def _assign(
    table: Table, dialect: Dialect, mapping: Mapping[str, str], skips: Skips
) -> tuple[dict[str, _Found], list[str], dict[str, str]]:
    """Columns by canonical key; names nobody knows; keys whose unit is unknown, with the name."""
    found: dict[str, _Found] = {}
    unmapped: list[str] = []
    unknown: dict[str, str] = {}
    taken = {theirs: ours for ours, theirs in mapping.items()}
    for theirs in taken:
        if theirs not in table.columns:
            skips.add(f"--map names {theirs!r}, which this log does not have")
    order = {name: i for i, name in enumerate(dialect.names)}
    for name, column in table.columns.items():
        if name in taken:
            ours = taken[name]
            if ours != "step":
                found[ours] = _Found(
                    name, column, to(ours, Estimator.UNKNOWN if ours.startswith("kl/") else Estimator.NONE), -1
                )
            continue
        meaning = meaning_of(name, dialect)
        if meaning is None:
            unmapped.append(name)
        elif meaning.unknown_unit:
            if meaning.key not in unknown or "loss" in unknown[meaning.key]:  # `kl` says more than `kl_loss`
                unknown[meaning.key] = name
        elif meaning.key:
            rank = order.get(name, order.get(name.removeprefix("train/"), len(order) + 1))
            key = meaning.key
            if key in found and _is_held_out(name) != _is_held_out(found[key].name):
                key = f"held_out/{key}" if _is_held_out(name) else key
            if key == "score/mean" and dialect.framework == "unknown" and key in found:
                key = _of_two_rewards(name, found)
            if key not in found or rank < found[key].rank:
                found[key] = _Found(name, column, meaning, rank)
    if dialect.framework == "unknown":
        _promote_component(found)
    return found, unmapped, {k: n for k, n in unknown.items() if k not in found}


def _of_two_rewards(name: str, found: dict[str, _Found]) -> str:
    """The key of a second mean reward: beside a `score` the `reward` is what is left after the KL penalty."""
    first = found["score/mean"]
    if "score" in normal(name) and "score" not in normal(first.name):
        found["reward/mean"] = replace(first, meaning=to("reward/mean"))
        del found["score/mean"]
        return "score/mean"
    return "reward/mean" if "score" in normal(first.name) and "score" not in normal(name) else "score/mean"


def _promote_component(found: dict[str, _Found]) -> None:
    """A log with one named reward and no other, or with nothing but a judge's score, means that by the score."""
    reserved = ("score/mean", "score/std", "score/min", "score/max", "score/group_std")
    parts = [key for key in found if key.startswith("score/") and key not in reserved]
    parts = parts or [key for key in found if key.startswith("eval/judge_")]
    if "score/mean" not in found and len(parts) == 1:
        found["score/mean"] = replace(found.pop(parts[0]), meaning=to("score/mean"))


def _is_held_out(name: str) -> bool:
    return normal(name).startswith(("eval", "val", "test"))


def _series(key: str, item: _Found, times: Timeline) -> Series:
    column, meaning = item.column, item.meaning
    rows, values = column.rows, column.values
    if times.order is not None:
        keep = np.isin(rows, times.order) if not times.unordered else np.ones(len(rows), bool)
        rows, values = rows[keep], values[keep]
        if times.unordered:
            again = np.argsort(times.steps[rows], kind="stable")
            rows, values = rows[again], values[again]
    if meaning.convert is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            values = meaning.convert(values)
    steps = times.steps if len(rows) == len(times.steps) and times.order is None else times.steps[rows]
    steps, values = collapse(steps, values, meaning.aggregation)
    known = quantity(key)
    unit = meaning.unit or (known.unit if known else Unit.UNKNOWN)
    estimator = meaning.estimator
    if estimator is Estimator.K3 and bool((values < -1e-6).any()):
        estimator = Estimator.UNKNOWN  # k3 is never negative: another estimator was configured
    return Series(key, item.name, steps, values, unit, estimator, meaning.aggregation, meaning.masked, meaning.derived)


def _first_ratio(item: _Found | None, table: Table, times: Timeline, series: dict[str, Series]) -> None:
    """`policy/ratio_first` where several minibatches of one batch were logged."""
    if item is None or "policy/ratio_first" in series or times.order is not None or not len(item.column):
        return
    ratio = series["policy/ratio_mean"]
    steps = times.steps[item.column.rows]
    minibatch = next((table.columns[n] for n in table.columns if normal(n) in _MINIBATCH), None)
    words = "the first of several minibatches of a step"
    if len(ratio) < len(item.column):
        first = first_of_each(steps, item.column.values)
    elif minibatch is not None and len(minibatch) == len(item.column):
        epoch = next((c for n, c in table.columns.items() if normal(n) in ("epoch", "ppo_epoch", "ppo_ep")), None)
        start = minibatch.values == np.min(minibatch.values)
        if epoch is not None and len(epoch) == len(minibatch):
            start &= epoch.values == np.min(epoch.values)
        first = steps[start], item.column.values[start]
        words = "the rows of the first minibatch"
    else:
        return
    series["policy/ratio_first"] = replace(
        ratio, key="policy/ratio_first", steps=first[0], values=first[1], derived=words
    )


def _derive(series: dict[str, Series]) -> None:
    """KL per token from KL per sequence and back, by the length; what was cut off from what ended by itself."""
    for there, back, factor in (
        ("kl/reference", "kl/reference_per_token", -1.0), ("kl/reference_per_token", "kl/reference", 1.0)
    ):  # fmt: skip
        kl, length = series.get(there), series.get("response/length_mean")
        if kl is None or back in series or length is None or kl.derived.startswith("from"):
            continue
        made = _scaled(kl, length, factor)
        if made is not None:
            known = quantity(back)
            word = "divided" if factor < 0 else "multiplied"
            series[back] = replace(
                kl, key=back, steps=made[0], values=made[1], unit=known.unit if known else Unit.UNKNOWN,
                derived=f"from {kl.name}, {word} by {length.name}",
            )  # fmt: skip
    finished = series.get("response/finished_fraction")
    if finished is not None and "response/truncated_fraction" not in series:
        series["response/truncated_fraction"] = replace(
            finished,
            key="response/truncated_fraction",
            values=1.0 - finished.values,
            derived=f"1 minus {finished.name}",
        )
    penalty, kl = series.get("reward/penalty"), series.get("kl/reference")
    if (
        penalty is not None
        and kl is not None
        and "kl/beta" not in series
        and penalty.unit is Unit.REWARD
        and not kl.derived
    ):
        common, a, b = np.intersect1d(penalty.steps, kl.steps, assume_unique=True, return_indices=True)
        usable = np.abs(kl.values[b]) > _LEAST_KL
        if usable.any():
            series["kl/beta"] = replace(
                kl, key="kl/beta", steps=common[usable], values=-penalty.values[a][usable] / kl.values[b][usable],
                unit=Unit.ONE, estimator=Estimator.NONE, derived=f"minus {penalty.name} / {kl.name}",
            )  # fmt: skip
    count, size = series.get("response/eos_count"), series.get("batch/size")
    if count is not None and size is not None and "response/eos_fraction" not in series:
        common, a, b = np.intersect1d(count.steps, size.steps, return_indices=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            values = count.values[a] / size.values[b]
        series["response/eos_fraction"] = replace(
            count, key="response/eos_fraction", steps=common, values=values, unit=Unit.FRACTION,
            derived=f"{count.name} / {size.name}",
        )  # fmt: skip


def _scaled(kl: Series, length: Series, power: float) -> tuple[Any, Floats] | None:
    """`kl` times `length` to a power, at the steps of both."""
    common, a, b = np.intersect1d(kl.steps, length.steps, assume_unique=True, return_indices=True)
    if not len(common):
        return None
    tokens = length.values[b]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        values = kl.values[a] * np.where(tokens > 0, tokens, math.nan) ** power
    return common, values


def _distrust(series: dict[str, Series], unknown: dict[str, str]) -> None:
    """Leave out an entropy of an unknown framework that cannot be one of a token's distribution."""
    entropy = series.get("policy/entropy")
    if entropy is not None:
        finite = entropy.finite[1]
        if len(finite) and (float(np.median(finite)) > _MOST_PER_TOKEN or float(np.median(finite)) < 0):
            del series["policy/entropy"]
            unknown["policy/entropy"] = entropy.name


def _stage(dialect: Dialect, series: Mapping[str, Series]) -> Stage:
    if dialect.stage is not Stage.UNKNOWN:
        return dialect.stage if series or dialect.framework != "unknown" else Stage.UNKNOWN
    if any(k.startswith("dpo/") for k in series):
        return Stage.DIRECT
    return Stage.UNKNOWN


def _algorithm(dialect: Dialect, series: Mapping[str, Series]) -> str:
    if dialect.algorithm or dialect.stage is not Stage.POLICY:
        return dialect.algorithm
    return "ppo" if any(k.startswith("value/") and k not in _RETURNS for k in series) else ""


_RETURNS = ("value/return_mean", "value/return_std", "value/return_min", "value/return_max")


def _planned(table: Table) -> int | None:
    for name, column in table.columns.items():
        if normal(name) in _PLANNED and len(column):
            last = column.values[-1]
            if math.isfinite(last) and 0 < last < MOST_STEPS and bool((column.values == last).mean() > 0.5):
                return int(last)
    for source in (table.planned_steps, table.config.get("max_steps"), table.config.get("total_training_steps")):
        if isinstance(source, int) and not isinstance(source, bool) and 0 < source < MOST_STEPS:
            return source
    return None


_SETTING = re.compile(r"(?:kl_?coef\w*|beta|temperature|clip_?range\w*|max_completion_length|lr_init|num_generations)")


def _config(table: Table) -> dict[str, Any]:
    config = dict(table.config)
    for name, column in table.columns.items():
        if (
            _SETTING.fullmatch(normal(name).rsplit("/", 1)[-1])
            and len(column)
            and bool((column.values == column.values[0]).all())
        ):
            config.setdefault(name, float(column.values[0]))
    return config
