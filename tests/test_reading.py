"""Pipes, bombs and endless values in what people hand in."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from trimtab.constitution import load_constitution
from trimtab.data.readers import read
from trimtab.errors import TrimtabError
from trimtab.labeling.verdicts import read_verdicts
from trimtab.reading import bytes_of, shown


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    for reader in (read, load_constitution, read_verdicts, bytes_of):
        with pytest.raises(TrimtabError, match="is a pipe or a device"):
            reader(str(pipe))  # type: ignore[operator]


def test_gzip_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\0" * 100_000))
    assert len(bytes_of(path, most=100_000)) == 100_000
    with pytest.raises(TrimtabError, match="unpacks to more than"):
        bytes_of(path, most=99_999)


def test_a_line_without_end_is_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.data.readers.files._LINE", 1000)
    good = json.dumps({"prompt": "a", "chosen": "b", "rejected": "c"}) + "\n"
    path = tmp_path / "long.jsonl"
    path.write_text(good + '{"prompt": "' + "x" * 2000 + '"}\n' + good)
    reading = read(path)
    assert len(reading.pairs) == 1
    assert "line 2" in str(reading.broken[0])
    assert "nothing after it was read" in str(reading.broken[0])


def test_shown_values_are_short_even_where_they_hold_themselves() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert len(shown("x" * 10**6)) < 100
    assert len(shown([endless] * 50)) < 200
    assert shown("tie") == "'tie'"


@pytest.mark.parametrize("column", ["margin", "p_chosen", "weight", "chosen_tokens"])
def test_numbers_that_no_float_holds_are_named_and_no_overflow(tmp_path: Path, column: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"prompt": "a", "chosen": "b", "rejected": "c", column: 10**400}) + "\n")
    assert "401 digits" in str(read(path).broken[0])


@pytest.mark.parametrize("column", ["pair_id", "p_1", "length_1", "cost", "sample", "winner", "order"])
def test_verdicts_with_numbers_that_no_float_holds_name_line_and_column(tmp_path: Path, column: str) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_text(json.dumps({"pair_id": "a", "judge": "j", "winner": 1, column: 10**400}) + "\n")
    with pytest.raises(TrimtabError, match=f"line 1: {column} ") as caught:
        read_verdicts(str(path))
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "first",
    [
        {"subset": "a", "idx": 1, "judge": "j", "gold": 1, "winner_order12": 1, "winner_order21": 2},
        {"idx": 1, "instruction": "", "response1": "a", "response2": "b", "annotator1": 1},
        {"idx": [1], "gpt_result": [1]},
        {"question_id": 1, "winner": "model_a", "model_a": "x", "model_b": "y", "judge": "h"},
        {"pair_hash": "a", "shown": "forward", "outcome": "ok", "p_first": 0.5},
    ],
)
def test_foreign_verdict_files_with_a_record_of_another_kind_name_its_line(
    tmp_path: Path, first: dict[str, object]
) -> None:
    path = tmp_path / "verdicts.jsonl"
    path.write_text(json.dumps(first) + "\n5\n")
    with pytest.raises(TrimtabError, match="line 2: is no object"):
        read_verdicts(str(path))
