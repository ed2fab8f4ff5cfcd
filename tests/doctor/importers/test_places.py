"""Directories: our runs and projects, and what other frameworks leave."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from made_up_logs import grpo_rows, jsonl
from trimtab.doctor.importers import log_of_rows, read
from trimtab.doctor.log import Log, Stage
from trimtab.errors import TrimtabError
from trimtab.runs import Run

_PPO = {
    "score/mean": 0.5,
    "kl/reference": 2.0,
    "kl/reference_per_token": 0.04,
    "response/length_mean": 50.0,
    "response/finished_fraction": 0.75,
}


def _run(root: Path, name: str, stages: dict[str, int], parent: str | None = None) -> Run:
    run = Run.create(root, name, config={"ppo": {"iterations": 40, "beta": 0.1}, "seed": 3}, seed=3, parent=parent)
    for stage, n in stages.items():
        run.begin_stage(stage, "f")
        for step in range(n):
            signals: dict[str, float] = {
                "ppo": _PPO,
                "pm": {"loss/train": 0.6, "accuracy/validation": 0.7},
                "label": {"label/pairs": 5.0},
            }[stage]
            run.log(stage, step, signals)
        run.end_stage(stage)
    return run


def _logs(path: Path) -> list[Log]:
    found = read(path)
    assert all(isinstance(m, Log) for m in found)
    return [m for m in found if isinstance(m, Log)]


def test_a_run_of_ours_is_one_log_a_stage(tmp_path: Path) -> None:
    run = _run(tmp_path, "main", {"label": 3, "pm": 4, "ppo": 5})
    run.close()
    logs = _logs(run.path)
    assert [log.stage for log in logs] == [Stage.LABEL, Stage.PREFERENCE_MODEL, Stage.POLICY]
    ppo = logs[-1]
    assert (ppo.framework, ppo.algorithm, ppo.rows, ppo.steps, ppo.planned_steps) == ("trimtab", "ppo", 5, (0, 4), 40)
    assert ppo.config["ppo.beta"] == 0.1
    assert ppo.series["response/truncated_fraction"].values.tolist() == [0.25] * 5
    assert "finished" in ppo.series["response/truncated_fraction"].derived
    assert ppo.series["kl/reference_per_token"].values.tolist() == [0.04] * 5
    assert ppo.series["kl/reference_per_token"].masked is True
    assert logs[1].series["accuracy/validation"].values.tolist() == [0.7] * 4


def test_a_run_that_is_being_written_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    run = _run(tmp_path, "main", {"ppo": 3})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"stage": "ppo", "step": 3, "attempt": 1, "score/me')
    (log,) = _logs(run.path)
    assert log.rows == 3


def test_values_that_are_not_finite_come_back(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "main", config={}, seed=1)
    run.begin_stage("ppo", "f")
    run.log("ppo", 0, {"policy/loss": math.nan, "value/loss": math.inf})
    (log,) = _logs(run.path)
    assert math.isnan(log.series["policy/loss"].values[0])
    assert log.series["value/loss"].values.tolist() == [math.inf]


def test_a_project_is_the_chain_of_its_newest_run(tmp_path: Path) -> None:
    (tmp_path / "trimtab.toml").write_text("")
    _run(tmp_path / "runs", "first", {"label": 2, "pm": 2, "ppo": 2}).close()
    _run(tmp_path / "runs", "second", {"ppo": 7}, parent="first").close()
    logs = _logs(tmp_path)
    assert [log.stage for log in logs] == [Stage.LABEL, Stage.PREFERENCE_MODEL, Stage.POLICY]
    assert logs[-1].rows == 7


def test_a_run_that_has_logged_nothing_is_said_to(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "main", config={}, seed=1)
    run.close()
    with pytest.raises(TrimtabError, match="nothing yet"):
        read(run.path)


def test_the_newest_state_of_a_trainers_directory(tmp_path: Path) -> None:
    for n in (2, 10, 6):
        folder = tmp_path / "out" / f"checkpoint-{n}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text(json.dumps({"max_steps": 10, "log_history": grpo_rows(n)}))
        (folder / "config.json").write_text('{"hidden_size": 64}')
        (folder / "tokenizer.json").write_text("{}")
    (tmp_path / "out" / "args.json").write_text('{"learning_rate": 1e-6, "beta": 0.04}')
    (log,) = _logs(tmp_path / "out")
    assert log.rows == 10
    assert log.planned_steps == 10
    assert log.config["beta"] == 0.04


def test_of_several_logs_of_a_run_the_one_that_says_most(tmp_path: Path) -> None:
    (tmp_path / "logging.jsonl").write_text(jsonl(grpo_rows(6)))
    (tmp_path / "short.jsonl").write_text(jsonl([{"reward": 1.0, "reward_std": 0.1, "step": i} for i in range(6)]))
    (tmp_path / "notes.txt").write_text("see the other file")
    (log,) = _logs(tmp_path)
    assert "group/zero_std_fraction" in log.series


def test_several_runs_below_one_directory(tmp_path: Path) -> None:
    rm = [{"loss": 0.6, "accuracy": 0.7, "margin": 0.4, "mean_reward": 0.0, "step": i} for i in range(5)]
    for name, rows in (("rm", rm), ("grpo", grpo_rows(5))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_text(jsonl(rows))
    assert {log.stage for log in _logs(tmp_path)} == {Stage.PREFERENCE_MODEL, Stage.POLICY}


def test_settings_beside_a_file(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(jsonl(grpo_rows(3)))
    (tmp_path / "config.yaml").write_text("algorithm:\n  kl_ctrl: {kl_coef: 0.001}\ntrainer: {total_epochs: 3}\n")
    (log,) = _logs(tmp_path / "log.jsonl")
    assert log.config["algorithm.kl_ctrl.kl_coef"] == 0.001


def test_broken_settings_are_no_reason_to_fail(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(jsonl(grpo_rows(3)))
    for text in ("{", "!!python/object/apply:os.system ['true']", "a: [", "- 1", "x: &a [*a]"):
        (tmp_path / "config.yaml").write_text(text)
        (tmp_path / "args.json").write_text(text)
        assert _logs(tmp_path / "log.jsonl")[0].rows == 3


def test_runs_of_a_wide_export_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "wandb.csv"
    names = ("Step", *(f"{run} - train/{name}" for name in ("kl", "reward", "reward_std") for run in "ab"))
    path.write_text(",".join(f'"{n}"' for n in names) + "\n1,0.1,0.2,1,2,0.5,0.5\n2,0.3,,1,,0.5,\n")
    first, second = _logs(path)
    assert (first.path, second.path) == (f"{path} [a]", f"{path} [b]")
    assert first.series["kl/reference_per_token"].values.tolist() == [0.1, 0.3]
    assert second.series["kl/reference_per_token"].values.tolist() == [0.2]


# rows in memory


def test_rows_in_memory(tmp_path: Path) -> None:
    log = log_of_rows(grpo_rows(5), path="live", dress="hf-log-history", planned_steps=80, config={"beta": 0.1})
    assert (log.path, log.framework, log.planned_steps, log.rows, log.config["beta"]) == ("live", "trl", 80, 5, 0.1)
    rows: list[dict[str, Any]] = [
        {"stage": "ppo", "step": s, "attempt": 1, "time": 1.0, **_PPO, "eval/score": None} for s in range(4)
    ]
    log = log_of_rows(rows, path="live", dress="trimtab")
    assert (log.framework, log.stage, log.rows, log.steps) == ("trimtab", Stage.POLICY, 4, (0, 3))
    assert "eval/score" not in log.series
    assert log_of_rows([], path="live", dress="trimtab").rows == 0
    assert log_of_rows([], path="live", dress="hf-log-history").steps is None
