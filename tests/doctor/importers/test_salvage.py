"""What is left of a broken log is read, and what is lost is said."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_up_logs import FORMS, grpo_rows, jsonl
from trimtab.doctor.importers import read
from trimtab.doctor.importers.dict_lines import dicts_in
from trimtab.doctor.importers.json_rows import salvage_document
from trimtab.doctor.log import Log
from trimtab.errors import TrimtabError


def _read(path: Path, content: str | bytes, **mapping: str) -> Log:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    (log,) = read(path, mapping)
    assert isinstance(log, Log)
    return log


def _found_or_named(path: Path) -> bool:
    """Whether something is read from the file, or the error names it."""
    try:
        return bool(read(path))
    except TrimtabError as error:
        return str(path) in error.message


def _kl(log: Log) -> list[float]:
    return log.series["kl/reference_per_token"].values.tolist()


# cut off


_SMALL = [{"reward": 0.5, "reward_std": 0.25, "kl": 0.0625 * i, "step": i + 1} for i in range(4)]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"max_steps": 900, "log_history": _SMALL}),
        json.dumps(_SMALL),
        jsonl(_SMALL),
        "".join(f"{r}\n" for r in _SMALL),
    ],
    ids=["state", "list", "jsonl", "dicts"],
)
def test_a_log_cut_anywhere_loses_no_complete_record(text: str, tmp_path: Path) -> None:
    ends = [i + 1 for i, c in enumerate(text) if c == "}"][:4]
    data = text.encode()
    for cut in range(len(data)):
        whole = sum(cut >= end for end in ends)
        try:
            log = _read(tmp_path / "log", data[:cut])
        except TrimtabError as error:
            refused = str(error)
        else:
            refused = ""
        if refused:
            assert whole == 0, f"cut at {cut}: {refused}"
            continue
        assert len(_kl(log)) >= whole if whole else True, f"cut at {cut}"
        assert len(_kl(log)) <= whole + 1 if whole else True


def test_a_state_that_was_cut_says_so_and_keeps_its_settings(tmp_path: Path) -> None:
    text = json.dumps({"max_steps": 900, "log_history": grpo_rows(4)}, indent=1)
    log = _read(tmp_path / "trainer_state.json", text[: text.rindex('"entropy"')])
    assert log.truncated
    assert log.planned_steps == 900
    assert _kl(log) == [0.0, 0.0625, 0.125]


def test_a_list_that_is_not_closed_was_cut_even_between_records(tmp_path: Path) -> None:
    text = json.dumps(grpo_rows(3))
    for end in ("", ", ", ",\n  "):
        log = _read(tmp_path / "log", text[:-1] + end)
        assert log.truncated
        assert log.rows == 3


def test_half_a_last_line_is_told_from_rubbish_inside(tmp_path: Path) -> None:
    rows = jsonl(grpo_rows(3))
    cut = _read(tmp_path / "a", rows + '{"loss": 0.1, "kl"')
    assert cut.truncated
    assert [s.reason for s in cut.skipped] == ["half a record at the end of the file"]
    assert cut.skipped[0].first_line == 4
    inside = _read(tmp_path / "b", rows + "rubbish\n" + rows.replace('"step": ', '"step": 10'))
    assert not inside.truncated
    assert [(s.count, s.first_line) for s in inside.skipped] == [(1, 4)]


def test_a_record_after_half_of_another_on_one_line_is_kept(tmp_path: Path) -> None:
    first, second, third = jsonl(grpo_rows(3)).splitlines()
    log = _read(tmp_path / "log", f"{first}\n{second[:40]}{third}\n")
    assert _kl(log) == [0.0, 0.125]
    assert "killed" in log.skipped[0].reason


def test_a_csv_row_without_its_end_is_left_out(tmp_path: Path) -> None:
    text = "step,objective/kl,objective/scores\n1,2.0,0.5\n2,3.0,0.5\n3,4."
    log = _read(tmp_path / "log", text)
    assert log.truncated
    assert log.series["kl/reference"].values.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_no_form_breaks_when_cut_at_any_tenth(form: Any, tmp_path: Path) -> None:
    data = form.text.encode()
    for tenth in range(1, 10):
        path = tmp_path / "log"
        path.write_bytes(data[: len(data) * tenth // 10])
        assert _found_or_named(path)


def test_a_damaged_middle_of_a_document_costs_only_that_record() -> None:
    text = json.dumps(grpo_rows(6))
    pieces = text.split("}, ")
    broken = "}, ".join([*pieces[:2], pieces[2][:30] + '"": ??', *pieces[3:]])
    found = salvage_document(broken)
    assert found is not None
    assert [r["step"] for r in found.records] == [10, 20, 40, 50, 60]
    assert found.lost


# steps that come again


def test_a_resumed_run_counts_the_later_rows(tmp_path: Path) -> None:
    first = [{"step": s, "objective/kl": 1.0, "objective/scores": 0.0} for s in range(1, 9)]
    again = [{"step": s, "objective/kl": 2.0, "objective/scores": 0.0} for s in range(5, 8)]
    log = _read(tmp_path / "log", jsonl(first + again))
    series = log.series["kl/reference"]
    assert series.steps.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert series.values.tolist() == [1.0] * 4 + [2.0] * 3
    assert any(s.count == 4 and "resumed" in s.reason for s in log.skipped)
    assert log.steps == (1, 7)


def test_the_whole_file_twice_is_the_file(tmp_path: Path) -> None:
    rows = [{"step": s, "objective/kl": float(s), "objective/scores": 0.0} for s in range(1, 9)]
    log = _read(tmp_path / "log", jsonl(rows * 2))
    assert log.series["kl/reference"].values.tolist() == [float(s) for s in range(1, 9)]


def test_rows_in_no_order_are_sorted(tmp_path: Path) -> None:
    rows = [{"step": s, "objective/kl": float(s), "objective/scores": 0.0} for s in (9, 8, 7, 6, 5, 4, 3, 2, 1)]
    log = _read(tmp_path / "log", jsonl(rows))
    assert log.series["kl/reference"].values.tolist() == [float(s) for s in range(1, 10)]
    assert any("sorted" in s.reason for s in log.skipped)


def test_several_lines_of_a_step_are_averaged_and_the_first_ratio_is_kept(tmp_path: Path) -> None:
    rows = [
        {
            "step": s,
            "policy_loss": 0.1,
            "value_loss": 0.2,
            "ratio": 1.0 + 0.25 * m,
            "max_ratio": 2.0 + m,
            "reward": float(s),
        }
        for s in (1, 2)
        for m in range(3)
    ]
    log = _read(tmp_path / "log", jsonl(rows))
    assert log.series["policy/ratio_mean"].values.tolist() == [1.25, 1.25]
    assert log.series["policy/ratio_first"].values.tolist() == [1.0, 1.0]
    assert log.series["policy/ratio_max"].values.tolist() == [4.0, 4.0]
    assert log.series["score/mean"].values.tolist() == [1.0, 2.0]


def test_steps_that_start_again_with_every_epoch_are_counted_through(tmp_path: Path) -> None:
    rows = [
        {"epoch": e, "step": s, "policy_loss": 0.1, "reward": float(10 * e + s)} for e in range(3) for s in range(4)
    ]
    log = _read(tmp_path / "log", jsonl(rows))
    assert log.series["score/mean"].steps.tolist() == list(range(12))


def test_rows_without_a_step_have_that_of_the_row_before(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "objective/kl": 1.0},
        {"objective/scores": 0.5},
        {"step": 2, "objective/kl": 2.0},
        {"step": 3, "objective/kl": 3.0},
    ]
    log = _read(tmp_path / "log", jsonl(rows))
    assert log.series["score/mean"].steps.tolist() == [1]


# numbers


def test_odd_numbers_are_kept_as_the_log_has_them(tmp_path: Path) -> None:
    values = [
        "NaN",
        "-Infinity",
        "1e400",
        "1" + "0" * 400,
        "1" + "0" * 5000,
        '"0.5"',
        "null",
        "true",
        '"n/a"',
        "[1]",
        "0.25",
    ]
    text = "".join(f'{{"step": {i}, "objective/kl": {v}, "objective/scores": 1.0}}\n' for i, v in enumerate(values))
    series = _read(tmp_path / "log", text).series["kl/reference"]
    assert series.steps.tolist() == [0, 1, 2, 3, 4, 5, 7, 10]
    assert math.isnan(series.values[0])
    assert series.values[1:].tolist() == [-math.inf, math.inf, math.inf, math.inf, 0.5, 1.0, 0.25]


def test_nested_tables_are_flattened(tmp_path: Path) -> None:
    rows = [{"step": i, "train": {"loss": 0.5, "rewards": {"chosen": 0.1, "rejected": 0.0}}} for i in (1, 2)]
    log = _read(tmp_path / "log", jsonl(rows))
    assert log.algorithm == "dpo"
    assert set(log.series) == {"loss/train", "dpo/chosen_reward", "dpo/rejected_reward"}


def test_late_columns_begin_where_they_begin(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"step": i, "objective/scores": 1.0} for i in range(1, 4)]
    rows += [{"step": i, "objective/scores": 1.0, "objective/kl": 2.0} for i in range(4, 6)]
    assert _read(tmp_path / "log", jsonl(rows)).series["kl/reference"].steps.tolist() == [4, 5]


def test_zeros_colours_and_prefixes_are_taken_away(tmp_path: Path) -> None:
    line = jsonl(grpo_rows(2)).splitlines()
    log = _read(tmp_path / "log", f"\x1b[36m(main pid=12)\x1b[0m {line[0]}\n(main pid=12) {line[1]}\x00\x00\n")
    assert _kl(log) == [0.0, 0.0625]


@given(st.dictionaries(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1, max_size=12),
                       st.floats() | st.integers(), min_size=1, max_size=6))  # fmt: skip
def test_a_printed_dict_is_read_back(record: dict[str, Any]) -> None:
    found, cut = dicts_in(f"12:00 INFO {record!r} done")
    assert not cut
    ((at, read_back),) = found
    assert at == 11
    assert set(read_back) == set(record)
    for key, value in record.items():
        assert read_back[key] == pytest.approx(float(value), nan_ok=True, rel=1e-15)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_log_or_an_error_that_names_the_file(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(data)
        assert _found_or_named(path)


@given(st.text(alphabet='{}[]":,0123456789.eE-+ntruefalsNI\n |=step', max_size=200))
def test_any_text_of_json_like_characters_does_not_break(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text(text, encoding="utf-8")
        assert _found_or_named(path)
