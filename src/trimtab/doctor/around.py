"""Every signal near one step: its value there, where it came from, where it went, and how unusual the move is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.doctor.diagnosis import Diagnosis
from trimtab.doctor.log import Series
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.figures import figure

__all__ = ["WINDOW", "Around", "Near", "signals_around"]

WINDOW = 10
"""Log points looked at on each side of the step."""
_MAD = 1.4826  # median absolute deviation to standard deviation of a normal distribution


@dataclass(frozen=True, slots=True)
class Near:
    """One signal near the step.

    Args:
        key: our name of it.
        name: the log's.
        unit: of the values.
        step: the logged step nearest to the one asked for.
        value: there; NaN and infinities as the log had them.
        before: median of up to `WINDOW` points before `step`; None without any.
        after: median of up to `WINDOW` points after it; None without any.
        shift: `value - before` in robust standard deviations of the points before; None where these do not vary.
    """

    key: str
    name: str
    unit: str
    step: int
    value: float
    before: float | None
    after: float | None
    shift: float | None


@dataclass(frozen=True, slots=True)
class Around:
    """Every signal near `step`, the most unusual move first."""

    step: int
    signals: tuple[Near, ...]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "step": self.step,
            "signals": [{name: getattr(near, name) for name in Near.__slots__} for near in self.signals],
        }

    def table(self) -> tuple[tuple[str, ...], list[tuple[object, ...]], tuple[int, ...]]:
        """Headers, rows and right-aligned columns."""
        rows: list[tuple[object, ...]] = [
            (n.key, n.name if n.name != n.key else "", n.step, _shown(n.before), _shown(n.value), _shown(n.after),
             None if n.shift is None else f"{n.shift:+.1f}", n.unit)
            for n in self.signals
        ]  # fmt: skip
        headers = ("signal", "in the log", "step", "before", "at", "after", "sd", "unit")
        return headers, rows, (2, 3, 4, 5, 6)


def signals_around(diagnosis: Diagnosis, step: int) -> Around:
    """Every signal of the logs that were read near `step`.

    Raises:
        TrimtabError: kind usage: no log has steps, or the step is outside of them.
    """
    spans = [log.steps for log in diagnosis.logs if log.steps is not None]
    if not spans:
        raise TrimtabError(ErrorKind.USAGE, f"--around {step}: nothing that was read has steps", "it is for logs")
    first, last = min(s[0] for s in spans), max(s[1] for s in spans)
    if not first <= step <= last:
        raise TrimtabError(
            ErrorKind.USAGE, f"--around {step}: the log has steps {first} to {last}", "name one of these"
        )
    near = [_near(s, step) for log in diagnosis.logs for s in log.series.values() if len(s)]
    near.sort(key=lambda n: -abs(n.shift) if n.shift is not None and not math.isnan(n.shift) else 0.0)
    return Around(step, tuple(near))


def _near(series: Series, step: int) -> Near:
    at = int(np.argmin(np.abs(series.steps - step)))
    value = float(series.values[at])
    left, right = series.values[max(at - WINDOW, 0) : at], series.values[at + 1 : at + 1 + WINDOW]
    before, after = _median(left), _median(right)
    shift = None
    if before is not None and len(left) >= 3 and math.isfinite(value):
        spread = _MAD * float(np.median(np.abs(left[np.isfinite(left)] - before)))
        shift = (value - before) / spread if spread > 0 else None
    return Near(series.key, series.name, str(series.unit), int(series.steps[at]), value, before, after, shift)


def _median(values: np.ndarray[Any, np.dtype[np.float64]]) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def _shown(value: float | None) -> str | None:
    return None if value is None else figure(value)
