"""A project whose preference model has several members: what its stages leave, and what a change of settings runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.pipeline.build import Workshop
from trimtab.pipeline.evaluate import evaluate_preference_model
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import plan_run, run_project
from trimtab.pipeline.scaffold import init_project
from trimtab.pipeline.stages import STAGES
from trimtab.preference import PreferenceEnsemble
from trimtab.runs.files import read_json
from trimtab.runs.run import Run

SETTINGS = [
    "project.threads=1", "sft.epochs=1", "sample.pairs_per_prompt=1", "preference.epochs=2", "ppo.iterations=2",
    "ppo.batch_size=8", "ppo.probe_prompts=4", "eval.responses_per_prompt=1", "eval.bootstrap=50",
    "model.trainable=top:1", "preference.members=3", "preference.combine='lower_bound'", "preference.patience=1",
    "preference.checkpoint_every=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("project")
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 60), ("prompts_held_out", 16), ("demonstrations", 160)):
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    run_project(Project.open(directory, SETTINGS))
    return directory


def test_members_are_saved_scored_together_and_spoken_of_in_the_results(finished):
    project = Project.open(finished, SETTINGS)
    run = Run.open(finished / "runs" / "main")
    result = read_json(run.artifact("pm") / "result.json")
    assert result["members"]["count"] == len(result["members"]["accuracy"]) == 3
    assert (result["members"]["combine"], result["members"]["pessimism"]) == ("lower_bound", 1.0)
    rows = [row for row in run.metrics("pm") if row["step"] > 0 and "loss/validation" in row]
    assert result["validation_loss"] == min(row["loss/validation"] for row in rows)
    assert all((run.signal("score/disagreement")[1] > 0).tolist())
    spread = read_json(run.artifact("eval") / "result.json")["disagreement"]
    assert set(spread) == {"policy", "reference"}
    assert min(spread.values()) > 0
    shop = Workshop(project, run)
    model = shop.preference_model(shop.reference()[0])
    assert isinstance(model, PreferenceEnsemble)
    assert model.combine == "lower_bound"
    assert evaluate_preference_model(project, "main")[1].accuracy.mean == result["accuracy"]["mean"]


@pytest.mark.parametrize(
    ("change", "stages"),
    [
        ("preference.pessimism=2.0", ["ppo", "eval", "report"]),
        ("preference.combine='mean'", ["ppo", "eval", "report"]),
        ("preference.members=2", ["pm", "ppo", "eval", "report"]),
        ("preference.dropout=0.1", ["pm", "ppo", "eval", "report"]),
        ("preference.group_by_prompt=true", ["pm", "ppo", "eval", "report"]),
    ],
)
def test_how_members_are_combined_is_read_by_ppo_and_what_trains_them_by_pm(finished, change, stages):
    assert [state.name for state in plan_run(Project.open(finished, [*SETTINGS, change]))] == stages


def test_options_that_are_off_leave_the_fingerprint_of_a_run_without_them(finished):
    inputs = STAGES["pm"].inputs(Project.open(finished))
    assert not {"members", "dropout", "margin_coef", "patience", "combine", "pessimism"} & set(inputs)
    assert "members" not in STAGES["ppo"].inputs(Project.open(finished))
