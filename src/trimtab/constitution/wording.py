"""What a principle's wording says, as far as words alone tell: content words with their sign, and claims on axes.

Everything here is a guess about English (duplicates are found in any language): `check` shows what it finds as
possible. A sign is negative inside the reach of a negating word: "avoid jokes" says jokes with a minus.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import NamedTuple

__all__ = ["Claim", "claims", "content", "contrary", "distinctive", "overlap", "plain", "words"]

_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_TOKEN = re.compile(rf"[{_HAN}]|[^\W\d_{_HAN}]+(?:['-][^\W\d_{_HAN}]+)*|[.,;:!?()\u3001\u3002\uff0c\uff1b\uff1a]")
_FUNCTION = """
a about all also always an and any anyone anything are as at be been being by can content contain contains do does done
each especially every for from gives give given has have having how i if in include includes including into is it
it's its like make makes may might most must of on one ones or other our out over please possible preceding provide
provides should so some such than that the their them then there these they this those to too toward towards trace use
uses using very was way ways we were what when where whether which while who will with would you your
"""
_GENERIC = """
answer answers ai amend asks assistant choose chosen already human human's model person person's people prefer preferred
prefers reply replies request response responses revise revision rewrite rewritten something text thing things user
user's users version wording write written new
"""
_STOP = frozenset(f"{_FUNCTION} {_GENERIC}".split())
_NEGATING = """
avoid avoiding avoids cannot can't decline doesn't don't exclude excludes excluding free isn't less least neither never
no nor not nothing omit omits omitting refrain refrains refraining remove removes removing rid shouldn't stop without
won't
"""
_NEGATES = frozenset(_NEGATING.split())
_BREAKING = "but instead rather then yet"
_CONCEDING = frozenset(("although", "even", "if", "though", "unless"))
_BREAKS = frozenset((*_BREAKING.split(), *".,;:!?()\u3001\u3002\uff0c\uff1b\uff1a"))
_REACH = 6
"""Words that a negation reaches over, within its clause."""
_OBJECT_REACH = 3
"""Words after an adjective among which its object is looked for."""
_OF_FEWER, _OF_MORE = 0.75, 0.4
"""Shares of the shorter and of the longer text's content words that must be shared for the two to be contraries."""

_AXES: Mapping[str, tuple[str, str]] = {
    "length": ("long longer longest lengthy lengthier verbose", "short shorter shortest brief briefer concise terse"),
    "detail": ("detailed thorough comprehensive exhaustive elaborate", "brief briefer concise terse superficial"),
    "formality": ("formal", "informal casual colloquial"),
    "simplicity": ("simple simpler simplest plain plainer everyday", "technical complex complicated sophisticated"),
    "warmth": ("warm warmer kind kinder friendly friendlier polite politer", "cold colder unkind rude ruder curt"),
    "certainty": ("confident certain assertive decisive", "tentative cautious uncertain hesitant"),
    "seriousness": ("funny funnier humorous witty", "serious"),
    "concreteness": ("specific concrete", "vague vaguer abstract"),
    "compliance": ("comply complies", "refuse refuses refusing"),
    "amount": ("more", "fewer less"),
}
_POLES: dict[str, list[tuple[str, int]]] = {}
for _axis, _poles in _AXES.items():
    for _sign, _words in zip((1, -1), _poles, strict=True):
        for _word in _words.split():
            _POLES.setdefault(_word, []).append((_axis, _sign))


class Claim(NamedTuple):
    """That something (`of`; None: the response itself) should lie toward one end (+1, -1) of an axis."""

    axis: str
    of: str | None
    sign: int
    word: str
    """The word that says so."""
    negated: bool
    """Whether it says so by denying the word."""


def words(text: str) -> list[str]:
    """Words, lower case, and the punctuation that ends clauses; every Chinese character is a word."""
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'").casefold()
    return _TOKEN.findall(plain)


def plain(text: str) -> list[str]:
    """As `words`, without the punctuation: equal lists are equal but for case, spaces and stops."""
    return [token for token in words(text) if token[0].isalpha()]


def content(text: str) -> dict[str, int]:
    """The words that carry meaning, roughly stemmed, each with its sign; one that has both signs has 0."""
    signs: dict[str, int] = {}
    for token, negated in _signed(text):
        if token in _STOP or token in _NEGATES or token in _BREAKS:
            continue
        stem, sign = _stem(token), -1 if negated else 1
        signs[stem] = sign if signs.get(stem, sign) == sign else 0
    return signs


def claims(text: str) -> list[Claim]:
    """What the text says about known axes; an axis on which it names both ends of one thing is left out."""
    tokens = list(_signed(text))
    found: list[Claim] = []
    conceded = False
    for i, (token, negated) in enumerate(tokens):
        # "even when it is not friendly" asks for nothing
        conceded = token in _CONCEDING or (conceded and token not in _BREAKS)
        if conceded:
            continue
        for axis, sign in _POLES.get(token, []):
            of = _object(tokens, i)
            if axis == "amount" and of is None:
                continue
            found.append(Claim(axis, of, -sign if negated else sign, token, negated))
    both = {(c.axis, c.of) for c in found for d in found if (c.axis, c.of, -c.sign) == (d.axis, d.of, d.sign)}
    return [c for c in found if (c.axis, c.of) not in both]


def overlap(first: Mapping[str, int], second: Mapping[str, int]) -> float:
    """Jaccard similarity of two texts' signed content words, in [0, 1]; 0 where either has none."""
    union = first.keys() | second.keys()
    same = sum(first[w] == second[w] for w in first.keys() & second.keys())
    return same / len(union) if first and second else 0.0


def contrary(first: Mapping[str, int], second: Mapping[str, int]) -> list[str]:
    """The shared content words, if they are most of what both texts say and all have the other sign there."""
    shared = sorted(first.keys() & second.keys())
    fewer, more = sorted((len(first), len(second)))
    if not shared or len(shared) < max(_OF_FEWER * fewer, _OF_MORE * more):
        return []
    return shared if all(first[w] * second[w] == -1 for w in shared) else []


def distinctive(text: str, most: int) -> list[str]:
    """The first words of a text that carry meaning, as they stand there."""
    kept = [t for t in words(text) if t not in _STOP | _NEGATES | _BREAKS and t != "more"]
    return list(dict.fromkeys(kept))[:most]


def _signed(text: str) -> Iterator[tuple[str, bool]]:
    """Tokens with whether a negation reaches them; breaks come as themselves."""
    left = 0
    for token in words(text):
        if token in _BREAKS:
            left = 0
            yield token, False
            continue
        yield token, left > 0
        if token in ("less", "least"):
            left = 1  # "less formal": the next word only
        elif token in _NEGATES:
            left = _REACH
        else:
            left -= 1


def _object(tokens: list[tuple[str, bool]], at: int) -> str | None:
    """What the word at `at` is said of: the next content word of its clause, None where that is the response."""
    for token, _ in tokens[at + 1 : at + 1 + _OBJECT_REACH]:
        if token in _BREAKS or token in _NEGATES or token in ("and", "or", "than"):
            return None
        if token in _STOP or token in _POLES:
            continue
        return _stem(token)
    return None


def _stem(word: str) -> str:
    """Without the commonest English endings: enough to see that `examples` and `example` are one word."""
    for ending, rest in (("'s", ""), ("ies", "y"), ("sses", "ss"), ("ing", ""), ("es", ""), ("ed", ""), ("s", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 4 and not word.endswith("ss"):
            stem = word[: len(word) - len(ending)] + rest
            return stem.rstrip("e") if len(stem) > 4 else stem
    return word.rstrip("e") if len(word) > 4 else word
