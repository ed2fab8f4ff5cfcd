"""The reliability diagram: of pairs that were promised a probability, the share that kept it, before and after.

A score knows no order of presentation, so every pair counts in both orders and the half below 50 % mirrors the other:
the upper half is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from trimtab.chart import BOTTOM, LEFT, RIGHT, TOP, WIDTH
from trimtab.figures import share
from trimtab.report.facts import number

__all__ = ["Bin", "bins_of", "diagram", "picture"]

HEIGHT, COUNTS, CAPTION = 264, 44, 14
"""Of the whole, of the strip with the number of pairs, and of the axis' name below it."""
_AXIS = HEIGHT - CAPTION
_PLOT = _AXIS - BOTTOM - COUNTS
_STYLE = """
svg { --ink: #1d2126; --soft: #5b636d; --rule: #dedad0; --strong: #0b6e69; --paper: #ffffff; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e7e4dd; --soft: #a9b0b8; --rule: #30363c; --strong: #5cc4bc; --paper: #1c2024; }
}
.paper { fill: var(--paper); }
text { font: 10.5px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--soft); }
.title { font-size: 13px; font-weight: 600; fill: var(--ink); }
.grid { stroke: var(--rule); } .mark { stroke: var(--soft); stroke-dasharray: 3 3; }
.interval { stroke: var(--strong); stroke-width: 2.4; stroke-linecap: round; } .estimate { fill: var(--strong); }
.count { fill: var(--strong); opacity: .35; }
"""


@dataclass(frozen=True, slots=True)
class Bin:
    """One bin of promised probabilities: their mean `p`, the share that won with its interval, and how many pairs."""

    p: float
    won: float
    low: float
    high: float
    count: int


def bins_of(reliability: object) -> list[Bin]:
    """The filled bins of the upper half, from one side of `reliability` in a calibration's figures."""
    rows = [row for row in reliability if isinstance(row, Mapping)] if isinstance(reliability, list) else []
    found = []
    for row in rows:
        values = [number(row.get(key)) for key in ("low", "mean_p", "mean_y", "y_low", "y_high", "count")]
        edge, p, won, low, high, count = values
        if edge is None or edge < 0.499 or not count or p is None or won is None:
            continue
        found.append(Bin(p, won, 0.0 if low is None else low, 1.0 if high is None else high, int(count)))
    return found


def diagram(bins: Sequence[Bin], name: str, beside: Sequence[Bin] = ()) -> Markup:
    """The diagram as `<svg>`; empty without bins. `beside`: of another one that is to have the same axis."""
    if not bins:
        return Markup("")
    told = "; ".join(f"{share(b.p)} promised, {share(b.won)} won, {b.count} pairs" for b in bins)
    label = f"Reliability {name}: {told}"
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, escape(label))
    return head + _body(bins, beside) + Markup("</svg>")


def picture(report: Mapping[str, Any]) -> str:
    """Both diagrams as one SVG file that stands by itself, in light and in dark.

    Args:
        report: a calibration's figures, `CalibrationReport.as_dict()`.
    """
    sides = report.get("reliability")
    shown = [(name, bins_of(sides.get(name) if isinstance(sides, Mapping) else None)) for name in ("before", "after")]
    gap, top = 24, 26
    parts = [
        Markup('<g transform="translate({},{})"><text class="title" x="{}" y="-8">{}</text>{}</g>').format(
            i * (WIDTH + gap), top, LEFT, _title(report, name), _body(bins, shown[1 - i][1])
        )
        for i, (name, bins) in enumerate(shown)
    ]
    width, height = 2 * WIDTH + gap, HEIGHT + top + 4
    head = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" '
        'aria-label="Reliability before and after calibration"><style>{2}</style>'
        '<rect class="paper" width="{0}" height="{1}"/>'
    ).format(width, height, Markup(_STYLE))
    return str(head + Markup("").join(parts) + Markup("</svg>\n"))


def _title(report: Mapping[str, Any], side: str) -> str:
    figures = report.get(side)
    ece = figures.get("ece") if isinstance(figures, Mapping) else None
    error = number(ece.get("mean")) if isinstance(ece, Mapping) else None
    name = "before calibration" if side == "before" else f"after calibration ({report.get('method')})"
    return name if error is None else f"{name}, ECE {error:.3f}"


def _body(bins: Sequence[Bin], beside: Sequence[Bin]) -> Markup:
    low = min([0.5, *(b.low for b in (*bins, *beside))])
    floor = max(0.0, (low // 0.1) * 0.1)

    def x(p: float) -> float:
        return round(LEFT + (p - 0.5) / 0.5 * (WIDTH - LEFT - RIGHT), 1)

    def y(share_won: float) -> float:
        return round(_PLOT - (share_won - floor) / (1 - floor) * (_PLOT - TOP), 1)

    parts = []
    for tenth in range(round(10 * floor), 11):
        if tenth % 2 == 0 or floor >= 0.5:
            at = y(tenth / 10)
            parts.append(
                Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(LEFT, WIDTH - RIGHT, at, at)
            )
            parts.append(_text(LEFT - 5, at + 3.5, f"{10 * tenth} %", "end"))
    parts += [_text(x(t / 10), _AXIS - 5, f"{10 * t} %", "end" if t == 10 else "middle") for t in range(5, 11)]
    parts.append(_text(LEFT + 4, TOP + 12, "share that won", "start"))
    parts.append(_text(WIDTH - RIGHT, HEIGHT - 5, "probability promised (bars: pairs)", "end"))
    diagonal = Markup('<line class="mark" x1="{}" y1="{}" x2="{}" y2="{}"/>')
    parts.append(diagonal.format(x(0.5), y(0.5), x(1), y(1)))
    most = max((b.count for b in bins), default=1)
    for b in bins:
        parts.append(
            Markup('<line class="interval strong" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
                x(b.p), y(b.low), y(b.high)
            )
        )
        said = f"{share(b.p)} promised, {share(b.won)} won, {b.count} pairs"
        point = Markup('<circle class="estimate strong" cx="{}" cy="{}" r="4"><title>{}</title></circle>')
        parts.append(point.format(x(b.p), y(b.won), said))
        parts += _bar(b, most)
    return Markup("").join(parts)


def _bar(b: Bin, most: int) -> list[Markup]:
    """How many pairs the bin has, as a bar with its number."""
    left = LEFT + min(int((b.p - 0.5) / 0.1 + 1e-9), 4) * (WIDTH - LEFT - RIGHT) / 5
    tall = max(round(b.count / most * (COUNTS - 22), 1), 1)
    width = round((WIDTH - LEFT - RIGHT) / 5 - 4, 1)
    bottom = _AXIS - BOTTOM - 2
    box = Markup('<rect class="count" x="{}" y="{}" width="{}" height="{}"/>')
    return [
        box.format(round(left + 2, 1), round(bottom - tall, 1), width, tall),
        _text(round(left + 2 + width / 2, 1), round(bottom - tall - 3, 1), f"{b.count}", "middle"),
    ]


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>').format(x, y, anchor, text)
