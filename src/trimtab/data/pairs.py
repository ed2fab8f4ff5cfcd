"""Files of labeled pairs and of candidate pairs.

Labeled pairs are read in every form that `trimtab.data.readers` knows. They are written one JSON object a line with the
columns that Hugging Face users know: `prompt`, `chosen`, `rejected`, optionally `margin`, as texts or as lists of
messages with role and content. Our columns ride along: `id`, `prompt_id`, `tags`, `p_chosen`, `weight`,
`principles` (P(chosen > rejected) by each), `chosen_finished`, `chosen_tokens` and so on. What else a line holds is
kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from trimtab.data.lines import (
    PROMPT_COLUMNS,
    messages_of,
    object_of,
    prompt_columns,
    prompt_of,
    read_lines,
    record_id,
    response_columns,
    response_of,
    text_of,
    without,
)
from trimtab.data.readers import Options, Reading, read
from trimtab.data.readers.huggingface import PAIR_COLUMNS, response_columns_of
from trimtab.data.records import CandidatePair, Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import write_jsonl

__all__ = [
    "candidate_record",
    "pair_record",
    "read_candidates",
    "read_pairs",
    "refuse_broken",
    "write_candidates",
    "write_pairs",
]

_CANDIDATE_COLUMNS = ("id", "first", "second", "origin", *PROMPT_COLUMNS)
_MOST_PROBLEMS = 10


def read_pairs(path: str | os.PathLike[str], options: Options | None = None) -> list[Pair]:
    """The labeled pairs in a file, whatever form it has: see `trimtab.data.readers.Form`; plain or gzip.

    A pair without `id` is named after its line. A prompt without `prompt_id` gets one made from its messages: pairs of
    one prompt share it.

    Args:
        path: JSON lines, a JSON array, CSV, TSV or parquet; or a directory of such files.
        options: names of columns, which rating decides, what becomes of ties.

    Raises:
        TrimtabError: the file is missing or empty, or a record is broken; it is named with its line.
    """
    reading = read(path, options)
    refuse_broken(reading)
    return reading.pairs


def refuse_broken(reading: Reading) -> None:
    """Raise the first broken records of a reading as one error, or that there is nothing in it."""
    if reading.broken:
        rest = len(reading.broken) - _MOST_PROBLEMS
        told = [str(broken) for broken in reading.broken[:_MOST_PROBLEMS]]
        told += [f"... and {rest} more of {reading.records} records"] if rest > 0 else []
        which = "this line" if len(reading.broken) == 1 else "these lines"
        raise TrimtabError(
            ErrorKind.DATA,
            "\n".join(told),
            f"Nothing was read: correct or remove {which} first, or let `trimtab data convert FILE OUT --skip-broken` "
            "leave them out.",
        )
    if not reading.pairs:
        raise TrimtabError(ErrorKind.DATA, f"{reading.path}: holds no pairs", "One JSON object a line is expected.")


def write_pairs(path: str | os.PathLike[str], pairs: Iterable[Pair]) -> None:
    """Write a file that `read_pairs` reads back the same, and Hugging Face trainers read as they are."""
    write_jsonl(path, (pair_record(pair) for pair in pairs))


def read_candidates(path: str | os.PathLike[str], *, partial: bool = False) -> list[CandidatePair]:
    """The candidate pairs in a JSONL file with `prompt`, `first`, `second`; columns that are not ours go into `origin`.

    Args:
        path: the file.
        partial: its writer, which appended `candidate_record`s, may have been killed: half-written lines are skipped,
            and there may be none.

    Raises:
        TrimtabError: the file is missing or empty, or a line is broken; it is named with its number.
    """
    seen: dict[str, int] = {}

    def parse(record: dict[str, Any], number: int) -> CandidatePair:
        others = without(record, *_CANDIDATE_COLUMNS, *response_columns_of("first", "second"))
        return CandidatePair(
            record_id(record, number, seen),
            prompt_of(record, messages_of(record.get("prompt"), "prompt")),
            response_of(record, "first", text_of(record, "first")),
            response_of(record, "second", text_of(record, "second")),
            {**others, **object_of(record, "origin")},
        )

    return read_lines(path, "candidate pairs", parse, partial=partial)


def write_candidates(path: str | os.PathLike[str], pairs: Iterable[CandidatePair]) -> None:
    """Write a file that `read_candidates` reads back the same."""
    write_jsonl(path, (candidate_record(pair) for pair in pairs))


# writing


def pair_record(pair: Pair) -> dict[str, Any]:
    """The JSON object of a pair's line."""
    line: dict[str, Any] = {"id": pair.id, **prompt_columns(pair.prompt)}
    # Messages in one column and texts in another are no form that trainers know.
    as_text = isinstance(line["prompt"], str)
    for column, response in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        line[column] = response.text if as_text else [{"role": "assistant", "content": response.text}]
        line |= response_columns(column, response)
    line |= {k: v for k, v in (("p_chosen", pair.p_chosen), ("margin", pair.margin)) if v is not None}
    line |= {} if pair.weight == 1 else {"weight": pair.weight}
    line |= without(pair.extra, *PAIR_COLUMNS, *response_columns_of("chosen", "rejected"))
    return {**line, **({"principles": dict(pair.principles)} if pair.principles else {})}


def candidate_record(pair: CandidatePair) -> dict[str, Any]:
    """The JSON object of a candidate pair's line."""
    line: dict[str, Any] = {"id": pair.id, **prompt_columns(pair.prompt)}
    for column, response in (("first", pair.first), ("second", pair.second)):
        line[column] = response.text
        line |= response_columns(column, response)
    return {**line, **({"origin": dict(pair.origin)} if pair.origin else {})}
