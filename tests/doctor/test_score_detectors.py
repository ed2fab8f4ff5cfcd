"""Preference models from their scores: findings, their confusers, figures by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from made_up_judgments import Rows, look, loud, pair_rows, score_rows
from trimtab.doctor.detectors import score_figures as figures
from trimtab.doctor.finding import Severity

SEEDS = range(6)


@pytest.mark.parametrize("pairs", [60, 300, 2000])
@pytest.mark.parametrize("spread", [1.5, 2.5])
def test_an_honest_preference_model_is_silent(pairs: int, spread: float) -> None:
    for seed in SEEDS:
        assert loud(score_rows(seed, pairs, spread=spread)) == set()


def test_an_accuracy_of_72_that_is_calibrated_is_silent() -> None:
    for seed in SEEDS:
        rows = score_rows(seed, 600, spread=1.5)
        right = np.mean([r["chosen_score"] > r["rejected_score"] for r in rows])
        assert 0.68 < right < 0.78
        assert loud(rows) == set()


Make = Callable[[int], Rows]
FAULTS: list[tuple[str, Make]] = [
    ("pm-low-accuracy", lambda seed: score_rows(seed, 400, spread=0.3)),
    ("pm-low-accuracy", lambda seed: _turned(score_rows(seed, 300))),
    ("pm-miscalibrated", lambda seed: score_rows(seed, 500, temperature=6)),
    ("pm-score-collapse", lambda seed: score_rows(seed, 300, spread=0.3, scale=0.0)),
    ("pm-score-collapse", lambda seed: score_rows(seed, 300, spread=0.0, temperature=0.0, scale=0.003)),
    ("pm-length-bias", lambda seed: score_rows(seed, 500, spread=1.5, length=3)),
    ("pm-length-bias", lambda seed: score_rows(seed, 500, spread=1.5, length=-3)),
    ("pm-narrow", lambda seed: _narrow(seed)),
    ("pm-self-contradiction", lambda seed: _repeated(seed, 0.3)),
    ("noisy-labels", lambda seed: score_rows(seed, 1500, spread=4, noise=0.3)),
]  # fmt: skip


@pytest.mark.parametrize(("id", "make"), FAULTS)
def test_a_planted_fault_is_found(id: str, make: Make) -> None:
    assert sum(id in loud(make(seed)) for seed in SEEDS) == len(SEEDS)


def _turned(rows: Rows) -> Rows:
    return [{**r, "chosen_score": r["rejected_score"], "rejected_score": r["chosen_score"]} for r in rows]


def _narrow(seed: int) -> Rows:
    """High scores for one stock response, whatever else is as good."""
    rng = np.random.default_rng(seed)
    rows = []
    for i, pair in enumerate(pair_rows(seed, 400)):
        stock = i % 8 == 0
        chosen = (
            "thank you for this wonderful question let me help you with all of it today" if stock else pair["chosen"]
        )
        rows.append({**pair, "chosen": chosen, "chosen_score": float(rng.normal(3 if stock else 0)),
                     "rejected_score": float(rng.normal(-1))})  # fmt: skip
    return rows


def _repeated(seed: int, flip: float) -> Rows:
    """Every pair three times, as if reworded, with scores that change sides now and then."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(120):
        gap = abs(rng.normal(1.5)) + 0.2
        for _ in range(3):
            side = -1 if rng.random() < flip else 1
            rows.append({"pair_id": f"p{i}", "score_a": side * gap, "score_b": 0.0, "label": "A"})
    return rows


# what merely looks like a fault


def test_scores_that_made_the_labels_say_nothing_of_calibration() -> None:
    rng = np.random.default_rng(0)
    rows = [{"chosen_score": float(abs(rng.normal())), "rejected_score": 0.0} for _ in range(400)]
    findings, unchecked = look(rows)
    assert findings == {}
    assert "pm-miscalibrated" in unchecked


def test_ratings_and_squashed_scores_are_no_logits() -> None:
    rng = np.random.default_rng(0)
    rated = [{"chosen_score": int(rng.integers(4, 11)), "rejected_score": int(rng.integers(1, 9))} for _ in range(400)]
    squashed = [
        {k: 1 / (1 + math.exp(-v)) if "score" in k else v for k, v in r.items()} for r in score_rows(0, 400)
    ]  # fmt: skip
    for rows in (rated, squashed):
        findings, unchecked = look(rows)
        assert "pm-miscalibrated" not in findings
        assert unchecked["pm-miscalibrated"].reason == "unit-unknown"


def test_modest_margins_are_only_information() -> None:
    assert look(score_rows(0, 600, temperature=0.2))[0]["pm-miscalibrated"].severity is Severity.INFO


def test_a_small_scale_that_tells_good_from_bad_is_no_collapse() -> None:
    for seed in SEEDS:
        assert "pm-score-collapse" not in loud(score_rows(seed, 400, scale=0.001))


@pytest.mark.parametrize(("scale", "shift"), [(10.0, 0.0), (0.01, 5.0), (1.0, -40.0)])
def test_scale_and_level_do_not_change_what_is_said_of_accuracy_and_length(scale: float, shift: float) -> None:
    ids = ("pm-low-accuracy", "pm-length-bias", "noisy-labels")
    for kwargs in ({"spread": 0.3}, {"spread": 1.5, "length": 3.0}, {"spread": 2.0}):
        before = loud(score_rows(0, 500, **kwargs)) & set(ids)  # type: ignore[arg-type]
        after = loud(score_rows(0, 500, scale=scale, shift=shift, **kwargs)) & set(ids)  # type: ignore[arg-type]
        assert before == after


def test_longer_responses_that_are_better_are_no_bias() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        rows = [
            r for r in score_rows(seed, 2000)
            if (r["chosen_length"] > r["rejected_length"]) or rng.random() < 0.4
        ]  # fmt: skip
        assert "pm-length-bias" not in loud(rows)


def test_close_calls_are_not_wrong_labels() -> None:
    for seed in SEEDS:
        assert "noisy-labels" not in look(score_rows(seed, 1500, spread=1.2))[0]


def test_a_poor_model_is_not_blamed_on_the_labels() -> None:
    rng = np.random.default_rng(0)
    rows = [{"chosen_score": float(rng.normal(0, 8)), "rejected_score": float(rng.normal(0, 8))} for _ in range(800)]
    assert loud(rows) >= {"pm-low-accuracy"}
    assert "noisy-labels" not in look(rows)[0]


def test_margins_that_tell_nothing_of_their_errors_are_not_blamed_on_the_labels() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        sizes = rng.gamma(2, 3, 1000) * np.where(rng.random(1000) < 0.75, 1, -1)
        assert figures.label_noise(sizes) is None


def test_a_small_sample_is_underpowered() -> None:
    rows = score_rows(3, 50, spread=0.8)
    findings, unchecked = look(rows)
    assert "pm-low-accuracy" not in findings
    assert unchecked["pm-low-accuracy"].reason == "underpowered"
    assert unchecked["pm-miscalibrated"].reason == "underpowered"


def test_without_labels_accuracy_cannot_be_told() -> None:
    rng = np.random.default_rng(0)
    _, unchecked = look([{"id": i, "score_a": float(rng.normal()), "score_b": float(rng.normal())} for i in range(80)])
    assert unchecked["pm-low-accuracy"].reason == "missing"


def test_turned_columns_are_called_so() -> None:
    finding = look(_turned(score_rows(0, 300)))[0]["pm-low-accuracy"]
    assert finding.cause.key == "pm-low-accuracy.cause-reversed"
    assert finding.severity is Severity.CRITICAL


# folds and splits


def _folds(accuracy: float, pairs: int, **more: Any) -> dict[str, Any]:
    return {"n_pairs": pairs, "fold_accs": [accuracy - 0.01, accuracy + 0.01], **more}


def test_weak_folds_are_found_and_the_best_group_decides() -> None:
    assert loud([_folds(0.58, 1000, condition="a"), _folds(0.52, 1000, condition="b")]) == {"pm-low-accuracy"}
    assert loud([_folds(0.73, 1000, condition="a"), _folds(0.52, 1000, condition="b")]) == set()


def test_seeds_do_not_make_more_pairs() -> None:
    # 60 pairs cannot exclude 70 %, however many seeds repeat them
    assert loud([_folds(0.62, 60, seed=s) for s in range(50)]) == set()


def test_a_gap_to_the_training_pairs_is_overfitting() -> None:
    assert "pm-overfit" in loud([_folds(0.68, 2000, train_acc=0.97)])
    assert "pm-overfit" not in loud([_folds(0.68, 2000, train_acc=0.72)])


def test_splits_of_a_score_file_show_it_too() -> None:
    rows = [{**r, "split": "train"} for r in score_rows(0, 400, spread=8)]
    rows += [{**r, "split": "test"} for r in score_rows(1, 400, spread=1.6)]
    assert "pm-overfit" in loud(rows)
    same = [{**r, "split": "train" if i % 2 else "test"} for i, r in enumerate(score_rows(0, 800))]
    assert loud(same) == set()


# by hand


def test_the_interval_is_wilsons() -> None:
    rows = [{"chosen_score": 1.0 if i < 55 else -1.0, "rejected_score": 0.0} for i in range(100)]
    values = look(rows)[0]["pm-low-accuracy"].evidence[0].text.values
    # centre (.55 + 1.9207 / 100) / (1 + 3.8415 / 100)
    assert values["value"] == 0.55
    assert values["low"] == pytest.approx(0.4524, abs=5e-4)
    assert values["high"] == pytest.approx(0.6439, abs=5e-4)


def test_calibration_counts_both_orientations() -> None:
    # margins of 2: sigmoid .8808, right in 60 of 100: the error is .2808 in both of the two bins used
    rows = [{"chosen_score": (2.0 if i % 5 < 3 else -2.0) + 1e-7 * (i % 40), "rejected_score": 0.0} for i in range(400)]
    told = look(rows)[0]["pm-miscalibrated"].evidence
    assert told[0].text.values["value"] == pytest.approx(0.2808, abs=1e-4)
    # sigmoid(2 / T) = .6 at T = 2 / ln 1.5
    assert told[1].text.values["value"] == pytest.approx(2 / math.log(1.5), abs=1e-4)


def test_rank_correlation_does_not_depend_on_which_response_stands_first() -> None:
    rng = np.random.default_rng(0)
    margin = rng.normal(size=50)
    by = margin + rng.normal(size=50)
    turned = rng.choice([-1.0, 1.0], 50)
    assert figures.rank_correlation(margin, by) == pytest.approx(figures.rank_correlation(margin * turned, by * turned))
    assert figures.rank_correlation(margin, margin) == pytest.approx(1.0)
    assert figures.rank_correlation(margin, -margin) == pytest.approx(-1.0)
    assert figures.rank_correlation(np.array([1.0, 2.0]), np.array([2.0, 1.0])) == pytest.approx(0.6)


def test_wrong_labels_are_estimated() -> None:
    found = [figures.label_noise(_signed(score_rows(seed, 4000, spread=4, noise=0.2))) for seed in range(5)]
    assert all(noise is not None and noise.low <= 0.2 <= noise.high for noise in found)


def _signed(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([r["chosen_score"] - r["rejected_score"] for r in rows])
