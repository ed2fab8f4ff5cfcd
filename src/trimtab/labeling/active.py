"""Which pairs to label next: those whose labels are expected to tell most, spread over prompts.

In nats, with p_m the probability that rater m gives to "first is better", H(p) the binary entropy, and bars for means
over the raters:

    uncertainty    H(p̄)              what nobody knows of the label: what it will tell, if its author is sure of it
    disagreement   H(p̄) - mean H(p)  what a label tells about who is right: mutual information of label and rater

Over the members of an ensemble of preference models, disagreement is called BALD (Houlsby et al., 2011); over judges,
wordings or orders of presentation, it is the Jensen-Shannon divergence of their verdicts. What each of them saves is
measured in docs/judges.md. The most informative pairs of a round resemble each other: at most a few are taken of a
prompt, and none twice.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.data.records import CandidatePair
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["Rule", "bald", "choose", "disagreement", "entropy", "probabilities"]

Rule = Literal["auto", "uncertainty", "disagreement", "random"]
Floats = NDArray[np.float64]

_ALIKE = 0.8
"""Share of common words from which two pairs of one prompt count as the same."""


def entropy(p: ArrayLike) -> Floats:
    """Binary entropy -p log p - (1 - p) log(1 - p) in nats, elementwise; 0 at 0 and 1. Source: Shannon (1948)."""
    x = np.asarray(p, dtype=np.float64)
    # x log x goes to 0 with x
    terms = [-q * np.log(np.where(q > 0, q, 1.0)) for q in (x, 1.0 - x)]
    return np.asarray(terms[0] + terms[1])


def probabilities(scores: ArrayLike) -> Floats:
    """P(first > second) = sigmoid(score of the first - score of the second): [..., P, 2] -> [..., P]."""
    s = np.asarray(scores, dtype=np.float64)
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * (s[..., 0] - s[..., 1]))))


def disagreement(p: ArrayLike) -> Floats:
    """Mutual information of a pair's label and the rater whose probability is taken: H(mean p) - mean H(p).

    Args:
        p: [M, P] P(first > second) by rater and pair; NaN where a rater did not vote.

    Returns:
        [P] nats, from 0 to log 2; 0 where fewer than two voted.
    """
    x = np.asarray(p, dtype=np.float64)
    found = entropy(_mean(x)) - _mean(entropy(x))
    return np.where(np.isfinite(x).sum(axis=0) > 1, np.maximum(found, 0.0), 0.0)


def bald(scores: ArrayLike) -> Floats:
    """Mutual information of a pair's label and the member of an ensemble. Source: Houlsby et al. (2011).

    Args:
        scores: [M, P, 2] scores of both responses by M preference models.

    Returns:
        [P] nats, from 0 to log 2.
    """
    return disagreement(probabilities(scores))


def choose(
    pairs: Sequence[CandidatePair],
    n: int,
    *,
    scores: ArrayLike | None = None,
    judge_votes: ArrayLike | None = None,
    labeled: Collection[int] = (),
    rule: Rule = "auto",
    per_prompt: int | None = None,
    seed: int = 0,
) -> NDArray[np.int64]:
    """The next pairs to label, the most informative first. The order of `pairs` does not matter.

    Args:
        pairs: all candidates, those that are labeled already included; their ids differ.
        n: how many to choose; fewer come back only where fewer are left.
        scores: [P, 2] scores of both responses by a preference model, or [M, P, 2] by an ensemble.
        judge_votes: [V, P] P(first > second) by judge, wording or order of presentation; NaN where there is no vote.
        labeled: numbers of the pairs that are labeled: not chosen, and counted as taken of their prompt.
        rule: `uncertainty` or `disagreement` of all who gave a probability, a preference model beside judges being one
            of them; `random`; `auto`: disagreement where there are judges' votes and at least two raters, else
            uncertainty, and random where nothing is known.
        per_prompt: most pairs of one prompt, labeled ones included, as long as others are left; None: as few as `n`
            allows, over labeled and chosen pairs together.
        seed: decides between equals.

    Returns:
        int64 [min(n, pairs left)] numbers of pairs.

    Raises:
        TrimtabError: shapes that do not fit, scores that are not finite, votes that are no probabilities, or a rule
            that lacks what it goes by.
    """
    _check_numbers(n, per_prompt, labeled, len(pairs))
    known = _raters(len(pairs), scores, judge_votes)
    told = _information(known, rule, votes=judge_votes is not None, pairs=len(pairs))
    taken = set(labeled)
    equals = [_draw(seed, pair.id) for pair in pairs]
    order = sorted((i for i in range(len(pairs)) if i not in taken), key=lambda i: (-told[i], equals[i]))
    spread = _Spread(pairs, sorted(taken), min(n, len(order)), per_prompt)
    chosen: list[int] = []
    # others of a prompt before the same again, and the same again before nothing
    for allowed in (spread.fits, spread.differs, lambda i: True):
        for i in order:
            if len(chosen) == n:
                return np.array(chosen, dtype=np.int64)
            if i not in taken and allowed(i):
                chosen.append(i)
                taken.add(i)
                spread.take(i)
    return np.array(chosen, dtype=np.int64)


class _Spread:
    """Keeps count of prompts and of what has been taken."""

    def __init__(self, pairs: Sequence[CandidatePair], taken: Sequence[int], n: int, per_prompt: int | None) -> None:
        self._prompts = [pair.prompt.messages for pair in pairs]
        self._pairs = pairs
        self._count: Counter[object] = Counter()
        self._words: dict[object, list[frozenset[str]]] = {}
        prompts = max(len(set(self._prompts)), 1)
        self._most = per_prompt if per_prompt is not None else math.ceil((n + len(taken)) / prompts)
        for i in taken:
            self.take(i)

    def fits(self, i: int) -> bool:
        return self._count[self._prompts[i]] < self._most and self.differs(i)

    def differs(self, i: int) -> bool:
        """Whether the pair's responses differ from each other, and the pair from what was taken of its prompt."""
        pair = self._pairs[i]
        if pair.first.text.split() == pair.second.text.split():
            return False
        words = _words(pair)
        return not any(_alike(words, other) for other in self._words.get(self._prompts[i], ()))

    def take(self, i: int) -> None:
        self._count[self._prompts[i]] += 1
        self._words.setdefault(self._prompts[i], []).append(_words(self._pairs[i]))


def _words(pair: CandidatePair) -> frozenset[str]:
    """Words of both responses; texts that are not split by blanks by their characters."""
    texts = (pair.first.text.casefold(), pair.second.text.casefold())
    words = frozenset(word for text in texts for word in text.split())
    return words if len(words) > len(texts) else frozenset(c for text in texts for c in text)


def _alike(a: frozenset[str], b: frozenset[str]) -> bool:
    """Jaccard similarity of at least `_ALIKE`."""
    return len(a & b) >= _ALIKE * len(a | b)


def _draw(seed: int, pair_id: str) -> bytes:
    """A random number that belongs to the pair, so that the order of the list decides nothing."""
    return hashlib.blake2b(f"{seed}/{pair_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _information(known: Floats, rule: Rule, *, votes: bool, pairs: int) -> Floats:
    if rule == "auto":
        rule = "random" if not len(known) else "disagreement" if votes and len(known) > 1 else "uncertainty"
    fewest = {"random": 0, "uncertainty": 1, "disagreement": 2}[rule]
    if len(known) < fewest:
        raise TrimtabError(
            ErrorKind.FAILED,
            f'rule = "{rule}" with {len(known)} rows of probabilities',
            "uncertainty needs scores or judge_votes; disagreement an ensemble's scores, or two votes, or both",
        )
    if rule == "random":
        return np.zeros(pairs)
    if rule == "disagreement":
        return disagreement(known)
    return np.asarray(entropy(_mean(known)))


def _raters(count: int, scores: ArrayLike | None, votes: ArrayLike | None) -> Floats:
    """[M, P] probabilities of everybody who gave some."""
    rows: list[Floats] = []
    if scores is not None:
        s = np.asarray(scores, dtype=np.float64)
        if s.ndim not in (2, 3) or s.shape[-2:] != (count, 2) or s.shape[0] == 0 < count:
            raise _misfit("scores", s.shape, f"[{count}, 2], or [members, {count}, 2]")
        if not np.isfinite(s).all():
            raise TrimtabError(
                ErrorKind.DATA,
                f"scores of pair {int(np.argwhere(~np.isfinite(s))[0][-2])} are not finite",
                "score the pairs again, or leave it out",
            )
        p = probabilities(s)
        # beside judges an ensemble is one of the raters
        rows.append(p[None] if p.ndim == 1 else p.mean(axis=0)[None] if votes is not None else p)
    if votes is not None:
        v = np.asarray(votes, dtype=np.float64)
        if v.ndim != 2 or v.shape[1] != count:
            raise _misfit("judge_votes", v.shape, f"[judges, {count}]")
        if (wrong := np.argwhere((v < 0) | (v > 1))).size:
            row, column = wrong[0]
            raise TrimtabError(
                ErrorKind.DATA,
                f"judge_votes[{row}, {column}] = {v[row, column]:g} is no probability",
                "P(first > second) is from 0 to 1, NaN where there is no vote",
            )
        rows.append(v)
    return np.concatenate(rows) if rows else np.empty((0, count))


def _mean(p: Floats) -> Floats:
    """[P] mean over the raters who voted; one half where none did."""
    voted = np.isfinite(p)
    counts = voted.sum(axis=0)
    return np.where(counts > 0, np.where(voted, p, 0.0).sum(axis=0) / np.maximum(counts, 1), 0.5)


def _misfit(name: str, shape: tuple[int, ...], wanted: str) -> TrimtabError:
    return TrimtabError(ErrorKind.FAILED, f"{name} have the shape {list(shape)}", f"they need {wanted}")


def _check_numbers(n: int, per_prompt: int | None, labeled: Collection[int], count: int) -> None:
    if n < 0 or (per_prompt is not None and per_prompt < 1):
        raise TrimtabError(
            ErrorKind.FAILED, f"n = {n}, per_prompt = {per_prompt}", "n is 0 or more, per_prompt 1 or more"
        )
    if wrong := [i for i in labeled if not 0 <= i < count]:
        raise TrimtabError(ErrorKind.FAILED, f"labeled has number {wrong[0]}", f"the {count} pairs are numbered from 0")
