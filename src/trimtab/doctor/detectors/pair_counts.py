"""What is counted in preference pairs: repeats, triads, duplicates, prompts, stock responses."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from trimtab.doctor.judgments import PairTable
from trimtab.labeling.verdicts import VerdictTable
from trimtab.stats.text import words

__all__ = ["Comparisons", "Contradictions", "Triads", "comparisons_of_pairs", "comparisons_of_verdicts",
           "contradictions", "duplicates", "effective_number", "normalised", "openings", "same_response",
           "triads"]  # fmt: skip

Comparisons = dict[str, Counter[tuple[str, str]]]
"""By prompt: how often the first of two responses was preferred to the second."""

_MOST_RESPONSES: Final = 40
"""Responses of one prompt whose triads are counted."""
_NOISE: Final = re.compile(r"[\W_]+")


class Contradictions(NamedTuple):
    """Pairs that were labeled more than once, and how many of them have both labels."""

    contradictory: int
    repeated: int


class Triads(NamedTuple):
    """Three responses of one prompt that were all compared, and how many of these go round."""

    cyclic: int
    n: int


def normalised(text: str) -> str:
    """A text without case, punctuation and runs of spaces: what is equal in this form is a near-duplicate."""
    return _NOISE.sub(" ", text.casefold()).strip()


def comparisons_of_pairs(pairs: PairTable) -> Comparisons:
    """Who won against whom, by prompt; responses are told apart by their texts."""
    compared: Comparisons = {}
    for prompt, chosen, rejected in zip(pairs.prompt, pairs.chosen, pairs.rejected, strict=True):
        a, b = chosen.strip(), rejected.strip()
        if a != b:
            compared.setdefault(prompt.strip(), Counter())[a, b] += 1
    return compared


def comparisons_of_verdicts(table: VerdictTable) -> list[Comparisons]:
    """The same for each judge, one winner a pair over both orders: repeats are left to the checks of the judge."""
    found = []
    for name in table.judge.names:
        mine = table.of_judge(name)
        wins: dict[str, Counter[tuple[str, str]]] = {}
        for i in np.flatnonzero(mine.decided).tolist():
            a, b, prompt = mine.response_1.of(i), mine.response_2.of(i), mine.prompt.of(i)
            if a and b and prompt:
                wins.setdefault(prompt, Counter())[(a, b) if mine.winner[i] == 1 else (b, a)] += 1
        compared: Comparisons = {}
        for prompt, counts in wins.items():
            decided = {(a, b): 1 for (a, b), k in counts.items() if k > counts.get((b, a), 0)}
            compared[prompt] = Counter(decided)
        found.append(compared)
    return found


def contradictions(compared: Comparisons) -> Contradictions:
    """Pairs with two or more labels, and those of them whose labels differ."""
    contradictory = repeated = 0
    for wins in compared.values():
        for (a, b), k in wins.items():
            back = wins.get((b, a), 0)
            if k + back > 1 and (back == 0 or a < b):
                repeated += 1
                contradictory += back > 0
    return Contradictions(contradictory, repeated)


def triads(compared: Comparisons) -> Triads:
    """Triads of responses of which all three comparisons have a majority."""
    cyclic = n = 0
    for wins in compared.values():
        better = {(a, b) for (a, b), k in wins.items() if k > wins.get((b, a), 0)}
        names = sorted({name for pair in better for name in pair})[:_MOST_RESPONSES]
        for three in combinations(names, 3) if len(names) >= 3 else ():
            beaten = [sum((a, b) in better for b in three) for a in three]
            if sum(beaten) == 3:
                n += 1
                cyclic += beaten == [1, 1, 1]
    return Triads(cyclic, n)


def duplicates(pairs: PairTable) -> float:
    """Share of pairs that repeat an earlier one, up to case and punctuation; another annotator's label is no repeat."""
    by = pairs.annotator
    keys = {
        (normalised(p), normalised(a), normalised(b), by.of(i) if by is not None else None)
        for i, (p, a, b) in enumerate(zip(pairs.prompt, pairs.chosen, pairs.rejected, strict=True))
    }
    return 1 - len(keys) / len(pairs)


def effective_number(names: Sequence[str]) -> float | None:
    """exp of the entropy of the shares of names: as many equally frequent ones are as diverse. None without names."""
    counts = Counter(normalised(name) for name in names if name)
    total = sum(counts.values())
    if not total:
        return None
    return math.exp(-sum(k / total * math.log(k / total) for k in counts.values()))


def same_response(pairs: PairTable) -> tuple[float, str]:
    """The chosen response that most prompts have in common: its share of the prompts, and the text."""
    by_text: dict[str, set[str]] = {}
    for prompt, chosen in zip(pairs.prompt, pairs.chosen, strict=True):
        by_text.setdefault(normalised(chosen), set()).add(prompt)
    prompts = len(set(pairs.prompt))
    if prompts < 20:
        return 0.0, ""
    text, of = max(by_text.items(), key=lambda each: len(each[1]))
    return len(of) / prompts, text[:60]


def openings(pairs: PairTable) -> tuple[float, str]:
    """The first five words that most chosen responses begin with: their share, and the words."""
    starts = Counter(" ".join(words(chosen[:200])[:5]) for chosen in pairs.chosen)
    if len(starts) < 1:
        return 0.0, ""
    start, k = starts.most_common(1)[0]
    return k / len(pairs), start
