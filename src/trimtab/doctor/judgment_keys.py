"""How other people name things in files of judgments, scores and pairs: keys taken apart, verdicts read.

A key is compared by its words, so that `len_A`, `lenA`, `length-a` and `len.a` are one spelling. Nothing here looks at
file names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

__all__ = ["Column", "Columns", "Verdicts", "columns_of", "number", "paired", "read_winners", "words"]

_MOST_KEYS = 5_000
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_SIDES: Final = (
    ("chosen", "rejected"), ("chosen", "reject"), ("winner", "loser"), ("win", "lose"), ("winning", "losing"),
    ("preferred", "dispreferred"), ("preferred", "rejected"), ("better", "worse"), ("good", "bad"), ("pos", "neg"),
    ("positive", "negative"), ("accepted", "rejected"), ("w", "l"),
)  # fmt: skip
"""Words for the two sides of a pair whose order says which is better."""
_PLACES: Final = (
    ("a", "b"), ("1", "2"), ("0", "1"), ("first", "second"), ("left", "right"), ("one", "two"), ("i", "j"),
)  # fmt: skip
"""Words for the two sides of a pair whose order says nothing."""
_ORDERS: Final = (
    ("0", "1"), ("1", "2"), ("12", "21"), ("ab", "ba"), ("forward", "reverse"), ("forward", "reversed"),
    ("original", "swapped"), ("original", "swap"), ("normal", "swapped"), ("normal", "swap"), ("orig", "swap"),
    ("straight", "swapped"), ("first", "second"), ("g1", "g2"), ("fwd", "rev"), ("forward", "backward"),
)  # fmt: skip
"""Words for the two orders of presentation."""
_FAMILIES: Final = {"sides": _SIDES, "places": _PLACES, "orders": _ORDERS}


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FIRST: Final = _set(
    "a 1 first one left chosen modela model1 responsea response1 outputa output1 assistanta assistant1 answera answer1 "
    "optiona option1 a>b a>>b [[a]] [[a>b]] [[a>>b]] 1>2 b<a (a) m1 completiona completion1"
)
_SECOND: Final = _set(
    "b 2 second two right rejected modelb model2 responseb response2 outputb output2 assistantb assistant2 answerb "
    "answer2 optionb option2 b>a b>>a [[b]] [[b>a]] [[b>>a]] 2>1 a<b (b) m2 completionb completion2"
)
_TIE: Final = _set(
    "tie ties tied draw equal same c [[c]] both neither a=b b=a a==b [[a=b]] 1=2 bothbad bothgood tie(bothbad) "
    "tie(inconsistent) nopreference"
)
_FAILED: Final = _set("none null nan error unparsed invalid refused refusal n/a na unknown fail failed ? -1")
_IDENTITY: Final = ("model", "response", "output", "completion", "assistant", "chosen", "rejected")


def words(key: str) -> tuple[str, ...]:
    """The words of a key, lower case: `fold_accs` -> (fold, accs), `lenA` -> (len, a), `output1` -> (output, 1)."""
    found = [w.lower() for w in _WORD.findall(key)]
    # g1 and g2 are words of their own: game 1 and game 2
    glued = [a + b if a == "g" and b in "12" else "" for a, b in pairwise(found)]
    if any(glued):
        at = next(i for i, g in enumerate(glued) if g)
        found = [*found[:at], glued[at], *found[at + 2 :]]
    return tuple(found)


class Column(NamedTuple):
    """One column of a table: its key as the file has it, the key's words, and one value a row (None = missing)."""

    key: str
    words: tuple[str, ...]
    values: list[Any]

    @property
    def present(self) -> list[Any]:
        """The values that are not missing."""
        return [v for v in self.values if v is not None and v != ""]

    def has(self, *any_of: str) -> bool:
        """Whether one of these is a word of the key."""
        return any(w in self.words for w in any_of)


Columns = dict[str, Column]


def columns_of(records: Sequence[Mapping[str, Any]]) -> Columns:
    """The columns of a table, in order of first appearance; nested objects and pairs of objects are flattened.

    None where there are thousands: no table of judgments has so many.
    """
    flat = [_flat(record) for record in records]
    keys = dict.fromkeys(key for record in flat for key in record)
    if len(keys) > _MOST_KEYS:
        return {}
    return {key: Column(key, words(key), [record.get(key) for record in flat]) for key in keys}


def number(value: Any) -> float:
    """A number, also one written as a string or alone in a list; infinite where too large; NaN for anything else."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool) or value is None:
        return math.nan
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        try:
            return float(value.strip().removesuffix("%"))
        except ValueError:
            return math.nan
    return math.nan


def paired(columns: Iterable[Column], family: str) -> list[tuple[Column, Column]]:
    """Columns that differ in one word, and that word names the two halves: `len_A` and `len_B`.

    Args:
        columns: where to look.
        family: `sides` (chosen, rejected), `places` (a, b), `orders` (order 12, order 21).
    """
    by_words = {column.words: column for column in columns}
    found: list[tuple[Column, Column]] = []
    taken: set[tuple[str, ...]] = set()
    for key, column in by_words.items():
        for one, two in _FAMILIES[family]:
            for at, word in enumerate(key):
                other = by_words.get((*key[:at], two, *key[at + 1 :])) if word == one else None
                if other is not None and taken.isdisjoint((key, other.words)):
                    found.append((column, other))
                    taken.update((key, other.words))
    return found


class Verdicts(NamedTuple):
    """A column read as verdicts.

    Args:
        winners: one a row: 1, 2, 0 for a tie, None where no verdict came.
        identity: the values name responses or models (`model_1`), not places (`A`).
        free_coding: the values are 0 and 1, and which of them means the first is not said.
    """

    winners: list[int | None]
    identity: bool = False
    free_coding: bool = False


def read_winners(column: Column) -> Verdicts | None:
    """A column as verdicts; None if it is not one (fewer than 95 % of its values can be read, or none decides)."""
    present = column.present
    if not present or any(isinstance(v, list | dict) for v in present[:50]):
        return None
    numbers = [number(v) for v in present]
    if not any(math.isnan(x) for x in numbers) and not any(isinstance(v, bool) for v in present):
        return _numeric(column, numbers)
    read = [_winner(v) for v in column.values]
    bad = sum(1 for v, w in zip(column.values, read, strict=True) if v is not None and v != "" and w == _UNREADABLE)
    decided = sum(1 for w in read if w in (1, 2))
    if bad > 0.05 * len(present) or decided == 0:
        return None
    identity = any(str(v).lower().startswith(_IDENTITY) for v in present)
    return Verdicts([None if w in (_UNREADABLE, _FAILURE) else w for w in read], identity)


_FAILURE, _UNREADABLE = -1, -2


def _winner(value: Any) -> int:
    if value is None or isinstance(value, bool | dict | list):
        return _FAILURE if value is None else _UNREADABLE
    text = re.sub(r"[\s_\-]+", "", str(value).lower()) if not isinstance(value, float) else str(value)
    for code, names in ((1, _FIRST), (2, _SECOND), (0, _TIE), (_FAILURE, _FAILED)):
        if text in names:
            return code
    return _FAILURE if not text else _UNREADABLE


def _numeric(column: Column, numbers: Sequence[float]) -> Verdicts | None:
    distinct = set(numbers)
    every = [number(v) for v in column.values]
    if distinct <= {-1.0, 0.0, 1.0} and -1.0 in distinct and 1.0 in distinct:
        return Verdicts([None if math.isnan(x) else {1.0: 1, -1.0: 2, 0.0: 0}[x] for x in every])
    if distinct == {0.0, 1.0}:
        return Verdicts([None if math.isnan(x) else 1 + int(x) for x in every], free_coding=True)
    if distinct <= {-1.0, 0.0, 1.0, 2.0} and distinct & {1.0, 2.0}:
        return Verdicts([{1.0: 1, 2.0: 2, 0.0: 0}.get(x) for x in every])
    # 1 + P(second is better), as AlpacaEval has it
    if all(1 <= x <= 2 for x in distinct) and len(distinct) > 2 and column.has("preference", "pref"):
        return Verdicts([None if math.isnan(x) else 0 if x == 1.5 else 1 + int(x > 1.5) for x in every])
    return None


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{k}": v for k, v in value.items()})
        elif isinstance(value, list) and len(value) == 2 and all(isinstance(v, Mapping) for v in value):
            if all("role" in v and "content" in v for v in value):
                flat[key] = value
            else:
                flat.update({f"{k}_{i}": v for i, part in enumerate(value) for k, v in part.items()})
        else:
            flat[str(key)] = value
    return flat
