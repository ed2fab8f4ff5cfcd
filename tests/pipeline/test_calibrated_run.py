"""Whole projects whose PPO goes by the calibration of the preference model, with one member and with two."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification

from trimtab.data.pairs import read_pairs, write_pairs
from trimtab.errors import TrimtabError
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.calibrations import how_scored, renew_calibration
from trimtab.pipeline.evaluate import calibrate_preference_model
from trimtab.pipeline.probing import probe_preference_model
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import plan_run, run_project
from trimtab.pipeline.scaffold import init_project
from trimtab.preference import Calibration
from trimtab.report.chain import chain
from trimtab.report.facts import read_facts
from trimtab.report.page import render
from trimtab.runs.files import read_json
from trimtab.runs.run import Run

SMALL = [
    "project.threads=1", "sft.epochs=1", "sample.pairs_per_prompt=2", "preference.epochs=2", "ppo.iterations=2",
    "ppo.batch_size=8", "ppo.probe_prompts=4", "eval.responses_per_prompt=1", "eval.bootstrap=50",
    "preference.validation_fraction=0.4", "preference.probe_responses=10",
]  # fmt: skip
MEMBERS = ["model.trainable=top:1", "preference.members=2"]


def small_project(directory: Path) -> Path:
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 60), ("prompts_held_out", 16), ("demonstrations", 160)):
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    return directory


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has run with calibrated scores."""
    directory = small_project(tmp_path_factory.mktemp("scaled") / "p")
    run_project(Project.open(directory, [*SMALL, "preference.calibrated_score=true"]))
    return directory


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with two members that has run up to its preference model, not calibrated."""
    directory = small_project(tmp_path_factory.mktemp("members") / "p")
    run_project(Project.open(directory, [*SMALL, *MEMBERS]), until="pm")
    return directory


@pytest.fixture
def project(members: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    shutil.copytree(members, tmp_path / "p")
    return tmp_path / "p"


def main(directory: Path) -> Run:
    return Run.open(directory / "runs" / "main")


def test_ppo_sees_the_score_divided_by_the_temperature_and_the_report_says_so(scaled):
    run = main(scaled)
    kept = Calibration.load(run.artifact("pm") / "model")
    assert kept is not None
    assert kept.temperature != 1
    project = Project.open(scaled, [*SMALL, "preference.calibrated_score=true"])
    scorer, raw = (
        Workshop(project, run).preference_model(),
        Workshop(Project.open(scaled, SMALL), run).preference_model(),
    )
    pairs = read_pairs(run.artifact("pm") / "held_out.jsonl")
    asked = [p.prompt for p in pairs], [p.chosen for p in pairs]
    np.testing.assert_allclose(scorer.score(*asked), raw.score(*asked) / kept.temperature)
    assert read_json(run.artifact("ppo") / "result.json")["preference_score"] == {
        "divided_by": kept.temperature, "win_probability": None, "weight": None,
    }  # fmt: skip
    # what PPO logged is what the scaled model says of the responses that it logged
    sample = next(s for s in run.samples(stage="ppo") if s["step"] == 0)
    prompt = next(p for p in project.held_out_prompts if p.id == sample["prompt_id"])
    response = type(pairs[0].chosen)(sample["response"])
    assert sample["score"] == pytest.approx(float(scorer.score([prompt], [response])[0]), abs=1e-4)
    ppo = next(step for step in chain(read_facts(run)) if step.title == "PPO")
    assert "The preference score is divided by the calibration's temperature" in ppo.text
    assert "In use: PPO and the evaluation see the score divided by the temperature" in render(run)


def test_what_the_stage_leaves_is_read_by_the_report_and_shipped_with_the_model(scaled):
    directory = main(scaled).artifact("pm")
    assert read_json(directory / "calibration.json")["kept"] is True
    probe = read_json(directory / "probe.json")
    assert (probe["data"], probe["edited"], probe["scores"]) == ("held_out.jsonl", 10, "")
    scores = [json.loads(line) for line in (directory / "scores.jsonl").read_text().splitlines()]
    assert [row["id"] for row in scores] == [p.id for p in read_pairs(directory / "held_out.jsonl")]
    card = (directory / "model" / "README.md").read_text()
    accuracy = read_json(directory / "result.json")["accuracy"]["mean"]
    assert card.startswith("---\nlibrary_name: transformers\n")
    for said in ("## Accuracy", f"{100 * accuracy:.0f} %", "## Calibration", "## What buys score", "tiny-world",
                 "divided by the temperature", "## Intended use and limits", "sha256", "- polite: Prefer"):  # fmt: skip
        assert said in card, said
    assert AutoModelForSequenceClassification.from_pretrained(directory / "model").config.num_labels == 1
    assert 'aria-labelledby="preference-model"' in render(main(scaled))


def test_a_probe_with_more_responses_trains_nothing_and_renews_what_is_kept(scaled, tmp_path):
    shutil.copytree(scaled, tmp_path / "p")
    scaled = tmp_path / "p"
    settings = [*SMALL, "preference.calibrated_score=true"]
    probe_preference_model(scaled, "main", settings, most=20)
    assert read_json(main(scaled).artifact("pm") / "probe.json")["edited"] == 20
    assert plan_stages(scaled, *settings, "preference.probe_responses=50") == []


def plan_stages(directory: Path, *settings: str) -> list[str]:
    return [state.name for state in plan_run(Project.open(directory, [*settings]))]


def test_asked_for_afterwards_the_calibration_is_made_before_ppo_and_ppo_is_then_up_to_date(project):
    settings = [*SMALL, *MEMBERS, "preference.calibrated_score=true"]
    told: list[str] = []
    run = run_project(Project.open(project, settings), until="ppo", say=told.append)
    kept = Calibration.load(run.artifact("pm") / "model")
    assert kept is not None
    assert kept.scores == "mean of 2 members"
    assert any("the preference model is calibrated on the held-out pairs" in line for line in told)
    assert run.stage("pm").attempt == 1
    assert plan_stages(project, *settings) == ["eval", "report"]


def test_another_combination_of_the_members_has_its_own_calibration(project):
    settings = [*SMALL, *MEMBERS, "preference.calibrated_score=true"]
    opened = Project.open(project, settings)
    _, _, first = calibrate_preference_model(opened, "main", None, "platt")
    other = Project.open(project, [*settings, "preference.combine='lower_bound'", "preference.pessimism=2.0"])
    with pytest.raises(TrimtabError, match="fitted on mean of 2 members; the score is now lower_bound of 2 members"):
        Workshop(other, main(project)).preference_model()
    told: list[str] = []
    renew_calibration(other, main(project), told.append)
    kept = Calibration.load(main(project).artifact("pm") / "model")
    assert kept is not None
    assert (kept.scores, kept.method) == ("lower_bound of 2 members, pessimism 2", "platt")
    assert kept.temperature != first.calibration.temperature
    assert told == [
        "pm: the calibration was fitted on mean of 2 members; it is fitted again on lower_bound of 2 members, "
        "pessimism 2"
    ]
    assert Workshop(other, main(project)).preference_model().scale == kept.temperature
    renew_calibration(other, main(project), lambda line: pytest.fail(line))  # it fits now


def test_a_calibration_on_other_pairs_is_not_replaced_without_being_asked(project, tmp_path):
    settings = [*SMALL, *MEMBERS, "preference.calibrated_score=true"]
    mine = tmp_path / "mine.jsonl"
    write_pairs(mine, read_pairs(main(project).artifact("pm") / "held_out.jsonl")[:-1])
    calibrate_preference_model(Project.open(project, settings), "main", mine)
    other = Project.open(project, [*settings, "preference.combine='min'"])
    with pytest.raises(TrimtabError, match="by pairs that are not the run's own; the score is now min of 2 members"):
        run_project(other, until="ppo")


def test_win_probabilities_of_members_go_by_the_calibration_of_their_combined_score(project):
    settings = [*SMALL, *MEMBERS, "ppo.score_transform='win_probability'"]
    opened = Project.open(project, settings)
    calibrate_preference_model(opened, "main", None, "temperature")
    run = run_project(opened, until="ppo")
    kept = Calibration.load(run.artifact("pm") / "model")
    model = Workshop(opened, run).preference_model()
    assert kept is not None
    assert (model.scale, model.calibration) == (1.0, kept)
    np.testing.assert_allclose(model.probability(np.array([2.0])), 1 / (1 + np.exp(-2.0 / kept.temperature)))
    assert read_json(run.artifact("ppo") / "result.json")["preference_score"]["win_probability"] == "calibrated"
    shaped = run.signal("score/shaped_mean", "ppo")[1]
    assert ((shaped > 0) & (shaped < 1)).all()
    # another combination: the calibration is renewed, and PPO runs again by it
    changed = [*settings, "preference.combine='min'"]
    assert plan_stages(project, *changed)[0] == "ppo"
    run = run_project(Project.open(project, changed), until="ppo")
    kept = Calibration.load(run.artifact("pm") / "model")
    assert kept is not None
    assert kept.scores == "min of 2 members"


def test_a_mixture_says_whether_its_preference_part_is_calibrated(scaled):
    run = main(scaled)
    mixed = [*SMALL, "ppo.reward={preference = 0.7, 'rule:length' = 0.01}"]
    raw, calibrated = Project.open(scaled, mixed), Project.open(scaled, [*mixed, "preference.calibrated_score=true"])
    wins = Project.open(scaled, [*mixed, "ppo.score_transform='win_probability'"])
    kept = Calibration.load(run.artifact("pm") / "model")
    assert kept is not None
    said = [how_scored(p, Workshop(p, run).preference_model())["preference_score"] for p in (raw, calibrated, wins)]
    assert said == [
        {"divided_by": 1.0, "win_probability": None, "weight": 0.7},
        {"divided_by": kept.temperature, "win_probability": None, "weight": 0.7},
        {"divided_by": 1.0, "win_probability": "logistic", "weight": 0.7},
    ]
