"""A project with a head for each principle and length taken out: what its stages leave, and what a change runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from trimtab.cli.pm import register
from trimtab.cli.pm_beside import print_beside
from trimtab.data.pairs import read_pairs
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.evaluate import evaluate_preference_model
from trimtab.pipeline.pm_studies import compare_settings
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import plan_run, run_project
from trimtab.pipeline.scaffold import init_project
from trimtab.pipeline.stages import STAGES
from trimtab.runs.files import read_json
from trimtab.runs.run import Run

PRINCIPLES = ["length", "polite", "topic", "varied"]
SETTINGS = [
    "project.threads=1", "sft.epochs=1", "sample.pairs_per_prompt=1", "preference.epochs=2", "ppo.iterations=2",
    "ppo.batch_size=8", "ppo.probe_prompts=4", "eval.responses_per_prompt=1", "eval.bootstrap=50",
    "label.principles='each'", "preference.principle_heads=true", "preference.length_debias='regress'",
    "preference.probe_responses=0",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("project")
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 60), ("prompts_held_out", 16), ("demonstrations", 160)):
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    run_project(Project.open(directory, SETTINGS), until="ppo")
    return directory


def test_labels_by_principle_reach_the_heads_the_results_and_ppo(finished):
    run = Run.open(finished / "runs" / "main")
    pairs = read_pairs(run.artifact("label") / "pairs.jsonl")
    assert all(sorted(pair.principles) == PRINCIPLES for pair in pairs)
    # the label is their mean, so it lies among them
    assert all(min(p.principles.values()) <= p.p_chosen <= max(p.principles.values()) for p in pairs)
    result = read_json(run.artifact("pm") / "result.json")
    assert sorted(result["principles"]) == PRINCIPLES
    assert {"pairs", "decided", "accuracy", "overall", "lead", "ece", "brier", "log_loss"} == set(
        result["principles"]["polite"]
    )
    card = read_json(run.artifact("pm") / "model" / "trimtab.json")
    assert card["principle_weights"] == dict.fromkeys(PRINCIPLES, 1.0)
    assert len(card["length_debias"]["log_length_slopes"]) == 5
    for name in PRINCIPLES:
        assert np.isfinite(run.signal(f"score/{name}")[1]).all()
    # PPO maximises the overall head
    np.testing.assert_allclose(run.signal("score/overall")[1], run.signal("score/mean")[1], atol=1e-6)


def test_the_card_says_what_plain_transformers_gives(finished):
    text = (Run.open(finished / "runs" / "main").artifact("pm") / "model" / "README.md").read_text()
    assert "That is the score with length left in" in text
    assert "The model has one label a head" in text


def test_the_price_of_taking_length_out_is_in_the_result(finished):
    length = read_json(Run.open(finished / "runs" / "main").artifact("pm") / "result.json")["length"]
    assert {"debias", "correlation", "doubling", "accuracy", "before", "change"} == set(length)
    assert length["debias"] == "regress"
    for kind, change in length["change"].items():
        now, was = (
            side["correlation"] if kind == "correlation" else side["accuracy"][kind]
            for side in (length, length["before"])
        )
        assert change["mean"] == pytest.approx(now["mean"] - was["mean"])
    project = Project.open(finished, SETTINGS)
    _, metrics, beside = evaluate_preference_model(project, "main")
    assert beside["length"] == length
    # the accuracy of all is that of fits on other folds
    assert abs(metrics.accuracy.mean - length["accuracy"]["all"]["mean"]) <= 2 / metrics.pairs + 1e-9


@pytest.mark.parametrize(
    ("change", "stages"),
    [
        ("preference.head_weights={polite=2.0, topic=1.0}", ["ppo", "eval", "report"]),
        ("preference.head_weights='constitution'", ["ppo", "eval", "report"]),
        ("preference.principle_coef=0.5", ["pm", "ppo", "eval", "report"]),
        ("preference.length_debias='none'", ["pm", "ppo", "eval", "report"]),
    ],
)
def test_weights_of_heads_are_read_by_ppo_and_what_trains_them_by_pm(finished, change, stages):
    assert [state.name for state in plan_run(Project.open(finished, [*SETTINGS, change]))] == stages


def test_options_that_are_off_leave_the_fingerprint_of_a_run_without_them(finished):
    inputs = STAGES["pm"].inputs(Project.open(finished))
    assert not {"principle_heads", "principle_coef", "head_weights", "length_debias", "length_coef"} & set(inputs)
    assert "heads" not in STAGES["ppo"].inputs(Project.open(finished))


def test_the_score_follows_the_weights_that_are_set(finished):
    project = Project.open(finished, [*SETTINGS, "preference.head_weights={polite=3.0, overall=1.0}"])
    run = Run.open(finished / "runs" / "main")
    model = Workshop(project, run).preference_model()
    pairs = read_pairs(run.artifact("pm") / "held_out.jsonl")
    of, said = [p.prompt for p in pairs], [p.chosen for p in pairs]
    heads = model.head_scores(of, said)
    np.testing.assert_allclose(model.score(of, said), 0.75 * heads["polite"] + 0.25 * heads["overall"], atol=1e-9)


def test_pm_eval_prints_length_and_principles(finished):
    app = typer.Typer()
    register(app)
    arguments = [x for setting in SETTINGS for x in ("--set", setting)]
    shown = CliRunner().invoke(app, ["pm", "eval", str(finished), *arguments])
    assert shown.exit_code == 0, shown.output
    for words in ("accuracy by length", "with length left in", "correlation of score and log length", "head leads by"):
        assert words in shown.output
    assert all(name in shown.output for name in PRINCIPLES)


def test_figures_that_are_unknown_leave_their_cells_empty(capsys):
    nothing = {"mean": 0.5, "low": None, "high": None, "n": 1}
    bare = {"pairs": 1, "decided": 0, "accuracy": None, "overall": None, "lead": None, "ece": 0.1, "brier": 0.2}
    print_beside(
        {
            "length": {"correlation": nothing, "doubling": nothing, "accuracy": {"all": nothing, "matched": nothing}},
            "principles": {"\x1b[31mred": bare | {"log_loss": 0.3}},
        }
    )
    shown = capsys.readouterr().out
    assert "with length left in" not in shown
    assert "\x1b" not in shown
    assert "pairs of one length, within a tenth" in shown


def test_compare_shows_what_a_debias_costs(finished):
    settings = [*SETTINGS, "preference.principle_heads=false", "preference.length_debias=['none', 'regress']"]
    plain, regressed = compare_settings(finished, "main", settings, folds=2).rows
    assert plain.measured.length.change is None
    assert regressed.measured.length.change["all"].mean == pytest.approx(
        regressed.measured.accuracy.mean - plain.measured.accuracy.mean
    )
    assert regressed.measured.length.before.correlation.mean == pytest.approx(plain.measured.length.correlation.mean)
    assert regressed.as_dict()["length"]["before"]["accuracy"]["all"]["mean"] == plain.measured.accuracy.mean
    # both are known from the kept folds
    assert compare_settings(finished, "main", settings, folds=2, say=lambda _: pytest.fail("trained")).rows[1].measured
