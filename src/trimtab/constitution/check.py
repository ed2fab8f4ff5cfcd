"""What is wrong, or may be wrong, with a constitution, as far as its file tells; no model is asked.

What needs a guess about language (near-duplicates, contradictions) is called possible. Thresholds are heuristics, said
where they stand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import combinations, islice
from typing import Any

from trimtab.constitution.principles import Constitution, Principle
from trimtab.constitution.reading import public_text
from trimtab.constitution.wording import Claim, claims, content, contrary, overlap, plain

__all__ = ["Kind", "Level", "Remark", "check"]

NEAR_DUPLICATE = 0.75
"""Share of content words in common from which two texts count as saying the same."""
LONG_WORDS = 80
"""A principle longer than this is more than a sentence or two."""
LONG_IN_ALL_WORDS = 800
"""A list longer than this takes a good part of a small judge's context, and of its attention."""
MOST_COMPARED = 300
"""Principles that are compared with each other: time grows with the square, and no judge reads as many."""
MOST_REMARKS = 100
"""Contradictions, and duplicates, that are listed."""
WEIGHT_RATIO = 20.0
"""A weight this many times another: the lighter principle is drawn too seldom to be learned."""


class Level(StrEnum):
    """How much a remark matters."""

    ERROR = "error"
    """The file cannot be used."""
    WARNING = "warning"
    """Probably not what is wanted."""
    NOTE = "note"
    """Worth knowing."""


class Kind(StrEnum):
    """What a remark is about."""

    BROKEN = "broken"
    DUPLICATE = "duplicate"
    CONTRADICTION = "contradiction"
    LENGTH = "length"
    WEIGHT = "weight"
    MISSING = "missing"
    DERIVED = "derived"


@dataclass(frozen=True, slots=True)
class Remark:
    """One remark: what it is about, the ids of the principles concerned, what was found, and what helps."""

    level: Level
    kind: Kind
    principles: tuple[str, ...]
    message: str
    hint: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def check(constitution: Constitution) -> list[Remark]:
    """Remarks on a constitution that can be read, the serious ones first."""
    compared = constitution.counted[:MOST_COMPARED]
    remarks = [
        *(r for p in constitution.counted if (r := _own_readings(p)) is not None),
        *islice((r for a, b in combinations(compared, 2) if (r := _contradiction(a, b)) is not None), MOST_REMARKS),
        *islice((r for a, b in combinations(compared, 2) if (r := _duplicate(a, b)) is not None), MOST_REMARKS),
        *_too_many(constitution),
        *_lengths(constitution),
        *_weights(constitution),
        *_missing(constitution),
        *_derived(constitution),
    ]
    order = list(Level)
    return sorted(remarks, key=lambda remark: order.index(remark.level))


def _said(p: Principle) -> str:
    """The words to compare: a text derived from a request begins like every other one, so the request itself."""
    return p.revision if p.revision and p.text == public_text(p.revision) else p.text


def _same(first: str, second: str) -> bool:
    a, b = plain(first), plain(second)
    return a == b or overlap(content(first), content(second)) >= NEAR_DUPLICATE


def _too_many(constitution: Constitution) -> Iterator[Remark]:
    n = len(constitution.counted)
    if n > MOST_COMPARED:
        yield Remark(
            Level.WARNING,
            Kind.LENGTH,
            (),
            f"there are {n:,} principles; only the first {MOST_COMPARED} were compared with each other",
            "keep those that decide something: trimtab labels audit shows which",
        )


def _contradiction(a: Principle, b: Principle) -> Remark | None:
    both = (a.id, b.id)
    hint = "keep one of them, or say when each holds; `trimtab constitution diff` shows what each decides"
    for x, y in ((a, b), (b, a)):
        if x.reading and y.opposite and _same(x.reading, y.opposite):
            what = f"the reading of {x.id} is the opposite of {y.id}, word for word or nearly"
            return Remark(Level.WARNING, Kind.CONTRADICTION, both, what, hint)
    first, second = _said(a), _said(b)
    for c in claims(first):
        for d in claims(second):
            if (c.axis, c.of) == (d.axis, d.of) and c.sign != d.sign:
                what = f"possible contradiction: {a.id} says {_claim(c)}, {b.id} says {_claim(d)}"
                return Remark(Level.WARNING, Kind.CONTRADICTION, both, what, hint)
    if shared := contrary(content(first), content(second)):
        what = f"possible contradiction: one asks for what the other rules out ({', '.join(shared)})"
        return Remark(Level.WARNING, Kind.CONTRADICTION, both, what, hint)
    return None


def _claim(claim: Claim) -> str:
    of = f" ({claim.of})" if claim.of else ""
    return f"{'not ' if claim.negated else ''}{claim.word!r}{of}"


def _duplicate(a: Principle, b: Principle) -> Remark | None:
    if _contradiction(a, b) is not None or not _same(_said(a), _said(b)):
        return None
    exact = plain(_said(a)) == plain(_said(b))
    what = "say the same, word for word" if exact else "possibly say the same"
    return Remark(
        Level.WARNING, Kind.DUPLICATE, (a.id, b.id), f"{a.id} and {b.id} {what}: it counts twice",
        "leave one out, and give the other the weight that it deserves",
    )  # fmt: skip


def _own_readings(p: Principle) -> Remark | None:
    if p.reading and p.opposite and plain(p.reading) == plain(p.opposite):
        what = f"reading and opposite of {p.id} are the same: contrast pairs and the likelihood judge see no difference"
        return Remark(Level.WARNING, Kind.CONTRADICTION, (p.id,), what, "say the contrary in one of them")
    return None


def _lengths(constitution: Constitution) -> Iterator[Remark]:
    counts = {p.id: len(plain(p.text)) for p in constitution.counted}
    for p in constitution.counted:
        if not content(p.text):
            what = f"the text of {p.id} says nothing that could be judged: {p.text.strip()!r}"
            yield Remark(Level.WARNING, Kind.LENGTH, (p.id,), what, "say in a sentence what makes a response better")
        elif counts[p.id] > LONG_WORDS:
            what = f"the text of {p.id} has {counts[p.id]} words"
            hint = f"a judge follows one idea a principle better: at most {LONG_WORDS} words, or split it"
            yield Remark(Level.WARNING, Kind.LENGTH, (p.id,), what, hint)
    total = sum(counts.values())
    if total > LONG_IN_ALL_WORDS:
        what = f"all principles together have {total} words, and all stand before every pair that is judged"
        yield Remark(
            Level.WARNING, Kind.LENGTH, (), what, f"shorten them to {LONG_IN_ALL_WORDS} words, or ask one by one"
        )


def _weights(constitution: Constitution) -> Iterator[Remark]:
    if off := [p.id for p in constitution.principles if p.weight == 0]:
        what = f"weight 0: {', '.join(off)} {'is' if len(off) == 1 else 'are'} never told, drawn or scored"
        yield Remark(Level.NOTE, Kind.WEIGHT, tuple(off), what)
    weights = {p.id: p.weight for p in constitution.counted}
    heaviest, lightest = max(weights, key=weights.__getitem__), min(weights, key=weights.__getitem__)
    if weights[heaviest] > WEIGHT_RATIO * weights[lightest]:
        what = (
            f"weights are out of proportion: {heaviest} has {weights[heaviest]:g}, {lightest} {weights[lightest]:g} "
            f"({weights[lightest] / sum(weights.values()):.2%} of all)"
        )
        hint = f"weights within a factor of {WEIGHT_RATIO:g} of each other, or leave {lightest} out"
        yield Remark(Level.WARNING, Kind.WEIGHT, (heaviest, lightest), what, hint)


def _missing(constitution: Constitution) -> Iterator[Remark]:
    uses = (
        (("reading", "opposite"), 'sample.source = "contrast" and label.judge = "likelihood" or "construction"'),
        (("critique", "revision"), 'sft.source = "constitution"'),
    )
    for fields, use in uses:
        lacking = constitution.lacking(fields)
        if not lacking:
            continue
        none = len(lacking) == len(constitution.counted)
        names = "no principle has" if none else f"{', '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no"
        what = f"{names} {' and '.join(fields)}: {use} cannot be used with this constitution"
        level = Level.NOTE if none else Level.WARNING
        yield Remark(
            level, Kind.MISSING, tuple(lacking), what, "" if none else "complete them, or set their weight to 0"
        )


def _derived(constitution: Constitution) -> Iterator[Remark]:
    derived = [p.id for p in constitution.counted if p.revision and p.text == public_text(p.revision)]
    if derived:
        what = f"the judge's sentence of {len(derived)} principles is made from their revision requests"
        yield Remark(Level.NOTE, Kind.DERIVED, tuple(derived), what, "a `text` of one's own says it to a judge better")
