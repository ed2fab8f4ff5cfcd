"""Figures for people: as many digits as their interval supports. Every room may import this; it imports nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["figure", "finite", "share", "signed", "with_interval"]


def figure(x: float, width: float | None = None) -> str:
    """`x` with three significant digits, or with two digits of the interval `width` where there is one."""
    scale = abs(x) / 10 if width is None else width
    if not math.isfinite(x):
        return str(x)
    if 0 < scale < 1e-5:
        return f"{x:.2e}"
    if abs(x) >= 1e7:
        return f"{x:.3g}"
    decimals = 2 if scale == 0 or not math.isfinite(scale) else max(1 - math.floor(math.log10(scale)), 0)
    text = f"{x:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def finite(value: Any) -> Any:
    """A value as JSON has it: numbers that are not finite become None, in tables and lists too."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def signed(x: float, width: float | None = None) -> str:
    """As `figure`, with a plus sign where above 0."""
    text = figure(x, width)
    return f"+{text}" if float(text) > 0 else text


def share(x: float) -> str:
    """A share as a percentage, with one decimal below 10 and above 99: `61 %`, `2.5 %`."""
    percent = 100 * x
    return f"{percent:.0f} %" if 10 <= percent <= 99 or percent in (0, 100) else f"{percent:.1f} %"


def with_interval(
    value: float, low: float | None, high: float | None, *, sign: bool = False, percent: bool = False
) -> str:
    """`+0.12 [0.05, 0.19]` or `61 % [55, 67]`; the interval is left out where it is not known."""
    factor, unit = (100, " %") if percent else (1, "")
    show = signed if sign else figure
    if low is None or high is None:
        return show(factor * value) + unit
    width = factor * (high - low)
    return f"{show(factor * value, width)}{unit} [{figure(factor * low, width)}, {figure(factor * high, width)}]"
