"""Are the verdicts of the second order already mapped back? What the data themselves say.

A file with two verdicts a pair, one for each order of presentation, may hold the second one raw ("the response shown
first") or mapped back to the pair's own first and second. The same two columns mean opposite things in the two cases,
and seldom does the file say which. Both readings are scored as hypotheses by what they would make of the judge:

- a judge agrees with itself more often than not;
- where it does, its winners are spread over first and second about like the reference labels, or evenly;
- where it does, it agrees with the reference labels more often than not;
- what it contradicts itself in may lean to either place by any amount.

Each of these is a beta-binomial probability of the counts; the difference of the two log evidences decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

__all__ = ["DECISIVE", "flipped", "swapped_back"]

DECISIVE: Final = 2.0
"""Natural log odds from which one reading is believed (7 to 1)."""

Winners = Sequence[int | None]


def flipped(winners: Winners) -> list[int | None]:
    """The same verdicts with the two places exchanged."""
    return [None if w is None else {1: 2, 2: 1}.get(w, w) for w in winners]


def swapped_back(first: Winners, second: Winners, gold: Winners | None = None, prior: float = 0.0) -> bool | None:
    """Whether `second` already speaks of the pair's own first and second response.

    Args:
        first: verdicts with the pair's first response shown first: 1, 2, 0 tie, None.
        second: verdicts of the other order, as the file has them.
        gold: reference labels, where there are any.
        prior: natural log odds in favour of "mapped back" from the column names and values.

    Returns:
        None where neither reading is DECISIVE.
    """
    odds = prior + _evidence(first, second, gold) - _evidence(first, flipped(second), gold)
    return None if abs(odds) < DECISIVE else odds > 0


def _evidence(first: Winners, second: Winners, gold: Winners | None) -> float:
    """Log evidence that `first` and `second` both speak of the pair's own responses."""
    rows = [(a, b, None if gold is None else gold[i]) for i, (a, b) in enumerate(zip(first, second, strict=True))]
    decided = [(a, b, g) for a, b, g in rows if a in (1, 2) and b in (1, 2)]
    same = [(a, g) for a, b, g in decided if a == b]
    slot = sum(1 for a, b, _ in decided if a != b and a == 1)
    known = [g for _, _, g in rows if g in (1, 2)]
    share = (known.count(1) + 1) / (len(known) + 2)
    weight = 50.0 if known else 20.0
    content = [_beta_binomial(sum(1 for a, _ in same if a == 1), len(same), weight * centre, weight * (1 - centre))
               for centre in (share, 0.5)]  # fmt: skip
    with_gold = [(a, g) for a, g in same if g in (1, 2)]
    return (
        _beta_binomial(len(same), len(decided), 3.0, 1.5)
        + float(np.logaddexp(content[0], content[1]))
        - math.log(2)
        # relative to guessing: what the reference label says of a winner comes on top of the line before
        + _beta_binomial(sum(1 for a, g in with_gold if a == g), len(with_gold), 4.0, 2.0)
        + len(with_gold) * math.log(2)
        + _beta_binomial(slot, len(decided) - len(same), 1.0, 1.0)
    )


def _beta_binomial(k: int, n: int, a: float, b: float) -> float:
    """Log probability of one sequence with k of n successes under a beta(a, b) prior."""
    return _log_beta(a + k, b + n - k) - _log_beta(a, b)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
