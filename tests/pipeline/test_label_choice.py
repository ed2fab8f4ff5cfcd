"""The label stage with a part of the pairs, and with a second opinion on the labels."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli.main import main
from trimtab.data.pairs import read_candidates, read_pairs
from trimtab.data.prompts import write_prompts
from trimtab.errors import TrimtabError
from trimtab.labeling import label_pairs
from trimtab.labeling.local import LikelihoodJudge
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.labels import estimate_stage
from trimtab.pipeline.preflight import check
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import plan_run, run_project, run_stage
from trimtab.report import write
from trimtab.runs.run import Run
from trimtab.stats.intervals import wilson
from trimtab.worlds import tiny
from trimtab.worlds.model import build_model, build_tokenizer

SETTINGS = """
[project]
threads = 1
[model]
name = "model"
[sample]
source = "contrast"
pairs_per_prompt = 2
batch_size = 64
max_new_tokens = 8
[label]
judge = "construction"
batch_size = 64
[eval]
measures = ["rule:length"]
max_new_tokens = 8
[ppo]
max_new_tokens = 8
"""
CONSTITUTION = """
name = "one"
[[principles]]
id = "polite"
text = "Be polite."
reading = "please"
opposite = "fool"
"""
CHAT = "{% for m in messages %}{{ m.content }} {% endfor %}"


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of an untrained model that takes chat turns for plain text; 40 contrast pairs of 20 prompts."""
    root = tmp_path_factory.mktemp("sampled")
    tokenizer = build_tokenizer()
    build_model(0).save_pretrained(root / "model")
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(root / "model")
    write_prompts(root / "prompts.jsonl", tiny.prompts(20, 1))
    write_prompts(root / "prompts_held_out.jsonl", tiny.prompts(28, 1)[20:])
    (root / "trimtab.toml").write_text(SETTINGS)
    (root / "constitution.toml").write_text(CONSTITUTION)
    run_project(Project.open(root), until="sample")
    return root


@pytest.fixture
def project(sampled: Path, tmp_path: Path) -> Path:
    shutil.copytree(sampled, tmp_path / "p")
    return tmp_path / "p"


def labeled(root: Path, *settings: str) -> dict[str, Any]:
    run_stage(Project.open(root, list(settings)), "label", again=True)
    found: dict[str, Any] = json.loads((root / "runs/main/artifacts/label/result.json").read_text())
    return found


def label_lines(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "runs/main/artifacts/label/labels.jsonl").read_text().splitlines()]


def verdicts_of(root: Path, judge: str) -> int:
    with sqlite3.connect(root / "labels.sqlite") as store:
        return int(store.execute("SELECT COUNT(*) FROM verdicts WHERE judge = ?", (judge,)).fetchone()[0])


@pytest.mark.parametrize("how", ["random", "active"])
def test_only_the_budget_is_labeled_and_learned_from(project: Path, how: str) -> None:
    found = labeled(project, f"label.choose={how}", "label.budget_pairs=24")
    assert (found["candidates"], found["choose"], found["labels"]) == (40, how, 24)
    assert verdicts_of(project, "construction") == 24
    lines = label_lines(project)
    order = [p.id for p in read_candidates(project / "runs/main/artifacts/sample/pairs.jsonl")]
    ids = [line["pair_id"] for line in lines]
    assert ids == [i for i in order if i in set(ids)]
    assert {p.id for p in read_pairs(project / "runs/main/artifacts/label/pairs.jsonl")} == set(ids)
    page = write(Run.open(project / "runs" / "main")).read_text()
    assert "pairs in all" in page
    assert {"random": "by chance", "active": "expected to tell"}[how] in page
    # the same again chooses the same and asks nothing
    labeled(project, f"label.choose={how}", "label.budget_pairs=24")
    assert [line["pair_id"] for line in label_lines(project)] == ids
    assert verdicts_of(project, "construction") == 24


def test_a_dry_run_counts_only_the_budget(project: Path) -> None:
    opened = Project.open(project, ["label.choose=active", "label.budget_pairs=7"])
    (one,) = estimate_stage(Workshop(opened, Run.open(project / "runs" / "main")))
    assert (one.questions, one.calls) == (7, 7)


def test_the_command_takes_the_budget_and_set_may_choose_otherwise(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["label", str(project), "--pairs", "6", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["calls"] == 6
    assert main(["label", str(project), "--pairs", "6", "--set", "label.choose=random", "--quiet"]) == 0
    found = json.loads((project / "runs/main/artifacts/label/result.json").read_text())
    assert (found["choose"], found["labels"]) == ("random", 6)


def test_the_second_opinion_is_that_of_the_likelihood_judge_on_so_many_labels(project: Path) -> None:
    plain = labeled(project)
    assert plain["second_opinion"] == {}
    before = label_lines(project)
    found = labeled(project, "label.audit_sample=12")
    opinion = found["second_opinion"]
    assert label_lines(project) == before
    assert (opinion["judge"], opinion["n"], opinion["answered"]) == ("likelihood", 12, 12)
    assert verdicts_of(project, "likelihood") == 12
    # derived again: the judge on all pairs, and its agreement on those that are recorded
    shop = Workshop(Project.open(project), Run.open(project / "runs" / "main"))
    candidates = read_candidates(project / "runs/main/artifacts/sample/pairs.jsonl")
    model, codec = shop.reference()
    theirs = label_pairs(candidates, LikelihoodJudge(model, codec, "again"), shop.project.constitution)
    same = {y.pair_id: (y.p_first - 0.5) * (line["p_first"] - 0.5) > 0 for y, line in zip(theirs, before, strict=True)}  # type: ignore[operator]
    share = opinion["agreement"]
    k = share["mean"] * 12
    assert k == pytest.approx(round(k), abs=1e-9)
    # twelve of twenty prompts: each gives one, so the interval is Wilson's
    assert [share["low"], share["high"]] == pytest.approx(list(wilson(round(k), 12)[1:3]), abs=1e-12)
    whole = labeled(project, "label.audit_sample=1000")["second_opinion"]
    assert whole["n"] == 40
    assert whole["agreement"]["mean"] == pytest.approx(sum(same.values()) / 40, abs=1e-12)
    # two labels of one prompt: their scatter counts
    assert (whole["agreement"]["low"], whole["agreement"]["high"]) != tuple(wilson(sum(same.values()), 40)[1:3])


def test_the_report_says_what_construction_means_and_what_the_second_judge_thinks(project: Path) -> None:
    found = labeled(project, "label.audit_sample=12")["second_opinion"]["agreement"]
    page = write(Run.open(project / "runs" / "main")).read_text()
    assert "whatever people would prefer" in page
    assert "The likelihood judge, asked about 12 of the labels, agrees with" in page
    assert f"{100 * found['mean']:.0f}" in page
    guess = found["low"] < 0.5 < found["high"]
    assert ("That cannot be told from guessing" in page) == guess
    assert math.isfinite(found["low"])


def test_asking_for_a_second_opinion_is_no_reason_to_label_again(project: Path) -> None:
    labeled(project)
    assert {s.name for s in plan_run(Project.open(project, ["label.audit_sample=5"]), until="label")} == set()
    chosen = ["label.choose=random", "label.budget_pairs=3"]
    assert {s.name for s in plan_run(Project.open(project, chosen), until="label")} == {"label"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["label.choose=active"], "need budget_pairs"),
        (["label.budget_pairs=5"], "need budget_pairs"),
        (["label.judge=likelihood", "label.audit_sample=5"], "the judge itself"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(project: Path, settings: list[str], message: str) -> None:
    with pytest.raises(TrimtabError, match=message):
        Project.open(project, settings)


def test_a_second_opinion_that_cannot_be_had_is_refused_before_anybody_is_asked(project: Path) -> None:
    with pytest.raises(TrimtabError, match=r"label.audit_sample = 5 .* no chat template"):
        check(Project.open(project, ["label.audit_sample=5", "model.chat_template=off"]), ["label"])
    (project / "constitution.toml").write_text(CONSTITUTION.split("reading")[0])
    with pytest.raises(TrimtabError, match=r"label.audit_sample = 5 .* of polite there is none"):
        check(Project.open(project, ["label.audit_sample=5"]), ["label"])
