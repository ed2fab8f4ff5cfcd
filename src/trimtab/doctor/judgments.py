"""What the doctor reads besides training logs: verdicts of judges, scores of preference models, accuracies over folds,
statistics of judges, preference pairs.

`from_records` recognises them by their keys and values, never by the name of a file. One file may hold several of
these: a file of pairs with the scores of a preference model is both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimtab.doctor.log import Skipped

if TYPE_CHECKING:
    from trimtab.labeling.verdicts import Coded, VerdictTable

__all__ = [
    "AccuracyRow",
    "JudgeStatistics",
    "JudgmentMaterial",
    "PairTable",
    "ProbedFault",
    "ScoreTable",
    "from_records",
    "from_store",
]

Floats = NDArray[np.float64]
Int8 = NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """Scores of a preference model on pairs, n rows.

    Args:
        first: [n] score of the pair's first response (the chosen one where the file says which that is).
        second: [n] of its second.
        gold: [n] the better response by the reference label: 1, 2, 0 tie, -1 not known.
        length_1: [n] length of the first response, NaN where not known.
        length_2: [n] of the second.
        pair: id of each pair.
        slice: part of the data that a pair belongs to.
        split: train, validation, test.
        names: the keys that the file has the two scores under.
        texts: [n] the two responses where the file has them; empty without.
        implicit: the scores are log-ratios of a policy (DPO), not a preference model's.
        free_coding: the reference label was 0 or 1 and the reading that agrees with the scores was taken.
        same_both_orders: share of pairs whose scores do not depend on the order of presentation; None: one order.
    """

    first: Floats
    second: Floats
    gold: Int8
    length_1: Floats
    length_2: Floats
    pair: Coded
    slice: Coded
    split: Coded
    names: tuple[str, str]
    texts: tuple[tuple[str, str], ...] = ()
    implicit: bool = False
    free_coding: bool = False
    same_both_orders: float | None = None

    def __len__(self) -> int:
        return len(self.first)

    @property
    def margin(self) -> Floats:
        """[n] score of the first minus score of the second."""
        return self.first - self.second

    @property
    def signed(self) -> Floats:
        """Margins of the better response over the worse one, for the pairs with a reference label that decides."""
        known = (self.gold > 0) & np.isfinite(self.margin)
        result: Floats = np.where(self.gold[known] == 1, 1.0, -1.0) * self.margin[known]
        return result


@dataclass(frozen=True, slots=True)
class AccuracyRow:
    """Accuracies of one preference model over folds.

    Args:
        group: what it was trained on or with (`condition=a, n_pairs=1000`); rows of one group differ by seed only.
        folds: held-out accuracies.
        pairs: pairs that the folds together were measured on; None not known.
        train: accuracy on the training pairs, where given.
    """

    group: str
    folds: tuple[float, ...]
    pairs: int | None = None
    train: float | None = None


@dataclass(frozen=True, slots=True)
class JudgeStatistics:
    """Aggregates of one judge that somebody else counted; shares in [0, 1], None where not given.

    Args:
        name: of the judge; empty where the table has none.
        n: verdicts that the aggregates rest on.
        longer: share of verdicts for the longer response.
        own: share of verdicts for the judge's own responses.
        own_n: verdicts in which one response was its own.
        first: share of verdicts for the response shown first.
        flips: share of pairs whose two orders name different winners.
        agreement: with people or reference labels.
        unparsed: share of calls without a readable verdict.
        people: the row is people, not a model.
    """

    name: str
    n: int | None = None
    longer: float | None = None
    own: float | None = None
    own_n: int | None = None
    first: float | None = None
    flips: float | None = None
    agreement: float | None = None
    unparsed: float | None = None
    people: bool = False


@dataclass(frozen=True, slots=True)
class PairTable:
    """Preference pairs, as texts.

    Args:
        prompt: one a pair; empty where the file has none.
        chosen: the preferred response.
        rejected: the other.
        p_chosen: P(chosen > rejected), NaN for hard labels.
        generators: the models that wrote the two responses, where known.
        annotator: who gave the label, where known.
    """

    prompt: tuple[str, ...]
    chosen: tuple[str, ...]
    rejected: tuple[str, ...]
    p_chosen: Floats
    generators: tuple[tuple[str, str], ...] = ()
    annotator: Coded | None = None

    def __len__(self) -> int:
        return len(self.chosen)


@dataclass(frozen=True, slots=True)
class ProbedFault:
    """A fault of a preference model that a probe named: the finding's id, its severity, what showed it."""

    id: str
    severity: str
    evidence: str


@dataclass(frozen=True, slots=True)
class JudgmentMaterial:
    """One file that is no training log, or what a run of ours keeps of its preference model.

    Args:
        path: the file.
        format: what it was recognised as (`verdicts`, `pair-scores`, `fold-accuracies`, `judge-statistics`, `pairs`),
            joined by `+` where it is several.
        rows: records read.
        verdicts: of judges.
        scores: of preference models, by the name of their column.
        accuracies: over folds.
        statistics: of judges, one a row of the table.
        pairs: as texts.
        second_order: for verdicts of both orders in one row: `mapped back`, `raw` (they were exchanged here) or
            `unknown` (then they were left out).
        skipped: records that could not be read.
        faults: what a probe of a preference model named.
        probed: ids that the probe could have named.
        stage: of the chain that it belongs to, as a log's; empty: none.
        beside: path of the log that speaks of the same model; both are one in what is told.
    """

    path: str
    format: str
    rows: int
    verdicts: VerdictTable | None = None
    scores: tuple[ScoreTable, ...] = ()
    accuracies: tuple[AccuracyRow, ...] = ()
    statistics: tuple[JudgeStatistics, ...] = ()
    pairs: PairTable | None = None
    second_order: str = ""
    skipped: tuple[Skipped, ...] = field(default=())
    faults: tuple[ProbedFault, ...] = ()
    probed: tuple[str, ...] = ()
    stage: str = ""
    beside: str = ""


def from_records(records: Sequence[Mapping[str, Any]], path: str) -> JudgmentMaterial | None:
    """The material in parsed records (of JSONL, JSON or CSV); None if they are none of these (a training log, say).

    Args:
        records: the rows; others than objects are counted as skipped.
        path: the file, for messages only.
    """
    from trimtab.doctor.judgment_tables import recognise

    return recognise(records, path)


def from_store(path: str) -> JudgmentMaterial:
    """The verdicts in a label store (SQLite).

    Raises:
        TrimtabError: the file is no label store, or holds no verdict.
    """
    from trimtab.labeling.verdicts import read_verdicts

    table = read_verdicts(path)
    return JudgmentMaterial(path, "label-store", len(table), verdicts=table)
