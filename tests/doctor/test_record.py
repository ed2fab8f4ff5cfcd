"""The diagnosis as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from made_up_diagnoses import inconclusive, log, sick
from trimtab.doctor.record import as_dict, finding_dict


def test_the_promised_keys_are_there():
    record = as_dict(sick())
    assert (record["status"], record["root_cause"]) == ("sick", "length-exploitation")
    first = record["findings"][0]
    assert (first["id"], first["severity"], first["onset_step"]) == ("length-exploitation", "critical", 64)
    assert first["cause"].startswith("The score pays for length")
    assert first["prescriptions"][0]["set"] == {"beta": 0.08}
    assert first["prescriptions"][0]["why"].startswith("A stronger tie")
    assert first["evidence"][0]["text"] == "Responses grew from 212 to 903 tokens."
    assert {"id": "value-not-learning", "missing": ["val/explained_variance"], "reason": "missing"} in record[
        "not_diagnosable"
    ]
    assert record["log"]["format"] == "hf-log-history"
    assert record["log"]["steps"] == [1, 200]
    assert record["log"]["skipped"][0]["count"] == 3
    assert record["log"]["unmapped_keys"] == ["my_metric", "lr_group_2"]


def test_it_is_strict_json_whatever_the_log_held():
    root = sick().findings[0]
    lost = replace(root.evidence[0], value=float("nan"), curve=(1.0, float("inf"), 2 / 3))
    record = as_dict(replace(sick(), findings=(replace(root, evidence=(lost,)),)))
    text = json.dumps(record, allow_nan=False)
    told = json.loads(text)["findings"][0]["evidence"][0]
    assert (told["value"], told["curve"]) == (None, [1.0, None, 0.666667])


def test_without_logs_every_key_is_still_there():
    record = as_dict(inconclusive())
    assert record["log"] == {"format": "jsonl", "steps": None, "rows": 0, "skipped": [], "unmapped_keys": []}
    assert record["findings"] == []


def test_several_logs_are_told_one_by_one_and_as_a_whole():
    other = replace(log("verl", "b.jsonl"), format="verl-jsonl", steps=(150, 900), unmapped=("x", "my_metric"))
    both = replace(sick(), logs=(*sick().logs, other), formats={"a": "hf-log-history", "b.jsonl": "verl-jsonl"})
    record = as_dict(both)
    assert record["log"]["steps"] == [1, 900]
    assert record["log"]["format"] == "hf-log-history, verl-jsonl"
    assert record["log"]["unmapped_keys"] == ["my_metric", "lr_group_2", "x"]
    assert [entry["path"] for entry in record["logs"]] == ["runs/grpo/trainer_state.json", "b.jsonl"]


@pytest.mark.parametrize(("lang", "verdict"), [("en", "Sick: length"), ("zh", "异常：length")])
def test_sentences_follow_the_language_and_ids_do_not(lang: str, verdict: str):
    record = as_dict(sick(), lang)
    assert record["verdict"].startswith(verdict)
    assert record["status"] == "sick"


def test_the_line_of_a_fix_follows_the_framework():
    root = sick().findings[0]
    assert finding_dict(root)["prescriptions"][0]["line"] == "--set beta=0.08"
    assert finding_dict(root, framework="trl")["prescriptions"][0]["line"] == "beta=0.08"
