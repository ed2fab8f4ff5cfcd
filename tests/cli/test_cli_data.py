"""`trimtab data`: what is read is never written over, and names say how to write."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from trimtab.cli.main import main

LINES = "".join(
    json.dumps({"prompt": prompt, "chosen": "It is an animal.", "rejected": "No idea."}) + "\n"
    for prompt in ("What is a dog?", "What is a cat?", "What is a dog?")
)


@pytest.fixture
def pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("pairs.jsonl", "other.jsonl"):
        Path(name).write_text(LINES)
    return Path("pairs.jsonl")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-o", "pairs.jsonl"],
        ["-o", "out.jsonl", "--reasons", "pairs.jsonl"],
        ["-o", "out.jsonl", "--reasons", "./out.jsonl"],
        ["-o", "other.jsonl", "--human", "other.jsonl"],
        ["-o", "other.jsonl", "--test", "other.jsonl"],
        ["-o", "out.jsonl", "--human", "other.jsonl", "--reasons", "other.jsonl"],
    ],
)
def test_filter_writes_over_nothing_that_it_reads_or_writes(
    pairs: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "filter", "pairs.jsonl", *arguments]) == 2
    assert "would be written" in capsys.readouterr().err
    assert pairs.read_text() == Path("other.jsonl").read_text() == LINES
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize("name", ["-", "out", "out.xlsx", "out.parquet.gz"])
def test_an_ending_that_says_nothing_is_refused(pairs: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "convert", str(pairs), name]) == 2
    assert ".jsonl" in capsys.readouterr().err
    assert not Path(name).exists()


def test_a_pipe_is_not_replaced_by_a_file(pairs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe.jsonl")
    assert main(["data", "convert", str(pairs), "pipe.jsonl"]) == 1
    assert main(["data", "filter", str(pairs), "-o", "out.jsonl", "--reasons", "pipe.jsonl"]) == 1
    assert capsys.readouterr().err.count("is a pipe or a device") == 2
    assert stat.S_ISFIFO(Path("pipe.jsonl").stat().st_mode)


def test_a_negative_seed_is_a_usage_error(pairs: Path) -> None:
    assert main(["data", "check", str(pairs), "--seed", "-1"]) == 2
