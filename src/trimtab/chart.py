"""Small charts as inline SVG: lines over steps, and intervals on a common axis. No script, no colour of their own.

Colours, fonts and line widths come from the page's style sheet through class names, so that light and dark both work.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from trimtab.figures import figure
from trimtab.hostile import visible

__all__ = ["Forest", "Line", "forest_chart", "line_chart", "thin", "ticks"]

Point = tuple[float, float]

WIDTH, HEIGHT = 340, 150
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 8, 20
MOST_POINTS, FEW_POINTS = 300, 14


@dataclass(frozen=True, slots=True)
class Line:
    """What a line chart shows.

    Args:
        points: (step, value), by step; a value that is not finite interrupts the line and is marked.
        spread: standard deviation at some of the steps, shown as a band around the line.
        dots: further (step, value) points on the same axis.
        healthy: (low, high) of the band where the value is expected; None = open.
        label: what the chart says, for readers who cannot see it.
        onset: a step to be marked with a line across; None = none.
    """

    points: Sequence[Point]
    label: str
    spread: Sequence[Point] = ()
    dots: Sequence[Point] = ()
    healthy: tuple[float | None, float | None] | None = None
    onset: float | None = None


@dataclass(frozen=True, slots=True)
class Forest:
    """One row of an interval chart; `strong`: the interval excludes the mark."""

    value: float
    low: float | None
    high: float | None
    strong: bool


@dataclass(frozen=True, slots=True)
class _Scale:
    """From data to pixels."""

    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        share = (value - self.x0) / (self.x1 - self.x0) if self.x1 > self.x0 else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        share = (min(max(value, self.y0), self.y1) - self.y0) / (self.y1 - self.y0)
        return round(HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM), 1)


def line_chart(line: Line) -> Markup:
    """The chart as an `<svg>` element; empty where no value is finite."""
    points = thin(line.points, MOST_POINTS)
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if not finite:
        return Markup("")
    dots = thin([(x, y) for x, y in line.dots if math.isfinite(y)], MOST_POINTS)
    area = _area(finite, dict(line.spread))
    scale = _scale(points, [*finite, *dots, *area])
    parts = [_healthy(line.healthy, scale), _grid(scale), _onset(line.onset, scale)]
    if area:
        parts.append(Markup('<polygon class="spread" points="{}"/>').format(_path(area, scale)))
    for run in _unbroken(points):
        # a line of one point would be invisible; few points are measurements far apart
        line_of = Markup('<polyline class="line" points="{}"/>')
        parts.append(line_of.format(_path(run, scale)) if len(run) > 1 else _circle("line-dot", *run[0], scale, 2))
    if len(points) <= FEW_POINTS:
        parts += [_circle("line-dot", x, y, scale, 2.2) for x, y in finite]
    parts += [_circle("probe", x, y, scale, 2.5) for x, y in dots]
    parts += [_lost(x, scale) for x, y in points if not math.isfinite(y)]
    parts.append(_circle("last", *finite[-1], scale, 3.5))
    return _svg(WIDTH, HEIGHT, line.label, parts)


def forest_chart(row: Forest, *, axis: tuple[float, float], mark: float, label: str) -> Markup:
    """An estimate with its interval on an axis, with a line at `mark` (no difference)."""
    width, height = 220, 26
    low, high = axis

    def at(value: float) -> float:
        return round(6 + (min(max(value, low), high) - low) / (high - low) * (width - 12), 1)

    strength = "strong" if row.strong else "weak"
    parts = [Markup('<line class="axis" x1="6" x2="{}" y1="13" y2="13"/>').format(width - 6)]
    parts.append(Markup('<line class="mark" x1="{0}" x2="{0}" y1="2" y2="24"/>').format(at(mark)))
    if row.low is not None and row.high is not None:
        ends = Markup('<line class="interval {}" x1="{}" x2="{}" y1="13" y2="13"/>')
        parts.append(ends.format(strength, at(row.low), at(row.high)))
    parts.append(Markup('<circle class="estimate {}" cx="{}" cy="13" r="4.5"/>').format(strength, at(row.value)))
    return _svg(width, height, label, parts)


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most about `most` points: the lowest and highest of each bucket, first, last and lost values kept."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(2 * len(points) / most)
    kept: set[int] = {0, len(points) - 1}
    for start in range(0, len(points), size):
        bucket = range(start, min(start + size, len(points)))
        finite = [i for i in bucket if math.isfinite(points[i][1])]
        lost = [i for i in bucket if not math.isfinite(points[i][1])]
        kept |= set(lost[:1])
        if finite:
            kept |= {min(finite, key=lambda i: points[i][1]), max(finite, key=lambda i: points[i][1])}
    return [points[i] for i in sorted(kept)]


def ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Round numbers inside [low, high]."""
    raw = (high - low) / about
    if not math.isfinite(raw) or raw <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((m * power for m in (1, 2, 2.5, 5) if m * power >= raw), 10 * power)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _scale(points: Sequence[Point], drawn: Sequence[Point]) -> _Scale:
    ys = [y for _, y in drawn]
    low, high = min(ys), max(ys)
    # a flat line is drawn in the middle; the floor keeps rounding noise from being blown up into a curve
    room = max((high - low) * 0.06, 1e-6 * max(abs(low), abs(high)), 1e-12)
    if high - low < 2 * room:
        room = 0.1 * abs(high) or 0.1
    xs = [x for x, _ in (*points, *drawn)]
    return _Scale(min(xs), max(xs), low - room, high + room)


def _healthy(band: tuple[float | None, float | None] | None, scale: _Scale) -> Markup:
    if band is None:
        return Markup("")
    top = scale.y(scale.y1 if band[1] is None else band[1])
    bottom = scale.y(scale.y0 if band[0] is None else band[0])
    if bottom - top <= 0:
        return Markup("")
    box = Markup('<rect class="healthy" x="{}" y="{}" width="{}" height="{}"/>')
    return box.format(LEFT, top, WIDTH - LEFT - RIGHT, round(bottom - top, 1))


def _onset(step: float | None, scale: _Scale) -> Markup:
    if step is None or not scale.x0 <= step <= scale.x1:
        return Markup("")
    mark = Markup('<line class="onset" x1="{0}" x2="{0}" y1="{1}" y2="{2}"><title>{3:g}</title></line>')
    return mark.format(scale.x(step), TOP, HEIGHT - BOTTOM, step)


def _grid(scale: _Scale) -> Markup:
    rows = []
    for value in ticks(scale.y0, scale.y1):
        y = scale.y(value)
        rows.append(Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, y, y))
        rows.append(Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(LEFT - 5, y + 3.5, _tick(value)))
    inside = {int(t) for t in ticks(scale.x0, scale.x1) if t == int(t)}
    for step in sorted(inside or {int(scale.x0)}):
        place = Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>')
        rows.append(place.format(scale.x(step), HEIGHT - 5, f"{step:g}"))
    return Markup("").join(rows)


def _tick(value: float) -> str:
    text = f"{value:.4g}" if abs(value) >= 1e-9 else "0"
    return text.replace("-", "−")


def _area(points: Sequence[Point], spread: dict[float, float]) -> list[Point]:
    both = [(x, y, spread[x]) for x, y in points if math.isfinite(spread.get(x, math.nan))]
    if len(both) < 2:
        return []
    return [(x, y + s) for x, y, s in both] + [(x, y - s) for x, y, s in reversed(both)]


def _unbroken(points: Sequence[Point]) -> list[list[Point]]:
    runs: list[list[Point]] = [[]]
    for x, y in points:
        if math.isfinite(y):
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _path(points: Sequence[Point], scale: _Scale) -> str:
    return " ".join(f"{scale.x(x):g},{scale.y(y):g}" for x, y in points)


def _circle(name: str, x: float, y: float, scale: _Scale, radius: float) -> Markup:
    title = f"{x:g}: {figure(y)}"
    mark = Markup('<circle class="{}" cx="{}" cy="{}" r="{}"><title>{}</title></circle>')
    return mark.format(name, scale.x(x), scale.y(y), radius, title)


def _lost(x: float, scale: _Scale) -> Markup:
    mark = Markup('<line class="lost" x1="{0}" x2="{0}" y1="{1}" y2="{2}"><title>{3}</title></line>')
    return mark.format(scale.x(x), TOP, HEIGHT - BOTTOM, f"{x:g}: not a finite number")


def _svg(width: int, height: int, label: str, parts: Sequence[Markup]) -> Markup:
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(width, height, escape(visible(label)))
    return head + Markup("").join(parts) + Markup("</svg>")
