"""What a label store's file looks like, in every version; how rows become verdicts and the other way round."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.labeling.protocol import Outcome, Verdict
from trimtab.labeling.questions import Key, Question
from trimtab.runs.database import Format

__all__ = [
    "COLUMNS",
    "FORMAT",
    "VERDICT_COLUMNS",
    "row_of",
    "utf8",
    "verdict_of",
    "verdict_record",
]

_KEY_1 = """
    pair_hash TEXT NOT NULL, judge TEXT NOT NULL, model TEXT NOT NULL, template TEXT NOT NULL,
    constitution TEXT NOT NULL, shown TEXT NOT NULL, sample INTEGER NOT NULL, seed INTEGER NOT NULL"""
_PRIMARY = f"PRIMARY KEY ({', '.join(Key._fields)})"
_VERDICTS_1 = f"""
CREATE TABLE verdicts ({_KEY_1},
    pair_id TEXT NOT NULL, outcome TEXT NOT NULL, p_first REAL, mass REAL, detail TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 1, recorded REAL NOT NULL, {_PRIMARY}
) WITHOUT ROWID
"""
_ADDED_2 = (
    "wording TEXT NOT NULL DEFAULT ''",
    "principle TEXT NOT NULL DEFAULT ''",
    "how TEXT NOT NULL DEFAULT ''",
    "text TEXT NOT NULL DEFAULT ''",
    "rationale TEXT NOT NULL DEFAULT ''",
    "logprob_first REAL",
    "logprob_second REAL",
    "prompt_tokens INTEGER",
    "completion_tokens INTEGER",
    "cost REAL",
    "seconds REAL",
)
_CLAIMS_2 = f"CREATE TABLE claims ({_KEY_1}, owner TEXT NOT NULL, expires REAL NOT NULL, {_PRIMARY}) WITHOUT ROWID"

_STEPS = (
    (_VERDICTS_1,),
    (*(f"ALTER TABLE verdicts ADD COLUMN {column}" for column in _ADDED_2), _CLAIMS_2),
)
"""Statements that lead from each version to the next, from an empty file on."""

VERDICT_COLUMNS = (
    "outcome", "p_first", "mass", "detail", "logprob_first", "logprob_second", "how", "text", "rationale",
    "prompt_tokens", "completion_tokens", "cost", "seconds",
)  # fmt: skip
"""Columns that make a `Verdict`, in the order of `verdict_of`."""

COLUMNS = (*Key._fields, "pair_id", "wording", "principle", *VERDICT_COLUMNS, "attempts", "recorded")
"""All columns of `verdicts`, the key first."""

_LONE = re.compile("[\ud800-\udfff]")


FORMAT = Format(
    "label store",
    "verdicts",
    _STEPS,
    "a project's label store is labels.sqlite, written by trimtab label",
    "No verdict recorded before is lost: make room or allow writing there, then give the same command again; only what "
    "is missing is asked for.",
)
"""The versions of the file."""


def row_of(question: Question, verdict: Verdict, recorded: float) -> tuple[Any, ...]:
    """The row of one answer, in the order of `COLUMNS`."""
    first, second = verdict.logprobs or (None, None)
    return (
        *question.key,
        utf8(question.request.pair.id),
        question.judge.wording,
        question.request.principle or "",
        verdict.outcome.value,
        verdict.p_first,
        verdict.mass,
        utf8(verdict.detail),
        first,
        second,
        verdict.how,
        utf8(verdict.text),
        utf8(verdict.rationale),
        verdict.prompt_tokens,
        verdict.completion_tokens,
        verdict.cost,
        verdict.seconds,
        1,
        recorded,
    )


def verdict_of(row: Sequence[Any]) -> Verdict:
    """The verdict in the columns `VERDICT_COLUMNS`."""
    outcome, p_first, mass, detail, first, second, *rest = row
    logprobs = None if first is None and second is None else (first, second)
    return Verdict(Outcome(outcome), p_first, mass, detail, logprobs, *rest)


def utf8(value: Any) -> Any:
    """`value`, where it is a text with half characters (lone surrogates) in their place the replacement character."""
    return _LONE.sub("\ufffd", value) if isinstance(value, str) else value


def verdict_record(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row by column as a record of a verdict file; see `trimtab.labeling.verdicts`."""
    tokens = [row[c] for c in ("prompt_tokens", "completion_tokens") if row[c] is not None]
    return {
        "pair_id": f"{row['pair_id']}#{row['pair_hash'][:8]}",
        "judge": row["judge"],
        "model": row["model"],
        "template": row["wording"] or row["template"],
        "principle": row["principle"] or None,
        "constitution": row["constitution"],
        "order": {"forward": "12", "reversed": "21"}[row["shown"]],
        "sample": row["sample"],
        "status": row["outcome"],
        "p_1": row["p_first"],
        "mass": row["mass"],
        "cost": row["cost"],
        "tokens": sum(tokens) if tokens else None,
        "latency": row["seconds"],
    }
