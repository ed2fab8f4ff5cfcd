"""What a constitution is: principles in order, what each of them says to whom, and hashes of what was said."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from trimtab.errors import ErrorKind, TrimtabError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

__all__ = ["Constitution", "Principle", "Turn"]


class Turn(NamedTuple):
    """One turn of an example chat; `role` is user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Principle:
    """One principle.

    Args:
        id: short and unique: letters, digits, dots, dashes, underscores.
        text: what it asks for, in a sentence.
        weight: how often it is drawn, and how much it counts, relative to the others; 0 = never.
        reading: system message under which a model follows it (contrast pairs, the likelihood judge).
        opposite: system message under which a model does the contrary.
        critique: asks where a response breaks it.
        revision: asks for a response that keeps it.
    """

    id: str
    text: str
    weight: float = 1.0
    reading: str | None = None
    opposite: str | None = None
    critique: str | None = None
    revision: str | None = None


@dataclass(frozen=True)
class Constitution:
    """Principles in order, and example chats of the constitutional supervised phase.

    Args:
        name: for people; no hash covers it.
        principles: in the order in which the judge reads them.
        chats: finished conversations of draft, critique and revision that stand before a model's own.

    Two hashes (sha256, hex) say what was asked of whom:

    - `hash`: all that a judge can be told, and no more: id, text, weight, reading and opposite of the principles that
      count (weight above 0), in their order. Weights enter as the judge sees them: not at all where all are equal.
      White space around a text does not count. What is only said in the supervised phase is no reason to label again.
    - `revision_hash`: all that the supervised phase is told: id, weight, critique and revision of the principles that
      count, and the chats.
    """

    name: str
    principles: tuple[Principle, ...]
    chats: tuple[tuple[Turn, ...], ...] = ()
    hash: str = field(init=False, compare=False)
    revision_hash: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        counted, weights = self.counted, self._told_weights()
        judged = [
            [p.id, _stripped(p.text), w, _stripped(p.reading), _stripped(p.opposite)]
            for p, w in zip(counted, weights, strict=True)
        ]
        revised = [
            [p.id, w, _stripped(p.critique), _stripped(p.revision)] for p, w in zip(counted, weights, strict=True)
        ]
        object.__setattr__(self, "hash", _sha256(judged))
        object.__setattr__(self, "revision_hash", _sha256([revised, [list(map(list, chat)) for chat in self.chats]]))

    @property
    def counted(self) -> tuple[Principle, ...]:
        """The principles with a weight above 0: those that are told, drawn and scored."""
        return tuple(p for p in self.principles if p.weight > 0)

    def _told_weights(self) -> list[float | None]:
        counted = self.counted
        weighted = len({p.weight for p in counted}) > 1
        return [float(p.weight) if weighted else None for p in counted]

    def sample(self, rng: np.random.Generator) -> Principle:
        """One principle, drawn by weight."""
        weights = [p.weight for p in self.principles]
        total = math.fsum(weights)
        return self.principles[int(rng.choice(len(weights), p=[w / total for w in weights]))]

    def only(self, principle_id: str) -> Constitution:
        """This constitution with one principle and nothing beside it, at weight 1: what one call asks about where
        principles are asked about one by one. Its hash does not change when the other principles do.

        Raises:
            TrimtabError: there is no such principle.
        """
        found = next((p for p in self.principles if p.id == principle_id), None)
        if found is None:
            raise TrimtabError(
                ErrorKind.DATA,
                f"constitution {self.name!r} has no principle {principle_id!r}",
                f"it has {', '.join(p.id for p in self.principles)}",
            )
        return Constitution(f"{self.name}: {found.id}", (replace(found, weight=1.0),), self.chats)

    def render(self) -> str:
        """The principles for the judge: a numbered list, with weights where they differ; weight 0 is left out."""
        told = zip(self.counted, self._told_weights(), strict=True)
        return "\n".join(
            f"{i}. {p.text.strip()}{'' if w is None else f' (weight {w:g})'}" for i, (p, w) in enumerate(told, 1)
        )

    def lacking(self, fields: Sequence[str]) -> list[str]:
        """Ids of the principles that count and leave one of these fields out."""
        return [p.id for p in self.counted if any(not (getattr(p, name) or "").strip() for name in fields)]

    def swapped(self) -> Constitution:
        """The same constitution with reading and opposite of every principle exchanged.

        Raises:
            TrimtabError: a principle has no reading and opposite.
        """
        if bare := [p.id for p in self.principles if p.reading is None or p.opposite is None]:
            raise TrimtabError(
                ErrorKind.DATA, f"constitution {self.name!r}: {', '.join(bare)}: no reading and opposite to exchange"
            )
        exchanged = tuple(replace(p, reading=p.opposite, opposite=p.reading) for p in self.principles)
        return Constitution(f"{self.name} (swapped)", exchanged, self.chats)


def _stripped(text: str | None) -> str | None:
    return None if text is None else text.strip()


def _sha256(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode("ascii")).hexdigest()
