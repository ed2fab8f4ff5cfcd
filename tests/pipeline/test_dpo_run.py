"""A project whose policy is trained by DPO: which stages run, what goes on after a kill, what is evaluated and told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from trimtab.doctor.importers.ours import read_run
from trimtab.doctor.log import Log, Stage
from trimtab.pipeline import work
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import plan_run, run_project, run_stage
from trimtab.pipeline.scaffold import init_project
from trimtab.report import summary
from trimtab.runs.run import Run

SMALL = [
    "project.threads=1", "project.algorithm=dpo", "sft.epochs=1", "sample.pairs_per_prompt=1", "preference.epochs=1",
    "dpo.epochs=1", "dpo.batch_size=16", "dpo.checkpoint_every=2", "dpo.probe_prompts=4", "eval.responses_per_prompt=1",
    "eval.bootstrap=50",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has run once, with few lines a file."""
    directory = tmp_path_factory.mktemp("project")
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 80), ("prompts_held_out", 24), ("demonstrations", 320)):
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    run_project(Project.open(directory, SMALL))
    return directory


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    shutil.copytree(finished, tmp_path / "p")
    return tmp_path / "p"


def wanted(directory: Path, *changes: str) -> list[str]:
    return [state.name for state in plan_run(Project.open(directory, [*SMALL, *changes]))]


def test_the_policy_of_the_pairs_is_what_is_evaluated_and_told(finished):
    run = Run.open(finished / "runs" / "main")
    assert list(run.stages()) == ["sft", "sample", "label", "pm", "dpo", "eval", "report"]
    AutoModelForCausalLM.from_pretrained(run.artifact("dpo") / "model")
    result = json.loads((run.artifact("dpo") / "result.json").read_text())
    pairs = len((run.artifact("label") / "pairs.jsonl").read_text().splitlines())
    assert result["training_pairs"] + result["held_out_pairs"] == pairs
    held_out = (run.artifact("pm") / "held_out.jsonl").read_text().splitlines()
    assert len(held_out) == result["held_out_pairs"]
    measured = json.loads((run.artifact("eval") / "result.json").read_text())
    assert [measure["name"] for measure in measured["measures"]] == ["gold", "preference"]
    assert {record["step"] for record in run.samples(stage="dpo")} >= {0, 2, 4}
    assert all("score" in record for record in run.samples(stage="dpo"))  # of the preference model, which is there
    told = summary(run)
    assert f"DPO: {result['updates']} updates." in told
    assert "PPO" not in told
    page = (finished / "runs" / "main" / "report.html").read_text()
    assert "Log-probability of chosen responses" in page


def test_the_doctor_reads_the_stage_as_direct_training(finished):
    (log,) = (m for m in read_run(finished / "runs" / "main", {}) if isinstance(m, Log) and m.stage is Stage.DIRECT)
    assert log.algorithm == "dpo"
    assert {"loss/train", "dpo/chosen_reward", "dpo/margin", "accuracy/validation", "kl/reference"} <= log.series.keys()
    assert log.series["dpo/chosen_reward"].values[0] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(
    ("change", "stages"),
    [
        ("dpo.beta=0.2", ["dpo", "eval", "report"]),
        ("ppo.beta=0.2", []),
        ("ppo.max_new_tokens=9", []),
        ("dpo.probe_prompts=2", []),
        ("dpo.checkpoint_every=3", []),
        ("preference.epochs=2", ["pm", "eval", "report"]),
        ("label.simulated='blind'", ["label", "pm", "dpo", "eval", "report"]),
        ("preference.calibrated_score=true", ["pm", "eval", "report"]),
        ("ppo.reward=rule:length", ["eval", "report"]),
        ("project.algorithm=ppo", ["ppo", "eval", "report"]),
    ],
)
def test_only_what_a_change_touches_runs_again(finished, change, stages):
    found = wanted(finished, change)
    if change.startswith("preference.calibrated"):
        found = [stage for stage in found if stage != "pm"]  # whether the model itself stays is its own matter
        stages = stages[1:]
    assert found == stages


def test_a_killed_stage_goes_on_and_another_beta_reads_the_reference_again(project, monkeypatch):
    changed = Project.open(project, [*SMALL, "dpo.beta=0.3"])
    save = work.dpo.train

    def dying(*args, **options):
        save(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(work.dpo, "train", dying)
    with pytest.raises(Exception, match="was interrupted"):
        run_stage(changed, "dpo")
    monkeypatch.setattr(work.dpo, "train", save)
    run = run_stage(changed, "dpo")
    assert run.stage("dpo").attempt == 2
    assert len(list((run.path / "artifacts" / "reference_logprobs").iterdir())) == 1
    assert wanted(project, "dpo.beta=0.3") == ["eval", "report"]


def test_pairs_of_a_file_need_neither_judge_nor_preference_model(project):
    shutil.copy(project / "runs/main/artifacts/label/pairs.jsonl", project / "pairs.jsonl")
    changes = ["preference.data=pairs.jsonl", "ppo.reward=rule:length"]
    opened = Project.open(project, [*SMALL, *changes])
    assert [state.name for state in plan_run(opened, "other")] == ["sft", "dpo", "eval", "report"]
    run = run_stage(opened, "dpo")
    result = json.loads((run.artifact("dpo") / "result.json").read_text())
    assert result["training_pairs"] > 0
    assert not any("score" in record for record in run.samples(stage="dpo"))


def test_pairs_that_are_too_long_are_named_before_anything_is_trained(project):
    with pytest.raises(Exception, match=r"dpo\.max_tokens"):
        run_stage(Project.open(project, [*SMALL, "dpo.max_tokens=5"]), "dpo")
