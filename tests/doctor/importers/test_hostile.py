"""Logs that are too large in one way or another: numbers, names, directories, exports of many runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from made_up_logs import grpo_rows, jsonl
from trimtab.doctor.driver import diagnose
from trimtab.doctor.importers import directory, json_lines, read, source
from trimtab.doctor.importers.consoles import read as read_module
from trimtab.doctor.importers.csv_rows import _MOST_RUNS
from trimtab.doctor.importers.dialects.base import Dialect, to
from trimtab.doctor.judgment_keys import Column, columns_of, number, paired, words
from trimtab.doctor.log import Log, Stage
from trimtab.errors import TrimtabError

_HUGE = 10**400


def test_a_whole_number_too_large_for_a_float_is_infinite() -> None:
    assert number(_HUGE) == float("inf")
    assert number(-_HUGE) == float("-inf")


@pytest.mark.parametrize("where", ["step", "max_steps"])
def test_numbers_too_large_for_a_float_do_not_stop_the_diagnosis(where: str, tmp_path: Path) -> None:
    rows = [{**row, "step": _HUGE} if where == "step" else row for row in grpo_rows(60)]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"log_history": rows, "max_steps": _HUGE if where == "max_steps" else 60}))
    diagnosis = diagnose(path)
    assert diagnosis.logs[0].rows == 60
    assert diagnosis.logs[0].planned_steps in (None, 60)


def test_a_name_takes_the_meaning_of_the_first_pattern_that_fits_as_a_whole() -> None:
    dialect = Dialect(
        "d", "d", Stage.UNKNOWN, "", (), {}, ((r"a(?:b)?", to("x")), (r"a(b|c)d", to("y/{0}")), (r"a.*", to("z")))
    )  # fmt: skip
    found = {name: dialect.meaning(name) for name in ("a", "ab", "abd", "acd", "axe", "b")}
    assert {name: meaning and meaning.key for name, meaning in found.items()} == {
        "a": "x", "ab": "x", "abd": "y/b", "acd": "y/c", "axe": "z", "b": None,
    }  # fmt: skip


def test_columns_are_paired_once_each() -> None:
    columns = [Column(key, words(key), [1.0]) for key in ("score_a", "score_b", "len_b", "len_a", "a_b", "b_b")]
    assert [(one.key, two.key) for one, two in paired(columns, "places")] == [
        ("score_a", "score_b"), ("len_a", "len_b"), ("a_b", "b_b"),
    ]  # fmt: skip


def test_a_table_of_thousands_of_columns_is_no_table_of_judgments() -> None:
    assert columns_of([{f"score_{i}": 1.0 for i in range(6_000)}]) == {}


def test_an_export_of_hundreds_of_runs_is_cut_and_says_so(tmp_path: Path) -> None:
    runs = _MOST_RUNS + 7
    lines = [",".join(["Step", *(f"run{i} - train/reward" for i in range(runs))])]
    lines += [",".join([str(step), *["0.5"] * runs]) for step in range(5)]
    path = tmp_path / "export.csv"
    path.write_text("\n".join(lines) + "\n")
    found = read(path)
    assert len(found) == _MOST_RUNS
    assert any("runs beyond" in s.reason and s.count == 7 for s in found[0].skipped)


def test_a_crowded_directory_is_tried_in_part_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_MOST_TRIED", 30)
    for i in range(200):
        (tmp_path / f"a{i:03}.txt").write_text("nothing to see here\n")
    (tmp_path / "zz_metrics.jsonl").write_text(jsonl(grpo_rows(40)))
    (log,) = read(tmp_path)
    assert isinstance(log, Log)
    assert log.rows == 40, "the file that speaks of a log comes first"
    assert [s.count for s in log.skipped if "not looked at" in s.reason] == [171]


def test_reading_much_that_is_no_log_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_MOST_FRUITLESS", 3_000)
    for i in range(10):
        (tmp_path / f"{i}.txt").write_text("It was a dark and stormy night.\n" * 50)
    with pytest.raises(TrimtabError) as caught:
        read(tmp_path)
    assert "not looked at, as there are too many here: 8" in (caught.value.hint or "")


def test_the_error_about_an_endless_name_is_short() -> None:
    with pytest.raises(TrimtabError) as caught:
        read("/tmp/" + "x" * 5_000)
    assert len(str(caught.value)) < 1_000


def test_a_line_without_end_is_left_out_and_the_rows_around_it_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_BLOCK", 64)
    monkeypatch.setattr(source, "_LONGEST_LINE", 1_000)
    rows = jsonl(grpo_rows(40)).splitlines()
    path = tmp_path / "log.jsonl"
    for last in ("\n" + "\n".join(rows[20:]) + "\n", ""):
        path.write_text("\n".join([*rows[:20], '{"text": "' + "x" * 50_000 + '"}']) + last)
        (log,) = read(path)
        assert isinstance(log, Log)
        assert log.rows == (40 if last else 20)
        assert any("was left out" in s.reason for s in log.skipped)


def test_a_block_boundary_anywhere_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("a\nbb\n\nccc\ndddd")
    for size in range(1, 20):
        monkeypatch.setattr(source, "_BLOCK", size)
        assert b"".join(source.Source(path).blocks()) == path.read_bytes()


def test_endless_prose_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_module, "PATIENCE", 100)
    monkeypatch.setattr(json_lines, "PATIENCE", 100)
    monkeypatch.setattr(source, "_BLOCK", 4_000)
    path = tmp_path / "train.log"
    rows = "".join(f"{{'loss': {i}.5, 'reward': 0.1, 'step': {i}}}\n" for i in range(1, 30))
    prose = "It was a dark and stormy night.\n"
    path.write_text(prose * 90 + rows + prose * 5_000 + rows)
    (log,) = read(path)
    assert isinstance(log, Log)
    assert log.rows == 58, "what comes late is read where something came before"
    path.write_text(prose * 5_000 + rows)
    with pytest.raises(TrimtabError):
        read(path)
