"""Preference pairs: contradictions, wrong labels, repetition, length."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from made_up_judgments import Rows, look, loud, pair_rows
from trimtab.doctor.detectors import pair_counts as counts
from trimtab.doctor.finding import Severity

SEEDS = range(5)


def test_ordinary_pairs_are_silent() -> None:
    for seed in SEEDS:
        assert loud(pair_rows(seed, 400)) == set()
        assert loud(pair_rows(seed, 600, prompts=150)) == set()


def test_numbers_make_different_prompts() -> None:
    rows = [{"prompt": f"What is {i} + {i * 7}?", "chosen": f"It is {i * 8}.", "rejected": f"It is {i * 8 + 1}."}
            for i in range(200)]  # fmt: skip
    assert loud(rows) == set()


def _labeled_again(seed: int, wrong: float) -> Rows:
    """Every pair labeled twice, each label wrong with that probability."""
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for row in pair_rows(seed, 150):
        for _ in range(2):
            turned = {"prompt": row["prompt"], "chosen": row["rejected"], "rejected": row["chosen"]}
            rows.append(turned if rng.random() < wrong else row)
    return rows


def test_contradictory_repeats_are_inconsistent_and_noisy() -> None:
    for seed in SEEDS:
        assert loud(_labeled_again(seed, 0.25)) >= {"inconsistent-preferences", "noisy-labels"}


def test_repeats_that_agree_are_not() -> None:
    for seed in SEEDS:
        findings = look(_labeled_again(seed, 0.02))[0]
        assert not {"inconsistent-preferences", "noisy-labels"} & set(findings)


def test_the_error_rate_follows_from_the_contradictions() -> None:
    rows = pair_rows(0, 200)
    again = [
        {"prompt": r["prompt"], "chosen": r["rejected"], "rejected": r["chosen"]} if i % 100 < 32 else r
        for i, r in enumerate(rows)
    ]  # fmt: skip
    told = look(rows + again)[0]["noisy-labels"].evidence[0].text.values
    # .32 = 2 e (1 - e): e = .2
    assert told["value"] == pytest.approx(0.2)
    assert told["contradictory"] == pytest.approx(0.32)


def _tournament(seed: int, *, cyclic: bool, noise: float = 0.0) -> Rows:
    """All comparisons of six responses a prompt, by one ranking or in circles."""
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for prompt in range(25):
        names = [f"response {prompt} {k} w{rng.integers(999)}" for k in range(6)]
        for i in range(6):
            for j in range(i + 1, 6):
                forward = bool(rng.random() < 0.5) if cyclic else bool(rng.random() >= noise)
                a, b = (names[i], names[j]) if forward else (names[j], names[i])
                rows.append({"prompt": f"prompt {prompt}", "chosen": a, "rejected": b})
    return rows


def test_circles_are_found() -> None:
    for seed in SEEDS:
        assert "inconsistent-preferences" in loud(_tournament(seed, cyclic=True))


def test_a_ranking_with_a_little_noise_is_none() -> None:
    for seed in SEEDS:
        assert "inconsistent-preferences" not in loud(_tournament(seed, cyclic=False, noise=0.04))


def test_triads_by_hand() -> None:
    ring = Counter({("a", "b"): 1, ("b", "c"): 1, ("c", "a"): 1, ("a", "d"): 1, ("b", "d"): 1, ("c", "d"): 1})
    # of the four triads only a-b-c goes round
    assert counts.triads({"p": ring}) == counts.Triads(cyclic=1, n=4)


def test_a_quarter_of_random_triads_goes_round() -> None:
    rng = np.random.default_rng(0)
    wins = {}
    for p in range(200):
        better = [
            (f"{i}", f"{j}") if rng.random() < 0.5 else (f"{j}", f"{i}") for i in range(6) for j in range(i + 1, 6)
        ]
        wins[str(p)] = Counter(better)
    found = counts.triads(wins)
    assert found.n == 200 * 20
    assert found.cyclic / found.n == pytest.approx(0.25, abs=0.02)


def test_repeats_by_hand() -> None:
    compared = {"p": Counter({("a", "b"): 2, ("b", "a"): 1, ("c", "d"): 2, ("e", "f"): 1})}
    assert counts.contradictions(compared) == counts.Contradictions(contradictory=1, repeated=2)


def test_duplicates_are_found_up_to_case_and_punctuation() -> None:
    rows = pair_rows(0, 200)
    copies = [{k: v.upper() + "!" for k, v in r.items()} for r in rows[:60]]
    finding = look(rows + copies)[0]["low-diversity"]
    assert finding.evidence[0].text.values["value"] == pytest.approx(60 / 260)
    assert finding.severity is Severity.WARNING


def test_few_prompts_are_found() -> None:
    assert look(pair_rows(0, 400, prompts=5))[0]["low-diversity"].cause.key == "low-diversity.cause-prompts"


def test_a_stock_response_is_found() -> None:
    rows = [{**r, "chosen": "I am sorry."} if i % 3 == 0 else r for i, r in enumerate(pair_rows(0, 300))]
    assert look(rows)[0]["low-diversity"].cause.key == "low-diversity.cause-response"


def test_one_generator_is_only_information() -> None:
    rows = [{**r, "chosen_model": "m", "rejected_model": "m"} for r in pair_rows(0, 100)]
    assert look(rows)[0]["low-diversity"].severity is Severity.INFO


@pytest.mark.parametrize(("shares", "effective"), [([1, 1, 1, 1], 4.0), ([2, 1, 1], 2.8284271247461903), ([5], 1.0)])
def test_effective_numbers(shares: list[int], effective: float) -> None:
    names = [f"name {i}" for i, k in enumerate(shares) for _ in range(k)]
    assert counts.effective_number(names) == pytest.approx(effective)


def test_labels_that_choose_length_are_found() -> None:
    assert "judge-length-bias" in loud(pair_rows(0, 400, longer=0.85))
    assert look(pair_rows(0, 3000, longer=0.70))[0]["judge-length-bias"].severity is Severity.INFO
    assert "judge-length-bias" not in look(pair_rows(0, 3000, longer=0.62))[0]


def test_soft_labels_near_a_coin_toss_are_mentioned() -> None:
    rows = [{**r, "p_chosen": 0.52} for r in pair_rows(0, 100)]
    assert look(rows)[0]["noisy-labels"].cause.key == "noisy-labels.cause-soft"
    assert "noisy-labels" not in look([{**r, "p_chosen": 0.9} for r in pair_rows(0, 100)])[0]
