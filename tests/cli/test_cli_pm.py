"""`trimtab pm calibrate`: what it prints, as text and as JSON, and what it keeps."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

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
    assert (_calibration(facts) or "").startswith("temperature, temperature 2.")
    assert "fitted on 300 pairs; ECE 0.1" in (_calibration(facts) or "")
    kept.write_text("{")
    assert _calibration(facts) == "cannot be read"


def test_calibrate_as_json(trimtab, calibrated):
    found = trimtab("pm", "calibrate", calibrated, "--method", "isotonic", "--json").json
    assert (found["run"], found["method"], found["asked"], found["pairs"]) == ("main", "isotonic", "isotonic", 300)
    assert found["change"]["log_loss"]["high"] < 0
    assert len(found["reliability"]["after"]) == 10


def test_a_method_that_is_none_is_a_usage_error(trimtab, project):
    assert trimtab("pm", "calibrate", project, "--method", "magic").code == 2


def test_calibrate_without_a_model_says_how_to_get_one(trimtab, project, make_run):
    make_run(project / "runs", "main")
    done = trimtab("pm", "calibrate", project)
    assert (done.code, done.err.splitlines()[-1]) == (1, f"  trimtab run {project} --run main --until pm")
