"""Run directories: what they hold, who may write into them, and what may watch a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.runs.callbacks import Action, Callback, IterationView
    from trimtab.runs.listing import list_runs
    from trimtab.runs.run import Run

__all__ = ["Action", "Callback", "IterationView", "Run", "list_runs"]

_HOMES = {
    "Action": "callbacks",
    "Callback": "callbacks",
    "IterationView": "callbacks",
    "Run": "run",
    "list_runs": "listing",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
