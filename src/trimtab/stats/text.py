"""Measures of text, for English and Chinese: words, diversity, repetition, share of a lexicon."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["distinct_n", "length", "lexicon_rate", "ngrams", "repetition_rate", "words"]

# Han characters: the unified ideographs, their extensions, compatibility forms, and the iteration marks
_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_WORD = re.compile(rf"[{_HAN}]|(?:(?![{_HAN}_])\w)+(?:'(?:(?![{_HAN}_])\w)+)*")
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")


def words(text: str) -> list[str]:
    """Words in order, lower case, without punctuation. Every Chinese character is a word; "don't" is one word.

    Widths and apostrophes are unified first (NFKC), so that "ＡＢＣ" is "abc" and "don’t" is "don't".
    """
    if text.isascii():  # the same words, several times as fast
        return _ASCII_WORD.findall(text.lower())
    plain = unicodedata.normalize("NFKC", text).replace("\u2019", "'").casefold()
    return _WORD.findall(plain)


def length(text: str) -> int:
    """Number of words."""
    return len(words(text))


def ngrams(tokens: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All runs of n neighbours, in order; none where there are fewer tokens.

    Raises:
        TrimtabError: n is below 1.
    """
    if n < 1:
        raise TrimtabError(ErrorKind.FAILED, f"n-grams of {n} words", "n is at least 1")
    return [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]


def distinct_n(texts: str | Iterable[str], n: int = 2) -> float:
    """Distinct n-grams divided by all n-grams, over all texts together; no n-gram crosses from one text into the next.

    Falls as there is more text: compare at equal amounts. Source: Li et al., arXiv 1510.03055.

    Args:
        texts: one text or several.
        n: words an n-gram.

    Returns:
        In (0, 1], 1 = nothing occurs twice; 1 also where there is no n-gram.
    """
    each = [texts] if isinstance(texts, str) else texts
    grams = [gram for text in each for gram in ngrams(words(text), n)]
    return len(set(grams)) / len(grams) if grams else 1.0


def repetition_rate(text: str, n: int = 3) -> float:
    """Share of a text's n-grams that have occurred earlier in it: 0 = none, near 1 = the same words over and over."""
    return 1.0 - distinct_n(text, n)


def lexicon_rate(text: str, lexicon: Iterable[str]) -> float:
    """Share of a text's words that belong to an occurrence of a lexicon entry.

    Args:
        text: the text.
        lexicon: words or phrases; a phrase (or a Chinese word of several characters) matches as a whole, in any case.

    Returns:
        In [0, 1]; 0 for a text without words. Words that several entries cover count once.
    """
    tokens = words(text)
    entries = {tuple(words(entry)) for entry in lexicon} - {()}
    covered: set[int] = set()
    for n in {len(entry) for entry in entries}:
        for start, gram in enumerate(ngrams(tokens, n)):
            if gram in entries:
                covered.update(range(start, start + n))
    return len(covered) / len(tokens) if tokens else 0.0
