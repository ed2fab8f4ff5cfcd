"""What is counted about one judge: places, contradictions, repeats, lengths, own responses. Counts only, no verdict."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.labeling.verdicts import OUTCOMES, Coded, VerdictTable

__all__ = [
    "Places",
    "Repeats",
    "Swaps",
    "failures",
    "family",
    "lengths",
    "own",
    "places",
    "repeats",
    "swaps",
    "templates",
]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_PEOPLE: Final = re.compile(r"human|author|expert|crowd|people|person|annotator", re.IGNORECASE)
_FAMILIES: Final = {
    "gpt": ("gpt", "openai", "davinci", "o1", "o3", "o4"),
    "claude": ("claude", "anthropic"),
    "llama": ("llama",),
    "vicuna": ("vicuna",),
    "qwen": ("qwen", "qwq"),
    "gemini": ("gemini", "gemma", "palm", "bard"),
    "mistral": ("mistral", "mixtral"),
    "deepseek": ("deepseek",),
    "command": ("command", "cohere"),
    "glm": ("glm", "chatglm"),
    "internlm": ("internlm",),
    "yi": ("yi",),
    "phi": ("phi",),
    "grok": ("grok",),
    "falcon": ("falcon",),
    "smollm": ("smollm",),
}


class Places(NamedTuple):
    """Verdicts by place: `first` of `n` decided verdicts name the response shown first.

    `both_orders`: every pair counted was asked in both orders, so that the quality of the responses cancels.
    """

    first: int
    n: int
    both_orders: bool


class Swaps(NamedTuple):
    """Pairs asked in both orders: alike, contradictory (two different winners), a tie against a winner.

    `first` of the `opposite` ones named the response shown first twice, the rest the one shown second twice.
    """

    n: int
    same: int
    opposite: int
    half: int
    first: int


class Repeats(NamedTuple):
    """Equal questions asked again: `same` of `n` pairs of verdicts are alike."""

    same: int
    n: int


def questions(table: VerdictTable, *columns: str) -> Ints:
    """[n] number of the question that each row answers: rows alike in pair and the given columns are one."""
    parts = [table.pair.codes.astype(np.int64)]
    for name in columns:
        column = getattr(table, name)
        parts.append((column.codes if isinstance(column, Coded) else column).astype(np.int64))
    if not len(table):
        return np.zeros(0, dtype=np.int64)
    return np.unique(np.stack(parts, axis=1), axis=0, return_inverse=True)[1].reshape(-1)


def swaps(table: VerdictTable) -> Swaps:
    """The pairs whose two orders both gave a verdict (ties included), each sample, template and principle by itself."""
    a, b = _both_orders(table)
    read = (a >= 0) & (b >= 0)
    a, b = a[read], b[read]
    opposite = (a > 0) & (b > 0) & (a != b)
    return Swaps(len(a), int((a == b).sum()), int(opposite.sum()), int(((a == 0) != (b == 0)).sum()),
                 int((opposite & (a == 1)).sum()))  # fmt: skip


def _both_orders(table: VerdictTable) -> tuple[Ints, Ints]:
    """Winners of the questions asked in both orders: [m] with the first shown first, [m] with the second."""
    number = questions(table, "sample", "template", "principle")
    size = int(number.max()) + 1 if len(number) else 0
    of_order = [np.full(size, -2, dtype=np.int64), np.full(size, -2, dtype=np.int64)]
    for k in (1, 2):
        rows = table.order == k
        of_order[k - 1][number[rows]] = table.winner[rows]
    both = (of_order[0] > -2) & (of_order[1] > -2)
    return of_order[0][both], of_order[1][both]


def places(table: VerdictTable) -> Places | None:
    """Wins of the place shown first; None where the place cannot be told from the quality of the responses.

    With pairs asked in both orders, those count. Else pairs asked once count if either order was used for at least
    three in ten of them, so that it was drawn and not chosen.
    """
    a, b = _both_orders(table)
    if len(a) >= 10:
        return Places(int((a == 1).sum() + (b == 2).sum()), int((a > 0).sum() + (b > 0).sum()), True)
    known = table.take((table.order > 0) & table.decided)
    counts = [int((known.order == k).sum()) for k in (1, 2)]
    if len(known) < 20 or min(counts) < 0.3 * len(known):
        return None
    rates = [float((known.winner[known.order == k] == k).mean()) for k in (1, 2)]
    return Places(round(0.5 * sum(rates) * len(known)), len(known), False)


def repeats(table: VerdictTable) -> Repeats:
    """Verdicts on one pair in one order, under one template and principle, against the next sample's."""
    return _neighbours(table, questions(table, "order", "template", "principle"), table.sample.astype(np.int64))


def templates(table: VerdictTable) -> Repeats:
    """Verdicts on one pair in one order under one template, against the next template's (first sample of each)."""
    first = table.take((table.sample == 0) & (table.template.codes >= 0))
    return _neighbours(first, questions(first, "order", "principle"), first.template.codes.astype(np.int64))


def _neighbours(table: VerdictTable, number: Ints, within: Ints) -> Repeats:
    if not len(table):
        return Repeats(0, 0)
    by = np.lexsort((within, number))
    number, within, winner = number[by], within[by], table.winner[by]
    next_to = (number[1:] == number[:-1]) & (within[1:] != within[:-1]) & (winner[1:] >= 0) & (winner[:-1] >= 0)
    return Repeats(int((winner[1:] == winner[:-1])[next_to].sum()), int(next_to.sum()))


def lengths(table: VerdictTable) -> tuple[Bools, Bools, Bools]:
    """Of the decided verdicts on responses of unequal length: [m] for the longer, [m] reference for it, [m] known."""
    usable = table.decided & np.isfinite(table.length_1) & np.isfinite(table.length_2)
    usable &= table.length_1 != table.length_2
    t = table.take(usable)
    longer = np.where(t.length_1 > t.length_2, 1, 2)
    return t.winner == longer, t.gold == longer, t.gold > 0


def family(name: str) -> str:
    """The family of models that a name belongs to; empty for none that is known."""
    parts = set(re.findall(r"[a-z]+|o[134]", name.lower()))
    return next((key for key, marks in _FAMILIES.items() if any(m in parts for m in marks)), "")


def own(table: VerdictTable, judge: str) -> tuple[Bools, Bools, Ints] | None:
    """Decided verdicts in which exactly one response was the judge's own (or its family's): [m] own won, [m] own
    was first, [m] rows of `table`. None for people, and where no generator is known."""
    if not (table.generator_1.known and table.generator_2.known) or _PEOPLE.search(judge):
        return None
    model = next((table.model.of(i) for i in range(min(len(table), 1))), None) or judge
    for mine in (_spelled(model), family(model)):
        one, two = _is_own(table.generator_1, mine), _is_own(table.generator_2, mine)
        rows = np.flatnonzero((one != two) & table.decided)
        if mine and len(rows) >= 20:
            first = one[rows]
            return np.where(first, table.winner[rows] == 1, table.winner[rows] == 2), first, rows
    return None


def _is_own(column: Coded, mine: str) -> Bools:
    names = np.array([_spelled(n) == mine or family(n) == mine for n in column.names] or [False], dtype=np.bool_)
    return np.where(column.codes >= 0, names[np.maximum(column.codes, 0)], False)


def _spelled(name: str) -> str:
    """A model's name without what surrounds it: `gpt-4/pair-v2` and `GPT-4` are alike."""
    return re.sub(r"[^a-z0-9.]", "", name.split("/")[0].lower())


def failures(table: VerdictTable) -> dict[str, int]:
    """Verdicts by outcome."""
    return {str(outcome): int((table.status == i).sum()) for i, outcome in enumerate(OUTCOMES)}
