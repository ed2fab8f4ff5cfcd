"""What a preference model of several members leaves in the results of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.data.records import Pair, Prompt, Response
from trimtab.preference.ensemble import PreferenceEnsemble, member_figures
from trimtab.preference.model import PreferenceModel
from trimtab.scoring import Scorer, disagreement

__all__ = ["disagreement_of_samples", "members_on_pairs"]


def members_on_pairs(model: PreferenceModel, held_out: Sequence[Pair]) -> dict[str, Any]:
    """`members`: how alike they are on the held-out pairs; nothing for a single model."""
    if not isinstance(model, PreferenceEnsemble):
        return {}
    how = {"combine": model.combine, "pessimism": model.pessimism if model.combine == "lower_bound" else None}
    return {"members": {"count": len(model.models), **how, **member_figures(model, held_out).as_dict()}}


def disagreement_of_samples(
    scorer: Scorer, rows: Sequence[Mapping[str, Any]], prompts: Sequence[Prompt]
) -> dict[str, Any]:
    """`disagreement`: mean over the evaluated responses of each side; nothing where the score has no members.

    Higher on the policy's responses than on the reference's: they are less like what the members were trained on.
    """
    by_id = {prompt.id: prompt for prompt in prompts}
    found: dict[str, float] = {}
    for side in dict.fromkeys(str(row["side"]) for row in rows):
        mine = [row for row in rows if row["side"] == side]
        said = [Response(row["response"], row["finished"], row["tokens"]) for row in mine]
        spread = disagreement(scorer, [by_id[row["prompt_id"]] for row in mine], said)
        if spread is None:
            return {}
        found[side] = float(spread.mean())
    return {"disagreement": found} if found else {}
