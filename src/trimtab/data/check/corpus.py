"""Every text of a data set once, as word numbers in one array: what all measures of text are taken from.

Words are those of `trimtab.stats.text`: lower case, without punctuation, every Chinese character a word. A word is
known by a hash of its letters, so that the same texts give the same measures in any file and any order.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.stats.text import words

__all__ = ["Corpus", "Grams", "is_han"]

_CHUNK_WORDS = 1 << 21
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xBF58476D1CE4E5B9)


class Grams(NamedTuple):
    """n-grams of a run of texts: their hashes in order, the text of each, and how many each text has."""

    first: int
    hashes: NDArray[np.uint64]
    texts: NDArray[np.int64]
    counts: NDArray[np.int64]


class Corpus:
    """Texts by number; the same text has the same number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._vocabulary: dict[str, int] = {}
        self._tokens = array("i")
        self._ends = array("q", [0])
        self._hashes: NDArray[np.uint64] | None = None

    def add(self, text: str) -> int:
        """The number of a text, new or known."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.texts)
            self.texts.append(text)
            vocabulary = self._vocabulary
            self._tokens.extend([vocabulary.setdefault(word, len(vocabulary)) for word in words(text)])
            self._ends.append(len(self._tokens))
            self._hashes = None
        return number

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """[texts + 1] where each text begins in `tokens`."""
        return np.frombuffer(self._ends, dtype=np.int64)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """Numbers of the words of all texts, one after the other."""
        return np.frombuffer(self._tokens, dtype=np.int32) if self._tokens else np.zeros(0, np.int32)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[texts] words in each text."""
        return np.diff(self.offsets)

    @property
    def vocabulary(self) -> list[str]:
        """The words by number."""
        return list(self._vocabulary)

    @property
    def word_hashes(self) -> NDArray[np.uint64]:
        """[vocabulary] a hash of each word that does not depend on the other texts."""
        if self._hashes is None:
            digests = b"".join(
                hashlib.blake2b(w.encode("utf-8", "surrogatepass"), digest_size=8).digest() for w in self._vocabulary
            )
            self._hashes = np.frombuffer(digests, dtype="<u8").astype(np.uint64)
        return self._hashes

    def words_of(self, number: int) -> NDArray[np.int32]:
        """Word numbers of one text."""
        offsets = self.offsets
        return self.tokens[offsets[number] : offsets[number + 1]]

    def grams(self, n: int, *, short: bool = False) -> Iterator[Grams]:
        """The n-grams of all texts, some texts at a time so that memory stays bounded.

        Args:
            n: words an n-gram.
            short: a text of fewer words (but at least one) counts as one n-gram of all that it has.
        """
        yield from self.grams_of(range(len(self)), n, short=short)

    def grams_of(self, numbers: range | NDArray[np.int64], n: int, *, short: bool = False) -> Iterator[Grams]:
        """As `grams`, of the texts with these numbers (ascending); `Grams.texts` counts from 0 along them."""
        index = np.asarray(numbers, dtype=np.int64)
        lengths, offsets = self.lengths[index], self.offsets
        begin = 0
        while begin < len(index):
            sizes = np.cumsum(lengths[begin:])
            end = begin + max(1, int(np.searchsorted(sizes, _CHUNK_WORDS, side="right")))
            yield self._gram_chunk(begin, offsets[index[begin:end]], lengths[begin:end], n, short)
            begin = end

    def _gram_chunk(
        self, first: int, starts: NDArray[np.int64], lengths: NDArray[np.int64], n: int, short: bool
    ) -> Grams:
        counts = np.maximum(lengths - n + 1, 0)
        sizes = np.full(len(lengths), n, dtype=np.int64)
        if short:
            small = (lengths > 0) & (lengths < n)
            counts[small], sizes[small] = 1, lengths[small]
        texts = np.repeat(np.arange(len(lengths)), counts)
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        at = starts[texts] + places
        hashes = np.zeros(len(at), dtype=np.uint64)
        known, tokens = self.word_hashes, self.tokens
        whole = bool((sizes[counts > 0] == n).all())
        for i in range(n):
            if whole:
                hashes = hashes * _MULTIPLIER + known[tokens[at + i]]
            else:
                inside = sizes[texts] > i
                hashes[inside] = hashes[inside] * _MULTIPLIER + known[tokens[at[inside] + i]]
        hashes = (hashes ^ (hashes >> np.uint64(31))) * _MIX
        return Grams(first, hashes ^ (hashes >> np.uint64(29)), texts, counts)

    def gram_set(self, number: int, n: int) -> NDArray[np.uint64]:
        """The distinct n-grams of one text, sorted; all its words as one where it has fewer."""
        (chunk,) = self.grams_of(np.array([number]), n, short=True)
        return np.unique(chunk.hashes)

    def extend(self, texts: Iterable[str]) -> list[int]:
        """The numbers of several texts."""
        return [self.add(text) for text in texts]


def is_han(word: str) -> bool:
    """Whether a word is a Chinese character."""
    return (
        len(word) == 1
        and word > "\u2e7f"
        and ("\u3400" <= word <= "\u9fff" or word >= "\U00020000" or "\uf900" <= word <= "\ufaff")
    )
