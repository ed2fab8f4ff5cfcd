"""A dialect: the names under which one framework logs, and what each of them counts.

The same name means different things by framework (`objective/kl` is summed over the response, GRPO's `kl` is a mean
over its tokens), so a name is only ever read in the dialect that the whole log speaks.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.doctor.log import Aggregation, Estimator, Floats, Stage, Unit

__all__ = ["Convert", "Dialect", "Meaning", "complement", "ignore", "means", "negated", "square", "to", "unclear"]

Convert = Callable[[Floats], Floats]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a logged name stands for.

    Args:
        key: canonical key; empty: the name is known and of no use to the doctor.
        unit: None takes that of the quantity.
        estimator: for KLs and clip fractions.
        aggregation: over the batch; LAST where only the last minibatch is logged.
        masked: False where padding is averaged in; None unknown.
        convert: makes the quantity of what is logged (`square` of a logged root).
        derived: what `convert` did, for the reader.
        unknown_unit: the name is that of the quantity, its unit cannot be told.
    """

    key: str
    unit: Unit | None = None
    estimator: Estimator = Estimator.NONE
    aggregation: Aggregation = Aggregation.MEAN
    masked: bool | None = None
    convert: Convert | None = None
    derived: str = ""
    unknown_unit: bool = False

    def filled(self, match: re.Match[str]) -> Meaning:
        """With the groups of a pattern's match in the places `{0}`, `{1}` of the key."""
        if "{" not in self.key:
            return self
        return replace(self, key=self.key.format(*(g or "" for g in match.groups())).rstrip("/"))


def to(
    key: str,
    estimator: Estimator = Estimator.NONE,
    *,
    unit: Unit | None = None,
    aggregation: Aggregation | None = None,
    masked: bool | None = None,
    convert: tuple[Convert, str] | None = None,
) -> Meaning:
    """The meaning of a name; the aggregation follows from the canonical key where it is not given."""
    if aggregation is None:
        tail = key.rsplit("_", 1)[-1].rsplit("/", 1)[-1]
        named = {"max": Aggregation.MAX, "min": Aggregation.MIN, "std": Aggregation.STD}
        aggregation = named.get(tail, Aggregation.LAST if tail == "rate" else Aggregation.MEAN)
    function, words = convert or (None, "")
    return Meaning(key, unit, estimator, aggregation, masked, function, words)


def unclear(key: str) -> Meaning:
    """A name of the quantity `key` that leaves its unit open."""
    return Meaning(key, Unit.UNKNOWN, unknown_unit=True)


def ignore() -> Meaning:
    """A known name that the doctor has no use for."""
    return Meaning("")


square = (np.square, "squared: the log has its root")
negated = (np.negative, "sign turned: the log has minus this")
complement: tuple[Convert, str] = (lambda x: np.subtract(1.0, x), "1 minus what the log has")
root: tuple[Convert, str] = (
    lambda x: np.where(x >= 0, np.sqrt(np.maximum(x, 0)), math.nan),
    "root of the logged variance",
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The names of one framework and algorithm.

    Args:
        name: for people and tests.
        framework: see `Log.framework`.
        stage: what is trained.
        algorithm: see `Log.algorithm`.
        marks: any one of these sets of names, all present, gives the dialect away.
        names: meaning by name.
        patterns: regular expressions for families of names, tried in order after `names`.
        steps: names that count the steps, best first.
        without: names that speak against it.
    """

    name: str
    framework: str
    stage: Stage
    algorithm: str
    marks: tuple[frozenset[str], ...]
    names: Mapping[str, Meaning]
    patterns: tuple[tuple[str, Meaning], ...] = ()
    steps: tuple[str, ...] = ()
    without: frozenset[str] = field(default_factory=frozenset)
    _patterns: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_patterns", tuple(pattern for pattern, _ in self.patterns))

    def meaning(self, name: str) -> Meaning | None:
        """What `name` stands for; None: not a name of this dialect."""
        found = self.names.get(name)
        if found is not None:
            return found
        match = _first_of(self._patterns).fullmatch(name)
        if match is None or match.lastgroup is None:
            return None
        pattern, meaning = self.patterns[int(match.lastgroup[1:])]
        again = _compiled(pattern).fullmatch(name)
        return meaning if again is None else meaning.filled(again)

    def speaks(self, names: frozenset[str]) -> bool:
        """Whether a log with these names can be of this dialect."""
        return any(mark <= names for mark in self.marks) and not (self.without & names)

    def score(self, names: Iterable[str]) -> int:
        """How many of the names it knows."""
        return sum(self.meaning(name) is not None for name in names)


@functools.cache
def _first_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """All patterns as one, each a group named by its place: most names match none, and a log may have thousands."""
    return re.compile("|".join(f"(?P<_{i}>{pattern})" for i, pattern in enumerate(patterns)))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compiled when first needed: a log needs few of the hundreds of patterns."""
    return re.compile(pattern)


def means(*tables: Mapping[str, Meaning], **more: Meaning) -> dict[str, Meaning]:
    """One table of several; later ones win."""
    merged: dict[str, Meaning] = {}
    for table in tables:
        merged.update(table)
    merged.update(more)
    return merged
