"""What a check of preference data says: findings with the ids they are about, and figures that are no finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["DataFinding", "Level", "level_of"]

_EXAMPLES = 5


class Level(StrEnum):
    """How much a finding matters."""

    INFO = "info"
    """Worth knowing; nothing need be done."""
    WARNING = "warning"
    """Training on the data as it is will suffer, or what is measured on it will mislead."""
    CRITICAL = "critical"
    """Do not train on the data, or trust the test set, before this is mended."""

    @property
    def rank(self) -> int:
        """0, 1, 2."""
        return list(Level).index(self)


@dataclass(frozen=True, slots=True)
class DataFinding:
    """One thing that a check found.

    Args:
        id: its kind, such as `duplicates`; `data filter --drop` takes those that name pairs.
        level: how much it matters.
        text: one sentence with the numbers.
        advice: what to do, a command where there is one.
        count: how many records (or other things; the text says which).
        share: count over what was looked at.
        ids: ids of the pairs that it is about and that a filter would drop; empty where it speaks of the whole.
        notes: for some ids, why: the pair it repeats, the score it got.
        figures: numbers behind the text.
    """

    id: str
    level: Level
    text: str
    advice: str = ""
    count: int = 0
    share: float = 0.0
    ids: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)

    @property
    def examples(self) -> Sequence[str]:
        """The first few ids, with their notes."""
        return [f"{i} ({self.notes[i]})" if i in self.notes else i for i in self.ids[:_EXAMPLES]]

    def as_dict(self) -> dict[str, Any]:
        """For `--json`; keys are always present."""
        return {
            "id": self.id,
            "severity": str(self.level),
            "text": self.text,
            "advice": self.advice,
            "count": self.count,
            "share": self.share,
            "ids": list(self.ids),
            "notes": dict(self.notes),
            "figures": dict(self.figures),
        }


def level_of(share: float, warning: float, critical: float = 2.0) -> Level:
    """Info below `warning`, warning from there on, critical from `critical` on."""
    return Level.CRITICAL if share >= critical else Level.WARNING if share >= warning else Level.INFO
