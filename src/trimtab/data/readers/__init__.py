"""Readers of preference data in the forms that people have it in, recognised from the content.

`read` takes every file in and says what it could not use; `trimtab.data.pairs.read_pairs` refuses such a file.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from trimtab.data.lines import LineError, record_id
from trimtab.data.readers.comparisons import hhh_pair, outputs_pair, pandalm_pair
from trimtab.data.readers.files import Item, Source, open_source
from trimtab.data.readers.huggingface import PROMPT_NAMES, pair_of
from trimtab.data.readers.ratings import LISTS, rated_pairs
from trimtab.data.records import Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.reading import shown

__all__ = ["Broken", "Form", "Options", "Reading", "iterate", "read"]


class Form(StrEnum):
    """What the records of a file are."""

    PAIRS = "pairs"
    """`prompt`, `chosen`, `rejected`, as texts or messages; the prompt may be implicit."""
    DIALOGUES = "dialogues"
    """`chosen` and `rejected` as transcripts of Human and Assistant turns, as in hh-rlhf."""
    RATINGS = "ratings"
    """A prompt with several rated responses, as in UltraFeedback."""
    OUTPUTS = "outputs"
    """`output_1`, `output_2` and `label` or `preference`, as in LLMBar and AlpacaEval."""
    PANDALM = "pandalm"
    """`response1`, `response2` and annotators."""
    HHH = "hhh"
    """`chosen_instruction` and `rejected_instruction`, as prometheus-eval ships the HHH evaluation."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to read.

    Args:
        columns: our name -> the file's name of a column; an empty name hides a column of ours.
        rating: which rating decides, for rated responses; empty = the first known one.
        pairing: which pairs are made of rated responses: `all`, `best-worst`, `best-rest`.
        ties: `keep` equal ratings and split votes as P(chosen) = .5, or `drop` and count them.
        limit: stop after this many pairs.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    rating: str = ""
    pairing: Literal["all", "best-worst", "best-rest"] = "all"
    ties: Literal["keep", "drop"] = "keep"
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """A record that is no pair: `FILE, line 3`, and what is wrong with it."""

    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


@dataclass(slots=True)
class Reading:
    """What was read.

    Args:
        path: the file or directory.
        form: what its records are.
        container: how they are stored.
        pairs: those that hold.
        records: records looked at.
        broken: records that could not be used.
        left_out: how many pairs or records were passed over on request or for want of two rated responses, by reason.
    """

    path: Path
    form: Form = Form.PAIRS
    container: str = ""
    pairs: list[Pair] = field(default_factory=list)
    records: int = 0
    broken: list[Broken] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def read(path: str | os.PathLike[str], options: Options | None = None) -> Reading:
    """Everything in a file (or in the data files of a directory), with what could not be used.

    Raises:
        TrimtabError: the file cannot be read, or nothing in it is a form that we know.
    """
    reading = Reading(Path(path))
    reading.pairs.extend(iterate(reading, options))
    return reading


def iterate(reading: Reading, options: Options | None = None) -> Iterator[Pair]:
    """The pairs of `reading.path` one at a time; the other fields of `reading` fill up on the way.

    Raises:
        TrimtabError: as `read`.
    """
    options = options or Options()
    sources = open_source(reading.path)
    reading.container = sources[0].container
    ids = _Ids(many=len(sources) > 1)
    made = 0
    for source in sources:
        where = str(source.path)
        ids.enter(source)
        first, items = _peek(source, options.columns)
        if first is None:
            recognised = False
            for item in items:  # all broken, or nothing recognised
                recognised |= item.record is not None
                _count(reading, item, where)
            if recognised:
                raise _unknown(source.path, options.columns)
            continue
        reading.form = first
        for item in items:
            for pair in _pairs(reading, item, where, first, ids, options):
                if options.limit is not None and made >= options.limit:
                    return
                made += 1
                yield pair


def _peek(source: Source, columns: Mapping[str, str]) -> tuple[Form | None, Iterator[Item]]:
    """The form of a source by its first records that have one, and all of its items."""
    seen: list[Item] = []
    for item in source.items:
        seen.append(item)
        form = None if item.record is None else form_of(_renamed(item.record, columns))
        if form is not None:
            return form, chain(seen, source.items)
        if len(seen) >= 50:
            break
    return None, chain(seen, source.items)


def form_of(record: Mapping[str, Any]) -> Form | None:
    """The form that a record's columns have; None where it has none that we know."""
    if "chosen_instruction" in record and "rejected_instruction" in record:
        return Form.HHH
    if "response1" in record and "response2" in record and any(re.match(r"annotator_?\d", c) for c in record):
        return Form.PANDALM
    if "output_1" in record and "output_2" in record and ("label" in record or "preference" in record):
        return Form.OUTPUTS
    if "chosen" in record or "rejected" in record:
        texts = all(isinstance(record.get(c), str) for c in ("chosen", "rejected"))
        named = any(record.get(c) is not None for c in ("prompt", "conversations", *PROMPT_NAMES))
        return Form.DIALOGUES if texts and not named else Form.PAIRS
    if any(isinstance(record.get(column), list) for column in LISTS):
        return Form.RATINGS
    return None


def _pairs(reading: Reading, item: Item, where: str, form: Form, ids: _Ids, options: Options) -> list[Pair]:
    if not _count(reading, item, where):
        return []
    record = _renamed(item.record or {}, options.columns)
    try:
        if form is Form.RATINGS and not any(isinstance(record.get(column), list) for column in LISTS):
            raise LineError(f"has none of the lists {', '.join(LISTS)}")
        pairs = _parse(record, form, ids.name(record, item.number), options)
    except LineError as problem:
        reading.broken.append(Broken(f"{where}, {item.where}", str(problem)))
        return []
    if not pairs:
        reading.left_out["fewer than two rated responses"] += 1
    if options.ties == "drop":
        kept = [pair for pair in pairs if pair.p_chosen != 0.5]
        reading.left_out["ties"] += len(pairs) - len(kept)
        pairs = kept
    return pairs


_SINGLE: dict[Form, Callable[[dict[str, Any], str], Pair]] = {
    Form.PAIRS: pair_of,
    Form.DIALOGUES: pair_of,
    Form.OUTPUTS: outputs_pair,
    Form.PANDALM: pandalm_pair,
    Form.HHH: hhh_pair,
}


def _parse(record: dict[str, Any], form: Form, name: str, options: Options) -> list[Pair]:
    if form is Form.RATINGS:
        return rated_pairs(record, name, options.rating, options.pairing)
    return [_SINGLE[form](record, name)]


def _count(reading: Reading, item: Item, where: str) -> bool:
    reading.records += 1
    if item.record is None:
        reading.broken.append(Broken(f"{where}, {item.where}", item.problem))
    return item.record is not None


def _renamed(record: dict[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    if not columns:
        return record
    hidden = {ours for ours in columns if ours not in columns.values()} | set(columns.values())
    renamed = {name: value for name, value in record.items() if name not in hidden}
    return {**renamed, **{ours: record[theirs] for ours, theirs in columns.items() if theirs in record}}


class _Ids:
    """Ids of records over all files of a reading: the same id twice is an error of the second record."""

    def __init__(self, *, many: bool) -> None:
        self._many, self._prefix, self._seen = many, "", {}  # type: ignore[var-annotated]

    def enter(self, source: Source) -> None:
        self._prefix = f"{source.path.name.partition('.')[0]}/" if self._many else ""

    def name(self, record: Mapping[str, Any], number: int) -> str:
        own = record_id(record, number, {} if self._many else self._seen)
        name = own if record.get("id") is not None else self._prefix + own
        if self._many and self._seen.setdefault(name, number) != number:
            raise LineError(f"id {shown(name)} was given before")
        return name


def _unknown(path: Path, columns: Mapping[str, str]) -> TrimtabError:
    names: list[str] = []
    for source in open_source(path):
        names = next((list(item.record) for item in source.items if item.record), [])
    seen = ", ".join(name[:60] for name in names[:12]) + (", ..." if len(names) > 12 else "")
    return TrimtabError(
        ErrorKind.DATA,
        f"{path}: these columns are no pairs that are known: {seen or 'none'}",
        "needed: chosen and rejected (with prompt, or as conversations); or completions with ratings; or output_1, "
        "output_2 and label; or response1, response2 and annotator1. Other names: --column chosen=NAME",
    )
