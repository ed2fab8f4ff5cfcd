"""Near-duplicate texts: MinHash to find candidates, the exact Jaccard similarity to decide.

Texts are sets of runs of three words. 64 minima of hashed runs make a signature; texts that share one of 16 bands of
four minima are candidates: at Jaccard .8 two texts meet with probability .9998. Candidates are compared exactly, so
nothing is called similar that is not. All signatures are computed together in numpy.
Source: Broder (1997); bands: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from trimtab.data.check.corpus import Corpus

__all__ = ["SHINGLE", "Clusters", "Similarity", "candidates", "signatures"]

SHINGLE = 3
_HASHES, _ROWS = 64, 4
_MOST_OF_BUCKET = 40
_SEED = 20_240_601

Signatures = NDArray[np.uint32]


def signatures(corpus: Corpus, numbers: range | NDArray[np.int64]) -> Signatures:
    """[numbers, 64] minima of the hashed runs of three words of these texts (ascending); of no words: all ones."""
    rng = np.random.default_rng(_SEED)
    multipliers = rng.integers(1, 2**63, _HASHES, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    additions = rng.integers(0, 2**63, _HASHES, dtype=np.uint64)
    result = np.full((len(numbers), _HASHES), 2**32 - 1, dtype=np.uint32)
    for chunk in corpus.grams_of(numbers, SHINGLE, short=True):
        filled = np.flatnonzero(chunk.counts)
        if not len(filled):
            continue
        starts = (np.cumsum(chunk.counts) - chunk.counts)[filled]
        for k in range(_HASHES):
            hashed = (chunk.hashes * multipliers[k] + additions[k]) >> np.uint64(32)
            result[chunk.first + filled, k] = np.minimum.reduceat(hashed.astype(np.uint32), starts)
    return result


def candidates(rows: Signatures, least: float = 0.6) -> Iterator[tuple[int, int]]:
    """Pairs (i < j) of rows that share a band and at least `least` of their minima, each once, in order.

    Within a bucket of very many rows, each is compared with the 40 that follow it.
    """
    if len(rows) < 2:
        return
    codes: list[NDArray[np.int64]] = []
    used = np.flatnonzero((rows != 2**32 - 1).any(axis=1))
    for band in range(0, _HASHES, _ROWS):
        key = _mixed(rows[used, band : band + _ROWS])
        order = np.argsort(key, kind="stable")
        key, order = key[order], used[order]
        for step in range(1, _MOST_OF_BUCKET + 1):
            same = np.flatnonzero(key[step:] == key[:-step]) if step < len(key) else np.zeros(0, np.int64)
            if not len(same):
                break
            codes.append(order[same].astype(np.int64) * len(rows) + order[same + step])
    if not codes:
        return
    for code in np.array_split(np.unique(np.concatenate(codes)), 1 + sum(map(len, codes)) // 200_000):
        i, j = code // len(rows), code % len(rows)
        close = (rows[i] == rows[j]).mean(axis=1) >= least
        yield from zip(i[close].tolist(), j[close].tolist(), strict=True)


def _mixed(band: Signatures) -> NDArray[np.uint64]:
    key = np.zeros(len(band), dtype=np.uint64)
    for column in band.T:
        key = (key ^ column.astype(np.uint64)) * np.uint64(0x100000001B3)
        key ^= key >> np.uint64(29)
    return key


class Similarity:
    """Exact Jaccard similarity of two texts of a corpus; sets of texts that are asked for again are kept."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._sets: dict[int, NDArray[np.uint64]] = {}

    def __call__(self, a: int, b: int) -> float:
        """In [0, 1]; two texts without words are as similar as their characters are equal."""
        if a == b:
            return 1.0
        first, second = self._set(a), self._set(b)
        if not len(first) or not len(second):
            return float(len(first) == len(second) and self._corpus.texts[a].strip() == self._corpus.texts[b].strip())
        shared = len(np.intersect1d(first, second, assume_unique=True))
        return shared / (len(first) + len(second) - shared)

    def _set(self, number: int) -> NDArray[np.uint64]:
        if number not in self._sets:
            if len(self._sets) > 50_000:
                self._sets.clear()
            self._sets[number] = self._corpus.gram_set(number, SHINGLE)
        return self._sets[number]


class Clusters:
    """Which things belong together, told pair by pair (union-find); the first of a cluster stands for it."""

    def __init__(self, n: int) -> None:
        self._parent = list(range(n))

    def head(self, i: int) -> int:
        """The first member of the cluster of i."""
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i

    def join(self, i: int, j: int) -> None:
        """Put the clusters of i and j together."""
        a, b = sorted((self.head(i), self.head(j)))
        self._parent[b] = a

    def of(self, rows: Signatures, alike: Callable[[int, int], bool]) -> Clusters:
        """Join all candidates of these signatures that are alike; returns self."""
        for i, j in candidates(rows):
            if self.head(i) != self.head(j) and alike(i, j):
                self.join(i, j)
        return self
