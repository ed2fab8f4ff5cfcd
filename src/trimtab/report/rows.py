"""Rows of the report's tables of figures, and those that length and principles make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from trimtab.chart import Forest, forest_chart
from trimtab.figures import with_interval
from trimtab.report.facts import Figure, figure_of

__all__ = ["Row", "by_length", "by_principle", "difference_row", "n_of", "points", "share_row", "shown"]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: a name, its figure with an interval as text and as a picture, and what goes beside."""

    name: str
    kind: str
    text: str
    svg: Markup
    beyond: str
    n: str
    p: str


def share_row(name: str, found: Figure) -> Row:
    """A share, against one half."""
    text = with_interval(found.value, found.low, found.high, percent=True)
    row = Forest(found.value, found.low, found.high, found.above(0.5) or found.below(0.5))
    svg = forest_chart(row, axis=(0.0, 1.0), mark=0.5, label=f"{name}: {text}; one half is guessing")
    return Row(name, "", text, svg, "", n_of(found), "")


def difference_row(name: str, found: Figure, text: str, reach: float) -> Row:
    """A difference or a correlation, against 0, on an axis from -reach to reach."""
    row = Forest(found.value, found.low, found.high, found.above(0) or found.below(0))
    svg = forest_chart(row, axis=(-reach, reach), mark=0.0, label=f"{name}: {text}; 0 is none")
    return Row(name, "", text, svg, "", n_of(found), "")


def points(found: Figure) -> str:
    """A difference of shares in percentage points."""
    low, high = (None if x is None else 100 * x for x in (found.low, found.high))
    return with_interval(100 * found.value, low, high, sign=True)


def shown(found: Figure, *, sign: bool = False) -> str:
    """With its interval; what rounding leaves of nothing is nothing."""
    value, low, high = (None if x is None else round(x, 6) for x in (found.value, found.low, found.high))
    return with_interval(value or 0.0, low, high, sign=sign)


def n_of(found: Figure) -> str:
    """What it rests on, where known."""
    return "" if found.n is None else str(found.n)


def by_length(length: Mapping[str, Any]) -> list[Row]:
    """Accuracy where length tells for and against the labels, and what taking length out of the score did."""
    by_kind, change = (x if isinstance(x := length.get(key), Mapping) else {} for key in ("accuracy", "change"))
    titles = {
        "longer": "the chosen one is longer",
        "matched": "both of one length",
        "shorter": "the chosen one is shorter",
    }
    rows = [share_row(title, found) for kind, title in titles.items() if (found := figure_of(by_kind.get(kind)))]
    correlation = figure_of(length.get("correlation"))
    if correlation is not None:
        rows.append(difference_row("correlation with length within pairs", correlation, shown(correlation), 1.0))
    changes = {"all": "gained by taking length out, points", "shorter": "the same where the chosen one is shorter"}
    for kind, title in changes.items():
        found = figure_of(change.get(kind))
        if found is not None:
            rows.append(difference_row(title, found, points(found), 0.5))
    return rows


def by_principle(principles: Mapping[str, Any]) -> list[Row]:
    """How well each head says what judges said by its principle alone."""
    own = {name: figure_of(x.get("accuracy")) for name, x in principles.items() if isinstance(x, Mapping)}
    return [share_row(f"head {name}, by its own labels", x) for name, x in own.items() if x is not None]
