"""AI feedback: judges, their verdicts, soft labels, and the store that never asks twice.

`trimtab.labeling.label_pairs` is what `trimtab label` runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.labeling.labels import Label, label_pairs, summarise, to_pairs
    from trimtab.labeling.store import LabelStore

__all__ = ["Label", "LabelStore", "label_pairs", "summarise", "to_pairs"]


def __getattr__(name: str) -> Any:
    # on first use, so that a neighbour which reads one module does not load the others
    if name == "LabelStore":
        from trimtab.labeling.store import LabelStore

        return LabelStore
    if name in __all__:
        from trimtab.labeling import labels

        return getattr(labels, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
