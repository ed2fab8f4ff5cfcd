"""Judges: every finding fires on its fault, stays silent on what merely looks like it, and counts by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from made_up_judgments import Rows, look, loud, side_by_side, verdicts
from trimtab.doctor.detectors import judge_counts as counts
from trimtab.doctor.finding import Severity
from trimtab.labeling.verdicts import VerdictTable

SEEDS = range(4)


@pytest.mark.parametrize("pairs", [60, 150, 400])
def test_a_good_judge_is_silent(pairs: int) -> None:
    for seed in SEEDS:
        assert loud(verdicts(seed, pairs, accuracy=0.9)) == set()


@pytest.mark.parametrize("raw", [True, False])
def test_a_good_judge_is_silent_in_one_row_a_pair(raw: bool) -> None:
    for seed in SEEDS:
        assert loud(side_by_side(verdicts(seed, 270, accuracy=0.88), raw=raw)) == set()


def test_a_good_judge_with_ties_now_and_then_is_silent() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        rows = verdicts(seed, 300, accuracy=0.93)
        tied = {f"p{i}" for i in np.flatnonzero(rng.random(300) < 0.1).tolist()}
        assert loud([{**r, "winner": "tie"} if r["pair_id"] in tied else r for r in rows]) == set()


Make = Callable[[int], Rows]

FAULTS: list[tuple[str, Make]] = [
    ("judge-position-bias", lambda seed: verdicts(seed, 300, place=1.0)),
    ("judge-position-bias", lambda seed: verdicts(seed, 300, place=-1.5)),
    ("judge-position-bias", lambda seed: side_by_side(verdicts(seed, 300, place=1.2), raw=True)),
    ("judge-position-bias", lambda seed: side_by_side(verdicts(seed, 300, place=1.2), raw=False)),
    ("judge-inconsistency", lambda seed: verdicts(seed, 200, accuracy=0.6)),
    ("judge-inconsistency", lambda seed: verdicts(seed, 200, accuracy=0.6, orders=("12",), samples=2)),
    ("judge-disagreement", lambda seed: _against(verdicts(seed, 200, accuracy=0.9), 0.45, seed)),
    ("judge-length-bias", lambda seed: verdicts(seed, 400, accuracy=0.7, length=2.5)),
    ("judge-length-bias", lambda seed: verdicts(seed, 400, accuracy=0.7, length=-2.5)),
    ("judge-length-bias", lambda seed: verdicts(seed, 400, accuracy=0.6, length=3.0, gold=False)),
    ("judge-unparsed", lambda seed: verdicts(seed, 200, unparsed=0.12)),
    ("judge-template-sensitivity", lambda seed: _worded(seed)),
    ("judge-self-preference", lambda seed: _own(seed, 0.75)),
]  # fmt: skip


@pytest.mark.parametrize(("id", "make"), FAULTS)
def test_a_planted_fault_is_found(id: str, make: Make) -> None:
    assert sum(id in loud(make(seed)) for seed in SEEDS) == len(SEEDS)


def _worded(seed: int) -> Rows:
    return verdicts(seed, 300, templates=("a", "b"), template_noise=3.0, samples=2)


def _against(rows: Rows, right: float, seed: int) -> Rows:
    """Reference labels that agree with the judge in only that share of pairs."""
    rng = np.random.default_rng(seed + 100)
    keep = {f"p{i}": bool(rng.random() < right) for i in range(len(rows))}
    first = {r["pair_id"]: r["winner"] for r in rows if r["order"] == "12"}
    return [{**r, "gold": first[r["pair_id"]] if keep[r["pair_id"]] else 3 - first[r["pair_id"]]} for r in rows]


def _own(seed: int, share: float, *, gold_share: float | None = None, judge: str = "gpt-4") -> Rows:
    """Verdicts in which one response is by the judge's own model, which wins that share of them."""
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for i in range(120):
        own_first = bool(i % 2)
        makers = ("gpt-4", "llama-2-70b") if own_first else ("llama-2-70b", "gpt-4")
        wins = rng.random() < share
        row: dict[str, Any] = {
            "question_id": i, "judge": judge, "model_a": makers[0], "model_b": makers[1],
            "winner": "model_a" if wins == own_first else "model_b",
        }  # fmt: skip
        if gold_share is not None:
            row["gold"] = "model_a" if (rng.random() < gold_share) == own_first else "model_b"
        rows.append(row)
    return rows


# what merely looks like a fault


def test_one_order_alone_cannot_show_a_preference_for_a_place() -> None:
    rows = verdicts(0, 300, place=3.0, orders=("12",))
    findings, unchecked = look(rows)
    assert "judge-position-bias" not in findings
    assert unchecked["judge-position-bias"].reason == "missing"


def test_orders_drawn_at_random_can_show_it() -> None:
    rng = np.random.default_rng(0)
    both = verdicts(0, 600, place=2.5, accuracy=0.8)
    once = [row for one, two in zip(both[::2], both[1::2], strict=True) for row in [one if rng.random() < 0.5 else two]]
    finding = look(once)[0]["judge-position-bias"]
    assert finding.cause.key == "judge-position-bias.cause-first"
    assert finding.ruled_out[0].key == "judge-position-bias.not-quality-drawn"


def test_better_responses_in_first_place_are_no_preference_for_it() -> None:
    for seed in SEEDS:
        rows = [r for r in verdicts(seed, 800, accuracy=0.92) if r["gold"] == 1]
        assert "judge-position-bias" not in loud(rows)


def test_a_judge_that_follows_labels_that_prefer_length_is_not_biased() -> None:
    for seed in SEEDS:
        rows = [r for r in verdicts(seed, 900, accuracy=0.92) if (r["length_1"] > r["length_2"]) == (r["gold"] == 1)]
        assert "judge-length-bias" not in loud(rows)


def test_people_prefer_the_longer_response_in_64_of_100_and_that_is_no_finding() -> None:
    rows = [
        {"pair_id": i, "judge": "j", "winner": 1 if i % 100 < 64 else 2, "length_1": 200, "length_2": 100}
        for i in range(900)
    ]  # fmt: skip
    assert "judge-length-bias" not in loud(rows)


def test_responses_that_win_with_the_reference_labels_as_well_are_not_preferred_for_being_own() -> None:
    for seed in SEEDS:
        assert "judge-self-preference" not in loud(_own(seed, 0.75, gold_share=0.75))
        assert "judge-self-preference" in loud(_own(seed, 0.85, gold_share=0.5))


def test_people_have_no_own_responses() -> None:
    findings, unchecked = look(_own(0, 0.9, judge="expert_3"))
    assert "judge-self-preference" not in findings
    assert unchecked["judge-self-preference"].reason == "missing"


def test_a_family_counts_as_own() -> None:
    rows = [{**r, "judge": "gpt-4-turbo-2024"} for r in _own(0, 0.9)]
    assert look(rows)[0]["judge-self-preference"].severity is Severity.CRITICAL


def test_templates_that_differ_no_more_than_repeats_are_not_sensitive() -> None:
    for seed in SEEDS:
        assert "judge-template-sensitivity" not in loud(
            verdicts(seed, 300, accuracy=0.8, templates=("a", "b"), samples=2)
        )


def test_ties_alone_are_not_contradictions() -> None:
    rows = verdicts(0, 200, accuracy=0.97)
    for i, row in enumerate(rows):
        if i % 6 == 0:
            row["winner"] = "tie"
    assert "judge-inconsistency" not in {i for i, f in look(rows)[0].items() if f.severity is Severity.CRITICAL}


def test_a_small_sample_is_underpowered_and_says_what_it_could_have_shown() -> None:
    _, unchecked = look(verdicts(0, 25))
    told = unchecked["judge-position-bias"]
    assert told.reason == "underpowered"
    assert "there are 50" in told.missing[0]


def test_one_bad_judge_among_several_is_named() -> None:
    rows = verdicts(0, 200, judge="good") + verdicts(1, 200, place=2.0, judge="bad") + verdicts(2, 200, judge="fine")
    finding = look(rows)[0]["judge-position-bias"]
    assert finding.evidence[0].text.values["judge"] == "bad"
    assert len(finding.evidence) == 1


def test_raters_who_toss_coins_disagree() -> None:
    rng = np.random.default_rng(0)
    rows = [{"idx": i, **{f"annotator{k}": int(rng.integers(1, 3)) for k in (1, 2, 3)}} for i in range(200)]
    assert look(rows)[0]["judge-disagreement"].cause.key == "judge-disagreement.cause-panel"


def test_raters_who_agree_are_silent() -> None:
    rng = np.random.default_rng(0)
    rows: Rows = []
    for i in range(200):
        truth = int(rng.integers(1, 3))
        rows.append({"idx": i, **{f"annotator{k}": truth if rng.random() < 0.95 else 3 - truth for k in (1, 2, 3)}})
    assert loud(rows) == set()


def test_consequences_name_their_cause() -> None:
    findings = look(_against(verdicts(0, 300, place=2.5, accuracy=0.7), 0.5, 0))[0]
    assert findings["judge-inconsistency"].because_of == "judge-position-bias"
    assert findings["judge-disagreement"].because_of == "judge-position-bias"


# by hand


def _table(*rows: tuple[str, str, int | str | None]) -> VerdictTable:
    return VerdictTable.from_records(
        [{"pair_id": p, "judge": "j", "order": o, "winner": w, **({"status": "unparsed"} if w is None else {})}
         for p, o, w in rows]
    )  # fmt: skip


HAND = [
    ("a", "12", 1), ("a", "21", 1),  # alike
    ("b", "12", 1), ("b", "21", 2),  # first place twice
    ("c", "12", 2), ("c", "21", 1),  # second place twice
    ("d", "12", "tie"), ("d", "21", 2),  # a tie against a winner
    ("e", "12", None), ("e", "21", 1),  # one failed: not counted
    ("f", "12", 2),  # one order: not counted
]  # fmt: skip


def test_pairs_judged_in_both_orders_are_counted() -> None:
    assert counts.swaps(_table(*HAND)) == counts.Swaps(n=4, same=1, opposite=2, half=1, first=1)


def test_places_count_every_decided_verdict_of_those_pairs() -> None:
    rows = [(f"{i}{p}", o, w) for i in range(5) for p, o, w in HAND]
    # by pair: a 1 of 2, b 2 of 2, c 0 of 2, d 1 of 1, e 0 of 1
    assert counts.places(_table(*rows)) == counts.Places(first=20, n=40, both_orders=True)


def test_repeats_compare_each_vote_with_the_next() -> None:
    rows = [
        {"pair_id": "a", "judge": "j", "order": "12", "sample": k, "winner": w} for k, w in enumerate([1, 1, 2, 2])
    ]  # fmt: skip
    assert counts.repeats(VerdictTable.from_records(rows)) == counts.Repeats(same=2, n=3)


def test_the_share_and_its_z_are_told() -> None:
    rows = [(f"p{i}", o, 1 if (i < 120) == (o == "12") else 2) for i in range(200) for o in ("12", "21")]
    # 120 pairs name the first place twice, 80 the second: 240 of 400
    told = look([{"pair_id": p, "judge": "j", "order": o, "winner": w} for p, o, w in rows])[0]
    values = told["judge-position-bias"].evidence[0].text.values
    assert (values["value"], values["n"]) == (0.6, 400)
    assert values["z"] == pytest.approx(40 / math.sqrt(100))


def test_the_noise_of_one_verdict_follows_from_two() -> None:
    # two verdicts with error rate e agree with (1 - e)^2 + e^2: .8^2 + .2^2 = .68
    rows = [(f"p{i}", o, 1 if i % 100 < 68 else (1 if o == "12" else 2)) for i in range(400) for o in ("12", "21")]
    told = look([{"pair_id": p, "judge": "j", "order": o, "winner": w} for p, o, w in rows])[0]["judge-inconsistency"]
    ceiling = next(e for e in told.evidence if e.text.key.endswith(".ceiling"))
    assert ceiling.text.values["noise"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gpt-4/pair-v2", "gpt"),
        ("claude-3-haiku", "claude"),
        ("Meta-Llama-3", "llama"),
        ("phish", ""),
        ("my-judge", ""),
    ],
)
def test_families_of_models(name: str, family: str) -> None:
    assert counts.family(name) == family


# aggregates that somebody else counted


def test_one_judge_in_figures() -> None:
    findings = look(
        [{"n": 2000, "longer_wins": 0.7, "self_pref": 0.9, "self_n": 80, "first_wins": 0.51, "flip_rate": 0.1}]
    )[0]
    assert {i: f.severity for i, f in findings.items()} == {
        "judge-length-bias": Severity.WARNING, "judge-self-preference": Severity.CRITICAL,
    }  # fmt: skip


def test_a_sound_judge_in_figures_is_silent() -> None:
    assert (
        loud([{"n": 2000, "longer_wins": 0.62, "self_pref": 0.52, "self_n": 80, "first_wins": 0.51, "flip_rate": 0.1}])
        == set()
    )


def test_the_same_share_from_few_verdicts_is_not_enough() -> None:
    assert loud([{"n": 60, "longer_wins": 0.7, "first_wins": 0.58, "flip_rate": 0.1}]) == set()


def test_a_comparison_of_judges_is_never_critical() -> None:
    rows = [
        {"name": n, "n": 2000, "prefer_longer": x, "prefer_1": f} for n, x, f in
        [("humans", 0.63, 0.52), ("one", 0.66, 0.5), ("longest", 1.0, 0.4), ("two", 0.75, 0.7)]
    ]  # fmt: skip
    findings = look(rows)[0]
    assert {i: f.severity for i, f in findings.items()} == {
        "judge-length-bias": Severity.WARNING, "judge-position-bias": Severity.WARNING,
    }  # fmt: skip
    told = [e.text.values["judge"] for e in findings["judge-length-bias"].evidence if "judge" in e.text.values]
    assert set(told) == {"longest", "two"}
