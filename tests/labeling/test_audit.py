"""The audit as a whole: the headline figures and their denominators, its JSON, its endings, its determinism."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from labeling.verdict_draws import draw_records, draw_table
from trimtab.errors import TrimtabError
from trimtab.labeling.audit import CHECKS, CheckStatus, audit
from trimtab.labeling.audit.inference import settle
from trimtab.labeling.audit.results import Check
from trimtab.labeling.verdicts import VerdictTable


def both(pair, first, second, gold=None, **more):
    """The two orders of a pair; winners are of the pair's own responses."""
    shared = {"pair_id": pair, "judge": "j", "gold": gold, **more}
    return [{**shared, "order": "12", "winner": first}, {**shared, "order": "21", "winner": second}]


# six pairs in both orders: two agree, one flips, then a tie and a failure against a winner, and two failures
BY_HAND = [
    *both("p1", 1, 1, gold=1, slice="a/x"),
    *both("p2", 2, 2, gold=1, slice="a/y"),
    *both("p3", 1, 2, gold=2, slice="b"),
    *both("p4", "tie", 1, gold=1, slice="a/x"),
    *both("p5", None, 2, gold=2, slice="b"),
    *both("p6", None, None, slice="b"),
]


def of(records, **options):
    return audit(VerdictTable.from_records(records), resamples=50, **options)


def test_the_headline_figures_by_hand():
    judge = of(BY_HAND).judges["j"]
    assert (judge.n, judge.pairs) == (12, 6)
    # 10 verdicts have a reference; right: p1 twice, p3 once, p4 once, p5 once; the failure is wrong, not left out
    assert judge.accuracy.value == pytest.approx(5 / 10)
    assert judge.accuracy.n == 10
    # p3, p4, p5 differ; p6 has no winner twice
    assert judge.inconsistent_rate.value == pytest.approx(3 / 6)
    # decided: p1 1 (first), 1 (second); p2 2 (second), 2 (first); p3 1 (first), 2 (first); p4 1 in 21; p5 2 in 21
    assert judge.first_share.n == 8
    assert judge.first_share.value == pytest.approx(5 / 8)
    assert judge.outcomes == {"ok": 8, "tie": 1, "unparsed": 3, "refused": 0, "error": 0}


def test_a_slice_counts_in_those_above_it():
    slices = of(BY_HAND).judges["j"].slices
    assert list(slices) == ["a", "a/x", "a/y", "b"]
    assert slices["a"].n == 6
    assert slices["a"].accuracy.value == pytest.approx(3 / 6)
    assert slices["a/x"].accuracy.value == pytest.approx(3 / 4)
    assert slices["a"].inconsistent_rate.value == pytest.approx(1 / 3)
    assert slices["b"].first_share.n == 3


def test_a_tie_is_right_only_against_a_tie():
    found = of([*both("p", "tie", "tie", gold="tie"), *both("q", "tie", 1, gold=1)]).judges["j"]
    assert found.accuracy.value == pytest.approx(3 / 4)


def test_repeats_and_templates_are_couples_of_their_own():
    records = [r for s in (0, 1) for r in both("p", 1, 1 + s, sample=s)]
    records += [r for t in "ab" for r in both("q", 2, 2 if t == "a" else 1, template=t)]
    found = of(records).judges["j"]
    assert found.inconsistent_rate.n == 4
    assert found.inconsistent_rate.value == pytest.approx(2 / 4)


def test_questions_asked_twice_without_a_sample_number_are_matched_in_order():
    records = both("p", 1, 1) + both("p", 2, 1)
    assert of(records).judges["j"].inconsistent_rate.value == pytest.approx(1 / 2)
    assert of(records).judges["j"].inconsistent_rate.n == 2


def test_running_sample_numbers_still_meet_in_both_orders():
    records = [{**r, "sample": i} for i, r in enumerate(both("p", 1, 1) + both("p", 1, 2))]
    found = of(records).judges["j"].inconsistent_rate
    assert (found.n, found.value) == (2, pytest.approx(1 / 2))


def test_one_id_in_two_slices_is_two_pairs_and_another_constitution_another_question():
    records = both("p", 1, 1, slice="a") + both("p", 2, 2, slice="b") + both("p", 2, 2, slice="b", constitution="new")
    judge = of(records).judges["j"]
    assert judge.inconsistent_rate.value == 0
    assert judge.inconsistent_rate.n == 3
    assert judge.checks["contradictory-repeats"].status is CheckStatus.NOT_MEASURABLE


def test_order_of_rows_does_not_matter():
    records = draw_records(np.random.default_rng(1), 60, position=0.2)
    mixed = [records[i] for i in np.random.default_rng(2).permutation(len(records))]
    first, second = of(records).as_dict(), of(mixed).as_dict()

    def same(a, b, where=""):
        if isinstance(a, dict):
            assert a.keys() == b.keys(), where
            for key in a:
                same(a[key], b[key], f"{where}/{key}")
        elif isinstance(a, list):
            assert len(a) == len(b)
        elif isinstance(a, float) and "odds_ratio_" not in where:
            assert b == pytest.approx(a, abs=1e-9), where

    same(first["judges"]["j"], second["judges"]["j"])


def test_the_same_seed_gives_the_same_json_and_every_key_is_there():
    table = draw_table(0, 40)
    first = json.dumps(audit(table, resamples=40).as_dict(), allow_nan=False)
    assert json.dumps(audit(table, resamples=40).as_dict(), allow_nan=False) == first
    judge = json.loads(first)["judges"]["j"]
    assert {"n", "accuracy", "inconsistent_rate", "first_share", "slices", "checks"} <= judge.keys()
    assert list(judge["checks"]) == list(CHECKS)
    assert judge["accuracy_interval"][0] < judge["accuracy"] < judge["accuracy_interval"][1]
    empty = of([{"pair_id": "p", "judge": "j", "winner": None}]).as_dict()["judges"]["j"]
    assert empty.keys() == judge.keys()
    assert empty["accuracy"] is None


def test_with_one_verdict_nothing_is_claimed():
    judge = of([{"pair_id": "p", "judge": "j", "winner": 1, "order": "12", "gold": 1}]).judges["j"]
    assert judge.accuracy.value == 1
    assert judge.accuracy.low is None
    assert {c.status for c in judge.checks.values()} <= {CheckStatus.UNDERPOWERED, CheckStatus.NOT_MEASURABLE}


def test_many_verdicts_on_one_prompt_prove_nothing():
    records = [r for i in range(300) for r in both("p", 1, 2, gold=1, sample=i)]
    judge = of(records).judges["j"]
    assert {c.status for c in judge.checks.values()} <= {CheckStatus.UNDERPOWERED, CheckStatus.NOT_MEASURABLE}


def test_a_judge_that_always_fails_is_told_so():
    judge = of([r for i in range(60) for r in both(f"p{i}", None, None, gold=1, status="error")]).judges["j"]
    assert judge.checks["unparsed"].status is CheckStatus.POOR
    assert judge.accuracy.value == 0
    assert judge.first_share.value is None
    assert judge.checks["position-bias"].status is CheckStatus.NOT_MEASURABLE


def test_groups_and_annotators_of_the_reference():
    records = [
        r
        for i in range(20)
        for r in both(f"p{i}", 1, 1, gold=1 + i % 2, annotator=f"ann{i % 2}", group="even" if i % 2 == 0 else "odd")
    ]
    judge = of(records).judges["j"]
    assert judge.groups["even"].accuracy.value == 1
    assert judge.groups["odd"].accuracy.value == 0
    assert judge.annotators["ann1"].n == 20


def test_the_pool_says_whose_preferences():
    records = [r for i in range(8) for r in both(f"p{i}", 1, 1, group="g" if i else "h", generator_1="m")]
    pool = of(records).pool
    assert pool["group"]["members"][0] == {"name": "g", "verdicts": 14, "pairs": 7, "share": 14 / 16}
    entropy = -(7 / 8 * math.log(7 / 8) + 1 / 8 * math.log(1 / 8))
    assert pool["group"]["effective"] == pytest.approx(math.exp(entropy))
    assert pool["generator"]["members"] == [{"name": "m", "shown": 16, "win_share": 1.0}]


def test_cost_is_summed_where_it_is_known():
    records = both("p", 1, None, cost=0.5, tokens=100) + both("q", 1, 1)
    cost = of(records).judges["j"].cost
    assert cost["cost"] == 1.0
    assert cost["cost_per_usable_verdict"] == pytest.approx(1 / 3)
    assert cost["tokens"] == 200
    assert cost["tokens_n"] == 2
    assert "latency" not in cost


def test_what_cannot_be_audited_is_refused():
    table = draw_table(0, 4)
    with pytest.raises(TrimtabError, match="no verdicts"):
        audit(table.take(np.zeros(len(table), dtype=bool)))
    with pytest.raises(TrimtabError, match="0 resamples"):
        audit(table, resamples=0)


def ending(**fields):
    check = {"effect": 0.5, "low": 0.4, "high": 0.6, "p": 0.5, "null": 0.5, "threshold": 0.05, "detectable": 0.2}
    made = Check("position-bias", CheckStatus.OK, **{**check, **fields})
    return settle([made])["position-bias"].status


def test_the_endings_of_a_bias():
    assert ending() is CheckStatus.UNDERPOWERED
    assert ending(detectable=0.04) is CheckStatus.OK
    assert ending(low=0.46, high=0.54) is CheckStatus.OK
    assert ending(effect=0.6, low=0.55, high=0.65, p=0.001) is CheckStatus.BIASED
    # certain, but too small to matter
    assert ending(effect=0.52, low=0.51, high=0.53, p=0.001) is CheckStatus.OK
    # large, but as likely chance
    assert ending(effect=0.6, low=0.45, high=0.75, p=0.2) is CheckStatus.UNDERPOWERED


def test_p_are_adjusted_over_the_biases_of_a_judge():
    position = Check("position-bias", CheckStatus.OK, 0.6, 0.52, 0.68, 0.03, null=0.5, threshold=0.05, detectable=0.1)
    length = Check("length-bias", CheckStatus.OK, 0.5, 0.4, 0.6, 0.9, null=0.5, threshold=0.05, detectable=0.1)
    alone, among = settle([position]), settle([position, length])
    assert alone["position-bias"].status is CheckStatus.BIASED
    assert among["position-bias"].p_adjusted == pytest.approx(0.06)
    assert among["position-bias"].status is CheckStatus.UNDERPOWERED
