"""Lines of `metrics.jsonl` and `samples.jsonl`: how they are made, and how a clean series is read back.

A stage may have run several times (attempts), may have gone on from a checkpoint, may have rolled back. Readers see one
attempt, without the lines that a rewind took back, and for a step that was logged twice the later value of each key.
"""

from __future__ import annotations

import math
import numbers
import time
from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.signals import RESERVED, lookup, nearest

__all__ = ["current_lines", "merge_steps", "metrics_line", "rewind_line", "stamp"]

_FLOAT_BITS = 1023
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def stamp(stage: str, step: object, attempt: int) -> dict[str, Any]:
    """The keys that every line starts with; `step` is a whole number from 0 on."""
    if isinstance(step, bool) or not isinstance(step, numbers.Integral) or step < 0:
        raise ValueError(f"a step is a whole number from 0 on, not {step!r}")
    return {"stage": stage, "step": int(step), "attempt": attempt, "time": round(time.time(), 3)}


def metrics_line(stage: str, step: int, attempt: int, signals: Mapping[str, float | int | None]) -> dict[str, Any]:
    """One line of metrics.

    Values that are not finite are written as null and named in `nonfinite` (`{"policy/loss": "nan"}`).

    Raises:
        TrimtabError: a key is not declared for the stage.
        TypeError: a value is not a number.
    """
    line = stamp(stage, step, attempt)
    nonfinite = {}
    for key, value in signals.items():
        _check_key(stage, key)
        number = _number(key, value)
        if isinstance(number, float) and not math.isfinite(number):
            nonfinite[key] = "nan" if math.isnan(number) else "inf" if number > 0 else "-inf"
            number = None
        line[key] = number
    return line | ({"nonfinite": nonfinite} if nonfinite else {})


def rewind_line(stage: str, step: int, attempt: int) -> dict[str, Any]:
    """A line that takes back every earlier line of the attempt with a step above `step`."""
    line = stamp(stage, max(step, 0), attempt)
    line["rewind_to"] = step
    return line


def current_lines(
    lines: Iterable[dict[str, Any]], stage: str | None, attempts: Mapping[str, int], attempt: int | None = None
) -> list[dict[str, Any]]:
    """The lines that count, in the order written.

    Args:
        lines: as read.
        stage: only this stage; None = all.
        attempts: attempt of each stage according to the manifest; a later one among the lines goes before it.
        attempt: this attempt instead of the last one.
    """
    kept: dict[tuple[str, int], list[dict[str, Any]]] = {}
    order: list[dict[str, Any]] = []
    for line in lines:
        name, n, back = line.get("stage"), line.get("attempt", 1), line.get("rewind_to")
        if not isinstance(name, str) or not _is_whole(line.get("step")) or not _is_whole(n):
            continue
        if stage not in (None, name):
            continue
        series = kept.setdefault((name, n), [])
        if isinstance(back, int) and not isinstance(back, bool):
            series[:] = [old for old in series if old["step"] <= back]
        else:
            series.append(line)
            order.append(line)
    last = dict(attempts)
    for name, n in kept:
        last[name] = max(last.get(name, 0), n)
    wanted = {
        id(line)
        for (name, n), series in kept.items()
        if n == (last[name] if attempt is None else attempt)
        for line in series
    }
    return [line for line in order if id(line) in wanted]


def merge_steps(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One record a stage and step, by step; later values win; NaN and infinities are floats again.

    What is neither a number nor null is left out: another program, or a damaged disk, may have put it there.
    """
    merged: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        record = {k: v for k, v in line.items() if k in ("stage", "step", "attempt") or _is_value(v)}
        nonfinite = line.get("nonfinite")
        for key, word in nonfinite.items() if isinstance(nonfinite, dict) else ():
            if key not in RESERVED:
                record[key] = _NONFINITE.get(str(word), math.nan)
        merged.setdefault((line["stage"], line["step"]), {}).update(record)
    stages = list(dict.fromkeys(stage for stage, _ in merged))
    return [merged[key] for key in sorted(merged, key=lambda k: (stages.index(k[0]), k[1]))]


def _is_whole(value: object) -> bool:
    """Whether `value` can count steps or attempts: a whole number from 0 on that fits 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _is_value(value: object) -> bool:
    """Whether `value` is null or a number that a float can hold (its size, not each digit)."""
    if value is None or isinstance(value, float):
        return True
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= _FLOAT_BITS


def _check_key(stage: str, key: str) -> None:
    signal = lookup(key)
    if signal is None or key in RESERVED:
        near = nearest(key)
        raise TrimtabError(
            ErrorKind.RUN,
            f"signal {key!r} is not declared",
            f"Did you mean {near!r}? " * bool(near) + "Signals of your own go under user/, such as user/my_signal.",
        )
    if stage not in signal.stages:
        raise TrimtabError(
            ErrorKind.RUN, f"signal {key!r} is declared for {', '.join(signal.stages)}, not for stage {stage!r}"
        )


def _number(key: str, value: object) -> float | int | None:
    if value is None:
        return None
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    raise TypeError(f"signal {key!r}: a {type(value).__name__} is not a number")
