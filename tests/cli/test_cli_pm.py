"""`trimtab pm calibrate` and `trimtab pm probe`: what they print, as text and as JSON, and what is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trimtab import preference
from trimtab.data.pairs import write_pairs
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.pipeline.pm_doctor import seen_by_the_doctor
from trimtab.pipeline.project import Project
from trimtab.pipeline.stages import plan
from trimtab.preference import Calibration
from trimtab.preference.calibrating import CalibrationReport, calibrate_margins
from trimtab.report.chain import _calibration
from trimtab.report.facts import read_facts
from trimtab.runs.run import Run


@pytest.fixture
def calibrated(project, make_run, monkeypatch):
    """A project whose preference model is stood in for by margins: three times the log-odds."""
    make_run(project / "runs", "main")

    def calibrate(opened, name, data, method) -> tuple[Path, Path, CalibrationReport]:
        rng = np.random.default_rng(0)
        logit = rng.normal(0, 1.5, 300)
        margins = 3 * np.where(rng.random(300) < 1 / (1 + np.exp(-logit)), logit, -logit)
        report = calibrate_margins(margins, np.ones(300), np.arange(300), method, resamples=50)
        directory = Run.open(opened.runs / name).artifact("pm") / "model"
        directory.mkdir(parents=True)
        return data or Path("held_out.jsonl"), report.save(directory, "abc"), report

    monkeypatch.setattr("trimtab.pipeline.evaluate.calibrate_preference_model", calibrate)
    return project


def test_calibrate_says_first_whether_it_helped_and_where_it_is_kept(trimtab, calibrated):
    done = trimtab("pm", "calibrate", calibrated)
    assert done.code == 0
    assert done.out.splitlines()[0].startswith("Calibrated by temperature (temperature ")
    assert "overconfident, and calibrating them helps" in done.out.splitlines()[0]
    assert {line.split("  ")[0] for line in done.out.splitlines()} >= {"ece", "brier", "log loss"}
    kept = calibrated / "runs" / "main" / "artifacts" / "pm" / "model" / "calibration.json"
    assert json.loads(kept.read_text())["data"] == "abc"
    assert done.err.splitlines() == ["pairs: held_out.jsonl", f"kept in {kept}"]
    facts = read_facts(Run.open(calibrated / "runs" / "main"))
    assert (_calibration(facts) or "").startswith("temperature, T 2.")
    kept.write_text("{")
    assert _calibration(facts) == "cannot be read"


def test_calibrate_as_json(trimtab, calibrated):
    found = trimtab("pm", "calibrate", calibrated, "--method", "isotonic", "--json").json
    assert (found["run"], found["method"], found["asked"], found["pairs"]) == ("main", "isotonic", "isotonic", 300)
    assert found["change"]["log_loss"]["high"] < 0
    assert len(found["reliability"]["after"]) == 10


def test_the_reliability_diagram_is_drawn_where_it_is_asked_for(trimtab, calibrated, tmp_path):
    picture = tmp_path / "deep" / "reliability.svg"
    done = trimtab("pm", "calibrate", calibrated, "--plot", picture)
    assert (done.code, done.err.splitlines()[-1]) == (0, f"drawn in {picture}")
    assert picture.read_text().startswith("<svg xmlns=")
    assert "before calibration, ECE 0.1" in picture.read_text()


@pytest.mark.parametrize("name", ["picture.png", "picture", ".svg/b"])
def test_a_picture_of_another_kind_is_refused_before_anything_is_calibrated(trimtab, calibrated, tmp_path, name):
    done = trimtab("pm", "calibrate", calibrated, "--plot", tmp_path / name)
    assert done.code == 2
    assert "ends in .svg" in done.err
    assert not (calibrated / "runs" / "main" / "artifacts" / "pm" / "model").exists()


def test_a_method_that_is_none_is_a_usage_error(trimtab, project):
    assert trimtab("pm", "calibrate", project, "--method", "magic").code == 2


def test_calibrate_without_a_model_says_how_to_get_one(trimtab, project, make_run):
    make_run(project / "runs", "main")
    done = trimtab("pm", "calibrate", project)
    assert (done.code, done.err.splitlines()[-1]) == (1, f"  trimtab run {project} --run main --until pm")


# probe


class Flattered:
    """Pays for the answer's number, and two for being called brilliant."""

    name = "flattered"

    def score(self, prompts, responses):
        return np.array(
            [float(f"answer{p.id}" in r.text) + 2.0 * ("brilliant" in r.text) + 0.01 * (len(r.text) % 7)
             for p, r in zip(prompts, responses, strict=True)]
        )  # fmt: skip


class Honest(Flattered):
    def score(self, prompts, responses):
        return np.array([float(f"answer{p.id}" in r.text) for p, r in zip(prompts, responses, strict=True)])


@pytest.fixture
def probed(project, make_run, monkeypatch):
    """A project whose preference model is the scorer that the test puts in."""

    def put(scorer) -> None:
        held_out = make_run(project / "runs", "main").artifact("pm") / "held_out.jsonl"
        held_out.parent.mkdir(parents=True)
        write_pairs(held_out, some_pairs())
        scorer.combination = ""

        def found(opened, name, data):
            return held_out, some_pairs(), scorer

        monkeypatch.setattr("trimtab.pipeline.probing.preference_model_and_pairs", found)

    return put


def some_pairs() -> list[Pair]:
    return [
        Pair(f"p{i}", Prompt(str(i), (Message("user", f"Say {i}."),)), Response(f"It is answer{i}, as he says."),
             Response(f"It is other{i}, as she says."))
        for i in range(40)
    ]  # fmt: skip


def test_probe_names_the_fault_first_and_exits_as_sick(trimtab, project, probed):
    probed(Flattered())
    done = trimtab("pm", "probe", project, "--responses", "20")
    assert done.code == 3
    assert done.out.splitlines()[0].startswith("Sick: style-exploitation (80 responses, 20 of them edited, 40 pairs)")
    assert "praise" in done.out.splitlines()[1]
    assert "trimtab explain style-exploitation" in done.out
    assert any(line.startswith("bulletise") or line.startswith("praise") for line in done.out.splitlines())


def test_probe_as_json_and_healthy(trimtab, project, probed):
    probed(Honest())
    done = trimtab("pm", "probe", project, "--responses", "20", "--json")
    found = done.json
    assert (done.code, found["status"], found["faults"]) == (0, "healthy", [])
    assert found["accuracy"]["mean"] == 1.0
    assert {e["name"] for e in found["edits"]} >= {"praise", "apology", "truncate", "swap an identity"}


def test_probe_takes_edits_and_training_pairs_from_files(trimtab, project, probed, tmp_path):
    probed(Flattered())
    edits, training = tmp_path / "edits.toml", tmp_path / "training.jsonl"
    edits.write_text('[[edits]]\nname = "marvel"\nkind = "style"\nappend = "a brilliant day"\n')
    write_pairs(training, [replace(p, id=f"{p.id}/{i}") for i in range(3) for p in some_pairs()])
    done = trimtab(
        "pm", "probe", project, "--responses", "20", "--edits", edits, "--training", training, "--json"
    )  # fmt: skip
    found = {f["id"]: f["evidence"] for f in done.json["faults"]}
    assert "marvel +" in found["style-exploitation"]
    assert "66.7% of 120 pairs repeat an earlier one" in found["low-diversity"]
    edits.write_text("loud = 1")
    done = trimtab("pm", "probe", project, "--edits", edits)
    assert (done.code, f"{edits}: unknown key 'loud'" in done.err) == (1, True)


def test_the_doctor_sees_the_scores_of_the_pairs():
    report = preference.probe(Wrong(), some_pairs() * 3, most=10, resamples=20)
    seen = {f.id: f for f in seen_by_the_doctor(some_pairs() * 3, report.pair_scores)}
    assert seen["pm-low-accuracy"].severity == "critical"
    assert seen["pm-low-accuracy"].evidence
    both = report.with_faults(list(seen.values()))
    assert both.status == "sick"
    assert both.faults[0].severity == "critical"


class Wrong(Flattered):
    def score(self, prompts, responses):
        numbers = (hash_of(p.id, r.text) for p, r in zip(prompts, responses, strict=True))
        return np.array([x - 0.6 * ("answer" in r.text) for x, r in zip(numbers, responses, strict=True)])


def hash_of(*texts: str) -> float:
    return int(hashlib.sha256("|".join(texts).encode()).hexdigest()[:8], 16) / 2**32


def test_a_model_by_itself_needs_pairs_and_a_directory_needs_a_model(trimtab, tmp_path):
    done = trimtab("pm", "probe", tmp_path)
    assert (done.code, "neither a project (trimtab.toml) nor a model (config.json)" in done.err) == (2, True)
    (tmp_path / "config.json").write_text("{}")
    done = trimtab("pm", "probe", tmp_path)
    assert (done.code, "--data FILE" in done.err) == (2, True)


def test_ppo_is_out_of_date_after_a_calibration_that_it_reads_and_only_then(project, make_run):
    run = make_run(project / "runs", "main")

    def fingerprints(*settings: str) -> dict[str, str]:
        return {state.name: state.fingerprint for state in plan(Project.open(project, settings), run)}

    wins, scaled = "ppo.score_transform=win_probability", "preference.calibrated_score=true"
    before = [fingerprints(), fingerprints(wins), fingerprints(scaled)]
    Calibration("temperature", 2.0, 0.5).save(run.artifact("pm") / "model")
    after = [fingerprints(), fingerprints(wins), fingerprints(scaled)]
    assert before[0] == after[0]
    for old, new in zip(before[1:], after[1:], strict=True):
        assert {name for name in old if old[name] != new[name]} == {"ppo", "eval", "report"}
    assert before[0]["pm"] == before[2]["pm"]
    assert before[0]["ppo"] != before[2]["ppo"]
