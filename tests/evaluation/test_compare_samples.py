"""The statistics of a comparison: hand values, a slow re-derivation, properties."""

from __future__ import annotations

import itertools
import json
import math
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation import compare_samples
from trimtab.runs.signals import lookup


def row(prompt, side, score, *, index=0, tokens=10, finished=True, text="a b c", **more):
    scores = score if isinstance(score, dict) else {"m": score}
    return {
        "prompt_id": prompt, "side": side, "index": index, "response": text, "tokens": tokens, "finished": finished,
        "scores": scores, **more,
    }  # fmt: skip


HAND = [
    # prompt 1: two policy responses, one reference response: one win, one tie
    row("p1", "policy", 2.0, tokens=10, text="one two three"),
    row("p1", "policy", 1.0, index=1, tokens=20, finished=False, text="one two"),
    row("p1", "reference", 1.0, tokens=10, text="one two"),
    # prompt 2: a loss, lengths 100 and 90: exactly 10 % of the longer
    row("p2", "policy", 0.0, tokens=100, text="four five"),
    row("p2", "reference", 4.0, tokens=90, text="one two"),
    # prompt 3: a win, lengths 8 and 10: 20 % apart
    row("p3", "policy", 3.0, tokens=8, text="four five six"),
    row("p3", "reference", 1.0, tokens=10, finished=False, text=""),
]


def test_hand_values():
    result = compare_samples(HAND, ["m"])
    (m,) = result.measures
    assert (result.prompts, result.pairs, result.incomplete_prompts) == (3, 4, 0)
    # pairs: (2, 1) win, (1, 1) tie, (0, 4) loss, (3, 1) win
    assert (m.win_rate.value, m.win_rate.n, m.win_rate.prompts) == ((1 + 0.5 + 0 + 1) / 4, 4, 3)
    assert m.ties == 0.25
    assert (m.policy, m.reference, m.difference.value) == (1.5, 1.75, -0.25)
    # equal length: (10, 10) win and (100, 90) loss
    assert (m.length_matched.value, m.length_matched.n, m.length_matched.prompts) == (0.5, 2, 2)
    assert result.length.difference.value == ((10 + 20 + 100 + 8) - (10 + 10 + 90 + 10)) / 4
    assert (result.policy.responses, result.reference.responses) == (4, 3)
    assert (result.policy.finished, result.reference.finished) == (3 / 4, 2 / 3)
    # word pairs of the policy: 12, 23 / 12 / 45 / 45, 56 -> 4 distinct of 6; of the reference: 12 / 12 -> 1 of 2
    assert (result.policy.distinct_2, result.reference.distinct_2) == (4 / 6, 1 / 2)
    assert result.win_rate is m.win_rate


def slow_interval(rows, resamples, seed, value):
    """Prompts drawn one by one, pairs listed one by one; imports nothing from trimtab."""
    by_prompt = {}
    for r in rows:
        by_prompt.setdefault(r["prompt_id"], {"policy": [], "reference": []})[r["side"]].append(r)
    groups = [[value(a, b) for a in sides["policy"] for b in sides["reference"]] for sides in by_prompt.values()]
    rng = np.random.default_rng(seed)
    means = []
    for drawn in rng.integers(len(groups), size=(resamples, len(groups))):
        pooled = [x for g in drawn for x in groups[g]]
        means.append(math.fsum(pooled) / len(pooled))
    return tuple(np.quantile(means, [0.025, 0.975]))


def many_rows(prompts=12, k=3, seed=0):
    rng = random.Random(seed)
    return [
        row(f"p{p}", side, round(rng.gauss(0.3 if side == "policy" else 0, 1), 1), index=i, tokens=rng.randint(1, 9))
        for p in range(prompts)
        for side in ("policy", "reference")
        for i in range(k if side == "policy" else k - 1)
    ]


def test_intervals_equal_a_slow_bootstrap_that_draws_prompts():
    rows = many_rows()
    result = compare_samples(rows, ["m"], resamples=300, seed=7)
    (m,) = result.measures
    gap = slow_interval(rows, 300, 7, lambda a, b: a["scores"]["m"] - b["scores"]["m"])
    win = slow_interval(rows, 300, 7, lambda a, b: (1 + np.sign(a["scores"]["m"] - b["scores"]["m"])) / 2)
    length = slow_interval(rows, 300, 7, lambda a, b: a["tokens"] - b["tokens"])
    assert (m.difference.low, m.difference.high) == pytest.approx(gap, rel=1e-12)
    assert (m.win_rate.low, m.win_rate.high) == pytest.approx(win, rel=1e-12)
    assert (result.length.difference.low, result.length.difference.high) == pytest.approx(length, rel=1e-12)


def test_clustering_by_prompt_makes_the_interval_wider_than_pairs_would():
    # two kinds of prompts, five responses each that all agree: 20 prompts, not 500 pairs, carry the information
    rows = [
        row(f"p{p}", side, (p % 2) * (side == "policy") + 0.5 * (side == "reference"), index=i)
        for p, side, i in itertools.product(range(20), ("policy", "reference"), range(5))
    ]
    win = compare_samples(rows).win_rate
    assert win.value == 0.5
    assert 0.35 < win.high - win.low < 0.55  # 2 * 1.96 * sqrt(.25 / 20) = .44; by pairs it would be .09


def test_unanimous_outcomes_get_wilson_and_not_certainty():
    rows = [row(f"p{p}", side, float(side == "policy")) for p in range(10) for side in ("policy", "reference")]
    win = compare_samples(rows).win_rate
    z = 1.959963984540054
    assert (win.value, win.high) == (1.0, 1.0)
    assert win.low == pytest.approx(10 / (10 + z * z), rel=1e-9)


def test_one_prompt_has_no_interval():
    result = compare_samples(HAND[3:5])
    assert (result.win_rate.low, result.win_rate.high) == (None, None)
    assert not result.win_rate.excludes(0.5)
    json.dumps(result.as_dict(), allow_nan=False)


def test_a_prompt_with_one_side_is_left_out_and_counted():
    result = compare_samples([*HAND, row("p9", "policy", 100.0)])
    assert (result.prompts, result.incomplete_prompts) == (3, 1)
    assert result.measures == compare_samples(HAND).measures
    assert result.policy == compare_samples(HAND).policy


def test_the_last_of_two_rows_of_one_response_counts():
    assert compare_samples([row("p1", "policy", -9.0), *HAND]) == compare_samples(HAND)


def test_no_pair_of_equal_length():
    rows = [row("a", "policy", 1, tokens=10), row("a", "reference", 0, tokens=20)]
    result = compare_samples(rows)
    assert result.measures[0].length_matched is None
    assert "no such pair" in result.table()


def test_the_first_measure_decides():
    rows = [row(p, s, {"up": s == "policy", "down": s != "policy"}) for p in "abc" for s in ("policy", "reference")]
    assert compare_samples(rows, ["up", "down"]).win_rate.value == 1
    assert compare_samples(rows, ["down", "up"]).win_rate.value == 0


@pytest.mark.parametrize(
    ("rows", "kind", "names"),
    [
        ([], ErrorKind.CONFIG, "no measure"),
        ([row("a", "policy", 1)], ErrorKind.DATA, "both sides"),
        ([{"prompt_id": "a"}], ErrorKind.DATA, "row 1"),
        ([*HAND, {**HAND[0], "scores": None}], ErrorKind.DATA, "row 8"),
        ([row("a", "policy", 1), row("a", "judge", 1)], ErrorKind.DATA, "row 2"),
        ([row("a", "policy", math.nan), row("a", "reference", 1)], ErrorKind.DATA, "'a'"),
        ([row("a", "policy", 1), row("a", "reference", {"other": 1})], ErrorKind.DATA, "'m'"),
    ],
)
def test_what_cannot_be_compared_is_named(rows, kind, names):
    with pytest.raises(TrimtabError, match=names) as caught:
        compare_samples(rows)
    assert caught.value.kind is kind


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 10**6), st.randoms())
def test_exchanging_the_sides_mirrors_the_result_and_order_does_not_matter(prompts, k, seed, shuffle):
    rows = many_rows(prompts, k + 1, seed)
    other = {"policy": "reference", "reference": "policy"}
    swapped = [{**r, "side": other[r["side"]]} for r in rows]
    result, mirror = (compare_samples(r, resamples=50) for r in (rows, swapped))
    (a,), (b,) = result.measures, mirror.measures
    assert b.win_rate.value == pytest.approx(1 - a.win_rate.value, abs=1e-12)
    assert b.difference.value == pytest.approx(-a.difference.value, abs=1e-12)
    assert (a.ties, result.pairs) == (b.ties, mirror.pairs)
    assert a.difference.value == pytest.approx(a.policy - a.reference, abs=1e-9)
    # responses inside a prompt may come in any order
    reordered = [r for _, group in itertools.groupby(rows, lambda r: r["prompt_id"]) for r in _shuffled(group, shuffle)]
    assert compare_samples(reordered, resamples=50) == result


def _shuffled(group, shuffle):
    items = list(group)
    shuffle.shuffle(items)
    return items


def test_json_has_plain_keys_and_no_nan():
    record = json.loads(json.dumps(compare_samples(HAND).as_dict(), allow_nan=False))
    assert record["measures"][0]["win_rate"]["value"] == 0.625
    assert set(record["measures"][0]["difference"]) == {"value", "low", "high", "n", "prompts"}


def test_every_signal_is_declared_for_the_stage():
    signals = compare_samples(HAND).signals()
    assert signals["eval/win_rate"] == 0.625
    assert all("eval" in lookup(key).stages for key in signals)


def test_table_shows_the_figures():
    text = compare_samples(HAND, ["m"]).table()
    assert "62" in text
    assert "-0.2 [" in text
    assert "3 held-out prompts, 4 pairs" in text
    assert "(n = 2)" in text


def test_compare_needs_no_torch():
    code = "import sys, trimtab.evaluation as e; e.compare_samples; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
