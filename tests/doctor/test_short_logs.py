"""Excerpts: a broken invariant speaks from one row, a trend does not; a known plan counts steps in place of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import drawn_logs as drawn
from trimtab.doctor.diagnosis import Status
from trimtab.doctor.driver import diagnose_materials
from trimtab.doctor.finding import Severity
from trimtab.doctor.log import Estimator, Log, Stage

NAN = float("nan")


def severities(log: Log) -> dict[str, Severity]:
    return {f.id: f.severity for f in diagnose_materials([log]).findings}


def rows(n: int, **values: Any) -> Log:
    return drawn.log({k.replace("__", "/"): np.full(n, v) for k, v in values.items()})


BROKEN: list[tuple[str, dict[str, float]]] = [
    ("no-gradient", {"policy__gradient_norm": 0.0, "score__std": 0.4, "group__zero_std_fraction": 0.0}),
    ("negative-kl", {"kl__reference": -4.0}),
    ("ratio-blow-up", {"policy__ratio_mean": 14.0}),
    ("ratio-blow-up", {"policy__ratio_max": 40.0}),
    ("nan-inf", {"policy__loss": NAN}),
    ("no-reward-signal", {"group__zero_std_fraction": 1.0}),
    ("no-reward-signal", {"score__std": 0.0}),
    ("truncated-responses", {"response__truncated_fraction": 0.95}),
    ("missing-eos", {"response__eos_count": 0.0}),
    ("logprob-mismatch", {"policy__ratio_first": 1.4}),
    ("logprob-mismatch", {"rollout__logprob_gap_mean": 0.3}),
]


@pytest.mark.parametrize(("id", "values"), BROKEN)
def test_one_row_is_a_warning_and_two_are_critical(id: str, values: dict[str, float]) -> None:
    assert severities(rows(1, **values))[id] is Severity.WARNING
    assert severities(rows(2, **values))[id] is Severity.CRITICAL


SOUND: list[dict[str, float]] = [
    {"policy__gradient_norm": 0.0, "score__std": 0.0, "group__zero_std_fraction": 1.0},  # no signal: 0 is right
    {"kl__reference": -0.4},
    {"policy__ratio_mean": 1.1, "policy__ratio_max": 3.0},
    {"policy__loss": 0.0, "policy__gradient_norm": 0.9, "score__std": 0.8, "kl__reference_per_token": 1e-4},
    {"policy__clip_fraction": 0.0, "kl__update": 0.0},
    {"response__truncated_fraction": 0.6},
    {"response__eos_count": 3.0},
    {"kl__reference_per_token": 0.0},
    {"policy__ratio_first": 1.0005},
    {"rollout__logprob_gap_mean": 0.012},
]


@pytest.mark.parametrize("values", SOUND)
@pytest.mark.parametrize("n", [1, 3])
def test_what_is_usual_stays_silent_and_is_never_called_healthy(values: dict[str, float], n: int) -> None:
    diagnosis = diagnose_materials([rows(n, **values)])
    alarms = {f.id for f in diagnosis.findings if f.severity.loud} - {"no-reward-signal"}
    assert not alarms
    if not any(f.severity.loud for f in diagnosis.findings):
        assert diagnosis.status is Status.INCONCLUSIVE


def test_no_trend_rule_speaks_of_a_few_rows() -> None:
    log = drawn.log({
        "score/mean": [0.9, 0.5, 0.2], "policy/entropy": [1.0, 0.3, 0.01], "response/length_mean": [100, 300, 900],
        "policy/gradient_norm": [1.0, 1.0, 900.0], "value/explained_variance": [-1.0, -1.0, -1.0],
    })  # fmt: skip
    assert not severities(log)


def test_few_rows_over_most_of_a_known_run_show_a_flat_score() -> None:
    steps = [10, 20, 30, 1250, 1260]
    flat = drawn.log({"score/mean": [0.13, 0.14, 0.12, 0.135, 0.125]}, steps=steps, planned=1287)
    assert severities(flat) == {"reward-not-improving": Severity.WARNING}
    rising = drawn.log({"score/mean": [0.13, 0.14, 0.12, 0.4, 0.42]}, steps=steps, planned=1287)
    assert not severities(rising)
    unplanned = drawn.log({"score/mean": [0.13, 0.14, 0.12, 0.135, 0.125]}, steps=steps)
    assert not severities(unplanned)


def test_an_estimator_that_cannot_be_negative_makes_it_an_invalid_metric() -> None:
    values = {"kl/reference": [-3.0, -3.0, -2.0]}
    assert severities(drawn.log(values, estimators={"kl/reference": Estimator.K3})) == {
        "invalid-metric": Severity.WARNING
    }


def test_the_first_percent_of_a_preference_model_may_be_a_coin() -> None:
    log = drawn.log({"loss/train": [0.692, 0.6897, 0.6916, 0.6878], "accuracy/train": [0.5, 0.52, 0.49, 0.53]},
                    Stage.PREFERENCE_MODEL, planned=2000)  # fmt: skip
    assert not severities(log)


def test_a_kl_of_unknown_unit_is_not_judged() -> None:
    log = drawn.log({"score/mean": np.linspace(0.2, 0.8, 60)}, unit_unknown={"kl/reference_per_token": "kl_div"})
    diagnosis = diagnose_materials([log])
    told = {n.id: n for n in diagnosis.not_diagnosable}
    assert told["kl-explosion"].reason == "unit-unknown"
    assert told["kl-explosion"].missing == ("kl_div",)
    assert {f.id: f.severity for f in diagnosis.findings} == {"unit-unknown": Severity.INFO}


def test_missing_signals_are_named_in_the_words_of_the_framework() -> None:
    diagnosis = diagnose_materials([drawn.log({"score/mean": np.linspace(0, 1, 60)}, framework="verl")])
    told = {n.id: n.missing for n in diagnosis.not_diagnosable}
    assert told["entropy-collapse"] == ("actor/entropy",)


def test_overflow_of_half_precision_is_no_nan_until_it_lasts() -> None:
    n = 200
    sound = drawn.half_precision(drawn.grpo(0), 0)
    assert not [s for s in severities(drawn.log(sound)).values() if s.loud]
    stuck = {**sound, "precision/skipped_updates": np.arange(n) * 0.4}
    assert severities(drawn.log(stuck))["nan-inf"] is Severity.WARNING


def test_a_logged_metric_without_a_number_is_not_a_broken_run() -> None:
    values = {**drawn.dpo(0)}
    holes = values["dpo/chosen_reward"].copy()
    holes[::7] = NAN
    found = severities(drawn.log({**values, "dpo/chosen_reward": holes}, Stage.DIRECT))
    assert found == {"nan-inf": Severity.INFO}


def test_a_short_run_that_is_there_as_a_whole_is_no_excerpt() -> None:
    flat = np.array([0.63, 0.72, 0.7, 0.5, 0.61, 0.66, 0.66, 0.68, 0.65, 0.71, 0.66, 0.66, 0.6, 0.65, 0.69, 0.7])
    assert not severities(drawn.log({"score/mean": flat}, planned=16))
    assert "reward-not-improving" in severities(
        drawn.log({"score/mean": flat}, steps=np.arange(1, 17) * 80, planned=1287)
    )
