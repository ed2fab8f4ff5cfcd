"""Evaluation: the trained policy against the reference on held-out prompts.

`compare` holds the statistics and needs no torch; `held_out` samples and scores. `trimtab.evaluation.win_rate` is what
`trimtab eval` runs, `compare_samples` does its statistics again from a saved file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.evaluation.compare import Estimate, LengthChange, MeasureResult, SideSummary, WinRate, compare_samples
    from trimtab.evaluation.held_out import win_rate

__all__ = ["Estimate", "LengthChange", "MeasureResult", "SideSummary", "WinRate", "compare_samples", "win_rate"]


def __getattr__(name: str) -> Any:
    # on first use, so that `compare` can be read without torch
    if name == "win_rate":
        from trimtab.evaluation.held_out import win_rate

        return win_rate
    if name in __all__:
        from trimtab.evaluation import compare

        return getattr(compare, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
