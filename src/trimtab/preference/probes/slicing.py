"""The parts that pairs fall into: by length, by label, and by columns of the pair, of its origin or of its prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from trimtab.data.records import Pair
from trimtab.figures import figure
from trimtab.stats.text import length

__all__ = ["COLUMNS", "parts_of"]

COLUMNS: Final = (
    "source", "group", "principle", "category", "subset", "domain", "topic", "language", "labeled_by", "annotator",
)  # fmt: skip
"""Columns that are taken as they are, under their own name."""
_LONGEST: Final = 60
_FEW: Final = 4
"""Up to so many different margins are parts of their own; more are cut into thirds."""


def parts_of(pairs: Sequence[Pair]) -> dict[str, list[str]]:
    """Kind of slice -> the part that each pair is in, empty for none; kinds that no pair has are left out.

    `length`: which response is longer, by words. `tag`: the first of the prompt. `label`: how sure it is. `margin`: as
    the pair has it. `principle`: its column, or the principle whose own label is the most decided.
    """
    found = {
        "length": [_length_part(p) for p in pairs],
        "tag": [p.prompt.tags[0] if p.prompt.tags else "" for p in pairs],
        "label": [_label_part(p) for p in pairs],
        "margin": _margin_parts(pairs),
        **{name: [_column(p, name) for p in pairs] for name in COLUMNS},
    }
    found["principle"] = [own or _deciding(p) for own, p in zip(found["principle"], pairs, strict=True)]
    if any(found["labeled_by"]):  # only the pairs of people say so
        found["labeled_by"] = [name or "judge" for name in found["labeled_by"]]
    return {kind: names for kind, names in found.items() if any(names)}


def _length_part(pair: Pair) -> str:
    chosen, rejected = length(pair.chosen.text), length(pair.rejected.text)
    if chosen > 1.2 * rejected:
        return "chosen longer by 20 % or more"
    return "chosen shorter by 20 % or more" if rejected > 1.2 * chosen else "about as long"


def _label_part(pair: Pair) -> str:
    if pair.p_chosen is None:
        return ""
    return "sure label (0.9 or more)" if max(pair.p_chosen, 1 - pair.p_chosen) >= 0.9 else "unsure label"


def _margin_parts(pairs: Sequence[Pair]) -> list[str]:
    """The pairs' own margins: a part each where there are few values, else thirds."""
    known = np.array([abs(p.margin) for p in pairs if p.margin is not None])
    if not len(known):
        return [""] * len(pairs)
    if len(np.unique(known)) <= _FEW:
        return ["" if p.margin is None else f"{abs(p.margin):g}" for p in pairs]
    low, high = np.quantile(known, [1 / 3, 2 / 3])
    names = f"below {figure(low)}", f"{figure(low)} to {figure(high)}", f"above {figure(high)}"
    return [
        "" if p.margin is None else names[int(np.searchsorted([low, high], abs(p.margin), side="left"))] for p in pairs
    ]


def _column(pair: Pair, name: str) -> str:
    origin = pair.extra.get("origin")
    for place in (pair.extra, origin if isinstance(origin, dict) else {}, pair.prompt.extra):
        value = place.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        if isinstance(value, str | int | float) and str(value):
            return str(value)[:_LONGEST]
    return ""


def _deciding(pair: Pair) -> str:
    sure: dict[str, float] = {name: abs(p - 0.5) for name, p in pair.principles.items()}
    best: Any = max(sure, key=lambda name: sure[name], default="")
    return str(best)[:_LONGEST] if sure and sure[best] > 0 else ""
