"""What a comparison found, as rows of one table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

BOUND = 1e-5


@dataclass
class Row:
    """One quantity; `difference` is the largest |ours - theirs| / max(1, largest |theirs|) over all cases."""

    quantity: str
    against: str
    bound: float | None = BOUND
    cases: int = 0
    difference: float = 0.0

    def add(self, ours: Tensor | float, theirs: Tensor | float) -> None:
        self.cases += 1
        a, b = (x.detach().double() if isinstance(x, Tensor) else x for x in (ours, theirs))
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            if a.shape != b.shape:
                raise ValueError(f"{self.quantity}: shapes {list(a.shape)} and {list(b.shape)}")
            if a.numel() == 0:
                return
            found = float((a - b).abs().max()) / max(1.0, float(b.abs().max()))
        else:
            found = abs(float(a) - float(b)) / max(1.0, abs(float(b)))
        # NaN is no small difference
        self.difference = max(self.difference, found if math.isfinite(found) else math.inf)

    @property
    def verdict(self) -> str:
        if self.bound is None:
            return "told"
        return "equal" if self.cases > 0 and self.difference <= self.bound else "DIFFERS"


class Rows:
    """Rows by name, in the order in which they first appear."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def of(self, quantity: str, against: str, bound: float | None = BOUND) -> Row:
        return self.rows.setdefault(quantity, Row(quantity, against, bound))

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows.values() if row.verdict == "DIFFERS"]


def show(rows: Sequence[Row]) -> str:
    """The table as Markdown."""
    cells = [("quantity", "against", "cases", "largest difference", "bound", "verdict")]
    for row in rows:
        bound = "" if row.bound is None else f"{row.bound:.0e}"
        cells.append((row.quantity, row.against, str(row.cases), f"{row.difference:.1e}", bound, row.verdict))
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in cells]
    return "\n".join([lines[0], "| " + " | ".join("-" * w for w in widths) + " |", *lines[1:]])
