"""What looks like a failure and is none: the nearest confusers of each finding stay silent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import drawn_logs as drawn
from trimtab.doctor.diagnosis import Diagnosis
from trimtab.doctor.driver import diagnose, diagnose_materials
from trimtab.doctor.finding import Severity
from trimtab.doctor.log import Estimator, Log, Stage

N = 200
T = np.arange(N) / N


def grpo(seed: int, **changed: object) -> Log:
    d: dict[str, object] = {**drawn.grpo(seed, kind="plain")}
    d.update({k.replace("__", "/"): v for k, v in changed.items()})
    return drawn.log(d)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed + 40)


def k3_spikes(seed: int) -> Log:
    kl = drawn.grpo(seed, kind="plain")["kl/reference_per_token"].copy()
    kl[[50, 90, 91, 160]] = [8.0, 3.0, 20.0, 5.0]
    return grpo(seed, kl__reference_per_token=kl)


def free_of_kl(seed: int) -> Log:
    return grpo(seed, kl__beta=np.zeros(N), kl__reference_per_token=1.2 * T + 0.02 * rng(seed).standard_normal(N) ** 2)


def long_responses(seed: int) -> Log:
    kl = 45 * drawn.rise(N, 0, 1, 0.2)
    return grpo(seed, kl__reference=kl, kl__reference_per_token=kl / 1500, response__length_mean=np.full(N, 1500.0))


def noisy_k1(seed: int) -> Log:
    d = drawn.grpo(seed, kind="plain")
    del d["kl/reference_per_token"]
    d["kl/reference"] = 0.3 + 0.9 * rng(seed).standard_normal(N)
    return drawn.log(d)


def narrow_start(seed: int) -> Log:
    return grpo(seed, policy__entropy=0.05 - 0.027 * T)


def solved(seed: int) -> Log:
    score = 0.3 + 0.68 * drawn.rise(N, 0, 1, 0.08) + 0.01 * rng(seed).standard_normal(N)
    way = drawn.rise(N, 0, 1, 0.1)
    return grpo(seed, score__mean=score, score__max=np.ones(N), policy__entropy=1.2 * np.exp(-6 * way),
                group__zero_std_fraction=np.clip(0.1 + 0.8 * way, 0, 1))  # fmt: skip


def entropy_bonus(seed: int) -> Log:
    return grpo(seed, policy__entropy=0.3 + 0.6 * T, score__mean=0.2 + 0.5 * T + 0.03 * rng(seed).standard_normal(N))


def small_spikes(seed: int) -> Log:
    g = drawn.positive(0.02, rng(seed), N, 0.3)
    g[::9] = 0.6
    return grpo(seed, policy__gradient_norm=g)


def first_steps_spike(seed: int) -> Log:
    g = drawn.positive(1.0, rng(seed), N, 0.3)
    g[:6] = [900, 500, 300, 120, 60, 20]
    return grpo(seed, policy__gradient_norm=g)


def zero_gradient_without_signal(seed: int) -> Log:
    d = drawn.grpo(seed, kind="plain")
    none = rng(seed).random(N) < 0.3
    return grpo(seed, policy__gradient_norm=np.where(none, 0, d["policy/gradient_norm"]),
                score__std=np.where(none, 0, d["score/std"]), group__zero_std_fraction=0.2 + 0.8 * none)  # fmt: skip


def learns_to_finish(seed: int) -> Log:
    return grpo(seed, response__truncated_fraction=0.5 * np.exp(-12 * T) + 0.02)


def thinking(seed: int) -> Log:
    return grpo(seed, response__truncated_fraction=0.18 + 0.02 * rng(seed).standard_normal(N))


def briefer(seed: int) -> Log:
    return grpo(
        seed, response__length_mean=400 * (1 - 0.6 * drawn.rise(N, 0, 1, 0.3)) + 4 * rng(seed).standard_normal(N)
    )


def longer_and_measured(seed: int) -> Log:
    at = np.arange(10, N + 1, 10)
    up = 0.4 + 0.3 * drawn.rise(N, 0, 1, 0.3)[at - 1] + 0.01 * rng(seed).standard_normal(len(at))
    return grpo(
        seed, response__length_mean=200 * (1 + 2 * T) + 5 * rng(seed).standard_normal(N), eval__accuracy=(at, up)
    )


def noisy_measure(seed: int) -> Log:
    at = np.arange(20, N + 1, 20)
    return grpo(seed, eval__accuracy=(at, 0.5 + 0.03 * rng(seed).standard_normal(len(at))))


def dip(seed: int) -> Log:
    score = drawn.grpo(seed, kind="plain")["score/mean"].copy()
    score[80:95] -= 0.3
    return grpo(seed, score__mean=score)


def cold_critic(seed: int) -> Log:
    d = {**drawn.ppo(seed)}
    d["value/explained_variance"] = 0.6 - 6 * 0.5 ** (T / 0.04) + 0.05 * rng(seed).standard_normal(N)
    d["value/gradient_norm"] = 500 * np.exp(-30 * T) + 2
    return drawn.log(d, algorithm="ppo")


def constant_returns(seed: int) -> Log:
    d = {**drawn.ppo(seed)}
    d["value/explained_variance"] = -0.5 + 0.1 * rng(seed).standard_normal(N)
    d["value/return_std"] = np.full(N, 0.004)
    return drawn.log(d, algorithm="ppo")


def scores_in_other_units(seed: int) -> Log:
    d = {**drawn.ppo(seed)}
    for key in ("score/mean", "score/std", "reward/mean"):
        d[key] = d[key] * 40
    return drawn.log(d, algorithm="ppo")  # returns and advantages are normalised: only the scores are large


def no_baseline_by_choice(seed: int) -> Log:
    d = {**drawn.grpo(seed, kind="plain")}
    d["advantage/mean"] = d["score/mean"]
    return drawn.log(d, algorithm="reinforce")


def token_mean_of_advantages(seed: int) -> Log:
    return grpo(seed, advantage__mean=-0.15 + 0.03 * rng(seed).standard_normal(N))


def negative_chosen_reward(seed: int) -> Log:
    d = {**drawn.dpo(seed)}
    for key in ("dpo/chosen_reward", "dpo/rejected_reward"):
        d[key] = d[key] - 0.9 * drawn.rise(N, 0, 1, 0.3)
    return drawn.log(d, Stage.DIRECT, algorithm="dpo")


def kto_at_zero(seed: int) -> Log:
    d = {**drawn.dpo(seed), "kto/kl": np.zeros(N)}
    return drawn.log(d, Stage.DIRECT, algorithm="kto")


def first_logged_late(seed: int) -> Log:
    d = drawn.dpo(seed)
    d["dpo/chosen_reward"] = np.linspace(1.2, 3, N)
    return drawn.log(d, Stage.DIRECT, algorithm="dpo", steps=np.arange(100, 100 + N))


def overconfident_but_right(seed: int) -> Log:
    d = {**drawn.reward_model(seed)}
    at, loss = d["loss/validation"]
    rising = np.asarray(loss).copy()
    rising[5:] = rising[4] + 0.02 * np.arange(1, 4)
    d["loss/validation"] = (at, rising)  # type: ignore[assignment]
    return drawn.log(d, Stage.PREFERENCE_MODEL)


def negative_loss(seed: int) -> Log:
    return grpo(seed, policy__loss=0.01 + 0.4 * T + 0.01 * rng(seed).standard_normal(N))


def clipped_without_ratio(seed: int) -> Log:
    d = {**drawn.grpo(seed, kind="one-update")}
    return drawn.log(d, framework="verl")


CONFUSERS: list[Callable[[int], Log]] = [
    k3_spikes, free_of_kl, long_responses, noisy_k1, narrow_start, solved, entropy_bonus, small_spikes,
    first_steps_spike,
    zero_gradient_without_signal, learns_to_finish, thinking, briefer, longer_and_measured, noisy_measure, dip,
    cold_critic, constant_returns, scores_in_other_units, no_baseline_by_choice, token_mean_of_advantages,
    negative_chosen_reward, kto_at_zero, first_logged_late, overconfident_but_right, negative_loss,
    clipped_without_ratio,
]  # fmt: skip


@pytest.mark.parametrize("confuser", CONFUSERS, ids=[c.__name__ for c in CONFUSERS])
def test_it_raises_no_alarm(confuser: Callable[[int], Log]) -> None:
    for seed in (0, 3, 4):
        found = diagnose_materials([confuser(seed)]).findings
        assert not [(f.id, f.onset_step) for f in found if f.severity.loud]


def test_a_score_alone_never_decides_hacking() -> None:
    """Score, length and KL all up as in the worst case: a suspicion, and what to measure."""
    log = grpo(0, response__length_mean=200 * (1 + 4 * T), kl__reference_per_token=0.45 * T,
               score__mean=0.1 + 0.8 * T + 0.02 * rng(0).standard_normal(N))  # fmt: skip
    found = {f.id: f for f in diagnose_materials([log]).findings}
    assert found["reward-hacking"].severity is Severity.INFO
    assert found["reward-hacking"].cause.key == "reward-hacking.suspicion"


def test_a_short_or_noisy_measure_decides_nothing() -> None:
    for at, values in (((50, 100, 150), (0.5, 0.6, 0.4)), (range(20, 201, 20), 0.5 + 0.05 * np.resize([1, -1], 10))):
        found = diagnose_materials([grpo(1, eval__accuracy=(np.array(at), np.array(values)))]).findings
        assert not [f for f in found if f.id == "reward-hacking" and f.severity.loud]


def test_the_measure_has_to_fall_while_the_score_is_higher() -> None:
    at = np.arange(10, N + 1, 10)
    falls = np.concatenate([np.linspace(0.5, 0.7, 10), np.linspace(0.7, 0.3, 10)])
    up = grpo(1, eval__accuracy=(at, falls), score__mean=0.2 + 0.6 * T + 0.02 * rng(1).standard_normal(N))
    assert "reward-hacking" in {f.id for f in diagnose_materials([up]).findings if f.severity.loud}
    both = np.interp(np.arange(N), at, falls) + 0.02 * rng(1).standard_normal(N)
    down = grpo(1, eval__accuracy=(at, falls), score__mean=both)
    found = {f.id for f in diagnose_materials([down]).findings if f.severity.loud}
    assert "reward-hacking" not in found
    assert "reward-decreasing" in found


def test_a_k3_below_zero_is_no_negative_kl() -> None:
    log = drawn.log({"kl/reference": np.full(30, -2.0)}, estimators={"kl/reference": Estimator.K3})
    assert "negative-kl" not in {f.id for f in diagnose_materials([log]).findings}


def alarms(log: Log) -> set[str]:
    return {f.id for f in diagnose_materials([log]).findings if f.severity.loud}


@pytest.mark.parametrize(("end", "expected"), [(1.2, "length-collapse"), (50.0, "kl-explosion")])
def test_a_kl_per_token_is_no_explosion_where_only_the_responses_shrank(
    end: float, expected: str, tmp_path: Path
) -> None:
    scale = 1.0 if expected == "length-collapse" else 8.0  # the second run has a KL of 56 nats a response
    rows = [
        {
            "objective/kl": scale * 7 * (1 - np.exp(-4 * t)) + 0.1 * noise,
            "objective/kl_coef": 0.1,
            "tokens/responses_len_mean": end + (55 - end) * np.exp(-5 * t),
            "ppo/mean_scores": 0.2 + 0.6 * (1 - np.exp(-4 * t)) + 0.05 * noise,
        }
        for t, noise in zip(T, rng(0).standard_normal(N), strict=True)
    ]
    file = tmp_path / "stats.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    diagnosis = diagnose(file)
    assert {f.id for f in diagnosis.findings if f.severity.loud} == {expected}
    assert not [m for f in diagnosis.findings for m in f.ruled_out if m.key == "length-collapse.not-brief"]


def read_rows(path: Path, rows: list[dict[str, float]]) -> Diagnosis:
    file = path / "log.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return diagnose(file)


def told(diagnosis: Diagnosis) -> set[str]:
    return {f.id for f in diagnosis.findings if f.severity.loud}


@pytest.mark.parametrize(("points", "gain", "expected"), [(200, 0.0, True), (30, 0.0, False), (200, 0.6, False)])
def test_a_direct_loss_that_stays_at_ln_2_is_a_policy_that_does_not_move(
    points: int, gain: float, expected: bool, tmp_path: Path
) -> None:
    t, noise = np.arange(points) / points, 0.002 * rng(0).standard_normal(points)
    margin = gain * t + noise
    rows = [
        {"loss": float(np.log1p(np.exp(-m))), "rewards/chosen": m / 2, "rewards/rejected": -m / 2, "rewards/margins": m}
        for m in margin.tolist()
    ]
    assert ("policy-not-moving" in told(read_rows(tmp_path, rows))) is expected


@pytest.mark.parametrize(("last", "expected"), [(0.09, True), (0.35, False)])
def test_a_loss_says_how_many_training_pairs_are_right_at_least(last: float, expected: bool, tmp_path: Path) -> None:
    rows = [
        {"epoch": i, "loss": loss, "chosen_score": 1.0, "acc": acc}
        for i, (loss, acc) in enumerate([(0.66, 0.64), (0.5, 0.655), (last, 0.65)])
    ]
    assert ("pm-overfit" in told(read_rows(tmp_path, rows))) is expected


def test_doing_nothing_for_a_score_is_hacking_where_a_measure_says_so_and_no_style(tmp_path: Path) -> None:
    noise = rng(0).standard_normal(N).tolist()
    rows = [
        {
            "step": i,
            "reward": 1 + 0.6 * t + 0.2 * e,
            "noop_rate": min(1.0, max(0.0, 0.2 + 0.4 * t + 0.05 * e)),
            "proxy_success": min(1.0, max(0.0, 0.15 + 0.5 * t + 0.08 * e)),
            "gold_success": 0.0,
        }
        for i, (t, e) in enumerate(zip(T.tolist(), noise, strict=True))
    ]
    diagnosis = read_rows(tmp_path, rows)
    assert told(diagnosis) == {"reward-hacking"}
    assert diagnosis.findings[0].onset_step == 0


@pytest.mark.parametrize(("steps", "expected"), [([0.4, 2.2, 7.1], True), ([0.04, 0.1, 0.7], False)])
def test_an_update_of_half_a_nat_a_token_leaves_the_samples_behind(
    steps: list[float], expected: bool, tmp_path: Path
) -> None:
    rows = [{"step": i, "ppo/policy/approxkl": x, "ppo/mean_scores": 0.1} for i, x in enumerate(steps)]
    assert ("ratio-blow-up" in told(read_rows(tmp_path, rows))) is expected


def test_a_start_near_zero_entropy_is_no_collapse_even_where_the_score_is_flat() -> None:
    flat = 0.3 + 0.03 * rng(0).standard_normal(N)
    assert "entropy-collapse" not in alarms(grpo(0, policy__entropy=0.04 * np.exp(-3 * T), score__mean=flat))
    assert "entropy-collapse" in alarms(grpo(0, policy__entropy=0.9 * np.exp(-6 * T), score__mean=flat))


def test_a_score_at_its_ceiling_may_stay_there_while_entropy_vanishes() -> None:
    score = 0.3 + 0.68 * drawn.rise(N, 0, 1, 0.03) + 0.005 * rng(0).standard_normal(N)
    entropy = 1.2 * np.exp(-6 * np.clip((T - 0.4) / 0.3, 0, 1))
    assert "entropy-collapse" not in alarms(grpo(0, policy__entropy=entropy, score__mean=score, score__max=np.ones(N)))
    # the same with better responses in every batch: it has stopped half-way
    assert "entropy-collapse" in alarms(
        grpo(0, policy__entropy=entropy, score__mean=0.5 * score, score__max=np.ones(N))
    )


def test_a_score_that_stands_still_since_the_entropy_was_used_up_is_no_success() -> None:
    noise = 0.02 * rng(0).standard_normal(N)
    entropy = 0.5 * np.exp(-9 * T)
    assert "entropy-collapse" in alarms(
        grpo(0, policy__entropy=entropy, score__mean=0.1 + 0.32 * np.clip(3 * T, 0, 1) + noise)
    )
    assert "entropy-collapse" not in alarms(grpo(0, policy__entropy=entropy, score__mean=0.1 + 0.32 * T + noise))
    # the same plateau with something left to sample from
    left = 0.04 + 0.46 * np.exp(-9 * T)
    assert "entropy-collapse" not in alarms(
        grpo(0, policy__entropy=left, score__mean=0.1 + 0.32 * np.clip(3 * T, 0, 1) + noise)
    )


def test_large_gradients_of_the_first_steps_are_none_of_the_run() -> None:
    g = drawn.positive(1.0, rng(0), N, 0.2)
    g[5:10] = [4000, 900, 3000, 900, 2000]
    assert "exploding-gradients" not in alarms(grpo(0, policy__gradient_norm=g))
    g[60:65] = [4000, 900, 3000, 900, 2000]
    assert "exploding-gradients" in alarms(grpo(0, policy__gradient_norm=g))


def wander(seed: int) -> np.ndarray:
    out = np.zeros(N)
    steps = rng(seed).standard_normal(N)
    for i in range(1, N):
        out[i] = 0.9 * out[i - 1] + steps[i]
    return out


def test_a_slow_wander_is_no_oscillation() -> None:
    """Correlated noise alone now and then has a rhythm by chance; about a score that rises it has none."""
    assert sum("oscillating" in alarms(grpo(s, score__mean=0.5 + 0.02 * wander(s))) for s in range(60)) <= 4
    rising = 0.2 + 0.6 * drawn.rise(N, 0, 1, 0.25)
    assert not [s for s in range(40) if "oscillating" in alarms(grpo(s, score__mean=rising + 0.02 * wander(s)))]


def test_collapses_that_are_won_back_are_an_oscillation_without_a_period() -> None:
    saw = np.concatenate([np.linspace(0.3, 0.8, length) for length in (31, 22, 45, 38, 27, 37)])
    assert "oscillating" in alarms(grpo(0, score__mean=saw + 0.03 * rng(0).standard_normal(N)))


def test_a_score_that_keeps_most_of_what_it_won_is_not_decreasing() -> None:
    score = np.interp(np.arange(N), [0, 90, 120, N], [0.2, 0.8, 0.65, 0.65]) + 0.01 * rng(0).standard_normal(N)
    assert "reward-decreasing" not in alarms(grpo(0, score__mean=score))
    lost = np.interp(np.arange(N), [0, 90, 120, N], [0.2, 0.8, 0.4, 0.4]) + 0.01 * rng(0).standard_normal(N)
    assert "reward-decreasing" in alarms(grpo(0, score__mean=lost))
