"""`labels audit`: what it reads, what it prints, what it refuses."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from labeling.verdict_draws import draw_records
from labeling_fakes import ScriptedJudge, candidate, two_principles
from trimtab.cli import labels
from trimtab.cli.main import app
from trimtab.config.schema import Config
from trimtab.data.pairs import write_candidates
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import JudgeIdentity, Outcome, Verdict
from trimtab.labeling.store import LabelStore
from trimtab.runs.run import Run


@pytest.fixture(autouse=True)
def registered():
    if not any(group.name == "labels" for group in app.registered_groups):
        labels.register(app)


@pytest.fixture
def verdicts(tmp_path):
    """A file of two judges: one leans to the first response, one is honest."""
    rng = np.random.default_rng(0)
    records = draw_records(rng, 200, judge="leaning", position=0.4) + draw_records(rng, 200, judge="fair", accuracy=0.9)
    for r in records:
        r["slice"] = f"chat/{'short' if r['length_1'] < 140 else 'long'}"
    path = tmp_path / "verdicts.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_a_line_a_judge_comes_first(trimtab, verdicts):
    done = trimtab("labels", "audit", verdicts, "--resamples", 50)
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("leaning: ")
    assert re.search(r"position-bias: 70\S* % \[[\d.]+, [\d.]+\] for the response shown first", lines[0])
    assert lines[1].startswith("fair: agrees with the reference in ")
    assert "position-bias" not in lines[1].split("nothing found in")[0]
    assert "could have shown" in done.out
    assert "chat/short" in done.out
    assert "Cohen's kappa" in done.out
    assert "needs" in done.out
    assert max(map(len, lines)) < 400


def test_json_has_what_the_contract_says(trimtab, verdicts):
    found = trimtab("labels", "audit", verdicts, "--json", "--resamples", 50).json
    leaning = found["judges"]["leaning"]
    assert leaning["n"] == 400
    assert 0.6 < leaning["first_share"] < 0.8
    assert leaning["checks"]["position-bias"]["status"] == "biased"
    assert leaning["slices"]["chat"]["n"] == 400
    assert leaning["slices"]["chat/short"].keys() >= {"n", "accuracy", "inconsistent_rate", "first_share"}
    assert found["agreement"]["pairwise"][0]["cohen_kappa"] is not None


def test_the_seed_decides_the_bootstrap(trimtab, verdicts):
    def run(seed):
        return trimtab("labels", "audit", verdicts, "--json", "--seed", seed, "--resamples", 60).out

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_one_judge_can_be_chosen(trimtab, verdicts):
    found = trimtab("labels", "audit", verdicts, "--judge", "fair", "--json", "--resamples", 20).json
    assert list(found["judges"]) == ["fair"]
    done = trimtab("labels", "audit", verdicts, "--judge", "fare")
    assert done.code == 2
    assert "did you mean 'fair'" in done.err


def test_names_from_a_file_cannot_speak_to_the_terminal(trimtab, tmp_path):
    path = tmp_path / "v.jsonl"
    path.write_text(json.dumps({"pair_id": "p", "judge": "\x1b]0;owned\x07[red]", "winner": 1, "slice": "\x1b[2J"}))
    done = trimtab("labels", "audit", path)
    assert done.code == 0
    assert "\x1b" not in done.out + done.err
    assert "[red]" in done.out


def test_broken_files_are_named(trimtab, tmp_path):
    path = tmp_path / "v.jsonl"
    path.write_text('{"pair_id": "p", "judge": "j", "winner": 5}')
    done = trimtab("labels", "audit", path)
    assert done.code == 1
    assert f"{path}, line 1: winner is 5" in done.err
    assert done.out == ""
    error = trimtab("labels", "audit", tmp_path / "none", "--json")
    assert error.code == 1
    assert "No such file" in error.out + error.err


def test_a_directory_that_is_no_project(trimtab, tmp_path):
    done = trimtab("labels", "audit", tmp_path)
    assert done.code == 2
    assert "no verdict file, no project and no run" in done.err


def test_a_project_without_labels(trimtab, project):
    done = trimtab("labels", "audit", project)
    assert done.code == 1
    assert "trimtab label" in done.err


def test_the_canary_needs_a_judge(trimtab, verdicts):
    done = trimtab("labels", "audit", verdicts, "--canary")
    assert done.code == 2
    assert "is a file" in done.err


@pytest.fixture
def labeled(tmp_path):
    """A project with a run that sampled pairs, and the verdicts of one judge on them."""
    (tmp_path / "trimtab.toml").write_text('[model]\nname = "tiny-world"\n')
    pairs = [candidate(i, f"a real response {i}", f"another response {i}") for i in range(60)]
    run = Run.create(tmp_path / "runs", "main", config=Config().model_dump(mode="json"), seed=0)
    run.artifact("sample").mkdir(parents=True, exist_ok=True)
    write_candidates(run.artifact("sample") / "pairs.jsonl", pairs)
    with LabelStore(tmp_path / "labels.sqlite") as store:
        label_pairs(pairs, reader(), two_principles(tmp_path), store=store)
    return tmp_path


def reader(name="scripted"):
    """Prefers the longer response."""

    def answer(request):
        first, second = (len(r.text) for r in (request.pair.first, request.pair.second))
        return Verdict(Outcome.OK, 0.9 if first > second else 0.1)

    return ScriptedJudge(answer, identity=JudgeIdentity(name, "v1"))


def test_the_canary_asks_the_projects_judges_once_and_stays_out_of_the_verdicts(trimtab, labeled, monkeypatch):
    judge, stranger = reader(), reader("stranger")
    monkeypatch.setattr("trimtab.pipeline.build.Workshop.judges", lambda shop: [stranger, judge])
    arguments = ("labels", "audit", labeled, "--canary", "--canary-pairs", 20, "--json", "--resamples", 20)
    found = trimtab(*arguments).json
    assert len(judge.asked) == 20 * 3 * 2
    assert not stranger.asked
    check = found["judges"]["scripted"]["checks"]["null-response"]
    # the null response that is longer than the real one wins in one of three
    assert check["effect"] == pytest.approx(1 / 3)
    assert check["status"] == "poor"
    again = trimtab(*arguments).json
    assert len(judge.asked) == 120
    assert again["n"] == found["n"] == 120


def test_the_canary_names_the_judges_where_none_of_them_labeled(trimtab, labeled, monkeypatch):
    monkeypatch.setattr("trimtab.pipeline.build.Workshop.judges", lambda shop: [reader("stranger")])
    done = trimtab("labels", "audit", labeled, "--canary")
    assert done.code == 2
    assert "there are verdicts of scripted" in done.err
