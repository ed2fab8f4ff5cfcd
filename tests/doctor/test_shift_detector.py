"""pm-distribution-shift: found where states or accuracy leave the pairs, silent where only scores move."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trimtab.doctor.detectors.shift import RULES
from trimtab.doctor.finding import Finding, NotDiagnosable, Severity
from trimtab.doctor.importers.ours import read_run, rows_log
from trimtab.runs.run import Run

CONFIG = {"ppo.reward": "preference"}
N = 60


def look(series: dict[str, np.ndarray], config=CONFIG, stage: str = "ppo") -> list[Finding | NotDiagnosable]:
    n = max((len(v) for v in series.values()), default=N)
    rows = [
        {"step": i + 1, "score/mean": 0.01 * i} | {k: float(v[i]) for k, v in series.items() if i < len(v)}
        for i in range(n)
    ]
    log = rows_log(rows, "made up", stage, config, n, {})
    return [v for rule in RULES if rule.reads(log) for v in rule.look(log)]


def noisy(levels, scale: float, seed: int = 0) -> np.ndarray:
    return np.clip(levels + scale * np.random.default_rng(seed).normal(size=len(levels)), 0, 1)


def healthy(seed: int = 0, n: int = N) -> dict[str, np.ndarray]:
    """As healthy runs of the tiny world: states stay, scores move."""
    return {
        "shift/distance": noisy(np.linspace(0.48, 0.45, n), 0.03, seed),
        "shift/outside_fraction": noisy(np.full(n, 0.01), 0.012, seed + 1),
        "shift/score_psi": np.linspace(0, 2.3, n),
    }


@pytest.mark.parametrize("n", [8, 20, 60, 300])
def test_a_policy_that_stays_among_the_pairs_raises_no_alarm_however_its_scores_move(n):
    for seed in range(5):
        assert look(healthy(seed, n)) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_policy_that_drifts_off_is_found_with_its_onset(seed):
    drifting = healthy(seed) | {
        "shift/distance": noisy(np.r_[np.full(20, 0.49), np.linspace(0.5, 0.81, 40)], 0.03, seed)
    }
    (found,) = look(drifting)
    assert isinstance(found, Finding)
    assert (found.id, found.severity, found.cause.key) == (
        "pm-distribution-shift", Severity.WARNING, "pm-distribution-shift.left",
    )  # fmt: skip
    assert found.onset_step is not None
    assert 18 <= found.onset_step <= 40
    assert {e.signal for e in found.evidence} >= {"shift/distance", "shift/score_psi"}


def test_far_out_it_is_critical():
    far = healthy() | {"shift/distance": noisy(np.linspace(0.5, 0.99, N), 0.01)}
    assert look(far)[0].severity is Severity.CRITICAL
    out = healthy() | {"shift/outside_fraction": noisy(np.linspace(0, 0.6, N), 0.02)}
    assert look(out)[0].severity is Severity.CRITICAL
    some = healthy() | {"shift/outside_fraction": noisy(np.linspace(0, 0.2, N), 0.02)}
    assert look(some)[0].severity is Severity.WARNING


def test_pairs_of_other_models_are_far_from_the_start():
    (found,) = look(healthy() | {"shift/distance": noisy(np.full(N, 0.85), 0.02)})
    assert (found.cause.key, found.onset_step) == ("pm-distribution-shift.from-start", 1)


def test_a_small_rise_or_a_few_rows_are_no_shift():
    assert look(healthy() | {"shift/distance": noisy(np.linspace(0.5, 0.65, N), 0.02)}) == []
    (unmade,) = look({"shift/distance": np.array([0.5, 0.9, 0.95])})
    assert (unmade.id, unmade.reason) == ("pm-distribution-shift", "too-short")


def test_accuracy_on_the_policys_own_pairs_decides_by_itself():
    fell = {"accuracy/on_policy": np.array([0.72, 0.66, 0.63])}
    (found,) = look(fell)
    assert found.cause.key == "pm-distribution-shift.unlike"
    sure = {"accuracy/on_policy": np.array([0.72, 0.60]), "accuracy/on_policy_high": np.array([0.78, 0.68])}
    assert look(sure)[0].severity is Severity.CRITICAL
    unsure = {"accuracy/on_policy": np.array([0.72, 0.60]), "accuracy/on_policy_high": np.array([0.78, 0.74])}
    assert look(unsure) == []
    assert look({"accuracy/on_policy": np.array([0.72, 0.69, 0.69])}) == []


def test_what_pm_shift_expects_counts_beyond_chance_only():
    def expected(change: float, high: float):
        return look(
            {"shift/accuracy_by_distance": np.array([change]), "shift/accuracy_by_distance_high": np.array([high])}
        )

    assert expected(-0.08, -0.02)[0].severity is Severity.WARNING
    assert expected(-0.08, 0.01) == []
    assert expected(-0.03, -0.01) == []


def test_it_is_asked_for_only_where_a_preference_model_scores():
    (unmade,) = look({})
    assert unmade.reason == "missing"
    assert look({}, {"ppo.reward": "rule:length"}) == []
    assert look({}, {"ppo.reward.preference": 0.5})[0].reason == "missing"
    assert look({"accuracy/validation": np.full(30, 0.7)}, stage="pm") == []


def test_what_pm_shift_found_of_a_run_stands_in_its_log(tmp_path):
    run = Run.create(tmp_path, "r", config={"ppo": {"reward": "preference"}}, seed=1)
    run.begin_stage("ppo", "f")
    for step in (1, 2):
        run.log("ppo", step, {"score/mean": 0.1})
    told = {
        "step": 2, "verdict": "shifted", "domain": {"mean": 0.9},
        "expected": {"accuracy": {"mean": 0.6}, "by_distance": {"mean": -0.1, "high": -0.03}},
    }  # fmt: skip
    path = run.artifact("pm") / "shift.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"sets": [told, {**told, "step": 1, "verdict": "cannot tell"}]}), encoding="utf-8")
    (log,) = read_run(run.path, {})
    assert log.series["shift/accuracy_by_distance"].steps.tolist() == [2]
    assert log.series["shift/auc"].values.tolist() == [0.9]
    for broken in ("{", "[]", '{"sets": 3}', '{"sets": [{"step": 2}]}'):
        path.write_text(broken, encoding="utf-8")
        assert "shift/auc" not in read_run(run.path, {})[0].series
