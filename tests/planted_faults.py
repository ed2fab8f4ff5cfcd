"""One fault of each kind planted into a sound drawn log: what has to be found, and from which step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import drawn_logs as drawn
from trimtab.doctor.log import Floats, Log, Stage

AT = 80
"""Step at which faults that set in later set in, of 200."""


class Fault(NamedTuple):
    """`draw(seed)` gives the log; `onset`: step from which the fault is there, None where it is there from the start or
    the material has no steps; `slack`: how far the step named may lie from it."""

    id: str
    draw: Callable[[int], Log]
    onset: int | None = None
    slack: int = 25


def _ramp(n: int, at: int = AT, over: int = 60) -> Floats:
    """[n] 0 before `at`, 1 from `at + over` on."""
    return np.clip((np.arange(1, n + 1) - at) / over, 0, 1)


def _grpo(
    change: Callable[[drawn.Draw, np.random.Generator, int], None], kind: str = "plain", **how: Any
) -> Callable[[int], Log]:
    def draw(seed: int) -> Log:
        d = drawn.grpo(seed, kind=kind)
        change(d, np.random.default_rng(seed + 77), len(d["score/mean"]))
        return drawn.log(d, **how)

    return draw


def _ppo(change: Callable[[drawn.Draw, np.random.Generator, int], None], **how: Any) -> Callable[[int], Log]:
    def draw(seed: int) -> Log:
        d = drawn.ppo(seed)
        change(d, np.random.default_rng(seed + 77), len(d["score/mean"]))
        return drawn.log(d, algorithm="ppo", **how)

    return draw


def _other(
    make: Any, stage: Stage, change: Callable[[drawn.Draw, np.random.Generator, int], None]
) -> Callable[[int], Log]:
    def draw(seed: int) -> Log:
        d = make(seed)
        change(d, np.random.default_rng(seed + 77), 200)
        return drawn.log(d, stage, algorithm="dpo" if stage is Stage.DIRECT else "reward-model")

    return draw


def _flat(d: drawn.Draw, rng: np.random.Generator, n: int, level: float = 0.2, sigma: float = 0.04) -> None:
    d["score/mean"] = level + sigma * rng.standard_normal(n)


def _kl(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["kl/reference_per_token"] = d["kl/reference_per_token"] + 2.5 * _ramp(n) ** 2 * np.exp(
        0.2 * rng.standard_normal(n)
    )


def _negative(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["kl/reference"] = -4 * np.clip(np.arange(n) / 60, 0.1, 1) + 0.4 * rng.standard_normal(n)
    del d["kl/reference_per_token"]


def _still(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["kl/reference_per_token"] = 3e-5 * np.abs(rng.standard_normal(n))
    _flat(d, rng, n)


def _held(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["score/mean"] = 0.2 + 0.05 * rng.standard_normal(n)
    d["score/std"] = drawn.positive(0.5, rng, n, 0.1)
    d["kl/reference"] = 0.5 + 0.05 * rng.standard_normal(n)
    d["kl/reference_per_token"] = d["kl/reference"] / d["response/length_mean"]
    d["kl/beta"] = np.full(n, 1.2)
    d["reward/mean"] = d["score/mean"] - d["kl/beta"] * d["kl/reference"]


def _ratio(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["policy/ratio_max"] = 1.5 + 30 * _ramp(n, over=20) * np.exp(0.3 * rng.standard_normal(n))
    d["policy/ratio_mean"] = 1 + 2 * _ramp(n, over=20)


def _gap(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["rollout/logprob_gap_mean"] = drawn.positive(0.012 + 0.15 * _ramp(n, over=80), rng, n, 0.1)


def _first(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["policy/ratio_first"] = 1 + 0.08 * np.exp(0.2 * rng.standard_normal(n))


def _clip(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["policy/clip_fraction"] = np.clip(0.05 + 0.4 * _ramp(n, over=20) + 0.03 * rng.standard_normal(n), 0, 1)


def _collapse(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    gone = _ramp(n, over=40)
    d["policy/entropy"] = 1.0 * np.exp(-5 * gone) * np.exp(0.05 * rng.standard_normal(n))
    before = d["score/mean"][AT - 10 : AT].mean()
    d["score/mean"] = np.where(np.arange(n) < AT, d["score/mean"], before - 0.05 * gone + 0.03 * rng.standard_normal(n))
    d["group/zero_std_fraction"] = np.clip(d["group/zero_std_fraction"] + 0.5 * gone, 0, 1)
    del d["score/max"]


def _entropy_up(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["policy/entropy"] = (0.6 + 2.5 * _ramp(n)) * np.exp(0.05 * rng.standard_normal(n))
    d["score/mean"] = d["score/mean"] - 0.4 * _ramp(n, over=100)


def _no_gradient(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["policy/gradient_norm"] = np.zeros(n)
    _flat(d, rng, n)


def _spikes(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    hit = (np.arange(n) > AT) & (rng.random(n) < 0.2)
    d["policy/gradient_norm"] = np.where(hit, 400 * np.exp(0.5 * rng.standard_normal(n)), d["policy/gradient_norm"])


def _nan(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["policy/loss"][AT - 1 :] = np.nan
    d["policy/gradient_norm"][AT - 1 :] = np.nan


def _diverging(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["value/loss"] = d["value/loss"] * np.exp(6 * _ramp(n, over=110))


def _oscillating(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    period = rng.uniform(25, 50)
    d["score/mean"] = (
        0.4 + 0.2 * np.sin(2 * np.pi * np.arange(n) / period + rng.uniform(0, 6)) + 0.03 * rng.standard_normal(n)
    )


def _falling(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["score/mean"] = d["score/mean"] - 0.6 * _ramp(n, over=80)


def _too_long(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["response/length_mean"] = d["response/length_mean"] * (1 + 2 * _ramp(n))
    d["response/truncated_fraction"] = np.clip(d["response/truncated_fraction"] + 0.4 * _ramp(n, AT + 20), 0, 1)
    before = d["score/mean"][:AT].max()
    d["score/mean"] = np.minimum(d["score/mean"], before) - 0.1 * _ramp(n)


def _too_short(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["response/length_mean"] = d["response/length_mean"] * (1 - 0.95 * _ramp(n))
    d["score/mean"] = d["score/mean"] - 0.3 * _ramp(n)


def _cut(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["response/truncated_fraction"] = np.clip(0.03 + 0.6 * _ramp(n) + 0.03 * rng.standard_normal(n), 0, 1)


def _no_eos(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["response/eos_fraction"] = np.zeros(n)
    d["response/truncated_fraction"] = np.ones(n)
    _flat(d, rng, n)


def _blind_critic(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["value/explained_variance"] = -0.4 + 0.15 * rng.standard_normal(n)


def _alike(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["group/zero_std_fraction"] = np.clip(0.85 + 0.06 * rng.standard_normal(n), 0, 1)
    _flat(d, rng, n, 0.03, 0.01)


def _scale(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    for key in ("score/mean", "score/std", "reward/mean", "value/return_std", "advantage/mean", "advantage/std"):
        d[key] = d[key] * 60
    d["value/loss"] = d["value/loss"] * 3600


def _noisy(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["score/std"] = drawn.positive(0.45, rng, n, 0.2)
    d["score/mean"] = 0.3 + 0.4 * rng.standard_normal(n)


def _no_baseline(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["advantage/mean"] = d["score/mean"] * (1 + 1e-4 * rng.standard_normal(n))


def _hack(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    gold = np.where(np.arange(n) < AT, np.arange(n) / AT, 1 - 0.9 * _ramp(n, over=100))
    d["eval/win_rate"] = (np.arange(10, n + 1, 10), (0.5 + 0.2 * gold + 0.01 * rng.standard_normal(n))[9::10])  # type: ignore[assignment]
    d["score/mean"] = 0.2 + 0.5 * np.arange(n) / n + 0.03 * rng.standard_normal(n)


def _by_length(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    length = 200 * (1 + 3 * _ramp(n, 40, 120)) * np.exp(0.05 * rng.standard_normal(n))
    d["response/length_mean"] = length
    d["score/mean"] = 0.1 + 0.8 * length / 800 + 0.01 * rng.standard_normal(n)
    d["response/truncated_fraction"] = np.clip(0.02 + 0.5 * _ramp(n, AT, 80), 0, 1)


def _repeats(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["response/distinct_2"] = (0.6 - 0.45 * _ramp(n)) * np.exp(0.03 * rng.standard_normal(n))
    d["response/repetition"] = np.clip(0.04 + 0.6 * _ramp(n) + 0.01 * rng.standard_normal(n), 0, 1)


def _hedges(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["style/hedges"] = np.clip(0.05 + 0.4 * _ramp(n) + 0.01 * rng.standard_normal(n), 0, 1)


def _flattery(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["style/sycophancy"] = np.clip(0.1 + 0.4 * _ramp(n) + 0.02 * rng.standard_normal(n), 0, 1)


def _left_behind(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["shift/distance"] = 0.5 + 0.4 * _ramp(n) + 0.02 * rng.standard_normal(n)
    d["shift/outside_fraction"] = np.clip(0.01 + 0.3 * _ramp(n) + 0.005 * rng.standard_normal(n), 0, 1)


def _tax(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    at = np.arange(20, n + 1, 20)
    d["eval/mmlu"] = (at, 0.60 - 0.15 * _ramp(n)[at - 1] + 0.003 * rng.standard_normal(len(at)))  # type: ignore[assignment]


def _public(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    at = np.arange(10, n + 1, 10)
    up = np.arange(len(at)) / len(at)
    d["eval/gsm8k"] = (at, 0.4 + 0.3 * up + 0.008 * rng.standard_normal(len(at)))  # type: ignore[assignment]
    d["eval/gsm8k_fresh"] = (at, 0.4 + 0.02 * up + 0.008 * rng.standard_normal(len(at)))  # type: ignore[assignment]


def _impossible(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["policy/entropy"] = -90 + 5 * rng.standard_normal(n)


def _wrong_reference(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    for key in ("dpo/chosen_reward", "dpo/rejected_reward"):
        d[key] = d[key] + 8


def _by_heart(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    t = np.arange(n)
    d["loss/train"] = 0.69 * np.exp(-t / 6) + 0.002 * np.abs(rng.standard_normal(n))
    d["dpo/accuracy"] = np.clip(1 - 0.5 * np.exp(-t / 5), 0, 1)
    d["dpo/margin"] = 12 * (1 - np.exp(-t / 20))


def _not_general(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["dpo/accuracy"] = np.clip(0.5 + 0.45 * drawn.rise(n, 0, 1, 0.2) + 0.05 * rng.standard_normal(n), 0, 1)
    d["accuracy/validation"] = (np.arange(20, n + 1, 20), 0.54 + 0.02 * rng.standard_normal(10))  # type: ignore[assignment]


def _displaced(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    way = drawn.rise(n, 0, 1, 0.4)
    d["dpo/chosen_logprob"] = -150 * (1 + 0.6 * way) + 5 * rng.standard_normal(n)
    d["dpo/chosen_reward"] = -9 * way + 0.4 * rng.standard_normal(n)
    d["dpo/rejected_reward"] = -12 * way + 0.4 * rng.standard_normal(n)
    d["dpo/margin"] = 3 * way + 0.3 * rng.standard_normal(n)


def _weak_pm(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    at = d["accuracy/validation"][0]
    d["accuracy/validation"] = (at, 0.53 + 0.01 * rng.standard_normal(8))  # type: ignore[assignment]
    d["accuracy/train"] = 0.55 + 0.05 * rng.standard_normal(n)


def _overfit_pm(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    at = np.asarray(d["accuracy/validation"][0])
    t = at / n
    d["loss/validation"] = (at, 0.62 + 0.6 * np.clip(t - 0.3, 0, 1) ** 1.2 + 0.004 * rng.standard_normal(8))  # type: ignore[assignment]
    d["accuracy/validation"] = (at, 0.68 - 0.05 * np.clip(t - 0.3, 0, 1) + 0.004 * rng.standard_normal(8))  # type: ignore[assignment]
    d["accuracy/train"] = np.clip(0.5 + 0.47 * drawn.rise(n, 0, 1, 0.2) + 0.03 * rng.standard_normal(n), 0, 1)
    d["loss/train"] = 0.69 * np.exp(-2 * np.arange(n) / n) + 0.02 * rng.standard_normal(n)


def _collapsed_pm(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    at = np.asarray(d["accuracy/validation"][0])
    for key, level in (("pm/score_std", 0.01), ("margin/mean", 0.004), ("margin/std", 0.02)):
        d[key] = (at, level * np.exp(0.1 * rng.standard_normal(8)))  # type: ignore[assignment]


def _overconfident_pm(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    at = np.asarray(d["accuracy/validation"][0])
    d["calibration/ece"] = (at, np.full(8, 0.21))  # type: ignore[assignment]
    d["calibration/temperature"] = (at, np.full(8, 2.8))  # type: ignore[assignment]


def _long_pm(d: drawn.Draw, rng: np.random.Generator, n: int) -> None:
    d["margin/length_correlation"] = (d["accuracy/validation"][0], 0.5 + 0.03 * rng.standard_normal(8))  # type: ignore[assignment]


_LABELS = {
    "label/pairs": 400.0,
    "label/verdicts": 800.0,
    "label/first_slot_fraction": 0.51,
    "label/gap_mean": 0.3,
    "label/order_flip_fraction": 0.12,
    "label/unparsed_fraction": 0.0,
    "label/longer_wins_fraction": 0.58,
}


def _labels(key: str = "label/pairs", value: float = 400.0) -> Callable[[int], Log]:
    """A judge's shares with one of them changed; counts double from the first line to the second."""

    def draw(seed: int) -> Log:
        jitter = 1 + 0.01 * np.random.default_rng(seed).standard_normal()
        shares = {k: np.full(2, v * jitter) for k, v in (_LABELS | {key: value}).items()}
        for count in ("label/pairs", "label/verdicts"):
            shares[count] = np.array([0.5, 1.0]) * _LABELS[count]
        return drawn.log(shares, Stage.LABEL)

    return draw


FAULTS = (
    Fault("kl-explosion", _grpo(_kl), 105),
    Fault("negative-kl", _grpo(_negative), 17),
    Fault("policy-not-moving", _grpo(_still)),
    Fault("over-constrained", _grpo(_held)),
    Fault("ratio-blow-up", _grpo(_ratio), 87),
    Fault("logprob-mismatch", _grpo(_gap), 90),
    Fault("logprob-mismatch", _grpo(_first), 1),
    Fault("clip-fraction-high", _grpo(_clip), 93),
    Fault("entropy-collapse", _grpo(_collapse), 93),
    Fault("entropy-explosion", _grpo(_entropy_up), 88),
    Fault("no-gradient", _grpo(_no_gradient), 1),
    Fault("exploding-gradients", _grpo(_spikes), 84),
    Fault("nan-inf", _grpo(_nan), AT, 0),
    Fault("diverging-loss", _ppo(_diverging), 85, 40),
    Fault("oscillating", _grpo(_oscillating)),
    Fault("reward-not-improving", _grpo(lambda d, rng, n: _flat(d, rng, n))),
    Fault("reward-decreasing", _grpo(_falling), 95, 30),
    Fault("length-explosion", _grpo(_too_long), 85),
    Fault("length-collapse", _grpo(_too_short), 84),
    Fault("truncated-responses", _grpo(_cut), 87),
    Fault("missing-eos", _grpo(_no_eos), 1),
    Fault("value-not-learning", _ppo(_blind_critic), 20),
    Fault("no-reward-signal", _grpo(_alike), 1),
    Fault("reward-scale", _ppo(_scale), 1),
    Fault("reward-noise", _grpo(_noisy), 1),
    Fault("advantage-not-centred", _grpo(_no_baseline), 1),
    Fault("reward-hacking", _grpo(_hack), AT),
    Fault("length-exploitation", _grpo(_by_length), 45),
    Fault("repetitive-outputs", _grpo(_repeats), 85),
    Fault("style-exploitation", _grpo(_hedges), 82),
    Fault("sycophancy", _grpo(_flattery), 85),
    Fault("alignment-tax", _grpo(_tax), 115, 40),
    Fault("pm-distribution-shift", _ppo(_left_behind), 95),
    Fault("benchmark-overfitting", _grpo(_public), 100, 40),
    Fault("invalid-metric", _grpo(_impossible), 1),
    Fault("reference-mismatch", _other(drawn.dpo, Stage.DIRECT, _wrong_reference), 1),
    Fault("preference-overfit", _other(drawn.dpo, Stage.DIRECT, _by_heart), 16),
    Fault("preference-not-generalising", _other(drawn.dpo, Stage.DIRECT, _not_general), 20, 40),
    Fault("likelihood-displacement", _other(drawn.dpo, Stage.DIRECT, _displaced), 12, 30),
    Fault("pm-low-accuracy", _other(drawn.reward_model, Stage.PREFERENCE_MODEL, _weak_pm)),
    Fault("pm-overfit", _other(drawn.reward_model, Stage.PREFERENCE_MODEL, _overfit_pm), 60, 60),
    Fault("pm-score-collapse", _other(drawn.reward_model, Stage.PREFERENCE_MODEL, _collapsed_pm)),
    Fault("pm-miscalibrated", _other(drawn.reward_model, Stage.PREFERENCE_MODEL, _overconfident_pm)),
    Fault("pm-length-bias", _other(drawn.reward_model, Stage.PREFERENCE_MODEL, _long_pm)),
    Fault("judge-position-bias", _labels("label/first_slot_fraction", 0.63)),
    Fault("judge-inconsistency", _labels("label/order_flip_fraction", 0.45)),
    Fault("judge-unparsed", _labels("label/unparsed_fraction", 0.2)),
    Fault("judge-length-bias", _labels("label/longer_wins_fraction", 0.82)),
    Fault("noisy-labels", _labels("label/gap_mean", 0.008)),
)
