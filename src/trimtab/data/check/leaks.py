"""What of a test set stands in the training data: the same prompts, nearly the same ones, passages of 13 words.

A passage under more than ten prompts of either side is a phrase that everybody uses, and no leak. A run in Chinese,
where a character counts as a word, is 26 characters long. Source of the 13: Brown et al., arXiv 2005.14165, appendix C.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from trimtab.data.check.corpus import Corpus, is_han
from trimtab.data.check.findings import DataFinding, level_of
from trimtab.data.check.material import Material, counted, percent
from trimtab.data.check.repeats import NEAR
from trimtab.data.check.similar import candidates

__all__ = ["leak_findings"]

_PASSAGE = 13
_COMMON = 10

Ints = NDArray[np.int64]
_Number = TypeVar("_Number", np.int64, np.uint64)


def leak_findings(material: Material, test: Material) -> Iterator[DataFinding]:
    """Findings about the training pairs that share something with the test pairs; each pair has the strongest reason.

    Args:
        material: the training pairs.
        test: the test pairs, in the same corpus.
    """
    taken: set[int] = set()
    n_test = len(test)
    for kind, name, what, found in (
        ("leaked-prompts", "the same prompt as", "have their prompt in the training data", _exact(material, test)),
        ("leaked-near-prompts", "nearly the prompt of", "have nearly their prompt there", _near(material, test)),
        ("leaked-passages", "a passage of", f"share a passage of {_PASSAGE} words with it", _passages(material, test)),
    ):
        index = sorted(i for i in found if i not in taken)
        taken.update(found)
        if not index:
            continue
        hit = {test_id for i in index for test_id in found[i]}
        share = len(hit) / n_test
        notes = {material.pairs[i].id: f"{name} test pair {test.pairs[found[i][0]].id}" for i in index}
        yield DataFinding(
            kind,
            level_of(share, 0.001, 0.05),
            f"{counted(len(hit), 'test pair')} of {n_test:,} ({percent(len(hit), n_test)}) {what}: "
            f"{counted(len(index), 'training pair')}.",
            f"Take them out of the training data: trimtab data filter FILE -o OUT --test TEST --drop {kind}",
            len(index),
            share,
            material.ids(index),
            notes,
            {"test_pairs": len(hit), "test_ids": list(test.ids(sorted(hit)))[:1000]},
        )


def _exact(material: Material, test: Material) -> dict[int, list[int]]:
    keys = material.keys
    at: dict[int, list[int]] = {}
    for j, prompt in enumerate(test.prompts):
        at.setdefault(test.keys[prompt], []).append(j)
    return {i: at[keys[p]] for i, p in enumerate(material.prompts) if keys[p] in at}


def _near(material: Material, test: Material) -> dict[int, list[int]]:
    ours, theirs = np.unique(material.prompts), np.unique(test.prompts)
    rows = np.concatenate([material.signatures[ours], material.signatures[theirs]])
    near: dict[int, set[int]] = {}
    for i, j in candidates(rows):
        if i < len(ours) <= j:
            a, b = int(ours[i]), int(theirs[j - len(ours)])
            if a != b and material.similarity(a, b) >= NEAR:
                near.setdefault(a, set()).add(b)
    of_prompt: dict[int, list[int]] = {}
    for j, prompt in enumerate(test.prompts.tolist()):
        of_prompt.setdefault(prompt, []).append(j)
    return {
        i: sorted(j for b in near[p] for j in of_prompt[b])
        for i, p in enumerate(material.prompts.tolist())
        if p in near
    }


def _passages(material: Material, test: Material) -> dict[int, list[int]]:
    corpus = material.corpus
    han = np.array([is_han(word) for word in corpus.vocabulary], dtype=np.bool_)
    found: dict[int, list[int]] = {}
    for n, chinese in ((_PASSAGE, False), (2 * _PASSAGE, True)):
        if chinese and not han.any():
            continue
        runs = _runs(corpus, _texts(test), n, han, chinese)
        runs = runs.take(~_holds_phrase(runs, n, material, test))
        if not len(runs.hashes):
            continue
        ours = _runs(corpus, _texts(material), n, han, chinese, _distinct(runs.hashes))
        kept = np.intersect1d(_uncommon(runs, test), _uncommon(ours, material))
        runs, ours = runs.take(_among(runs.hashes, kept)), ours.take(_among(ours.hashes, kept))
        by_hash: dict[int, set[int]] = {}
        for h, text in zip(runs.hashes.tolist(), runs.texts.tolist(), strict=True):
            by_hash.setdefault(h, set()).add(text)
        near: dict[int, set[int]] = {}
        for h, text in zip(ours.hashes.tolist(), ours.texts.tolist(), strict=True):
            near.setdefault(text, set()).update(by_hash[h])
        _collect(found, near, material, test)
    return found


def _holds_phrase(runs: _Runs, n: int, material: Material, test: Material) -> NDArray[np.bool_]:
    """Runs of which more than half is a phrase that many use: a word more makes it rare, and yet no leak."""
    part = n // 2 + 2
    corpus = material.corpus
    parts = _runs(corpus, _texts(test), part)
    ours = _runs(corpus, _texts(material), part, wanted=_distinct(parts.hashes))
    rare_here, rare_there = _uncommon(parts, test), _uncommon(ours, material)
    common = ~_among(parts.hashes, rare_here) | (_among(parts.hashes, ours.hashes) & ~_among(parts.hashes, rare_there))
    begins = np.zeros(len(corpus.tokens) + 1, dtype=np.int64)
    begins[1 + parts.starts[common]] = 1
    before = np.cumsum(begins)
    result: NDArray[np.bool_] = before[runs.starts + n - part + 1] > before[runs.starts]
    return result


def _collect(found: dict[int, list[int]], near: dict[int, set[int]], material: Material, test: Material) -> None:
    owners = _owners(test)
    for i, pair_texts in enumerate(zip(material.prompts, material.chosen, material.rejected, strict=True)):
        hits = {j for t in pair_texts for other in near.get(int(t), ()) for j in owners[other]}
        if hits:
            found[i] = sorted({*found.get(i, ()), *hits})


def _texts(material: Material) -> Ints:
    return np.unique(np.concatenate([material.prompts, material.chosen, material.rejected]))


def _owners(material: Material) -> dict[int, list[int]]:
    owners: dict[int, list[int]] = {}
    for j, texts in enumerate(zip(material.prompts, material.chosen, material.rejected, strict=True)):
        for text in {int(t) for t in texts}:
            owners.setdefault(text, []).append(j)
    return owners


def _distinct(values: NDArray[_Number]) -> NDArray[_Number]:
    """The distinct values, sorted: for millions of them a sort is several times as fast as `numpy.unique`."""
    ordered = np.sort(values)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def _among(hashes: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which hashes are among `wanted`; a table of their first 24 bits turns most away before they are looked up."""
    found = np.zeros(len(hashes), dtype=np.bool_)
    if not len(wanted) or not len(hashes):
        return found
    known = _distinct(wanted)
    table = np.zeros(1 << 24, dtype=np.bool_)
    table[known >> np.uint64(40)] = True
    maybe = np.flatnonzero(table[hashes >> np.uint64(40)])
    place = np.minimum(np.searchsorted(known, hashes[maybe]), len(known) - 1)
    found[maybe] = known[place] == hashes[maybe]
    return found


class _Runs(NamedTuple):
    """Runs of words: their hashes, the numbers of their texts, and where they begin among all words."""

    hashes: NDArray[np.uint64]
    texts: Ints
    starts: Ints

    def take(self, keep: NDArray[np.bool_]) -> _Runs:
        return _Runs(self.hashes[keep], self.texts[keep], self.starts[keep])


def _runs(
    corpus: Corpus,
    numbers: Ints,
    n: int,
    han: NDArray[np.bool_] | None = None,
    chinese: bool = False,
    wanted: NDArray[np.uint64] | None = None,
) -> _Runs:
    """Runs of n words in these texts; with `han`, those that are half Chinese or more, or those that are less."""
    parts = [_Runs(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))]
    cumulative = np.concatenate([[0], np.cumsum(han[corpus.tokens])]) if han is not None and han.any() else None
    offsets = corpus.offsets
    for chunk in corpus.grams_of(numbers, n):
        text = numbers[chunk.first + chunk.texts]
        places = np.arange(len(text)) - np.repeat(np.cumsum(chunk.counts) - chunk.counts, chunk.counts)
        start = offsets[text] + places
        keep = np.ones(len(text), dtype=np.bool_)
        if cumulative is not None:
            keep = (2 * (cumulative[start + n] - cumulative[start]) >= n) == chinese
        if wanted is not None:
            keep &= _among(chunk.hashes, wanted)
        parts.append(_Runs(chunk.hashes[keep], text[keep], start[keep]))
    return _Runs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _uncommon(runs: _Runs, material: Material) -> NDArray[np.uint64]:
    """Hashes that stand in records of at most ten different prompts."""
    first, many = np.full(len(material.corpus), -1, dtype=np.int64), np.zeros(len(material.corpus), dtype=np.bool_)
    for text, pairs in _owners(material).items():
        prompts = {int(material.prompts[j]) for j in pairs[: 50 * _COMMON]}
        first[text], many[text] = min(prompts), len(prompts) > _COMMON
    known, place = np.unique(runs.hashes, return_inverse=True)
    size = len(material.corpus) + 1
    seen = _distinct(place * size + first[runs.texts]) // size
    common = np.bincount(seen, minlength=len(known)) > _COMMON
    common[place[many[runs.texts]]] = True
    result: NDArray[np.uint64] = known[~common]
    return result
