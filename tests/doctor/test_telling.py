"""The verdict sentence, the story as a tree, fixes as lines, sparklines."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_up_diagnoses import healthy, inconclusive, log, series, sick
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable, Prescription, Severity
from trimtab.doctor.log import Unit
from trimtab.doctor.telling import alarm_line, fix_line, gaps, log_of, place, series_of, sparkline, story, verdict, walk


def finding(name: str, because: str | None = None, where: str = "") -> Finding:
    return Finding(name, Severity.WARNING, 1, (), Message("m"), because_of=because, where=where)


def shape(nodes) -> list[object]:
    return [[node.finding.id, *shape(node.below)] for node in nodes]


def test_the_verdict_of_a_sick_run_counts_consequences_and_other_findings():
    assert verdict(sick()) == "Sick: length-exploitation since step 64; 3 consequences."
    extra = replace(sick(), findings=(*sick().findings, finding("no-gradient")))
    assert verdict(extra) == "Sick: length-exploitation since step 64; 3 consequences; 1 other finding."
    assert verdict(extra, "zh") == "异常：length-exploitation，始于第 64 步；3 项后果；另有 1 项发现。"


def test_one_consequence_is_one_and_no_step_is_no_step():
    two = (replace(finding("a"), onset_step=None), finding("b", "a"))
    assert verdict(replace(sick(), findings=two, root_cause="a")) == "Sick: a; 1 consequence."


def test_the_verdicts_that_are_not_sick_say_how_much_was_checked():
    assert verdict(healthy()) == "Healthy: no check raised an alarm (made: 2, not possible: 0)."
    hint = replace(healthy(), findings=(replace(finding("a"), severity=Severity.INFO),))
    assert verdict(hint).endswith("; 1 thing noted.")
    assert verdict(inconclusive()).startswith("Inconclusive: too little could be read")


def test_consequences_hang_under_their_cause():
    found = [finding("a"), finding("b", "a"), finding("c", "b"), finding("d", "a"), finding("e", "gone"), finding("f")]
    assert shape(story(found)) == [["a", ["b", ["c"]], ["d"]], ["e"], ["f"]]


def test_a_cause_in_the_same_file_goes_first():
    found = [finding("a", where="x"), finding("a", where="y"), finding("b", "a", "y"), finding("c", "a", "z")]
    assert shape(story(found)) == [["a", ["c"]], ["a", ["b"]]]


@given(st.integers(0, 7), st.randoms(use_true_random=False))
def test_every_finding_is_told_once_whatever_the_causes_say(n: int, rng: random.Random):
    """Circles, causes of oneself and repeated ids included."""
    found = [finding(f"f{rng.randrange(4)}", rng.choice([None, *(f"f{i}" for i in range(5))])) for _ in range(n)]
    told = [node.finding for node in walk(story(found))]
    assert sorted(map(id, told)) == sorted(map(id, found))


@pytest.mark.parametrize(
    ("framework", "settings", "line"),
    [
        ("trimtab", {"ppo.beta": 0.2}, "--set ppo.beta=0.2"),
        ("trimtab", {"ppo.beta": 0.2, "ppo.epochs": 2}, "--set ppo.beta=0.2 --set ppo.epochs=2"),
        ("trimtab", {"ppo.learning_rate": "x0.5"}, "ppo.learning_rate x0.5"),
        ("trimtab", {"ppo.value_normalisation": True}, "--set ppo.value_normalisation=true"),
        ("trimtab", {"ppo.kl_controller": "adaptive"}, "--set ppo.kl_controller=adaptive"),
        ("trl", {"learning_rate": 5e-7}, "learning_rate=5e-07"),
        ("openrlhf", {"--init_kl_coef": 0.02}, "--init_kl_coef 0.02"),
        ("verl", {"actor.optim.lr": 1e-6}, "actor.optim.lr=1e-06"),
        ("trl", {"loss_type": "a b; rm -rf x"}, "loss_type='a b; rm -rf x'"),
        ("trl", {}, ""),
    ],
)
def test_a_fix_is_a_line_to_copy(framework: str, settings: dict[str, object], line: str):
    assert fix_line(Prescription(settings, Message("m")), framework) == line


def test_a_command_goes_before_settings():
    assert (
        fix_line(Prescription({"a": 1}, Message("m"), "trimtab run . --set a=2"), "trimtab")
        == "trimtab run . --set a=2"
    )


def test_gaps_are_grouped_by_what_is_missing_and_the_most_useful_comes_first():
    items = [
        NotDiagnosable("a", ("x",)),
        NotDiagnosable("b", ("y",)),
        NotDiagnosable("c", ("y",)),
        NotDiagnosable("d", ("y",), "unit-unknown"),
    ]
    assert [(gap.missing, gap.ids, gap.reason) for gap in gaps(items)] == [
        (("y",), ("b", "c"), "missing"),
        (("x",), ("a",), "missing"),
        (("y",), ("d",), "unit-unknown"),
    ]


def test_a_finding_knows_its_log_and_evidence_its_series():
    diagnosis = sick()
    root = diagnosis.findings[0]
    found = series_of(root.evidence[0], root, diagnosis)
    assert found is not None
    assert found.key == "response/length_mean"
    assert series_of(root.evidence[1], root, diagnosis) is None
    other = log("verl", "other.log")
    two = replace(diagnosis, logs=(other, *diagnosis.logs))
    assert log_of(root, two) is None
    assert log_of(replace(root, where="other.log (policy)"), two) is other
    assert series_of(Evidence(Message("m"), "policy/entropy"), replace(root, where="other.log"), two) is not None


@pytest.mark.parametrize(
    ("paths", "where", "shown"),
    [
        (["runs/main [pm]", "runs/main [ppo]"], "runs/main [ppo] (policy)", "[ppo] (policy)"),
        (["a/b/label.jsonl", "a/b/last.json"], "a/b/last.json (policy)", "last.json (policy)"),
        (["x.json", "y.json"], "y.json (pm)", "y.json (pm)"),
        (["x.json"], "x.json (pm)", ""),
        (["x.json", "y.json"], "", ""),
    ],
)
def test_a_place_is_told_without_what_all_have_in_common(paths: list[str], where: str, shown: str):
    diagnosis = replace(sick(), formats=dict.fromkeys(paths, "trimtab"))
    assert place(replace(sick().findings[0], where=where), diagnosis) == shown


def test_of_two_series_of_one_column_the_evidence_has_the_one_that_it_speaks_of():
    finished = series("response/finished_fraction", "finished", np.full(200, 0.1), Unit.FRACTION)
    cut = series("response/truncated_fraction", "finished", np.full(200, 0.9), Unit.FRACTION)
    of = replace(log(), series={s.key: s for s in (finished, cut)})
    diagnosis = replace(sick(), logs=(of,))
    told = [Evidence(Message("m"), "finished", curve=curve) for curve in ((0.9, 0.9), (0.1, math.nan, 0.1), ())]
    assert [series_of(e, sick().findings[0], diagnosis) for e in told] == [cut, finished, finished]


def test_a_sparkline_rises_with_its_curve():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([7, 0], ascii_only=True) == "#_"
    assert sparkline([3, 3, 3]) == "▅▅▅"
    assert sparkline([1, math.nan, 2]) == "▁!█"
    assert sparkline([1.0]) == sparkline([]) == ""


@given(st.lists(st.floats(), min_size=2, max_size=200), st.integers(2, 40))
def test_a_sparkline_has_the_width_asked_for_and_shows_every_lost_value(curve: list[float], width: int):
    drawn = sparkline(curve, width)
    assert len(drawn) == min(len(curve), width)
    assert ("!" in drawn) == (not all(map(math.isfinite, curve)))


def test_an_alarm_is_one_line():
    assert alarm_line(sick().findings[1]) == "critical: kl-explosion since step 88: The policy leaves its reference."
    assert alarm_line(replace(sick().findings[1], onset_step=None), "zh").startswith("严重：kl-explosion：")
