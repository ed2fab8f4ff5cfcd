"""Verdicts as columns: what an audit of judges reads, and the verdict files that it is read from.

A verdict file has one object (or row) a verdict:

    {"pair_id": "p1", "judge": "mine", "order": "21", "winner": 1, "gold": 2, "slice": "chat/short"}

`winner` speaks of the pair's own first and second response, whichever of them was shown first; `order` says which was:
"12" the first. Everything but `pair_id`, `winner` (or `p_1`) and `judge` (or `annotator`) may be missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from trimtab.labeling.protocol import Outcome

__all__ = [
    "NO_WINNER",
    "OUTCOMES",
    "TIE",
    "Coded",
    "PairTexts",
    "VerdictTable",
    "read_verdicts",
]

Floats = NDArray[np.float64]
Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Bools = NDArray[np.bool_]

TIE: Final = 0
"""Code of a tie in `winner` and `gold`."""
NO_WINNER: Final = -1
"""Code of no verdict in `winner` (unparsed, refused, error) and of no reference label in `gold`."""
OUTCOMES: Final = tuple(Outcome)
"""What the codes in `status` stand for."""


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column of names: `names[codes[i]]` is the name in row i, code -1 is a missing one.

    Args:
        codes: [n], each -1 or an index into `names`.
        names: distinct, in order of first appearance.
    """

    codes: Int32
    names: tuple[str, ...]

    @property
    def known(self) -> bool:
        """Whether any row has a name."""
        return bool(self.names) and bool((self.codes >= 0).any())

    def of(self, row: int) -> str | None:
        """The name in a row; None where it is missing."""
        code = int(self.codes[row])
        return None if code < 0 else self.names[code]

    def take(self, rows: NDArray[Any]) -> Coded:
        """The rows named by an index array or a mask; the names stay as they are."""
        return Coded(self.codes[rows], self.names)

    @staticmethod
    def of_names(values: Iterable[str | None]) -> Coded:
        """Codes for names in order of first appearance; None (and the empty name) is missing."""
        number: dict[str, int] = {}
        codes = [-1 if not value else number.setdefault(value, len(number)) for value in values]
        return Coded(np.array(codes, dtype=np.int32), tuple(number))


@dataclass(frozen=True, slots=True)
class PairTexts:
    """What a judge was shown of a pair; any of the texts may be empty where the file does not have it."""

    prompt: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, eq=False)
class VerdictTable:
    """Verdicts as numpy columns, one row a verdict; all columns have length n.

    Args:
        pair: id of the pair.
        judge: who gave the verdict; where the file has only `annotator`, that.
        order: 1 = the pair's first response was shown first ("12"), 2 = its second ("21"), 0 = not known.
        winner: 1 or 2 of the pair's own responses, 0 tie, -1 no verdict.
        status: index into `OUTCOMES`; goes with `winner`: 1 and 2 are ok, 0 is tie, -1 is one of the others.
        p_1: P(first > second) where the judge gave one, NaN elsewhere.
        gold: reference label: 1, 2, 0 for a tie, -1 where there is none.
        sample: number of the vote on the same question, from 0 on.
        length_1: length of the pair's first response, in whatever unit the file has; NaN where not known.
        length_2: of its second.
        template: which wording of the judge's instructions.
        principle: which principle was asked about.
        constitution: hash of what was asked; the same pair under another one is another question.
        slice: part of the data; `a/b` belongs to `a` too.
        annotator: the person who gave the verdict, or the reference label beside it.
        group: that person's group.
        prompt: id of the prompt; pairs of one prompt are drawn together in every interval. Missing: the pair's id.
        model: the model behind the judge.
        generator_1: the model that wrote the first response.
        generator_2: the second.
        response_1: id of the first response, by which comparisons of one prompt form triads.
        response_2: of the second.
        cost: of the call, in money; NaN where not known.
        tokens: of the call, prompt and answer; NaN where not known.
        latency: of the call, seconds; NaN where not known.
        mass: probability that the judge's model gave to readable answers; NaN where not known.
        texts: by code of `pair`, where the file has texts.
        source: the file, for messages; empty for none.
        ignored: columns of the file that nothing reads.
    """

    pair: Coded
    judge: Coded
    order: Int8
    winner: Int8
    status: Int8
    p_1: Floats
    gold: Int8
    sample: Int32
    length_1: Floats
    length_2: Floats
    template: Coded
    principle: Coded
    constitution: Coded
    slice: Coded
    annotator: Coded
    group: Coded
    prompt: Coded
    model: Coded
    generator_1: Coded
    generator_2: Coded
    response_1: Coded
    response_2: Coded
    cost: Floats
    tokens: Floats
    latency: Floats
    mass: Floats
    texts: Mapping[int, PairTexts] = field(default_factory=dict)
    source: str = ""
    ignored: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.winner)

    @property
    def decided(self) -> Bools:
        """[n] whether the verdict names a winner."""
        return self.winner > 0

    @property
    def first_won(self) -> Bools:
        """[n] whether the verdict names the response that was shown first; False where the order is not known."""
        named: Bools = (self.winner > 0) & (self.winner == self.order)
        return named

    @property
    def cluster(self) -> Int32:
        """[n] what is independent of the other rows: the prompt where it is known, else the pair; codes from 0 on."""
        if not self.prompt.known:
            return self.pair.codes
        codes = np.where(self.prompt.codes >= 0, self.prompt.codes, len(self.prompt.names) + self.pair.codes)
        return np.unique(codes, return_inverse=True)[1].astype(np.int32)

    def take(self, rows: NDArray[Any]) -> VerdictTable:
        """The rows named by an index array or a mask."""
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            column = getattr(self, name)
            columns[name] = column.take(rows) if isinstance(column, Coded) else column[rows]
        return replace(self, **columns)

    def of_judge(self, name: str) -> VerdictTable:
        """The verdicts of one judge.

        Raises:
            KeyError: there is no judge of that name.
        """
        if name not in self.judge.names:
            raise KeyError(name)
        return self.take(self.judge.codes == self.judge.names.index(name))

    @staticmethod
    def from_records(
        records: Iterable[Mapping[str, Any]], source: str = "", lines: Sequence[int] | None = None
    ) -> VerdictTable:
        """A table from objects in the form of the verdict file.

        `pair_id`, `winner` (or `p_1`) and one of `judge` and `annotator` are required. The columns are: `pair_id`,
        `judge`, `order` ("12", "21"), `winner` (1, 2, "tie", null), `status` (ok, tie, unparsed, refused, error),
        `p_1`, `gold` (1, 2, "tie"), `sample`, `template`, `principle`, `constitution`, `length_1`, `length_2`,
        `slice`, `annotator`, `group`, `prompt_id`, `model`, `generator_1`, `generator_2`, `response_id_1`,
        `response_id_2`, `cost`, `tokens`, `latency`, `mass`, and the texts `prompt`, `response_1`, `response_2`.
        Lengths that are missing are counted in words where there are texts.

        Args:
            records: the verdicts.
            source: where they are from, for messages.
            lines: 1-based line of each record in `source`; None: their numbers.

        Raises:
            TrimtabError: a record is broken (the first ten are named), or there is none.
        """
        from trimtab.labeling.verdict_files import table_of

        return table_of(records, source, lines)


COLUMNS: Final = tuple(name for name in VerdictTable.__dataclass_fields__ if name not in ("texts", "source", "ignored"))
"""Names of the fields of `VerdictTable` that hold one value a verdict."""


def read_verdicts(path: str) -> VerdictTable:
    """The verdicts in a file: JSONL, JSON (a list), CSV or parquet, also gzipped, in the form of `from_records`.

    Files of other projects are recognised by their columns and turned into it: LLMBar's judge votes, PandaLM's
    annotations, pair judgments in the form of MT-bench, and our own label store (SQLite).

    Raises:
        TrimtabError: the file cannot be read, holds no verdicts, or is broken; what is wrong is named with its line.
    """
    from trimtab.labeling.verdict_files import read

    return read(path)
