"""How an explanation is written down: both languages of each sentence side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trimtab.doctor.messages import Text

__all__ = ["Both", "page"]

Both = tuple[str, str]
"""English, Simplified Chinese."""

_PARTS: Final = ("signals", "confusers")


def page(id: str, title: Both, what: Both, signals: Sequence[Both], confusers: Sequence[Both]) -> dict[str, Text]:
    """The entries of one finding; what to do about it is added from the plan of prescriptions."""
    entries = {f"{id}.title": Text(*title), f"{id}.what": Text(*what)}
    for part, lines in zip(_PARTS, (signals, confusers), strict=True):
        entries[f"{id}.{part}"] = Text("\n".join(en for en, _ in lines), "\n".join(zh for _, zh in lines))
    return entries
