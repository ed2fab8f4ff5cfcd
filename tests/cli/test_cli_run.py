"""`run` and the stage commands: what they hand to the pipeline and what they print of its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from trimtab.cli.options import ExistingRun, StageChoice
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import DEFAULT_RUN, open_run
from trimtab.pipeline.stages import STAGES, plan
from trimtab.runs.files import write_json
from trimtab.runs.progress import progress
from trimtab.runs.run import Existing, Run

ORDER = ["sft", "sample", "label", "pm", "ppo", "dpo", "eval", "report"]


def finish(project: Project, run: Run, stage: str, result: dict[str, Any]) -> None:
    """Leave a stage as its work would: done, under its fingerprint, with a result."""
    state = next(state for state in plan(project, run) if state.name == stage)
    run.begin_stage(stage, state.fingerprint)
    write_json(run.artifact(stage) / "result.json", result)
    run.end_stage(stage, "done")


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stands in for the training: `run_project` and `run_stage` note how they were called and finish stages."""
    calls: list[dict[str, Any]] = []

    def run_project(project: Project, name: str, *, until, start, existing, say, world) -> Run:
        calls.append(
            {"name": name, "until": until, "start": start, "existing": existing, "beta": project.config.ppo.beta}
        )
        run = open_run(project, name, existing)
        for stage in ORDER[: ORDER.index(until or "report") + 1]:
            say(f"{stage}: working")
            finish(project, run, stage, {"stage": stage})
        if until in (None, "report"):
            (run.path / "report.html").write_text("<p>fair wind</p>", encoding="utf-8")
        return run

    def run_stage(project: Project, stage: str, name: str, *, again, say, world) -> Run:
        calls.append({"stage": stage, "name": name, "again": again, "seed": project.config.project.seed})
        run = open_run(project, name)
        accuracy = {"mean": 0.75, "low": 0.61, "high": 0.88, "n": 40}
        finish(project, run, stage, {"pairs": 40, "accuracy": accuracy, "trained": True, "tags": ["a", "b"]})
        return run

    monkeypatch.setattr("trimtab.pipeline.runner.run_project", run_project)
    monkeypatch.setattr("trimtab.pipeline.runner.run_stage", run_stage)
    monkeypatch.setattr("trimtab.report.summary", lambda run: f"Better: {run.name} by 3", raising=False)
    return calls


def test_the_choices_are_those_of_the_pipeline():
    assert [choice.value for choice in StageChoice] == list(STAGES) == ORDER
    assert [choice.value for choice in ExistingRun] == list(get_args(Existing))
    assert DEFAULT_RUN == "main"


def test_run_hands_everything_over_and_prints_the_summary(trimtab, project, pipeline):
    done = trimtab("run", project, "--run", "windy", "--set", "ppo.beta=0.3", "--existing", "fail")
    assert pipeline == [{"name": "windy", "until": None, "start": None, "existing": "fail", "beta": 0.3}]
    assert done.code == 0
    assert done.out == "Better: windy by 3\n"
    assert done.err.splitlines() == [f"{stage}: working" for stage in ORDER]


def test_run_as_json_says_what_ran(trimtab, project, pipeline):
    done = trimtab("run", project, "--until", "label", "--from", "sft", "--json", "--quiet")
    assert (pipeline[0]["until"], pipeline[0]["start"]) == ("label", "sft")
    assert done.err == ""
    found = done.json
    rows = {row["name"]: row for row in found.pop("stages")}
    assert found == {
        "run": "main",
        "path": str(project / "runs" / "main"),
        "dry_run": False,
        "count": 8,
        "truncated": False,
        "summary": "Better: main by 3",
        "report": None,
    }
    assert [name for name, row in rows.items() if row["run"]] == ["sft", "sample", "label"]
    assert rows["label"]["up_to_date"] is True
    assert rows["pm"] == {
        "name": "pm",
        "purpose": STAGES["pm"].purpose,
        "needed": True,
        "status": "pending",
        "up_to_date": False,
        "why": "not run yet",
        "run": False,
    }


def test_run_says_what_is_left(trimtab, project, pipeline):
    assert trimtab("run", project, "--until", "pm").err.splitlines()[-1] == f"next: trimtab run {project} --run main"


def test_run_names_the_report_it_wrote(trimtab, project, pipeline):
    assert trimtab("run", project, "--json").json["report"] == str(project / "runs" / "main" / "report.html")


def test_dry_run_of_a_new_project_runs_nothing(trimtab, project, pipeline):
    done = trimtab("run", project, "--dry-run", "--until", "sample")
    assert (done.code, done.err, pipeline) == (0, "", [])
    assert not (project / "runs").exists()
    lines = [line.split(maxsplit=3) for line in done.out.splitlines()]
    assert lines[0] == ["stage", "status", "runs", "why"]
    assert [(line[0], line[2]) for line in lines[1:]] == [
        (stage, "yes" if stage in ("sft", "sample") else "no") for stage in ORDER
    ]


def rows_of_plan(done: Any) -> dict[str, str]:
    """Of the stages that the settings want."""
    rows = [row for row in done.json["stages"] if row["needed"]]
    return {row["name"]: f"{row['status']} {'runs' if row['run'] else 'stays'}" for row in rows}


def test_dry_run_after_a_changed_setting(trimtab, project, pipeline):
    trimtab("run", project)
    assert set(rows_of_plan(trimtab("run", project, "--dry-run", "--json")).values()) == {"done stays"}
    changed = rows_of_plan(trimtab("run", project, "--dry-run", "--json", "--set", "ppo.beta=0.7"))
    assert [stage for stage, state in changed.items() if state == "done runs"] == ["ppo", "eval", "report"]


@pytest.mark.parametrize(("existing", "name"), [("new", "main-2"), ("overwrite", "main")])
def test_dry_run_of_a_fresh_run_beside_or_over_an_old_one(trimtab, project, pipeline, existing, name):
    trimtab("run", project)
    done = trimtab("run", project, "--dry-run", "--json", "--existing", existing)
    assert (done.json["run"], done.json["path"]) == (name, str(project / "runs" / name))
    assert set(rows_of_plan(done).values()) == {"pending runs"}
    assert [path.name for path in (project / "runs").iterdir()] == ["main"]


def test_dry_run_fails_where_the_run_would(trimtab, project, pipeline):
    trimtab("run", project)
    done = trimtab("run", project, "--dry-run", "--existing", "fail")
    assert done.code == 1
    assert "there is a run of this name" in done.err


def test_dry_run_refuses_a_name_that_no_run_can_have(trimtab, project):
    done = trimtab("run", project, "--dry-run", "--run", "../main")
    assert done.code == 2
    assert "cannot name a run" in done.err


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_silences_narration_and_progress(trimtab, project, pipeline, monkeypatch, quiet):
    def run_stage(project: Project, stage: str, name: str, *, again, say, world) -> Run:
        say("casting off")
        with progress(2, "sailing") as bar:
            bar.advance()
        run = open_run(project, name)
        finish(project, run, stage, {"miles": 3})
        return run

    monkeypatch.setattr("trimtab.pipeline.runner.run_stage", run_stage)
    done = trimtab("sft", project, *(["--quiet"] if quiet else []))
    assert ["miles", "3"] in [line.split() for line in done.out.splitlines()]
    told = done.err
    assert told == "" if quiet else told.startswith("casting off\nsailing: 1/2")


def test_a_stage_that_the_reward_does_without_is_said_to_be(trimtab, project):
    done = trimtab("run", project, "--dry-run", "--set", "ppo.reward=rule:length")
    assert [line.split()[:3] for line in done.out.splitlines() if "not needed" in line] == [
        [stage, "pending", "no"] for stage in ("sample", "label", "pm", "dpo")
    ]


@pytest.mark.parametrize("stage", ORDER)
def test_every_stage_is_a_command(trimtab, project, pipeline, stage):
    command = ["pm", "train"] if stage == "pm" else [stage]
    done = trimtab(*command, project, "--run", "windy", "--set", "project.seed=9", "--again", "--json")
    assert pipeline == [{"stage": stage, "name": "windy", "again": True, "seed": 9}]
    assert done.code == 0
    assert done.json == {
        "run": "windy",
        "path": str(project / "runs" / "windy"),
        "stage": stage,
        "status": "done",
        "attempt": 1,
        "ran": True,
        "result": {
            "pairs": 40,
            "accuracy": {"mean": 0.75, "low": 0.61, "high": 0.88, "n": 40},
            "trained": True,
            "tags": ["a", "b"],
        },
    }


def test_a_stage_prints_its_figures(trimtab, project, pipeline):
    done = trimtab("pm", "train", project)
    assert pipeline[0]["again"] is False
    assert [line.split(maxsplit=1) for line in done.out.splitlines()] == [
        ["figure", "value"],
        ["pairs", "40"],
        ["accuracy", "0.75 [0.61, 0.88]"],
        ["trained", "yes"],
        ["tags", "2 items"],
    ]


def test_a_stage_names_measures_and_shows_their_intervals(trimtab, project, pipeline, monkeypatch):
    def run_stage(project: Project, stage: str, name: str, *, again, say, world) -> Run:
        run = open_run(project, name)
        rate = {"value": 0.6, "low": 0.5, "high": 0.7, "n": 9}
        finish(project, run, stage, {"measures": [{"name": "gold", "ties": 0.25, "win_rate": rate, "matched": None}]})
        return run

    monkeypatch.setattr("trimtab.pipeline.runner.run_stage", run_stage)
    assert [line.split(maxsplit=1) for line in trimtab("eval", project).out.splitlines()[1:]] == [
        ["measures.gold.ties", "0.250"],
        ["measures.gold.win_rate", "0.60 [0.50, 0.70]"],
        ["measures.gold.matched", "-"],
    ]


def test_the_report_stage_prints_the_summary(trimtab, project, pipeline):
    assert trimtab("report", project).out == "Better: main by 3\n"


def test_a_stage_whose_inputs_are_missing_says_what_to_run(trimtab, project):
    done = trimtab("label", project)
    assert done.code == 1
    assert done.err.splitlines()[-1] == f"  run it first: trimtab run {project} --until sample"


def pm_eval_stand_in(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    from trimtab.preference.evaluation import PairMetrics
    from trimtab.stats.intervals import Interval

    calls: list[Any] = []

    def evaluate_preference_model(project: Project, name: str, data: Path | None) -> tuple[Path, PairMetrics, Any]:
        calls.append((name, data))
        metrics = PairMetrics(
            40, 20, Interval(0.75, 0.61, 0.88, 20), 0.08, 0.2, 0.6, 1.25, 0.5, Interval(0.25, 0.1, 0.4, 40)
        )
        same = {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 40}
        beside = {"length": {"correlation": same, "doubling": same, "accuracy": {"all": same}}}
        return data or project.runs / name / "held_out.jsonl", metrics, beside

    monkeypatch.setattr("trimtab.pipeline.evaluate.evaluate_preference_model", evaluate_preference_model)
    return calls


def test_pm_eval_prints_accuracy_and_calibration(trimtab, project, monkeypatch):
    calls = pm_eval_stand_in(monkeypatch)
    done = trimtab("pm", "eval", project, "--run", "windy", "--data", "mine.jsonl")
    assert calls == [("windy", Path("mine.jsonl"))]
    assert done.err == "pairs: mine.jsonl\n"
    found = {line[:13].strip(): line[13:].split("  ")[0].strip() for line in done.out.splitlines()}
    assert found["accuracy"] == "75 % [61, 88]"
    assert found["brier"] == "0.200"
    assert found["log loss"] == "0.600"
    assert found["ece"] == "0.0800"


def test_pm_eval_as_json(trimtab, project, monkeypatch):
    pm_eval_stand_in(monkeypatch)
    found = trimtab("pm", "eval", project, "--json").json
    assert found["data"] == str(project / "runs" / "main" / "held_out.jsonl")
    assert found["accuracy"] == {"mean": 0.75, "low": 0.61, "high": 0.88, "n": 20}
    assert (found["run"], found["pairs"], found["ece"], found["log_loss"]) == ("main", 40, 0.08, 0.6)


def test_pm_eval_without_a_preference_model_says_how_to_get_one(trimtab, project, make_run):
    make_run(project / "runs", "main")
    done = trimtab("pm", "eval", project)
    assert (done.code, done.err.splitlines()[-1]) == (1, f"  trimtab run {project} --run main --until pm")


def test_the_algorithm_says_which_policy_a_run_trains(trimtab, project):
    for wanted, other in (("ppo", "dpo"), ("dpo", "ppo")):
        done = trimtab("run", project, "--dry-run", "--json", "--set", f"project.algorithm={wanted}")
        rows = {row["name"]: row for row in done.json["stages"]}
        assert (rows[wanted]["run"], rows[other]["run"]) == (True, False)
        assert rows[other]["why"] == f'not needed: project.algorithm = "{wanted}"'
    done = trimtab(
        "run", project, "--dry-run", "--json", "--set", "project.algorithm=dpo", "--set", "ppo.reward=rule:length"
    )
    assert [row["name"] for row in done.json["stages"] if not row["needed"]] == ["pm", "ppo"]


@pytest.mark.parametrize(("stage", "other"), [("ppo", "dpo"), ("dpo", "ppo")])
def test_the_commands_ppo_and_dpo_train_what_they_say_whatever_the_setting_is(trimtab, project, pipeline, stage, other):
    done = trimtab(stage, project, "--set", "eval.bootstrap=9")
    assert done.code == 0
    assert ("project.algorithm" in done.err) == (stage == "dpo")  # the setting is ppo
    asked = trimtab(stage, project, "--set", f"project.algorithm={other}", "--quiet")
    assert asked.err.count("project.algorithm") == 0
