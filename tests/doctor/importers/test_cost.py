"""What reading a log must not cost: heavy imports, a second process for a small file, a wrong table from two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from made_up_logs import jsonl
from trimtab.doctor.importers import json_lines, read
from trimtab.doctor.importers.json_lines import read_json_lines
from trimtab.doctor.importers.source import Source
from trimtab.doctor.log import Log


def test_reading_loads_neither_torch_nor_scipy_nor_pandas() -> None:
    code = "import sys, trimtab.doctor.importers; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "scipy", "pandas", "pydantic", "yaml", "tensorboard"} & {
        name.partition(".")[0] for name in loaded
    }


def _large(path: Path, n: int = 6_000) -> Path:
    rng = np.random.default_rng(0)
    names = [f"objective/{n}" for n in ("kl", "scores", "rlhf_reward", "entropy", "non_score_reward")]
    rows = [{"step": i, **dict(zip(names, rng.normal(size=5).tolist(), strict=True))} for i in range(n)]
    path.write_text(jsonl(rows))
    return path


def test_two_processes_read_what_one_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _large(tmp_path / "log")
    alone = read_json_lines(Source(path))
    monkeypatch.setattr(json_lines, "_LARGE", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    started = []
    start = json_lines._start_worker
    monkeypatch.setattr(json_lines, "_start_worker", lambda *args: started.append(start(*args)) or started[-1])
    both = read_json_lines(Source(path))
    assert [worker.returncode for worker in started] == [0]
    assert both.rows == alone.rows == 6_000
    for name, column in alone.columns.items():
        np.testing.assert_array_equal(both.columns[name].values, column.values)
        np.testing.assert_array_equal(both.columns[name].rows, column.rows)


def test_a_second_process_that_fails_costs_nothing_but_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _large(tmp_path / "log", 2_000)
    monkeypatch.setattr(json_lines, "_LARGE", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    for executable in ("/bin/false", "/nowhere/python", ""):
        monkeypatch.setattr(sys, "executable", executable)
        assert read_json_lines(Source(path)).rows == 2_000


def test_alike_blocks_and_single_lines_give_the_same(tmp_path: Path) -> None:
    path = _large(tmp_path / "log", 3_000)
    text = path.read_text()
    lines = text.splitlines()
    lines[1_500] = lines[1_500].replace('"objective/kl": ', '"objective/kl": null, "late": ')
    lines[2_500] = "rubbish"
    path.write_text("\n".join(lines) + "\n")
    (log,) = read(path)
    assert isinstance(log, Log)
    assert log.rows == 2_999
    kl = log.series["kl/reference"]
    assert len(kl) == 2_998
    assert not {1_500, 2_500} & set(kl.steps.tolist())
    assert [(s.first_line, s.count) for s in log.skipped] == [(2_501, 1)]


def test_null_in_a_block_of_alike_lines_is_no_value(tmp_path: Path) -> None:
    path = _large(tmp_path / "log", 3_000)
    lines = path.read_text().splitlines()
    lines[1_500] = '{"step": 1500, ' + ", ".join(f'"objective/{n}": null' for n in ("kl", "scores", "rlhf_reward"))
    lines[1_500] += ', "objective/entropy": 1.0, "objective/non_score_reward": NaN}'
    path.write_text("\n".join(lines) + "\n")
    (log,) = read(path)
    assert isinstance(log, Log)
    assert len(log.series["kl/reference"]) == 2_999
    assert len(log.series["policy/entropy_sequence"]) == 3_000
    assert np.isnan(log.series["reward/penalty"].values[1_500])
