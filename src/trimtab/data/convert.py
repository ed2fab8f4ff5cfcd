"""Pairs in the forms and containers that others read.

Forms: `pairs` (ours, which Hugging Face trainers read too), `messages` (conversational: every column a list of
messages), `text` (plain texts, one user message a prompt), `dialogues` (Human/Assistant transcripts, as hh-rlhf).
Containers, by the name of the file: .jsonl (or .ndjson), .json, .csv, .tsv, .parquet, and .gz around all but the last.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from trimtab.data.lines import LineError
from trimtab.data.pairs import pair_record
from trimtab.data.readers.huggingface import write_transcript
from trimtab.data.readers.parquet import write_parquet
from trimtab.data.records import Message, Pair
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.reading import refuse_special
from trimtab.runs.files import dump_json, writing

__all__ = ["Form", "record_of", "write"]

_ENDINGS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")


class Form(StrEnum):
    """What the lines of the written file look like."""

    PAIRS = "pairs"
    MESSAGES = "messages"
    TEXT = "text"
    DIALOGUES = "dialogues"


def record_of(pair: Pair, form: Form) -> dict[str, Any]:
    """The record of a pair in a form.

    Raises:
        TrimtabError: the form cannot hold this pair; it is named.
    """
    record = pair_record(pair)
    if form is Form.PAIRS:
        return record
    sides = {"chosen": pair.chosen.text, "rejected": pair.rejected.text}
    messages = pair.prompt.messages
    if form is Form.MESSAGES:
        record["prompt"] = [{"role": m.role, "content": m.content} for m in messages]
        return record | {side: [{"role": "assistant", "content": text}] for side, text in sides.items()}
    if form is Form.TEXT:
        if len(messages) > 1:
            raise _cannot(pair, form, f"its prompt has {len(messages)} messages", Form.MESSAGES)
        return record
    try:
        transcripts = {s: write_transcript((*messages, Message("assistant", text))) for s, text in sides.items()}
    except LineError as problem:
        raise _cannot(pair, form, str(problem), Form.MESSAGES) from None
    return {name: value for name, value in record.items() if name != "prompt"} | transcripts


def _cannot(pair: Pair, form: Form, why: str, instead: Form) -> TrimtabError:
    return TrimtabError(ErrorKind.DATA, f"pair {pair.id} cannot be written as {form}: {why}", f"--to {instead}")


def write(path: str | os.PathLike[str], pairs: Iterable[Pair], form: Form = Form.PAIRS) -> int:
    """Write pairs, a complete file or none; returns how many.

    Raises:
        TrimtabError: another ending, the form or the container cannot hold a pair, no pyarrow, the disk is full.
    """
    path = Path(path)
    _check_name(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    name = path.name.lower()
    count = 0

    def records() -> Iterable[dict[str, Any]]:
        nonlocal count
        for pair in pairs:
            count += 1
            yield record_of(pair, form)

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if name.endswith(".parquet"):
                write_parquet(temporary, list(records()))
            else:
                _write_text(temporary, name, records())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    return count


def _check_name(path: Path) -> None:
    if not path.name.lower().removesuffix(".gz").endswith(_ENDINGS) or path.name.lower().endswith(".parquet.gz"):
        raise TrimtabError(
            ErrorKind.USAGE,
            f"{path}: the ending says how to write",
            f"one of {', '.join(_ENDINGS)}; .gz after all but the last",
        )
    refuse_special(path)


def _write_text(temporary: Path, name: str, records: Iterable[dict[str, Any]]) -> None:
    # no time stamp in the gzip header: the same pairs give the same bytes
    with temporary.open("wb") as raw:
        stem = name.removesuffix(".gz")
        file: Any = gzip.GzipFile("", "wb", 6, raw, mtime=0) if name.endswith(".gz") else raw
        with io.TextIOWrapper(file, "utf-8", newline="") as text:
            if stem.endswith((".csv", ".tsv")):
                _write_table(text, list(records), "\t" if stem.endswith(".tsv") else ",")
            elif stem.endswith(".json"):
                for i, record in enumerate(records):
                    text.write(("[\n" if i == 0 else ",\n") + dump_json(record))
                text.write("\n]\n")
            else:
                for record in records:
                    text.write(dump_json(record) + "\n")
            text.flush()


def _write_table(text: io.TextIOWrapper, records: list[dict[str, Any]], delimiter: str) -> None:
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\r\n")  # quotes every \r and \n
    writer.writerow(names)
    for record in records:
        try:
            writer.writerow([_cell(record, name) for name in names])
        except UnicodeEncodeError:
            raise TrimtabError(
                ErrorKind.DATA,
                f"pair {record.get('id')} holds half a character, which CSV cannot hold",
                "write JSON lines",
            ) from None


def _cell(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return dump_json(value)
