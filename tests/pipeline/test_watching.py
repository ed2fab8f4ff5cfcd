"""The doctor beside the PPO stage, as the settings have it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from made_up_diagnoses import sick
from trimtab.config.schema import Config
from trimtab.doctor import driver
from trimtab.doctor.monitor import DoctorMonitor
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import run_project
from trimtab.pipeline.scaffold import init_project
from trimtab.pipeline.watching import watchers
from trimtab.runs import progress

SMALL = [
    "project.threads=1", "sft.epochs=1", "ppo.reward=rule:length", "ppo.iterations=4", "ppo.batch_size=8",
    "ppo.checkpoint_every=2", "ppo.probe_prompts=2", "ppo.value_init=reference", "doctor.every=2",
]  # fmt: skip


def test_the_monitor_is_there_unless_the_settings_say_no():
    (monitor,) = watchers(Config())
    assert isinstance(monitor, DoctorMonitor)
    assert watchers(Config.model_validate({"doctor": {"live": False}})) == ()


@pytest.mark.parametrize("change", ["doctor.webhook=ftp://host/x", "doctor.webhook=localhost", 'doctor.command=[""]'])
def test_hooks_that_make_no_sense_are_refused_before_anything_runs(tmp_path: Path, change: str):
    init_project(tmp_path, "tiny", "fail")
    with pytest.raises(TrimtabError, match="doctor") as caught:
        Project.open(tmp_path, [change])
    assert caught.value.kind == ErrorKind.CONFIG


@pytest.mark.parametrize("quiet", [False, True])
def test_a_real_stage_is_watched_and_alarms_are_kept(tmp_path: Path, monkeypatch, capsys, quiet: bool):
    monkeypatch.setattr("trimtab.doctor.watch.SHARE", float("inf"))
    monkeypatch.setattr(progress, "_quiet", quiet)
    seen: list[int] = []
    alarm = replace(sick(), findings=sick().findings[:1])
    monkeypatch.setattr(driver, "diagnose_materials", lambda logs, **_: seen.append(logs[0].rows) or alarm)
    init_project(tmp_path, "tiny", "fail")
    for name, lines in (("prompts", 24), ("prompts_held_out", 8), ("demonstrations", 32)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    run = run_project(Project.open(tmp_path, SMALL), until="ppo")
    told = [(line["step"], line["finding"]["id"]) for line in run.findings("ppo")]
    assert seen == [3, 5]  # at 2 and at the last; the probe before the first iteration is a row
    assert told == [(2, "length-exploitation")]
    assert ("doctor: critical: length-exploitation" in capsys.readouterr().err) is not quiet
