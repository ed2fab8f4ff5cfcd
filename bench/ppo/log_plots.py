"""Small log-log plots side by side as one SVG file: what was measured, and beside it, dashed, what was counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

__all__ = ["Panel", "figure"]

WIDTH, HEIGHT, GAP = 330, 250, 16
LEFT, RIGHT, TOP, BOTTOM, LEGEND = 62, 12, 14, 46, 34
BLUE, GREY, INK, GRID = "#1f5fa8", "#b0541e", "#333", "#e4e4e4"


@dataclass(frozen=True)
class Panel:
    """One plot: numbers above 0; `spread` has the lowest and highest of each measured point."""

    x_label: str
    y_label: str
    x: Sequence[float]
    measured: Sequence[float]
    counted: Sequence[float]
    spread: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return round(self.start + share * (self.end - self.start), 1)


def figure(rows: Sequence[Sequence[Panel]], *, measured: str, counted: str) -> str:
    """The panels in rows and columns with one legend above them, as an SVG document."""
    columns = max(len(row) for row in rows)
    width, height = columns * (WIDTH + GAP) + GAP, LEGEND + len(rows) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}" role="img">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _line(GAP + 4, 18, GAP + 34, 18, BLUE, 2), _dot(GAP + 19, 18), _text(GAP + 42, 22, measured),
        _line(GAP + 264, 18, GAP + 294, 18, GREY, 1.6, dashed=True), _text(GAP + 302, 22, counted),
    ]  # fmt: skip
    for r, row in enumerate(rows):
        for c, panel in enumerate(row):
            at = f"translate({GAP + c * (WIDTH + GAP)} {LEGEND + r * (HEIGHT + GAP)})"
            parts.append(f'<g transform="{at}">{_panel(panel)}</g>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel) -> str:
    ys = [*panel.measured, *panel.counted, *(y for pair in panel.spread for y in pair)]
    x = _Scale(min(panel.x) / 1.15, max(panel.x) * 1.15, LEFT, WIDTH - RIGHT)
    y = _Scale(min(ys) / 1.25, max(ys) * 1.25, HEIGHT - BOTTOM, TOP)
    parts = []
    for value in _ticks(y.low, y.high):
        parts.append(_line(LEFT, y(value), WIDTH - RIGHT, y(value), GRID, 1))
        parts.append(_text(LEFT - 6, y(value) + 4, _number(value), "end"))
    for value in panel.x:
        parts.append(_line(x(value), TOP, x(value), HEIGHT - BOTTOM, GRID, 1))
        parts.append(_text(x(value), HEIGHT - BOTTOM + 15, _number(value), "middle"))
    frame = f'x="{LEFT}" y="{TOP}" width="{WIDTH - RIGHT - LEFT}" height="{HEIGHT - BOTTOM - TOP}"'
    parts.append(f'<rect {frame} fill="none" stroke="#999"/>')
    parts.append(_path([(x(a), y(b)) for a, b in zip(panel.x, panel.counted, strict=True)], GREY, 1.6, dashed=True))
    parts += [_line(x(a), y(low), x(a), y(high), BLUE, 1.2) for a, (low, high) in zip(panel.x, panel.spread)]  # noqa: B905 - may be none
    points = [(x(a), y(b)) for a, b in zip(panel.x, panel.measured, strict=True)]
    parts.append(_path(points, BLUE, 2))
    parts += [_dot(*place) for place in points]
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, panel.x_label, "middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = f'transform="translate(13 {middle}) rotate(-90)" text-anchor="middle"'
    parts.append(f"<text {turned}>{escape(panel.y_label)}</text>")
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten in the range, more of them in a small one, the powers alone in a large one."""
    steps = (1, 1.5, 2, 3, 4, 5, 7) if high / low <= 6 else (1, 2, 5) if high / low <= 100 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]


def _number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _dash(dashed: bool) -> str:
    return ' stroke-dasharray="5 4"' if dashed else ""


def _line(x0: float, y0: float, x1: float, y1: float, colour: str, width: float, *, dashed: bool = False) -> str:
    ends = f'x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"{_dash(dashed)}/>'


def _path(points: Sequence[tuple[float, float]], colour: str, width: float, *, dashed: bool = False) -> str:
    places = " ".join(f"{a},{b}" for a, b in points)
    return f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"{_dash(dashed)}/>'


def _dot(x: float, y: float) -> str:
    return f'<circle cx="{x}" cy="{y}" r="3.2" fill="{BLUE}"/>'
