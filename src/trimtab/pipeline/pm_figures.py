"""What a preference model's heads and its length leave in the results of the stages and of `trimtab pm eval`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab import preference
from trimtab.data.records import Pair
from trimtab.figures import finite
from trimtab.pipeline.project import Project
from trimtab.preference.model import PreferenceModel

__all__ = ["figures_beside", "principle_weights"]


def figures_beside(model: PreferenceModel, pairs: Sequence[Pair], seed: int, *, held_out: bool) -> dict[str, Any]:
    """`length`: see `LengthFigures`, and which debias is known of; `principles`: see `PrincipleMetrics`, of each head.

    `held_out`: the pairs are the run's own, which a regression on length was fitted on.
    """
    by_principle = preference.principle_metrics(model, pairs, seed=seed)
    kind = "regress" if any(model.length_fits) else "two-head" if model.has_length_head else None
    found = {
        "length": {
            "debias": kind,
            **preference.length_metrics(model, pairs, cross_fit=held_out, seed=seed).as_dict(),
        },
        **({"principles": {k: v.as_dict() for k, v in by_principle.items()}} if by_principle else {}),
    }
    return dict(finite(found))


def principle_weights(project: Project) -> dict[str, float] | None:
    """Weight of each principle in the project's constitution, where heads by principle are trained."""
    if not project.config.preference.principle_heads:
        return None
    return {p.id: p.weight for p in project.constitution.counted}
