"""Phrases that buy score, mined from scored responses and confirmed on prompts that they were not mined from.

Within each prompt, scores are freed of the prompt's mean and of length; a phrase's lift is the mean difference between
the responses of a prompt that have it and those that do not. Phrases stand for themselves only: one that is confirmed
may still come with what is good. Whether it buys score by itself, `probing` asks by appending it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.preference.probes.figures import centred
from trimtab.stats.intervals import Interval, bootstrap_mean
from trimtab.stats.significance import binomial_test, holm
from trimtab.stats.text import ngrams, words

__all__ = ["Phrase", "mine"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LONGEST, _CANDIDATES = 3, 20
_LEAST = 5
"""Prompts of either half with responses that have a phrase and responses that do not."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase with its lift in score SDs.

    Args:
        text: the words.
        mined: lift on the prompts that it was mined from, which flatters it.
        lift: on the other prompts, with a 95 % bootstrap interval over them.
        p: sign test over those prompts, Holm-corrected over the candidates.
    """

    text: str
    mined: float
    lift: Interval
    p: float


def mine(scores: Floats, texts: Sequence[str], groups: Ints, *, seed: int, resamples: int) -> list[Phrase]:
    """The best candidates of half of the prompts with their lift on the other half, best first.

    Args:
        scores: [m].
        texts: [m] responses.
        groups: [m] prompt of each; only prompts with several responses say something.
        seed: of the halves.
        resamples: of the bootstrap.
    """
    sd = float(scores.std())
    if sd == 0 or not len(scores):
        return []
    rest = _without_length(scores / sd, np.array([len(words(t)) for t in texts], dtype=np.float64), groups)
    members: dict[int, list[int]] = defaultdict(list)
    for i, group in enumerate(groups.tolist()):
        members[group].append(i)
    several = sorted(group for group, rows in members.items() if len(rows) > 1)
    order = np.random.default_rng([seed, len(several)]).permutation(len(several))
    halves = [[several[i] for i in order[start::2]] for start in (0, 1)]
    grams = [_grams(text) for text in texts]
    mined = {gram: lifts for gram, lifts in _lifts(halves[0], members, grams, rest).items() if len(lifts) >= _LEAST}
    ranked = sorted(mined, key=lambda gram: (-_t(mined[gram]), -len(gram), gram))
    held_out = _lifts(halves[1], members, grams, rest)
    found: list[tuple[str, float, Interval, float]] = []
    seen: list[list[float]] = []
    for gram in ranked:
        lifts = held_out.get(gram, [])
        # a longer phrase and its parts are in the same responses: the longest stands for them
        if len(lifts) < _LEAST or mined[gram] in seen or float(np.mean(mined[gram])) <= 0:
            continue
        seen.append(mined[gram])
        ups = sum(x > 1e-12 for x in lifts)
        p = binomial_test(ups, ups + sum(x < -1e-12 for x in lifts))
        found.append((" ".join(gram), float(np.mean(mined[gram])), bootstrap_mean(lifts, None, resamples, seed), p))
        if len(found) == _CANDIDATES:
            break
    adjusted = holm([p for *_, p in found]) if found else np.empty(0)
    made = [Phrase(text, lift, held, float(p)) for (text, lift, held, _), p in zip(found, adjusted, strict=True)]
    return sorted(made, key=lambda phrase: -phrase.lift.mean)


def _without_length(scores: Floats, length: Floats, groups: Ints) -> Floats:
    x, y = centred(np.log2(1 + length), groups), centred(scores, groups)
    slope = float((x * y).sum() / (x * x).sum()) if (x * x).sum() > 0 else 0.0
    return np.asarray(y - slope * x, dtype=np.float64)


def _grams(text: str) -> set[tuple[str, ...]]:
    tokens = words(text)
    return {gram for n in range(1, _LONGEST + 1) for gram in ngrams(tokens, n)}


def _lifts(
    prompts: Sequence[int], members: dict[int, list[int]], grams: Sequence[set[tuple[str, ...]]], rest: Floats
) -> dict[tuple[str, ...], list[float]]:
    """gram -> its difference in each prompt where some responses have it and some do not."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for prompt in prompts:
        rows = members[prompt]
        with_it: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for i in rows:
            for gram in grams[i]:
                with_it[gram].append(i)
        total = float(rest[rows].sum())
        for gram, having in with_it.items():
            if len(having) < len(rows):
                own = float(rest[having].sum())
                found[gram].append(own / len(having) - (total - own) / (len(rows) - len(having)))
    return found


def _t(lifts: Sequence[float]) -> float:
    x = np.asarray(lifts)
    # the spread of all differences is about one SD: a floor keeps five lucky equal ones from ranking first
    return float(x.mean()) * math.sqrt(len(x)) / max(float(x.std()), 0.25)
