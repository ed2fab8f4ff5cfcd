"""Drawn logs: each demo shows its finding, sound runs stay silent in every dress, a broken file is never healthy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trimtab.doctor.diagnosis import Status
from trimtab.doctor.drawn import NAMES, demo, faulty, sound
from trimtab.doctor.drawn.dress import DRESSES, able, write
from trimtab.doctor.drawn.faults import FAULTS
from trimtab.doctor.drawn.judged import JUDGED, SOUND, write_judged
from trimtab.doctor.drawn.sound import DIRECT_KINDS, GRPO_KINDS, PM_KINDS, PPO_KINDS
from trimtab.doctor.driver import diagnose
from trimtab.doctor.importers import read
from trimtab.doctor.log import Log
from trimtab.errors import TrimtabError

KINDS = {"grpo": GRPO_KINDS, "ppo": PPO_KINDS, "direct": DIRECT_KINDS, "preference-model": PM_KINDS}
QUIET = ("unit-unknown", "log-truncated")
OTHER_ROOT = {"inconsistent-preferences": "noisy-labels"}  # contradictory labels are wrong labels


@pytest.mark.parametrize("name", [n for n in NAMES if n != "healthy"])
def test_each_demo_shows_its_finding(name: str, tmp_path: Path) -> None:
    diagnosis = diagnose(demo(name, tmp_path))
    found = {f.id: f for f in diagnosis.findings}
    assert name in found
    assert found[name].severity.loud or name in QUIET
    if name not in QUIET:
        assert diagnosis.root_cause in (name, OTHER_ROOT.get(name))
        assert diagnosis.status is Status.SICK


def test_the_healthy_demo_is_healthy(tmp_path: Path) -> None:
    diagnosis = diagnose(demo("healthy", tmp_path))
    assert diagnosis.status is Status.HEALTHY
    assert not diagnosis.findings


def test_a_demo_is_the_same_every_time(tmp_path: Path) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    one, two = (demo("kl-explosion", tmp_path / place) for place in ("a", "b"))
    assert one.read_bytes() == two.read_bytes()


def test_an_unknown_demo_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no demo of the name 'nothing'"):
        demo("nothing", tmp_path)


def test_every_finding_of_the_logs_has_a_demo() -> None:
    from trimtab.doctor.driver import detectors

    ids = {id for detector in detectors()[0] for id in detector.ids}
    assert ids <= set(NAMES)
    assert set(NAMES) - {"healthy"} == {*FAULTS, *JUDGED, *QUIET}


@pytest.mark.parametrize("dress", DRESSES)
def test_a_dress_is_read_with_every_signal_under_its_own_name(dress: str, tmp_path: Path) -> None:
    kind = sorted(DRESSES[dress].kinds)[0]
    run = sound(kind, np.random.default_rng(3), "plain", 60)
    (log,) = (m for m in read(write(run, dress, tmp_path)) if isinstance(m, Log))
    assert log.steps == (1, 60)
    assert log.unmapped == ()
    keys = [k for k in run.curves if k in DRESSES[dress].names and k not in run.every]
    steps_of = {len(log.series[k]) for k in keys if k in log.series}
    assert steps_of == {60}
    # rounding of consoles apart, what is read is what was drawn
    for key in ("score/mean", "loss/train"):
        if key in keys:
            np.testing.assert_allclose(log.series[key].values, run.curves[key], rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_sound_runs_raise_no_alarm_in_any_dress(kind: str, tmp_path: Path) -> None:
    dresses = [d for d in DRESSES if able(DRESSES[d], kind, ())]
    for i, variant in enumerate(KINDS[kind]):
        place = tmp_path / variant
        place.mkdir()
        run = sound(kind, np.random.default_rng(100 + i), variant)
        diagnosis = diagnose(write(run, dresses[i % len(dresses)], place))
        assert not [f.id for f in diagnosis.findings if f.severity.loud], variant
        assert diagnosis.status is Status.HEALTHY


@pytest.mark.parametrize("name", SOUND)
def test_sound_judgments_raise_no_alarm(name: str, tmp_path: Path) -> None:
    diagnosis = diagnose(write_judged(SOUND[name](np.random.default_rng(4)), tmp_path))
    assert not [f.id for f in diagnosis.findings if f.severity.loud]
    assert diagnosis.status is Status.HEALTHY


@pytest.mark.parametrize("id", ["kl-explosion", "entropy-collapse", "clip-fraction-high"])
def test_a_fault_is_told_from_about_where_it_was_planted(id: str, tmp_path: Path) -> None:
    run, at = faulty(id, np.random.default_rng(8), strength=1.0, onset=0.5, rows=200)
    diagnosis = diagnose(write(run, "verl-jsonl", tmp_path))
    onset = next(f.onset_step for f in diagnosis.findings if f.id == id)
    assert at == 101
    assert onset is not None
    assert at - 5 <= onset <= at + 45


def test_a_resumed_run_and_a_gap_change_no_verdict(tmp_path: Path) -> None:
    for i, change in enumerate(("resumed", "gap")):
        rng = np.random.default_rng(20 + i)
        run = sound("grpo", rng, "plain", 200)
        run = run.resumed(100, 20, rng) if change == "resumed" else run.without(120, 20)
        place = tmp_path / change
        place.mkdir()
        assert diagnose(write(run, "trl-grpo", place)).status is Status.HEALTHY


def test_a_logger_in_another_unit_changes_no_verdict(tmp_path: Path) -> None:
    verdicts = set()
    run, _ = faulty("reward-decreasing", np.random.default_rng(3), strength=0.8, onset=0.4, kind="ppo", rows=200)
    for i, (scale, shift) in enumerate(((1.0, 0.0), (0.001, 0.0), (300.0, -70.0))):
        place = tmp_path / str(i)
        place.mkdir()
        diagnosis = diagnose(write(run.relabeled(scale, shift), "plain-csv", place))
        verdicts.add((diagnosis.status, diagnosis.root_cause))
    assert verdicts == {(Status.SICK, "reward-decreasing")}


@pytest.mark.parametrize("dress", ["trl-grpo", "verl-console", "openrlhf-wandb", "plain-jsonl"])
def test_a_file_cut_anywhere_is_never_healthy_while_the_run_is_sick(dress: str, tmp_path: Path) -> None:
    run, _ = faulty("no-gradient", np.random.default_rng(5), strength=1, onset=0, rows=100)
    whole = write(run, dress, tmp_path)
    data = whole.read_bytes()
    for tenth in range(10):
        whole.write_bytes(data[: len(data) * tenth // 10])
        try:
            status = diagnose(whole).status
        except TrimtabError:  # nothing in it yet
            assert tenth == 0
        else:
            assert status is not Status.HEALTHY


def test_a_console_that_begins_with_progress_bars_is_no_csv(tmp_path: Path) -> None:
    path = write(sound("grpo", np.random.default_rng(6), "plain", 60), "trl-grpo-console", tmp_path)
    assert path.read_text().startswith("Loading checkpoint shards: 100%|")
    (log,) = read(path)
    assert isinstance(log, Log)
    assert log.framework == "trl"
    assert "score/mean" in log.series


def test_early_overflows_of_half_precision_are_no_fault(tmp_path: Path) -> None:
    run = sound("grpo", np.random.default_rng(9), "plain", 120)
    run.curves["policy/gradient_norm"][:4] = np.inf
    diagnosis = diagnose(write(run, "trl-grpo", tmp_path))
    assert diagnosis.status is Status.HEALTHY
    run.curves["policy/gradient_norm"][80:84] = np.inf
    diagnosis = diagnose(write(run, "trl-grpo", tmp_path))
    assert diagnosis.root_cause == "nan-inf"


def test_drawing_needs_neither_torch_nor_scipy() -> None:
    code = "import sys, trimtab.doctor.drawn; print(sorted({'torch', 'scipy', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_shows_a_demo(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trimtab.cli.main", "doctor", "--demo", "entropy-collapse", "--json"],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert json.loads(done.stdout)["root_cause"] == "entropy-collapse"
    assert list(tmp_path.iterdir()) == []
