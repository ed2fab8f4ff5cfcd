"""Exploits of the scorer, and faults of evaluation, direct preference optimisation and preference models.

See `faults.py` for what `at` and `s` (strength) mean.
"""

from __future__ import annotations

import numpy as np

from trimtab.doctor.drawn.curves import Drawn, Generator, batch_noise, heavy, ramp, share
from trimtab.doctor.drawn.planted_policy import cut_more, gain, set_score, spread, stall


def hacking(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    v = d.curves["score/mean"]
    rows = np.arange(n)
    rising = v + gain(d) * 0.6 * np.clip((rows - at) / n, 0, 1)
    set_score(d, rising)
    up = np.minimum(1, rows / max(at, 1))
    won = rng.uniform(0.08, 0.3)
    base = rng.uniform(0.3, 0.55)
    gold = base + won * up**0.7 - won * (0.4 + 0.9 * s) * ramp(n, at, 0.8 * (n - at))
    d.curves["eval/win_rate"] = share(gold + rng.uniform(0.006, 0.015) * rng.standard_normal(n))
    d.every["eval/win_rate"] = max(2, n // int(rng.integers(14, 40)))
    d.curves.pop("eval/accuracy", None)


def by_length(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.5 * n)
    wobble = 0.06 * batch_noise(rng, n, 0.3)
    length = float(np.median(d.curves["response/length_mean"][:10]))
    d.curves["response/length_mean"] = length * (1 + (1 + 2 * s) * up) * (1 + wobble)
    v = d.curves["score/mean"]
    start, size = float(np.median(v[:10])), gain(d)
    excess = d.curves["response/length_mean"] / length - 1
    set_score(
        d, start + size * (0.15 * np.arange(n) / n + excess / (2 + 2 * s)) + 0.3 * spread(d) * batch_noise(rng, n)
    )
    cut_more(d, rng, 0.35 * s * ramp(n, at + n // 6, 0.4 * n))
    if "eval/accuracy" in d.curves:
        e = d.curves["eval/accuracy"]
        d.curves["eval/accuracy"] = share(float(e[0]) + 0.012 * rng.standard_normal(n))


def repeats(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.3 * n)
    d.curves["response/distinct_2"] = d.curves["response/distinct_2"] * (1 - (0.3 + 0.45 * s) * up)
    d.curves["response/repetition"] = share(d.curves["response/repetition"] + (0.2 + 0.5 * s) * up)
    d.curves["policy/entropy"] = d.curves["policy/entropy"] * (1 - 0.5 * s * up)
    stall(d, rng, at, rng.uniform(-0.2, 0.4))


def hedges(d: Drawn, rng: Generator, at: int, s: float) -> None:
    style(d, rng, at, "style/hedges", rng.uniform(0.03, 0.12), 1.5 + 4 * s)


def flattery(d: Drawn, rng: Generator, at: int, s: float) -> None:
    low = rng.uniform(0.08, 0.25)
    style(d, rng, at, "style/sycophancy", low, (0.15 + 0.3 * s) / low)


def style(d: Drawn, rng: Generator, at: int, key: str, low: float, factor: float) -> None:
    n = len(d)
    level = share(low * (1 + factor * ramp(n, at, 0.4 * n)))
    d.curves[key] = rng.binomial(128, level) / 128


def left_behind(d: Drawn, rng: Generator, at: int, s: float) -> None:
    """Responses leave what the preference model was trained on."""
    n = len(d)
    up = ramp(n, at, 0.5 * n)
    d.curves["shift/distance"] = share(0.5 + (0.25 + 0.2 * s) * up + 0.02 * rng.standard_normal(n))
    d.curves["shift/outside_fraction"] = share(0.01 + 0.4 * s * up + 0.005 * rng.standard_normal(n))


def tax(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    base = rng.uniform(0.4, 0.7)
    d.curves["eval/mmlu"] = share(base - (0.02 + 0.15 * s) * ramp(n, at, n - at) + 0.003 * rng.standard_normal(n))
    d.every["eval/mmlu"] = max(2, n // int(rng.integers(9, 20)))


def public(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = np.arange(n) / n
    base = rng.uniform(0.3, 0.5)
    gain = 0.1 + 0.2 * s
    noise = 0.008 * rng.standard_normal((2, n))
    d.curves["eval/gsm8k"] = share(base + gain * up + noise[0])
    d.curves["eval/gsm8k_fresh"] = share(base - 0.02 + 0.15 * gain * up + noise[1])
    d.every |= dict.fromkeys(("eval/gsm8k", "eval/gsm8k_fresh"), max(2, n // int(rng.integers(12, 25))))


def impossible(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    d.curves["policy/entropy_sequence"] = -(20 + 80 * s) + 5 * batch_noise(rng, n)
    d.curves["policy/entropy"] = -0.3 - s + 0.1 * batch_noise(rng, n)


def wrong_reference(d: Drawn, rng: Generator, at: int, s: float) -> None:
    off = rng.choice([-1.0, 1.0]) * (1.5 + 10 * s**1.5)
    d.curves["dpo/chosen_reward"] = d.curves["dpo/chosen_reward"] + off
    d.curves["dpo/rejected_reward"] = d.curves["dpo/rejected_reward"] + off * rng.uniform(0.9, 1.1)
    d.curves["dpo/margin"] = d.curves["dpo/chosen_reward"] - d.curves["dpo/rejected_reward"]


def by_heart(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    t = np.arange(n)
    fast = (0.12 - 0.09 * s) * n / 5
    d.curves["loss/train"] = 0.69 * np.exp(-t / fast) + 0.006 * (1.1 - s) * np.abs(rng.standard_normal(n)) + 1e-4
    d.curves["dpo/accuracy"] = share(1 - 0.5 * np.exp(-t / fast) * (1 + 0.1 * batch_noise(rng, n)))
    d.curves["dpo/margin"] = (6 + 10 * s) * (1 - np.exp(-t / (3 * fast))) * (1 + 0.04 * batch_noise(rng, n))
    d.curves["dpo/rejected_reward"] = d.curves["dpo/chosen_reward"] - d.curves["dpo/margin"]
    d.curves["loss/validation"] = 0.66 + 0.5 * s * t / n + 0.008 * rng.standard_normal(n)
    d.curves["accuracy/validation"] = share(0.6 + 0.015 * rng.standard_normal(n))


def not_general(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    way = 1 - 0.5 ** (np.arange(n) / (0.15 * n))
    d.curves["dpo/accuracy"] = rng.binomial(64, share(0.5 + (0.36 + 0.1 * s) * way)) / 64
    held = 0.5 + 0.08 * (1 - s) * way
    d.curves["accuracy/validation"] = rng.binomial(512, held) / 512
    d.curves["loss/validation"] = 0.69 + 0.01 * s * way + 0.005 * rng.standard_normal(n)


def displaced(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    way = 1 - 0.5 ** (np.arange(n) / (0.3 * n))
    logp = abs(float(np.median(d.curves["dpo/chosen_logprob"][:5])))
    fall = logp * (0.35 + 0.6 * s) * way
    noise = [0.02 * logp * batch_noise(rng, n) for _ in range(2)]
    more = (2 + 5 * s) * 10 * way
    d.curves["dpo/chosen_logprob"] = -logp - fall + noise[0]
    d.curves["dpo/rejected_logprob"] = -logp * 1.05 - fall - more + noise[1]
    d.curves["dpo/chosen_reward"] = -0.1 * fall + 0.1 * batch_noise(rng, n)
    d.curves["dpo/margin"] = 0.1 * more + 0.15 * batch_noise(rng, n)
    d.curves["dpo/rejected_reward"] = d.curves["dpo/chosen_reward"] - d.curves["dpo/margin"]
    d.curves["dpo/accuracy"] = rng.binomial(64, share(0.5 + 0.4 * way)) / 64


def weak_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    way = 1 - 0.5 ** (np.arange(n) / (0.15 * n))
    level = 0.5 + (0.09 - 0.08 * s) * way
    d.curves["accuracy/validation"] = rng.binomial(1000, level) / 1000
    d.curves["accuracy/train"] = rng.binomial(32, level + 0.02 * way) / 32
    d.curves["loss/train"] = 0.695 - 0.02 * (1 - s) * way + 0.02 * batch_noise(rng, n)
    d.curves["loss/validation"] = 0.694 - 0.015 * (1 - s) * way + 0.003 * rng.standard_normal(n)
    d.curves["margin/mean"] = (0.08 + 0.25 * (1 - s)) * way + 0.05 * batch_noise(rng, n)


def overfit_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    t = np.arange(n) / n
    way = 1 - 0.5 ** (t / 0.2)
    late = np.clip(t - 0.35, 0, 1)
    d.curves["accuracy/train"] = rng.binomial(32, share(0.5 + (0.4 + 0.08 * s) * way)) / 32
    d.curves["loss/train"] = np.maximum(0.69 * np.exp(-(1.5 + 2 * s) * t) + 0.03 * batch_noise(rng, n), 0.01)
    top = rng.uniform(0.64, 0.72)
    d.curves["accuracy/validation"] = (
        rng.binomial(1000, 0.5 + (top - 0.5) * np.minimum(1, 1.3 * way) - 0.06 * s * late) / 1000
    )
    d.curves["loss/validation"] = (
        0.69 - 0.1 * np.minimum(1, t / 0.35) + (0.25 + 0.7 * s) * late + 0.006 * rng.standard_normal(n)
    )


def collapsed_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    size = 0.04 * (1.05 - s)
    for key, level in (("pm/score_std", size), ("margin/std", size), ("margin/mean", 0.3 * size)):
        d.curves[key] = level * heavy(rng, n, 0.2)
    d.curves["pm/score_mean"] = rng.uniform(-1, 1) + 0.1 * size * batch_noise(rng, n)
    d.curves["pm/score_min"] = d.curves["pm/score_mean"] - 2 * size
    d.curves["pm/score_max"] = d.curves["pm/score_mean"] + 2 * size
    d.curves["pm/chosen_score"] = d.curves["pm/score_mean"] + d.curves["margin/mean"] / 2
    d.curves["pm/rejected_score"] = d.curves["pm/score_mean"] - d.curves["margin/mean"] / 2
    d.curves["loss/train"] = 0.692 + 0.004 * batch_noise(rng, n)
    d.curves["loss/validation"] = 0.692 + 0.002 * rng.standard_normal(n)


def overconfident_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    d.curves["calibration/ece"] = (0.11 + 0.15 * s) * heavy(rng, n, 0.05)
    d.curves["calibration/temperature"] = (1.7 + 2 * s) * heavy(rng, n, 0.05)


def long_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
    d.curves["margin/length_correlation"] = np.clip(0.33 + 0.4 * s + 0.03 * batch_noise(rng, len(d)), -1, 1)
