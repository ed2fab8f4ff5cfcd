"""What the prompts are about: how many topics, how evenly, in words that show them.

What the user says is a bag of hashed words weighted by how rare a word is, seen in its main directions. It is clustered
(spherical k-means), clusters with similar centres are joined, and exp(entropy) of the clusters' sizes is the effective
number of topics. Beside it stands the Vendi score, exp(entropy of the eigenvalues of the similarity matrix), which
needs no clusters: the number of wholly different prompts that would be as diverse.
Source: Friedman and Dieng, arXiv 2210.02410.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.data.check.findings import DataFinding, Level, level_of
from trimtab.data.check.material import Material, counted, percent
from trimtab.data.check.repeats import NEAR
from trimtab.data.check.similar import Clusters

__all__ = ["Topics", "coverage_findings", "topics"]

_DIMENSIONS = 512
_MOST_PROMPTS = 20_000
_ITERATIONS = 12
_JOIN = 0.45
_COMMON = 0.35
_DIRECTIONS = 50
_FEW = 200
_VARIED = 100

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics of the distinct prompts.

    Args:
        prompts: distinct prompts.
        looked_at: how many of them were clustered (a fixed random choice of at most 20,000).
        effective: exp(entropy) of the topics' sizes.
        vendi: Vendi score of the prompts.
        largest: topics as (share of prompts, words), the largest first.
        near: indices (into the distinct prompts) that are near-duplicates of an earlier prompt.
        gini: how unevenly the pairs are spread over the prompts: 0 = the same number each.
    """

    prompts: int
    looked_at: int
    effective: float
    vendi: float
    largest: tuple[tuple[float, tuple[str, ...]], ...]
    near: tuple[int, ...]
    gini: float

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "prompts": self.prompts,
            "looked_at": self.looked_at,
            "effective_topics": self.effective,
            "vendi": self.vendi,
            "topics": [{"share": share, "words": list(words)} for share, words in self.largest],
            "near_duplicate_prompts": len(self.near),
            "pairs_per_prompt_gini": self.gini,
        }


def topics(material: Material, seed: int = 0) -> Topics:
    """Cluster the distinct prompts of some pairs."""
    keys = np.array([material.keys[i] for i in material.prompts], dtype=np.int64)
    prompts, first, sizes = np.unique(keys, return_index=True, return_counts=True)
    rng = np.random.default_rng(seed)
    some = material.questions[first]
    if len(some) > _MOST_PROMPTS:
        some = rng.choice(some, _MOST_PROMPTS, replace=False)
    rows = _vectors(material, some)
    filled = np.flatnonzero((rows != 0).any(axis=1))
    if len(filled) < 2:
        return Topics(len(prompts), len(some), float(len(filled)), float(len(filled)), (), (), _gini(sizes))
    labels = _clusters(_main_directions(rows[filled]), rng)
    counts = np.bincount(labels)
    shares = counts / counts.sum()
    effective = math.exp(-math.fsum(s * math.log(s) for s in shares if s > 0))
    named = _names(material, some[filled], labels, counts)
    near = _near_prompts(material, prompts)
    return Topics(len(prompts), len(some), effective, _vendi(rows[filled]), named, near, _gini(sizes))


def coverage_findings(material: Material, found: Topics) -> Iterator[DataFinding]:
    """Few topics, or prompts that are nearly the same."""
    if found.looked_at >= _FEW and found.effective < 3:
        share, words = found.largest[0]
        yield DataFinding(
            "few-topics",
            Level.WARNING if found.vendi < _VARIED else Level.INFO,
            f"The {counted(found.prompts, 'distinct prompt')} cover {found.effective:.1f} topics in effect; the "
            f"largest ({', '.join(words)}) holds {percent(share, 1)}.",
            "Add prompts from other sources: what is not asked is not learned.",
            found.prompts,
            share,
        )
    if found.near:
        share = len(found.near) / found.prompts
        keys = np.array([material.keys[i] for i in material.prompts], dtype=np.int64)
        prompts = np.unique(keys)
        near = set(prompts[list(found.near)].tolist())
        ids = material.ids([i for i, key in enumerate(keys.tolist()) if key in near])
        yield DataFinding(
            "near-duplicate-prompts",
            level_of(share, 0.1, 2.0),
            f"{counted(len(found.near), 'prompt')} of {found.prompts:,} ({percent(len(found.near), found.prompts)}) "
            f"{'is' if len(found.near) == 1 else 'are'} nearly the same as an earlier one ({NEAR:.0%} of the "
            "three-word runs).",
            "Vary the prompts; keep near-duplicates on one side of any split.",
            len(found.near),
            share,
            ids,
        )


def _vectors(material: Material, numbers: NDArray[np.int64]) -> Floats:
    """[numbers, D] unit vectors of hashed words, each word once, weighted by log(n / documents with it)."""
    corpus = material.corpus
    offsets, tokens = corpus.offsets, corpus.tokens
    lengths = offsets[numbers + 1] - offsets[numbers]
    rows = np.repeat(np.arange(len(numbers)), lengths)
    at = (
        np.arange(lengths.sum())
        - np.repeat(np.cumsum(lengths) - lengths, lengths)
        + np.repeat(offsets[numbers], lengths)
    )
    size = max(len(corpus.word_hashes), 1)
    cells = np.unique(rows * size + tokens[at])
    rows, word = cells // size, cells % size
    documents = np.bincount(word, minlength=size)
    # a word of one prompt joins nothing, a word of most prompts is about nothing
    shared = (documents > 1) & (documents <= max(_COMMON * len(numbers), 2))
    weights = np.log(len(numbers) / np.maximum(documents, 1)) * shared
    hashes = corpus.word_hashes[word]
    column = (hashes % np.uint64(_DIMENSIONS)).astype(np.int64)
    sign = 1.0 - 2.0 * ((hashes >> np.uint64(40)) & np.uint64(1)).astype(np.float64)
    flat = np.bincount(rows * _DIMENSIONS + column, sign * weights[word], len(numbers) * _DIMENSIONS)
    dense = flat.reshape(len(numbers), _DIMENSIONS).astype(np.float32)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    result: Floats = np.divide(dense, norms, out=np.zeros_like(dense), where=norms > 0)
    return result


def _main_directions(rows: Floats) -> Floats:
    """Rows in the directions in which they vary most: prompts of one topic seldom share a word, but share neighbours.

    At most 50 directions, those with more than twice the mean eigenvalue. Source: Deerwester et al. (1990).
    """
    values, vectors = np.linalg.eigh((rows.T @ rows).astype(np.float64) / len(rows))
    strong = np.flatnonzero(values > 2 * values.mean())[-_DIRECTIONS:]
    found = (rows @ vectors[:, strong].astype(np.float32)).astype(np.float32)
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    result: Floats = np.divide(found, norms, out=np.zeros_like(found), where=norms > 0)
    return result


def _clusters(rows: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """Spherical k-means; clusters whose centres are alike are joined, so that k hardly matters."""
    k = int(np.clip(round(math.sqrt(len(rows) / 2)), 2, 40))
    centres = rows[_spread_out(rows, k, rng)]
    labels = np.zeros(len(rows), dtype=np.int64)
    for _ in range(_ITERATIONS):
        new = np.argmax(rows @ centres.T, axis=1)
        if (new == labels).all():
            break
        labels = new
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, rows)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(norms > 0, sums / np.maximum(norms, 1e-12), centres)
    heads = _joined(np.stack([rows[labels == i].sum(axis=0) for i in range(k)]))
    return np.unique(heads[labels], return_inverse=True)[1].astype(np.int64)


def _joined(sums: Floats) -> NDArray[np.int64]:
    """[k] the cluster that each ends up in when, again and again, the two with the most similar centres are joined."""
    heads = np.arange(len(sums))
    sums = sums.astype(np.float64)
    while True:
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        units = np.divide(sums, norms, out=np.zeros_like(sums), where=norms > 0)
        alike = np.triu(units @ units.T, 1)
        i, j = np.unravel_index(int(np.argmax(alike)), alike.shape)
        if alike[i, j] <= _JOIN:
            return heads
        sums[i] += sums[j]
        sums[j] = 0
        heads[heads == j] = i


def _spread_out(rows: Floats, k: int, rng: np.random.Generator) -> list[int]:
    """k-means++ starting points."""
    chosen = [int(rng.integers(len(rows)))]
    distance = np.maximum(1 - rows @ rows[chosen[0]], 0).astype(np.float64)
    while len(chosen) < k:
        total = float(distance.sum())
        pick = int(rng.choice(len(rows), p=distance / total)) if total > 0 else int(rng.integers(len(rows)))
        chosen.append(pick)
        distance = np.minimum(distance, np.maximum(1 - rows @ rows[pick], 0))
    return chosen


def _names(
    material: Material, numbers: NDArray[np.int64], labels: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[tuple[float, tuple[str, ...]], ...]:
    """The ten largest topics with the words that mark them: frequent inside, rare outside."""
    vocabulary = material.corpus.vocabulary
    inside = np.zeros((len(counts), len(vocabulary)), dtype=np.float32) if len(vocabulary) * len(counts) < 2e8 else None
    if inside is None:
        return tuple((float(c) / float(counts.sum()), ()) for c in sorted(counts.tolist(), reverse=True)[:10])
    for number, label in zip(numbers.tolist(), labels.tolist(), strict=True):
        inside[label, np.unique(material.corpus.words_of(number))] += 1
    overall = inside.sum(axis=0)
    named = []
    for topic in np.argsort(-counts, kind="stable")[:10]:
        share = inside[topic] / counts[topic]
        lift = share * np.log(np.maximum(share, 1e-9) / np.maximum(overall / counts.sum(), 1e-9) + 1e-9)
        best = np.argsort(-np.where(inside[topic] > 1, lift, -1), kind="stable")[:4]
        words = tuple(vocabulary[i] for i in best if inside[topic, i] > 1)
        named.append((float(counts[topic] / counts.sum()), words))
    return tuple(named)


def _vendi(rows: Floats) -> float:
    values = np.linalg.eigvalsh((rows.T @ rows).astype(np.float64) / len(rows))
    values = values[values > 1e-12]
    return float(np.exp(-(values * np.log(values)).sum()))


def _near_prompts(material: Material, prompts: NDArray[np.int64]) -> tuple[int, ...]:
    clusters = Clusters(len(prompts)).of(
        material.signatures[prompts], lambda i, j: material.similarity(int(prompts[i]), int(prompts[j])) >= NEAR
    )
    return tuple(i for i in range(len(prompts)) if clusters.head(i) != i)


def _gini(counts: NDArray[np.int64]) -> float:
    x = np.sort(counts).astype(np.float64)
    n = len(x)
    return float((2 * np.arange(1, n + 1) - n - 1) @ x / (n * x.sum())) if n else 0.0
