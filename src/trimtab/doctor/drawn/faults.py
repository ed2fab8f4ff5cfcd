"""One fault at a time, planted into a sound run together with what it drags along: a policy that collapses stops
improving, a policy that runs away has large gradients.

Each plant changes a run in place from row `at` on, with a strength from .4 (a moderate case) to 1 (a clear one).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from trimtab.doctor.drawn.curves import Drawn, Floats, Generator, batch_noise, heavy, positive, ramp, share

__all__ = ["FAULTS", "Fault"]

Plant = Callable[[Drawn, Generator, int, float], None]


class Fault(NamedTuple):
    """`base`: the kind of run that it is planted into; `from_start`: it is there from the first row on; `signals`: a
    log has to show one of each group for it to be seen."""

    base: str
    plant: Plant
    signals: tuple[tuple[str, ...], ...]
    from_start: bool = False


def _spread(d: Drawn) -> float:
    """Noise of the score from row to row."""
    v = d.curves["score/mean"]
    return max(float(np.std(np.diff(v))) / np.sqrt(2), 1e-9)


def _gain(d: Drawn) -> float:
    v = d.curves["score/mean"]
    return max(float(np.ptp(v)), 6 * _spread(d))


def _set_score(d: Drawn, values: Floats) -> None:
    old = d.curves["score/mean"]
    if "group/zero_std_fraction" in d.curves and float(old.min()) >= 0 and float(old.max()) <= 1:
        values = share(values)
    d.curves["score/mean"] = values
    if "reward/mean" in d.curves:
        d.curves["reward/mean"] = values + d.curves.get("reward/penalty", np.zeros(len(d)))


def _still(d: Drawn, rng: Generator) -> None:
    """The score stays where it began."""
    v = d.curves["score/mean"]
    level = float(np.median(v[: max(5, len(v) // 20)]))
    _set_score(d, level + _spread(d) * batch_noise(rng, len(d), 0.2))
    if "eval/accuracy" in d.curves:
        e = d.curves["eval/accuracy"]
        d.curves["eval/accuracy"] = share(float(e[0]) + 0.01 * rng.standard_normal(len(d)))


def _stall(d: Drawn, rng: Generator, at: int, fall: float) -> None:
    """From `at` on the score no longer rises, and loses `fall` of what it had won."""
    v = d.curves["score/mean"]
    n = len(v)
    start = float(np.median(v[: max(3, n // 20)]))
    held = float(np.median(v[max(0, at - 8) : at + 1]))
    way = ramp(n, at, max(10.0, 0.35 * (n - at)))
    won = max(held - start, 2 * _spread(d))
    after = held - fall * won * way + _spread(d) * batch_noise(rng, n, 0.2)
    _set_score(d, np.where(np.arange(n) < at, v, after))
    if "eval/accuracy" in d.curves:
        e = d.curves["eval/accuracy"]
        late = float(np.median(e[max(0, at - 8) : at + 1]))
        d.curves["eval/accuracy"] = share(
            np.where(np.arange(n) < at, e, late - 0.2 * fall * way + 0.01 * rng.standard_normal(n))
        )


def _per_token(d: Drawn, values: Floats) -> None:
    d.curves["kl/reference_per_token"] = values
    if "kl/reference" in d.curves:
        d.curves["kl/reference"] = values * d.curves["response/length_mean"]
        d.curves["reward/penalty"] = -d.curves["kl/beta"] * d.curves["kl/reference"]
        d.curves["reward/mean"] = d.curves["score/mean"] + d.curves["reward/penalty"]


def _kl_explosion(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, rng.uniform(0.15, 0.4) * n)
    _stall(d, rng, at, rng.uniform(0.2, 0.8))
    _per_token(d, d.curves["kl/reference_per_token"] + 5 * s**1.5 * up**2 * heavy(rng, n, 0.25))
    d.curves["policy/gradient_norm"] = d.curves["policy/gradient_norm"] * (1 + 6 * s * up * heavy(rng, n, 0.4))


def _negative_kl(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    down = np.clip((np.arange(n) + 5) / (0.3 * n), 0, 1) if at == 0 else ramp(n, at, 0.2 * n)
    d.curves["kl/reference"] = -(2 + 20 * s**2) * down + 0.4 * batch_noise(rng, n)
    _per_token(d, d.curves["kl/reference"] / d.curves["response/length_mean"])
    _stall(d, rng, max(at, n // 4), rng.uniform(0, 0.5))


def _not_moving(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    _still(d, rng)
    _per_token(d, (4e-5 * (1.2 - s) + 5e-6) * np.abs(batch_noise(rng, n)))
    for key in ("policy/entropy", "response/length_mean"):
        v = d.curves[key]
        d.curves[key] = float(v[0]) * (1 + 0.02 * batch_noise(rng, n))
    d.curves["policy/learning_rate"] = d.curves["policy/learning_rate"] * 0.01
    d.curves["kl/update"] = 1e-8 * np.abs(batch_noise(rng, n))
    d.curves["policy/clip_fraction"] = np.zeros(n)


def _over_constrained(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    _still(d, rng)
    spread = float(np.median(d.curves["score/std"]))
    kl = rng.uniform(0.3, 1.5)
    d.curves["kl/reference"] = kl * (1 - np.exp(-np.arange(n) / 6)) * heavy(rng, n, 0.06)
    d.curves["kl/beta"] = np.full(n, spread * (0.4 + 1.2 * s) / kl)
    _per_token(d, d.curves["kl/reference"] / d.curves["response/length_mean"])
    d.curves["score/mean"] = d.curves["score/mean"] + 0.1 * spread * (1 - np.exp(-np.arange(n) / 6))
    _set_score(d, d.curves["score/mean"])


def _ratio(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.1 * n)
    d.curves["policy/ratio_mean"] = 1 + (1 + 6 * s) * up * heavy(rng, n, 0.3) + 0.01 * batch_noise(rng, n)
    d.curves["policy/ratio_max"] = 1.3 + (12 + 200 * s**2) * up * heavy(rng, n, 0.5)
    d.curves["policy/clip_fraction"] = share(0.05 + (0.1 + 0.25 * s) * up + 0.02 * batch_noise(rng, n))
    d.curves["kl/update"] = d.curves["kl/update"] + 0.3 * s * up * heavy(rng, n, 0.4)
    _stall(d, rng, at, rng.uniform(0.3, 0.9))


def _mismatch(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.3 * n) if at else np.ones(n)
    d.curves["rollout/logprob_gap_mean"] = positive(rng, 0.012 + (0.03 + 0.25 * s**2) * up, n, 0.12)
    d.curves["policy/ratio_first"] = 1 + (0.03 + 0.15 * s) * up * heavy(rng, n, 0.2)
    _stall(d, rng, max(at, n // 5), rng.uniform(0, 0.5))


def _clip(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.1 * n)
    d.curves["policy/clip_fraction"] = share(0.05 + (0.2 + 0.35 * s) * up * (1 + 0.1 * batch_noise(rng, n)) + 0.08 * up)
    d.curves["kl/update"] = positive(rng, 0.002 + (0.03 + 0.1 * s) * up, n, 0.3)
    d.settings |= {"ppo.epochs": 4, "ppo.minibatches": 4}
    _stall(d, rng, at, rng.uniform(0, 0.6))


def _entropy_down(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    gone = ramp(n, at, rng.uniform(0.1, 0.3) * n)
    begin = max(float(d.curves["policy/entropy"][0]), 0.3)
    late = begin * (0.08 - 0.07 * s)
    now = np.maximum(d.curves["policy/entropy"], 0.5 * begin)
    d.curves["policy/entropy"] = np.exp(np.log(now) * (1 - gone) + np.log(late) * gone) * (
        1 + 0.04 * batch_noise(rng, n)
    )
    _stall(d, rng, at, rng.uniform(0.1, 0.7))
    if "group/zero_std_fraction" in d.curves:
        d.curves["group/zero_std_fraction"] = share(d.curves["group/zero_std_fraction"] + 0.5 * s * gone)
    d.curves["response/distinct_2"] = d.curves["response/distinct_2"] * (1 - 0.3 * s * gone)


def _entropy_up(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, rng.uniform(0.2, 0.5) * n)
    begin = min(float(d.curves["policy/entropy"][0]), 0.9)
    level = np.minimum(d.curves["policy/entropy"], begin)
    d.curves["policy/entropy"] = (level + begin * (1.5 + 4 * s) * up + 0.5 * up) * (1 + 0.04 * batch_noise(rng, n))
    _stall(d, rng, at, rng.uniform(0.5, 1.2))


def _no_gradient(d: Drawn, rng: Generator, at: int, s: float) -> None:
    d.curves["policy/gradient_norm"] = np.zeros(len(d))
    _still(d, rng)


def _spikes(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    g = d.curves["policy/gradient_norm"]
    level = max(float(np.median(g)), 0.2)
    hit = (np.arange(n) >= at) & (rng.random(n) < 0.06 + 0.2 * s)
    g = np.maximum(g, 0.1)
    d.curves["policy/gradient_norm"] = np.where(hit, level * (15 + 150 * s**2) * heavy(rng, n, 0.6), g)
    _stall(d, rng, at, rng.uniform(0, 0.6))


def _nan(d: Drawn, rng: Generator, at: int, s: float) -> None:
    for key in ("policy/loss", "policy/gradient_norm", "kl/update", "value/loss", "policy/entropy"):
        if key in d.curves:
            d.curves[key] = np.where(np.arange(len(d)) < at, d.curves[key], np.nan)
    v = d.curves["score/mean"]
    floor = float(v.min()) if float(v.min()) != 0 else 0.0
    _set_score(d, np.where(np.arange(len(d)) < at + 1, v, floor))


def _diverging(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    at = max(at, int(0.4 * n))
    grow = np.clip((np.arange(n) - at) / (n - at), 0, 1)
    d.curves["value/loss"] = d.curves["value/loss"] * np.exp((2.2 + 4.5 * s) * grow)
    d.curves["value/explained_variance"] = d.curves["value/explained_variance"] - (0.8 + 3 * s) * grow**2
    d.curves["value/gradient_norm"] = d.curves["value/gradient_norm"] * np.exp(2 * s * grow)
    _stall(d, rng, at, rng.uniform(0, 0.5))


def _oscillating(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    period = rng.uniform(0.05, 0.2) * n
    phase = 2 * np.pi * np.arange(n) / period + np.cumsum(0.08 * rng.standard_normal(n))
    v = d.curves["score/mean"]
    size = (0.25 + 0.35 * s) * max(_gain(d), 8 * _spread(d))
    middle = float(np.median(v))
    _set_score(d, middle + size * np.sin(phase + rng.uniform(0, 6)) + _spread(d) * batch_noise(rng, n))


def _flat(d: Drawn, rng: Generator, at: int, s: float) -> None:
    _still(d, rng)


def _falling(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    _stall(d, rng, at, 0)
    v = d.curves["score/mean"]
    size = (1.0 + s) * max(_gain(d), 8 * _spread(d))
    _set_score(d, v - size * ramp(n, at, rng.uniform(0.2, 0.5) * n))


def _too_long(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, rng.uniform(0.2, 0.4) * n)
    d.curves["response/length_mean"] = d.curves["response/length_mean"] * (1 + (0.9 + 2.5 * s) * up)
    _cut_more(d, rng, (0.15 + 0.5 * s) * ramp(n, at + n // 20, 0.3 * n))
    _stall(d, rng, at, rng.uniform(0.1, 0.8))


def _cut_more(d: Drawn, rng: Generator, more: Floats) -> None:
    cut = share(d.curves["response/truncated_fraction"] + more * (1 + 0.1 * batch_noise(rng, len(d))))
    d.curves["response/truncated_fraction"] = cut
    if "response/eos_fraction" in d.curves:
        d.curves["response/eos_fraction"] = 1 - cut
        d.curves["response/eos_count"] = np.round(float(d.curves["response/eos_count"].max()) * (1 - cut))


def _too_short(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    down = ramp(n, at, rng.uniform(0.15, 0.4) * n)
    d.curves["response/length_mean"] = d.curves["response/length_mean"] * (1 - (0.6 + 0.35 * s) * down)
    _stall(d, rng, at, rng.uniform(0.4, 1.0))


def _cut(d: Drawn, rng: Generator, at: int, s: float) -> None:
    _cut_more(d, rng, (0.25 + 0.5 * s) * (ramp(len(d), at, 0.15 * len(d)) if at else np.ones(len(d))))
    _stall(d, rng, max(at, len(d) // 6), rng.uniform(0, 0.5))


def _no_eos(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    d.curves["response/eos_fraction"] = np.zeros(n)
    d.curves["response/eos_count"] = np.zeros(n)
    d.curves["response/truncated_fraction"] = np.ones(n)
    d.curves["response/length_mean"] = np.full(n, float(rng.choice([53, 128, 256, 1024])))
    _still(d, rng)


def _blind_critic(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    d.curves["value/explained_variance"] = -0.05 - 0.7 * s + 0.12 * batch_noise(rng, n, 0.3)
    level = float(np.median(d.curves["value/return_std"])) ** 2
    d.curves["value/loss"] = level * (0.6 + 2.5 * s) * heavy(rng, n, 0.15)
    _stall(d, rng, n // 3, rng.uniform(0, 0.6))


def _alike(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    prompts = int(rng.choice([16, 32, 64]))
    d.curves["group/zero_std_fraction"] = rng.binomial(prompts, 0.55 + 0.42 * s, n) / prompts
    _set_score(d, share(0.06 * (1.1 - s) + 0.01 * np.abs(batch_noise(rng, n))))
    d.curves["score/std"] = d.curves["score/std"] * 0.3
    d.curves["score/group_std"] = d.curves["score/group_std"] * 0.15
    if "eval/accuracy" in d.curves:
        d.curves["eval/accuracy"] = share(0.04 + 0.01 * rng.standard_normal(n))


def _scale(d: Drawn, rng: Generator, at: int, s: float) -> None:
    spread = float(np.median(d.curves["score/std"]))
    factor = (15 + 150 * s**2) / spread
    changed = d.rescaled(factor, 0.0)
    d.curves.update(changed.curves)


def _noisy(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    spread = float(np.median(d.curves["score/std"]))
    level = float(np.median(d.curves["score/mean"][:10]))
    d.curves["score/mean"] = level + spread * (0.6 + 0.4 * s) * batch_noise(rng, n)
    if "reward/mean" in d.curves:
        d.curves["reward/mean"] = d.curves["score/mean"] + d.curves.get("reward/penalty", np.zeros(n))


def _no_baseline(d: Drawn, rng: Generator, at: int, s: float) -> None:
    d.curves["advantage/mean"] = d.curves["score/mean"] * (1 + 1e-3 * batch_noise(rng, len(d)))
    d.curves["advantage/std"] = d.curves["score/std"]


def _hacking(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    v = d.curves["score/mean"]
    rows = np.arange(n)
    rising = v + _gain(d) * 0.6 * np.clip((rows - at) / n, 0, 1)
    _set_score(d, rising)
    up = np.minimum(1, rows / max(at, 1))
    won = rng.uniform(0.08, 0.3)
    base = rng.uniform(0.3, 0.55)
    gold = base + won * up**0.7 - won * (0.4 + 0.9 * s) * ramp(n, at, 0.8 * (n - at))
    d.curves["eval/win_rate"] = share(gold + rng.uniform(0.006, 0.015) * rng.standard_normal(n))
    d.every["eval/win_rate"] = max(2, n // int(rng.integers(14, 40)))
    d.curves.pop("eval/accuracy", None)


def _by_length(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.5 * n)
    wobble = 0.06 * batch_noise(rng, n, 0.3)
    length = float(np.median(d.curves["response/length_mean"][:10]))
    d.curves["response/length_mean"] = length * (1 + (1 + 2 * s) * up) * (1 + wobble)
    v = d.curves["score/mean"]
    start, size = float(np.median(v[:10])), _gain(d)
    excess = d.curves["response/length_mean"] / length - 1
    _set_score(
        d, start + size * (0.15 * np.arange(n) / n + excess / (2 + 2 * s)) + 0.3 * _spread(d) * batch_noise(rng, n)
    )
    _cut_more(d, rng, 0.35 * s * ramp(n, at + n // 6, 0.4 * n))
    if "eval/accuracy" in d.curves:
        e = d.curves["eval/accuracy"]
        d.curves["eval/accuracy"] = share(float(e[0]) + 0.012 * rng.standard_normal(n))


def _repeats(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = ramp(n, at, 0.3 * n)
    d.curves["response/distinct_2"] = d.curves["response/distinct_2"] * (1 - (0.3 + 0.45 * s) * up)
    d.curves["response/repetition"] = share(d.curves["response/repetition"] + (0.2 + 0.5 * s) * up)
    d.curves["policy/entropy"] = d.curves["policy/entropy"] * (1 - 0.5 * s * up)
    _stall(d, rng, at, rng.uniform(-0.2, 0.4))


def _hedges(d: Drawn, rng: Generator, at: int, s: float) -> None:
    _style(d, rng, at, "style/hedges", rng.uniform(0.03, 0.12), 1.5 + 4 * s)


def _flattery(d: Drawn, rng: Generator, at: int, s: float) -> None:
    low = rng.uniform(0.08, 0.25)
    _style(d, rng, at, "style/sycophancy", low, (0.15 + 0.3 * s) / low)


def _style(d: Drawn, rng: Generator, at: int, key: str, low: float, factor: float) -> None:
    n = len(d)
    level = share(low * (1 + factor * ramp(n, at, 0.4 * n)))
    d.curves[key] = rng.binomial(128, level) / 128


def _tax(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    base = rng.uniform(0.4, 0.7)
    d.curves["eval/mmlu"] = share(base - (0.02 + 0.15 * s) * ramp(n, at, n - at) + 0.003 * rng.standard_normal(n))
    d.every["eval/mmlu"] = max(2, n // int(rng.integers(9, 20)))


def _public(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    up = np.arange(n) / n
    base = rng.uniform(0.3, 0.5)
    gain = 0.1 + 0.2 * s
    noise = 0.008 * rng.standard_normal((2, n))
    d.curves["eval/gsm8k"] = share(base + gain * up + noise[0])
    d.curves["eval/gsm8k_fresh"] = share(base - 0.02 + 0.15 * gain * up + noise[1])
    for key in ("eval/gsm8k", "eval/gsm8k_fresh"):
        d.every[key] = max(2, n // int(rng.integers(12, 25)))


def _impossible(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    d.curves["policy/entropy_sequence"] = -(20 + 80 * s) + 5 * batch_noise(rng, n)
    d.curves["policy/entropy"] = -0.3 - s + 0.1 * batch_noise(rng, n)


def _wrong_reference(d: Drawn, rng: Generator, at: int, s: float) -> None:
    off = rng.choice([-1.0, 1.0]) * (1.5 + 10 * s**1.5)
    d.curves["dpo/chosen_reward"] = d.curves["dpo/chosen_reward"] + off
    d.curves["dpo/rejected_reward"] = d.curves["dpo/rejected_reward"] + off * rng.uniform(0.9, 1.1)
    d.curves["dpo/margin"] = d.curves["dpo/chosen_reward"] - d.curves["dpo/rejected_reward"]


def _by_heart(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    t = np.arange(n)
    fast = (0.12 - 0.09 * s) * n / 5
    d.curves["loss/train"] = 0.69 * np.exp(-t / fast) + 0.006 * (1.1 - s) * np.abs(rng.standard_normal(n)) + 1e-4
    d.curves["dpo/accuracy"] = share(1 - 0.5 * np.exp(-t / fast) * (1 + 0.1 * batch_noise(rng, n)))
    d.curves["dpo/margin"] = (6 + 10 * s) * (1 - np.exp(-t / (3 * fast))) * (1 + 0.04 * batch_noise(rng, n))
    d.curves["dpo/rejected_reward"] = d.curves["dpo/chosen_reward"] - d.curves["dpo/margin"]
    d.curves["loss/validation"] = 0.66 + 0.5 * s * t / n + 0.008 * rng.standard_normal(n)
    d.curves["accuracy/validation"] = share(0.6 + 0.015 * rng.standard_normal(n))


def _not_general(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    way = 1 - 0.5 ** (np.arange(n) / (0.15 * n))
    d.curves["dpo/accuracy"] = rng.binomial(64, share(0.5 + (0.36 + 0.1 * s) * way)) / 64
    held = 0.5 + 0.08 * (1 - s) * way
    d.curves["accuracy/validation"] = rng.binomial(512, held) / 512
    d.curves["loss/validation"] = 0.69 + 0.15 * s * way + 0.005 * rng.standard_normal(n)


def _displaced(d: Drawn, rng: Generator, at: int, s: float) -> None:
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


def _weak_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    way = 1 - 0.5 ** (np.arange(n) / (0.15 * n))
    level = 0.5 + (0.09 - 0.08 * s) * way
    d.curves["accuracy/validation"] = rng.binomial(1000, level) / 1000
    d.curves["accuracy/train"] = rng.binomial(32, level + 0.02 * way) / 32
    d.curves["loss/train"] = 0.695 - 0.02 * (1 - s) * way + 0.02 * batch_noise(rng, n)
    d.curves["loss/validation"] = 0.694 - 0.015 * (1 - s) * way + 0.003 * rng.standard_normal(n)
    d.curves["margin/mean"] = 0.2 * (1.1 - s) * way + 0.05 * batch_noise(rng, n)


def _overfit_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
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


def _collapsed_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
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


def _overconfident_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
    n = len(d)
    d.curves["calibration/ece"] = (0.11 + 0.15 * s) * heavy(rng, n, 0.05)
    d.curves["calibration/temperature"] = (1.7 + 2 * s) * heavy(rng, n, 0.05)


def _long_pm(d: Drawn, rng: Generator, at: int, s: float) -> None:
    d.curves["margin/length_correlation"] = np.clip(0.33 + 0.4 * s + 0.03 * batch_noise(rng, len(d)), -1, 1)


_SCORE = ("score/mean",)
_KL = ("kl/reference_per_token", "kl/reference")
_HELD = ("accuracy/validation",)

FAULTS: dict[str, Fault] = {
    "kl-explosion": Fault("grpo ppo", _kl_explosion, (_KL,)),
    "negative-kl": Fault("ppo", _negative_kl, (("kl/reference", "kl/reference_per_token"),), True),
    "policy-not-moving": Fault("grpo ppo", _not_moving, (_KL, _SCORE), True),
    "over-constrained": Fault("ppo", _over_constrained, (("kl/reference",), ("kl/beta",), ("score/std",)), True),
    "ratio-blow-up": Fault("grpo ppo", _ratio, (("policy/ratio_mean", "policy/ratio_max"),)),
    "logprob-mismatch": Fault("grpo", _mismatch, (("rollout/logprob_gap_mean", "policy/ratio_first"),)),
    "clip-fraction-high": Fault("grpo ppo", _clip, (("policy/clip_fraction",),)),
    "entropy-collapse": Fault("grpo ppo", _entropy_down, (("policy/entropy",), _SCORE)),
    "entropy-explosion": Fault("grpo ppo", _entropy_up, (("policy/entropy",), _SCORE)),
    "no-gradient": Fault("grpo", _no_gradient, (("policy/gradient_norm",),), True),
    "exploding-gradients": Fault("grpo ppo", _spikes, (("policy/gradient_norm",),)),
    "nan-inf": Fault("grpo ppo", _nan, (("policy/loss", "policy/gradient_norm"),)),
    "diverging-loss": Fault("ppo", _diverging, (("value/loss",),)),
    "oscillating": Fault("grpo ppo", _oscillating, (_SCORE,), True),
    "reward-not-improving": Fault("grpo ppo", _flat, (_SCORE,), True),
    "reward-decreasing": Fault("grpo ppo", _falling, (_SCORE,)),
    "length-explosion": Fault("grpo", _too_long, (("response/length_mean",), _SCORE)),
    "length-collapse": Fault("grpo", _too_short, (("response/length_mean",), _SCORE)),
    "truncated-responses": Fault("grpo", _cut, (("response/truncated_fraction",),)),
    "missing-eos": Fault("grpo ppo", _no_eos, (("response/eos_count", "response/eos_fraction",
                                                "response/truncated_fraction"),), True),
    "value-not-learning": Fault("ppo", _blind_critic, (("value/explained_variance", "value/loss"),), True),
    "no-reward-signal": Fault("grpo", _alike, (("group/zero_std_fraction",),), True),
    "reward-scale": Fault("ppo", _scale, (("score/std",), ("value/loss", "value/return_std")), True),
    "reward-noise": Fault("grpo ppo", _noisy, (_SCORE, ("score/std",)), True),
    "advantage-not-centred": Fault("grpo", _no_baseline, (("advantage/mean",), _SCORE), True),
    "reward-hacking": Fault("grpo ppo", _hacking, (("eval/win_rate",), _SCORE)),
    "length-exploitation": Fault("grpo", _by_length, (("response/length_mean",), _SCORE)),
    "repetitive-outputs": Fault("grpo ppo", _repeats, (("response/distinct_2", "response/repetition"),)),
    "style-exploitation": Fault("grpo ppo", _hedges, (("style/hedges",),)),
    "sycophancy": Fault("grpo ppo", _flattery, (("style/sycophancy",),)),
    "alignment-tax": Fault("grpo ppo", _tax, (("eval/mmlu",),)),
    "benchmark-overfitting": Fault("grpo ppo", _public, (("eval/gsm8k",), ("eval/gsm8k_fresh",))),
    "invalid-metric": Fault("grpo ppo", _impossible, (("policy/entropy_sequence", "policy/entropy"),), True),
    "reference-mismatch": Fault("direct", _wrong_reference, (("dpo/chosen_reward",),), True),
    "preference-overfit": Fault("direct", _by_heart, (("loss/train",), ("dpo/accuracy",))),
    "preference-not-generalising": Fault("direct", _not_general, (("dpo/accuracy",), _HELD), True),
    "likelihood-displacement": Fault("direct", _displaced, (("dpo/chosen_logprob", "dpo/chosen_reward"),
                                                            ("dpo/margin",)), True),
    "pm-low-accuracy": Fault("preference-model", _weak_pm, (("accuracy/validation", "accuracy/train"),), True),
    "pm-overfit": Fault("preference-model", _overfit_pm, (("accuracy/validation", "loss/validation"),), True),
    "pm-score-collapse": Fault("preference-model", _collapsed_pm, (("pm/score_std", "margin/mean"),), True),
    "pm-miscalibrated": Fault("preference-model", _overconfident_pm, (("calibration/ece",),), True),
    "pm-length-bias": Fault("preference-model", _long_pm, (("margin/length_correlation",),), True),
}  # fmt: skip
"""What a training log can show, by finding."""
