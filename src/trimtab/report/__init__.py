"""The report of a run: `write(run)` makes one self-contained HTML page, `summary(run)` a few lines for a terminal.

Reads in the order facts (what the run directory holds), verdict (what that shows), curves, page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.report.page import summary, write

__all__ = ["summary", "write"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from trimtab.report import page

        return getattr(page, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
