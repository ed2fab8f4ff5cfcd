"""Which verdicts belong together: the two orders of one question, repeats of it, other wordings of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.labeling.verdicts import NO_WINNER, TIE, VerdictTable

__all__ = ["Couples", "combined", "couples", "majority", "order_couples", "question"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Couples(NamedTuple):
    """Rows that are compared two by two: row `first[i]` of a table with row `second[i]`."""

    first: Ints
    second: Ints

    def __len__(self) -> int:
        return len(self.first)


def combined(*columns: NDArray[np.integer[Any]]) -> Ints:
    """[n] one number for each distinct row of the columns, from 0 on."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values = np.unique(column, return_inverse=True)[1].astype(np.int64)
        key = np.unique(key * (int(values.max(initial=0)) + 1) + values, return_inverse=True)[1].astype(np.int64)
    return key


def question(table: VerdictTable, *more: NDArray[np.integer[Any]]) -> Ints:
    """[n] number of the question in each row of one judge: pair, slice, principle, constitution, annotator, and `more`.

    A pair id that occurs in two slices is taken for two pairs.
    """
    columns = (table.pair, table.slice, table.principle, table.constitution, table.annotator)
    return combined(*(column.codes for column in columns), *more)


def order_couples(table: VerdictTable) -> Couples:
    """The two orders of each question of one judge, template by template.

    Asked more than once, the k-th verdict in one order meets the k-th in the other, counted by sample and then by row:
    votes on one question are alike, so that a sample missing on one side unsettles none of the others.
    """
    line = np.argsort(table.sample, kind="stable")
    key = question(table, table.template.codes)[line]
    first, second = _matched(key, table.order[line] == 1, table.order[line] == 2)
    return Couples(line[first], line[second])


def couples(key: Ints, kind: NDArray[np.integer[Any]]) -> Couples:
    """Neighbouring rows of equal key and different kind, every row at most in two couples.

    Args:
        key: [n] what must be the same.
        kind: [n] what must differ, in whose order the rows of a key are lined up.
    """
    line = np.lexsort((kind, key))
    before, after = line[:-1], line[1:]
    fits = (key[before] == key[after]) & (kind[before] != kind[after])
    return Couples(before[fits], after[fits])


def majority(table: VerdictTable, key: Ints) -> tuple[Ints, Ints, NDArray[np.int8]]:
    """One verdict for all rows of a key: the winner of most of them, a tie where they are even.

    Failed verdicts have no vote; a key with nothing else has none.

    Returns:
        Distinct keys [m], a row of each [m], and the verdict of each [m]: 1, 2, 0, -1.
    """
    keys, row, index = np.unique(key, return_index=True, return_inverse=True)
    leaning = np.bincount(index, np.select([table.winner == 1, table.winner == 2], [1.0, -1.0], 0.0))
    voted = np.bincount(index, table.winner != NO_WINNER) > 0
    vote = np.select([~voted, leaning > 0, leaning < 0], [NO_WINNER, 1, 2], TIE).astype(np.int8)
    return keys, row, vote


def _matched(key: Ints, first: Bools, second: Bools) -> Couples:
    rows_a, rows_b = np.flatnonzero(first), np.flatnonzero(second)
    a, b = _numbered(key[rows_a]), _numbered(key[rows_b])
    # numbered pairs of (key, k-th) as one sortable number
    width = int(max(a[:, 1].max(initial=0), b[:, 1].max(initial=0))) + 1
    _, at_a, at_b = np.intersect1d(a[:, 0] * width + a[:, 1], b[:, 0] * width + b[:, 1], return_indices=True)
    return Couples(rows_a[at_a], rows_b[at_b])


def _numbered(key: Ints) -> Ints:
    """[n, 2] the key and how many equal ones came before."""
    line = np.argsort(key, kind="stable")
    ordered = key[line]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(key) else np.zeros(0, int)
    rank = np.arange(len(key)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(key)]])))
    result = np.empty((len(key), 2), dtype=np.int64)
    result[line, 0], result[line, 1] = ordered, rank
    return result
