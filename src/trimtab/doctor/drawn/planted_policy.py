"""Faults of optimisation, signal and length, planted into a run of reinforcement learning.

See `faults.py` for what `at` and `s` (strength) mean.
"""

from __future__ import annotations

import numpy as np

from trimtab.doctor.drawn.curves import Drawn, Floats, Generator, batch_noise, heavy, positive, ramp, share


def spread(d: Drawn) -> float:
    """Noise of the score from row to row."""
    v = d.curves["score/mean"]
    return max(float(np.std(np.diff(v)) / np.sqrt(2)), 1e-9)


def gain(d: Drawn) -> float:
    v = d.curves["score/mean"]
    return max(float(np.ptp(v)), 6 * spread(d))


def set_score(d: Drawn, values: Floats) -> None:
    old = d.curves["score/mean"]
    if "group/zero_std_fraction" in d.curves and float(old.min()) >= 0 and float(old.max()) <= 1:
        values = share(values)
    d.curves["score/mean"] = values
    if "reward/mean" in d.curves:
        d.curves["reward/mean"] = values + d.curves.get("reward/penalty", np.zeros(len(d)))


def still(d: Drawn, rng: Generator) -> None:
    """The score stays where it began."""
    v = d.curves["score/mean"]
    level = float(np.median(v[: max(5, len(v) // 20)]))
    set_score(d, level + spread(d) * batch_noise(rng, len(d), 0.2))
    if "eval/accuracy" in d.curves:
        e = d.curves["eval/accuracy"]
        d.curves["eval/accuracy"] = share(float(e[0]) + 0.01 * rng.standard_normal(len(d)))


def stall(d: Drawn, rng: Generator, at: int, fall: float) -> None:
    """From `at` on the score no longer rises, and loses `fall` of what it had won."""
    v = d.curves["score/mean"]
    n = len(v)
    start = float(np.median(v[: max(3, n // 20)]))
    held = float(np.median(v[max(0, at - 8) : at + 1]))
    way = ramp(n, at, max(10.0, 0.35 * (n - at)))
    won = max(held - start, 2 * spread(d))
    after = held - fall * won * way + spread(d) * batch_noise(rng, n, 0.2)
    set_score(d, np.where(np.arange(n) < at, v, after))
    if "eval/accuracy" in d.curves:
        e = d.curves["eval/accuracy"]
        late = float(np.median(e[max(0, at - 8) : at + 1]))
        d.curves["eval/accuracy"] = share(
            np.where(np.arange(n) < at, e, late - 0.2 * fall * way + 0.01 * rng.standard_normal(n))
        )


def per_token(d: Drawn, values: Floats) -> None:
    d.curves["kl/reference_per_token"] = values
    if "kl/reference" in d.curves:
        d.curves["kl/reference"] = values * d.curves["response/length_mean"]
        d.curves["reward/penalty"] = -d.curves["kl/beta"] * d.curves["kl/reference"]
        d.curves["reward/mean"] = d.curves["score/mean"] + d.curves["reward/penalty"]


def kl_explosion(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, rng.uniform(0.15, 0.4) * n)
    stall(d, rng, at, rng.uniform(0.2, 0.8))
    per_token(d, d.curves["kl/reference_per_token"] + 5 * s**1.5 * up**2 * heavy(rng, n, 0.25))
    d.curves["policy/gradient_norm"] = d.curves["policy/gradient_norm"] * (1 + 6 * s * up * heavy(rng, n, 0.4))


def negative_kl(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    down = np.clip((np.arange(n) + 5) / (0.3 * n), 0, 1) if at == 0 else ramp(n, at, 0.2 * n)
    d.curves["kl/reference"] = -(2 + 20 * s**2) * down + 0.4 * batch_noise(rng, n)
    per_token(d, d.curves["kl/reference"] / d.curves["response/length_mean"])
    stall(d, rng, max(at, n // 4), rng.uniform(0, 0.5))


def not_moving(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    still(d, rng)
    per_token(d, (4e-5 * (1.2 - s) + 5e-6) * np.abs(batch_noise(rng, n)))
    for key in ("policy/entropy", "response/length_mean"):
        v = d.curves[key]
        d.curves[key] = float(v[0]) * (1 + 0.02 * batch_noise(rng, n))
    d.curves["policy/learning_rate"] = d.curves["policy/learning_rate"] * 0.01
    d.curves["kl/update"] = 1e-8 * np.abs(batch_noise(rng, n))
    d.curves["policy/clip_fraction"] = np.zeros(n)


def over_constrained(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    still(d, rng)
    spread = float(np.median(d.curves["score/std"]))
    kl = rng.uniform(0.3, 1.5)
    d.curves["kl/reference"] = kl * (1 - np.exp(-np.arange(n) / 6)) * heavy(rng, n, 0.06)
    d.curves["kl/beta"] = np.full(n, spread * (0.4 + 1.2 * s) / kl)
    per_token(d, d.curves["kl/reference"] / d.curves["response/length_mean"])
    d.curves["score/mean"] = d.curves["score/mean"] + 0.1 * spread * (1 - np.exp(-np.arange(n) / 6))
    set_score(d, d.curves["score/mean"])


def ratio(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.1 * n)
    d.curves["policy/ratio_mean"] = 1 + (1 + 6 * s) * up * heavy(rng, n, 0.3) + 0.01 * batch_noise(rng, n)
    d.curves["policy/ratio_max"] = 1.3 + (12 + 200 * s**2) * up * heavy(rng, n, 0.5)
    d.curves["policy/clip_fraction"] = share(0.05 + (0.1 + 0.25 * s) * up + 0.02 * batch_noise(rng, n))
    d.curves["kl/update"] = d.curves["kl/update"] + 0.3 * s * up * heavy(rng, n, 0.4)
    stall(d, rng, at, rng.uniform(0.3, 0.9))


def mismatch(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.3 * n) if at else np.ones(n)
    d.curves["rollout/logprob_gap_mean"] = positive(rng, 0.012 + (0.03 + 0.25 * s**2) * up, n, 0.12)
    d.curves["policy/ratio_first"] = 1 + (0.03 + 0.15 * s) * up * heavy(rng, n, 0.2)
    stall(d, rng, max(at, n // 5), rng.uniform(0, 0.5))


def clip(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.1 * n)
    d.curves["policy/clip_fraction"] = share(0.05 + (0.2 + 0.35 * s) * up * (1 + 0.1 * batch_noise(rng, n)) + 0.08 * up)
    d.curves["kl/update"] = positive(rng, 0.002 + (0.03 + 0.1 * s) * up, n, 0.3)
    d.settings |= {"ppo.epochs": 4, "ppo.minibatches": 4}
    stall(d, rng, at, rng.uniform(0, 0.6))


def entropy_down(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    gone = ramp(n, at, rng.uniform(0.1, 0.3) * n)
    begin = max(float(d.curves["policy/entropy"][0]), 0.3)
    late = begin * (0.08 - 0.07 * s)
    now = np.maximum(d.curves["policy/entropy"], 0.5 * begin)
    d.curves["policy/entropy"] = np.exp(np.log(now) * (1 - gone) + np.log(late) * gone) * (
        1 + 0.04 * batch_noise(rng, n)
    )
    stall(d, rng, at, rng.uniform(0.1, 0.7))
    if "group/zero_std_fraction" in d.curves:
        d.curves["group/zero_std_fraction"] = share(d.curves["group/zero_std_fraction"] + 0.5 * s * gone)
    d.curves["response/distinct_2"] = d.curves["response/distinct_2"] * (1 - 0.3 * s * gone)


def entropy_up(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, rng.uniform(0.2, 0.5) * n)
    begin = min(float(d.curves["policy/entropy"][0]), 0.9)
    level = np.minimum(d.curves["policy/entropy"], begin)
    d.curves["policy/entropy"] = (level + begin * (1.5 + 4 * s) * up + 0.5 * up) * (1 + 0.04 * batch_noise(rng, n))
    stall(d, rng, at, rng.uniform(0.5, 1.2))


def no_gradient(d: Drawn, rng: Generator, at: int, s: float) -> None:
    d.curves["policy/gradient_norm"] = np.zeros(len(d))
    still(d, rng)


def spikes(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    g = d.curves["policy/gradient_norm"]
    level = max(float(np.median(g)), 0.2)
    hit = (np.arange(n) >= at) & (rng.random(n) < 0.06 + 0.2 * s)
    g = np.maximum(g, 0.1)
    d.curves["policy/gradient_norm"] = np.where(hit, level * (15 + 150 * s**2) * heavy(rng, n, 0.6), g)
    stall(d, rng, at, rng.uniform(0, 0.6))


def nan(d: Drawn, rng: Generator, at: int, s: float) -> None:
    for key in ("policy/loss", "policy/gradient_norm", "kl/update", "value/loss", "policy/entropy"):
        if key in d.curves:
            d.curves[key] = np.where(np.arange(len(d)) < at, d.curves[key], np.nan)
    v = d.curves["score/mean"]
    floor = float(v.min()) if float(v.min()) != 0 else 0.0
    set_score(d, np.where(np.arange(len(d)) < at + 1, v, floor))


def diverging(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    at = max(at, int(0.4 * n))
    grow = np.clip((np.arange(n) - at) / (n - at), 0, 1)
    d.curves["value/loss"] = d.curves["value/loss"] * np.exp((2.2 + 4.5 * s) * grow)
    d.curves["value/explained_variance"] = d.curves["value/explained_variance"] - (0.8 + 3 * s) * grow**2
    d.curves["value/gradient_norm"] = d.curves["value/gradient_norm"] * np.exp(2 * s * grow)
    stall(d, rng, at, rng.uniform(0, 0.5))


def oscillating(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    period = rng.uniform(0.05, 0.2) * n
    phase = 2 * np.pi * np.arange(n) / period + np.cumsum(0.08 * rng.standard_normal(n))
    v = d.curves["score/mean"]
    size = (0.25 + 0.35 * s) * max(gain(d), 8 * spread(d))
    middle = float(np.median(v))
    set_score(d, middle + size * np.sin(phase + rng.uniform(0, 6)) + spread(d) * batch_noise(rng, n))


def flat(d: Drawn, rng: Generator, at: int, s: float) -> None:
    still(d, rng)


def falling(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    stall(d, rng, at, 0)
    v = d.curves["score/mean"]
    size = (1.0 + s) * max(gain(d), 8 * spread(d))
    set_score(d, v - size * ramp(n, at, rng.uniform(0.2, 0.5) * n))


def too_long(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, rng.uniform(0.2, 0.4) * n)
    d.curves["response/length_mean"] = d.curves["response/length_mean"] * (1 + (0.9 + 2.5 * s) * up)
    cut_more(d, rng, (0.15 + 0.5 * s) * ramp(n, at + n // 20, 0.3 * n))
    stall(d, rng, at, rng.uniform(0.1, 0.8))


def cut_more(d: Drawn, rng: Generator, more: Floats) -> None:
    cut = share(d.curves["response/truncated_fraction"] + more * (1 + 0.1 * batch_noise(rng, len(d))))
    d.curves["response/truncated_fraction"] = cut
    if "response/eos_fraction" in d.curves:
        d.curves["response/eos_fraction"] = 1 - cut
        d.curves["response/eos_count"] = np.round(float(d.curves["response/eos_count"].max()) * (1 - cut))


def too_short(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    down = ramp(n, at, rng.uniform(0.15, 0.4) * n)
    d.curves["response/length_mean"] = d.curves["response/length_mean"] * (1 - (0.6 + 0.35 * s) * down)
    stall(d, rng, at, rng.uniform(0.4, 1.0))


def cut(d: Drawn, rng: Generator, at: int, s: float) -> None:
    cut_more(d, rng, (0.25 + 0.5 * s) * (ramp(len(d), at, 0.15 * len(d)) if at else np.ones(len(d))))
    stall(d, rng, max(at, len(d) // 6), rng.uniform(0, 0.5))


def no_eos(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    d.curves["response/eos_fraction"] = np.zeros(n)
    d.curves["response/eos_count"] = np.zeros(n)
    d.curves["response/truncated_fraction"] = np.ones(n)
    d.curves["response/length_mean"] = np.full(n, float(rng.choice([53, 128, 256, 1024])))
    still(d, rng)


def blind_critic(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    d.curves["value/explained_variance"] = -0.05 - 0.7 * s + 0.12 * batch_noise(rng, n, 0.3)
    level = float(np.median(d.curves["value/return_std"])) ** 2
    d.curves["value/loss"] = level * (0.6 + 2.5 * s) * heavy(rng, n, 0.15)
    stall(d, rng, n // 3, rng.uniform(0, 0.6))


def alike(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    prompts = int(rng.choice([16, 32, 64]))
    d.curves["group/zero_std_fraction"] = rng.binomial(prompts, 0.55 + 0.42 * s, n) / prompts
    set_score(d, share(0.06 * (1.1 - s) + 0.01 * np.abs(batch_noise(rng, n))))
    d.curves["score/std"] = d.curves["score/std"] * 0.3
    d.curves["score/group_std"] = d.curves["score/group_std"] * 0.15
    if "eval/accuracy" in d.curves:
        d.curves["eval/accuracy"] = share(0.04 + 0.01 * rng.standard_normal(n))


def scale(d: Drawn, rng: Generator, at: int, s: float) -> None:
    spread = float(np.median(d.curves["score/std"]))
    factor = (15 + 150 * s**2) / spread
    changed = d.rescaled(factor, 0.0)
    d.curves.update(changed.curves)


def noisy(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    spread = float(np.median(d.curves["score/std"]))
    level = float(np.median(d.curves["score/mean"][:10]))
    d.curves["score/mean"] = level + spread * (0.6 + 0.4 * s) * batch_noise(rng, n)
    if "reward/mean" in d.curves:
        d.curves["reward/mean"] = d.curves["score/mean"] + d.curves.get("reward/penalty", np.zeros(n))


def no_baseline(d: Drawn, rng: Generator, at: int, s: float) -> None:
    d.curves["advantage/mean"] = d.curves["score/mean"] * (1 + 1e-3 * batch_noise(rng, len(d)))
    d.curves["advantage/std"] = d.curves["score/std"]
