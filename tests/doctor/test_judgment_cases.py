"""Judgments and scores of other people: the figures behind each of them are in the case's own description."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from made_up_judgments import look

CASES = Path(__file__).parents[3] / "shared" / "cases"


def _rows(name: str, file: str) -> list[dict[str, Any]]:
    path = CASES / name / file
    if not path.exists():
        pytest.skip(f"{path} is not here")
    text = path.read_text(encoding="utf-8")
    if file.endswith(".csv"):
        return list(csv.DictReader(text.splitlines()))
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def test_a_judge_that_goes_by_the_place() -> None:
    findings = look(_rows("judgebench_judge_haiku", "judgments.jsonl"))[0]
    share = findings["judge-position-bias"].evidence[0].text.values
    alike = findings["judge-inconsistency"].evidence[0].text.values
    # figures of the case: p_first .6328 (212 of 335), z 4.86, consistency .5253 of 257
    assert (round(share["value"], 4), share["n"], round(share["z"], 2)) == (0.6328, 335, 4.86)
    assert (round(alike["value"], 4), alike["n"]) == (0.5253, 257)


@pytest.mark.parametrize(
    ("name", "loud"),
    [
        ("judgebench_rm_internlm20b", {"pm-low-accuracy"}),
        ("judgebench_rm_skywork8b", {"pm-low-accuracy", "pm-miscalibrated"}),
    ],
)
def test_scalar_models_are_weak_and_no_judges(name: str, loud: set[str]) -> None:
    findings = look(_rows(name, "judgments.jsonl"))[0]
    assert {id for id, f in findings.items() if f.severity.loud} == loud


def test_folds() -> None:
    findings = look(_rows("rlaif_rm_lowacc_gca", "rm_kfold.jsonl"))[0]
    assert {id for id, f in findings.items() if f.severity.loud} == {"pm-low-accuracy"}


def test_statistics_of_one_judge() -> None:
    findings = look(_rows("t_fastchat3911_judge", "log.jsonl"))[0]
    assert {id for id, f in findings.items() if f.severity.loud} == {"judge-length-bias", "judge-self-preference"}


def test_a_leaderboard_of_judges_is_never_critical() -> None:
    findings = look(_rows("alpacaeval_annotator_stats", "evaluators_leaderboard.csv"))[0]
    assert findings
    assert all(f.severity.value != "critical" for f in findings.values())
