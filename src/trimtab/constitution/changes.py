"""What differs between two constitutions, one change at a time, as far as a judge is told of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from trimtab.constitution.principles import Constitution, Principle
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["Change", "ChangeKind", "apply", "changes"]

_TOLD = ("text", "weight", "reading", "opposite")


class ChangeKind(StrEnum):
    """What was done to a principle."""

    ADDED = "added"
    """It counts now: it is new, or its weight was 0."""
    REMOVED = "removed"
    """It counts no more: it is gone, or its weight is 0."""
    CHANGED = "changed"
    """Its text, weight or readings are others."""
    ORDER = "order"
    """The principles that both have stand in another order."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change: of which principle (`order`: of none in particular), and of which of its fields."""

    kind: ChangeKind
    principle: str
    fields: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.principle} {self.kind}" if self.principle else "order of the principles"

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


def changes(old: Constitution, new: Constitution) -> list[Change]:
    """What has to be done to `old` so that a judge is told what `new` says; empty where the hashes are the same.

    Principles are matched by id. Where weights are equal all over, their size is told to nobody and is no change.
    """
    before, after = ({p.id: p for p in c.counted} for c in (old, new))
    found = [Change(ChangeKind.REMOVED, name) for name in before if name not in after]
    found += [Change(ChangeKind.ADDED, name) for name in after if name not in before]
    told = any(len({p.weight for p in c.counted}) > 1 for c in (old, new))
    for name in (name for name in before if name in after):
        fields = tuple(f for f in _TOLD if _told(before[name], f) != _told(after[name], f) and (told or f != "weight"))
        if fields:
            found.append(Change(ChangeKind.CHANGED, name, fields))
    if [n for n in before if n in after] != [n for n in after if n in before]:
        found.append(Change(ChangeKind.ORDER, ""))
    return found


def apply(old: Constitution, new: Constitution, change: Change) -> Constitution:
    """`old` with this one of the changes to `new`, and no other.

    Raises:
        TrimtabError: nothing would be left of it.
    """
    after = {p.id: p for p in new.counted}
    principles = list(old.counted)
    if change.kind is ChangeKind.REMOVED:
        principles = [p for p in principles if p.id != change.principle]
    elif change.kind is ChangeKind.CHANGED:
        told = {field: getattr(after[change.principle], field) for field in _TOLD}
        principles = [replace(p, **told) if p.id == change.principle else p for p in principles]
    elif change.kind is ChangeKind.ADDED:
        principles.insert(_place(change.principle, principles, new), after[change.principle])
    else:
        place = {p.id: i for i, p in enumerate(new.counted)}
        common = iter(sorted((p for p in principles if p.id in place), key=lambda p: place[p.id]))
        principles = [next(common) if p.id in place else p for p in principles]
    if not principles:
        raise TrimtabError(ErrorKind.DATA, f"constitution {old.name!r}: {change.name} leaves no principle")
    return Constitution(f"{old.name}, {change.name}", tuple(principles))


def _told(principle: Principle, field: str) -> Any:
    value = getattr(principle, field)
    return value.strip() if isinstance(value, str) else value


def _place(name: str, principles: list[Principle], new: Constitution) -> int:
    """Behind the last principle of `principles` that stands before `name` in `new`."""
    order = [p.id for p in new.counted]
    before = set(order[: order.index(name)])
    return max((i + 1 for i, p in enumerate(principles) if p.id in before), default=0)
