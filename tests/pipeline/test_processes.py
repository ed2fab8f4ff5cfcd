"""`torchrun -m trimtab`: a whole project by two processes, of which one prints and writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import run_project, run_stage
from trimtab.pipeline.scaffold import init_project
from trimtab.runs.run import Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="this torch has no torch.distributed with gloo",
    ),
]

SMALL = [
    "project.threads=1", "sft.epochs=1", "sample.pairs_per_prompt=1", "preference.epochs=1", "ppo.iterations=3",
    "ppo.batch_size=16", "ppo.checkpoint_every=1", "ppo.probe_prompts=4", "eval.responses_per_prompt=1",
    "eval.bootstrap=50",
]  # fmt: skip


def _torchrun(directory: Path, command: str, *more: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    launch = ["--standalone", f"--nproc_per_node={processes}", "-m", "trimtab"]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *launch, command, str(directory), *settings, *more],
        capture_output=True, text=True, timeout=170,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project up to its preference model."""
    directory = tmp_path_factory.mktemp("project")
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 80), ("prompts_held_out", 24), ("demonstrations", 320)):
        path = directory / f"{name}.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    run_project(Project.open(directory, SMALL), until="pm")
    return directory


def test_two_processes_finish_a_project(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "two")
    shutil.copytree(trained, tmp_path / "one")
    done = _torchrun(tmp_path / "two", "run", "--json", "--set", "model.parallel=fsdp", "--set", "project.processes=2")
    assert done.returncode == 0, done.stderr
    stages = {row["name"]: row for row in json.loads(done.stdout)["stages"]}
    # how the work is shared changes no result: the stages before PPO stay as they were
    assert [name for name, row in stages.items() if row["run"]] == ["ppo", "eval", "report"]
    assert done.stderr.count("ppo: train the policy") == 1
    run_stage(Project.open(tmp_path / "one", SMALL), "ppo")
    two, one = (Run.open(tmp_path / name / "runs" / "main") for name in ("two", "one"))
    found, alone = (load_file(run.path / "artifacts" / "ppo" / "model" / "model.safetensors") for run in (two, one))
    for name, weight in alone.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-5)
    assert [row["step"] for row in two.metrics("ppo")] == [0, 1, 2, 3]
    for row, other in zip(one.metrics("ppo"), two.metrics("ppo"), strict=True):
        assert row.get("score/mean") == pytest.approx(other.get("score/mean"), abs=1e-5)
    assert {"two", "one"} == {path.name for path in tmp_path.iterdir()}


def test_another_number_of_processes_than_the_project_wants_is_refused(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "p")
    done = _torchrun(tmp_path / "p", "ppo", "--set", "project.processes=3")
    assert done.returncode != 0
    assert "project.processes = 3, but the launcher started 2" in done.stderr
    assert not (tmp_path / "p" / "runs" / "main" / "checkpoints" / "ppo").exists()


def test_a_batch_that_cannot_be_parted_is_refused(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "p")
    done = _torchrun(tmp_path / "p", "ppo", "--set", "ppo.batch_size=18", "--set", "ppo.minibatches=2")
    assert done.returncode != 0
    assert "cannot be parted among 2 processes x 2 minibatches" in done.stderr
