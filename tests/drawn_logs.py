"""Small logs drawn for the tests of detectors: sound runs of every stage.

Nothing here is taken from a real log. Noise is white, correlated or heavy-tailed by seed: a rule that holds only
for one kind of noise is caught.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trimtab.doctor.log import Aggregation, Estimator, Floats, Log, Series, Stage, Unit

_TOKEN, _SEQUENCE, _FRACTION = Unit.NATS_PER_TOKEN, Unit.NATS_PER_SEQUENCE, Unit.FRACTION
_UNITS = {
    "kl/reference": _SEQUENCE,
    "kl/reference_per_token": _TOKEN,
    "kl/update": _TOKEN,
    "policy/entropy": _TOKEN,
    "policy/entropy_sequence": _SEQUENCE,
    "policy/clip_fraction": _FRACTION,
    "response/length_mean": Unit.TOKENS,
    "response/truncated_fraction": _FRACTION,
    "response/eos_fraction": _FRACTION,
    "response/eos_count": Unit.COUNT,
    "response/distinct_2": _FRACTION,
    "response/repetition": _FRACTION,
    "batch/duplicate_fraction": _FRACTION,
    "group/zero_std_fraction": _FRACTION,
    "accuracy/train": _FRACTION,
    "accuracy/validation": _FRACTION,
    "dpo/accuracy": _FRACTION,
    "dpo/chosen_logprob": _SEQUENCE,
    "rollout/logprob_gap_mean": _TOKEN,
    "check/kl_at_start": _TOKEN,
}

Draw = dict[str, Floats]


def log(
    values: Mapping[str, Any],
    stage: Stage = Stage.POLICY,
    *,
    algorithm: str = "grpo",
    framework: str = "trl",
    steps: Any = None,
    planned: int | None = None,
    config: Mapping[str, Any] | None = None,
    unit_unknown: Mapping[str, str] | None = None,
    estimators: Mapping[str, Estimator] | None = None,
    truncated: bool = False,
) -> Log:
    """A log of series by canonical key; each at `steps` (default 1, 2, ...) or given as (steps, values)."""
    series = {}
    for key, given in values.items():
        at, v = given if isinstance(given, tuple) else (steps, given)
        v = np.asarray(v, np.float64)
        at = np.arange(1, len(v) + 1) if at is None else np.asarray(at)
        estimator = Estimator.K1 if key.startswith("kl/ref") else Estimator.NONE
        series[key] = Series(
            key, key, at.astype(np.int64)[: len(v)], v, _UNITS.get(key, Unit.SCORE),
            (estimators or {}).get(key, estimator), Aggregation.MEAN,
        )  # fmt: skip
    rows = max((len(s) for s in series.values()), default=0)
    first = min((int(s.steps[0]) for s in series.values() if len(s)), default=0)
    final = max((int(s.steps[-1]) for s in series.values() if len(s)), default=0)
    return Log(
        "made.jsonl", "made", framework, stage, algorithm, rows, (first, final) if rows else None, planned, series,
        config or {}, (), (), unit_unknown or {}, truncated,
    )  # fmt: skip


def noise(rng: np.random.Generator, n: int, kind: int) -> Floats:
    """[n] of unit scale: white, correlated (.6 from one to the next), or Student's with 3 degrees of freedom."""
    white = rng.standard_normal(n)
    if kind % 3 == 1:
        out = np.empty(n)
        last = 0.0
        for i in range(n):
            last = 0.6 * last + 0.8 * white[i]
            out[i] = last
        return out
    return rng.standard_t(3, n) / np.sqrt(3) if kind % 3 == 2 else white


def positive(level: Any, rng: np.random.Generator, n: int, spread: float = 0.15) -> Floats:
    """[n] a positive quantity about `level`."""
    return np.asarray(level) * np.exp(spread * rng.standard_normal(n))


def rise(n: int, start: float, end: float, half: float) -> Floats:
    """[n] from `start` towards `end`, half-way after a share `half` of the run."""
    t = np.arange(n) / n
    return start + (end - start) * (1 - 0.5 ** (t / half))


GRPO_KINDS = ("plain", "earned-length", "sharp", "one-update", "beta-0", "warm-up", "slow", "entropy-bonus", "hard")


def grpo(seed: int, n: int = 200, kind: str | None = None) -> Draw:
    """A sound GRPO run; `kind` is one of `GRPO_KINDS`, by seed where not given."""
    rng = np.random.default_rng(seed)
    kind = kind or GRPO_KINDS[seed % len(GRPO_KINDS)]
    t = np.arange(n) / n
    half = {"sharp": 0.05, "slow": 0.6}.get(kind, 0.25)
    start, end = rng.uniform(0.1, 0.3), rng.uniform(0.55, 0.9)
    way = (rise(n, 0, 1, half)) * (np.clip(t / 0.15, 0, 1) if kind == "warm-up" else 1)
    mean = start + (end - start) * way
    d: Draw = {}
    spread = 0.35 - 0.1 * way
    d["score/mean"] = mean + rng.uniform(0.02, 0.06) * noise(rng, n, seed)
    d["score/std"] = positive(spread, rng, n, 0.1)
    d["score/max"] = np.minimum(1.0, mean + 2 * spread)
    kl = rng.uniform(0.02, 0.12) * way
    if kind == "sharp":
        kl = kl * 1.3
    if kind == "beta-0":
        kl = kl * 3
        d["kl/beta"] = np.zeros(n)
    d["kl/reference_per_token"] = kl * np.exp(0.15 * noise(rng, n, seed)) + 1e-4 * rng.standard_normal(n)
    h0 = rng.uniform(0.5, 2.0)
    h1 = h0 * {"sharp": 0.2, "entropy-bonus": 1.6}.get(kind, rng.uniform(0.35, 0.8))
    d["policy/entropy"] = (h0 + (h1 - h0) * way) * np.exp(0.05 * noise(rng, n, seed + 1))
    d["policy/gradient_norm"] = positive(rng.uniform(0.1, 5), rng, n, 0.35)
    d["policy/learning_rate"] = 1e-6 * (np.clip(t / 0.1, 0.01, 1))
    one = kind == "one-update"
    d["policy/clip_fraction"] = np.zeros(n) if one else positive(rng.uniform(0.005, 0.1), rng, n, 0.3)
    d["kl/update"] = np.zeros(n) if one else positive(rng.uniform(1e-4, 5e-3), rng, n, 0.4)
    d["policy/ratio_mean"] = np.ones(n) if one else 1 + 0.003 * rng.standard_normal(n)
    length = rng.uniform(150, 400)
    grown = {"earned-length": 2.2, "slow": 1.2, "sharp": 0.8}.get(kind, rng.uniform(0.8, 1.3))
    d["response/length_mean"] = length * (1 + (grown - 1) * way) * np.exp(0.05 * noise(rng, n, seed + 2))
    d["response/truncated_fraction"] = np.clip(rng.uniform(0.0, 0.04) + 0.01 * rng.standard_normal(n), 0, 1)
    zero = rng.uniform(0.1, 0.35) + ({"sharp": 0.25}.get(kind, 0.1)) * way
    d["group/zero_std_fraction"] = np.clip(zero + 0.06 * rng.standard_normal(n), 0, 1)
    d["advantage/mean"] = 0.01 * rng.standard_normal(n)
    d["advantage/std"] = positive(0.9, rng, n, 0.03)
    d["policy/loss"] = 0.02 * rng.standard_normal(n)
    if kind == "hard":
        d["rollout/logprob_gap_mean"] = positive(0.012, rng, n, 0.15)
        d["eval/accuracy"] = mean + 0.02 * rng.standard_normal(n)
    return d


def ppo(seed: int, n: int = 200) -> Draw:
    """A sound PPO run on a preference model's scores."""
    rng = np.random.default_rng(1000 + seed)
    d = grpo(seed + 500, n, ("plain", "slow", "warm-up", "sharp", "earned-length")[seed % 5])
    for key in ("group/zero_std_fraction", "kl/reference_per_token", "advantage/mean", "score/max"):
        del d[key]
    t = np.arange(n) / n
    scale = rng.uniform(1, 4)
    d["score/mean"] = scale * (d["score/mean"] * 4 - 1)
    d["score/std"] = positive(scale * 1.1, rng, n, 0.08)
    kl = rng.uniform(2, 8) * (1 - 0.5 ** (t / 0.2))
    d["kl/reference"] = kl + 0.25 * noise(rng, n, seed)
    d["kl/reference_per_token"] = d["kl/reference"] / d["response/length_mean"]
    d["kl/beta"] = np.full(n, 0.05)
    d["reward/mean"] = d["score/mean"] - 0.05 * d["kl/reference"]
    d["value/loss"] = positive(scale**2 * (0.15 + 0.85 * 0.5 ** (t / 0.08)), rng, n, 0.15)
    d["value/explained_variance"] = (0.75 - 1.2 * 0.5 ** (t / 0.03)) + 0.06 * rng.standard_normal(n)
    d["value/return_std"] = positive(scale, rng, n, 0.05)
    d["advantage/mean"] = 0.1 * scale * noise(rng, n, seed)
    return d


def dpo(seed: int, n: int = 200) -> Draw:
    """A sound DPO run: rewards of both responses fall a little, the margin grows."""
    rng = np.random.default_rng(2000 + seed)
    way = rise(n, 0, 1, 0.3)
    margin = rng.uniform(0.3, 1.5) * way
    chosen = rng.uniform(-0.6, 0.4) * way
    d: Draw = {
        "loss/train": np.log1p(np.exp(-margin)) + 0.05 * noise(rng, n, seed),
        "dpo/chosen_reward": chosen + 0.1 * noise(rng, n, seed),
        "dpo/rejected_reward": chosen - margin + 0.1 * noise(rng, n, seed + 1),
        "dpo/margin": margin + 0.1 * noise(rng, n, seed + 2),
        "dpo/accuracy": np.clip(0.5 + 0.25 * way + 0.08 * rng.standard_normal(n), 0, 1),
        "dpo/chosen_logprob": -rng.uniform(80, 300) + 10 * chosen + 8 * noise(rng, n, seed),
        "gradient_norm": positive(rng.uniform(1, 20), rng, n, 0.3),
        "learning_rate": np.full(n, 5e-7),
    }
    return d


def reward_model(seed: int, n: int = 200) -> Draw:
    """A sound preference model: one epoch, held-out accuracy near that of the training pairs."""
    rng = np.random.default_rng(3000 + seed)
    way = rise(n, 0, 1, 0.15)
    top = rng.uniform(0.66, 0.78)
    at = np.linspace(n // 8, n, 8).astype(int)
    d: Draw = {
        "loss/train": 0.693 - (0.2 + 0.5 * (top - 0.66)) * way + 0.03 * noise(rng, n, seed),
        "accuracy/train": np.clip(0.5 + (top - 0.48) * way + 0.05 * rng.standard_normal(n), 0, 1),
        "gradient_norm": positive(rng.uniform(1, 10), rng, n, 0.3),
    }
    held = 0.5 + (top - 0.5) * way[at - 1] + 0.008 * rng.standard_normal(8)
    d["accuracy/validation"] = (at, held)  # type: ignore[assignment]
    d["loss/validation"] = (at, 0.693 - 0.22 * way[at - 1] + 0.006 * rng.standard_normal(8))  # type: ignore[assignment]
    d["margin/mean"] = (at, 0.9 * way[at - 1])  # type: ignore[assignment]
    d["pm/score_std"] = (at, 0.4 + way[at - 1])  # type: ignore[assignment]
    d["margin/length_correlation"] = (at, rng.uniform(-0.15, 0.2) + 0.02 * rng.standard_normal(8))  # type: ignore[assignment]
    d["calibration/ece"] = (at, np.full(8, rng.uniform(0.02, 0.07)))  # type: ignore[assignment]
    d["calibration/temperature"] = (at, np.full(8, rng.uniform(0.8, 1.3)))  # type: ignore[assignment]
    return d


def half_precision(draw: Draw, seed: int) -> Draw:
    """float16: a scale that finds its level in the first steps, and a skip now and then."""
    rng = np.random.default_rng(seed)
    n = len(next(v for v in draw.values() if not isinstance(v, tuple)))
    skipped = np.cumsum(np.where(np.arange(n) < 6, 1, rng.random(n) < 0.01))
    scale = 65536 / 2.0 ** np.minimum(skipped, 7)
    return {**draw, "precision/skipped_updates": skipped.astype(float), "precision/loss_scale": scale}


Plant = Callable[[Draw, np.random.Generator, int], Draw]


def stride(draw: Draw, every: int) -> Draw:
    """Every so manyth row only, with the steps that it had."""
    out = {}
    for key, v in draw.items():
        at, values = v if isinstance(v, tuple) else (np.arange(1, len(v) + 1), v)
        keep = slice(None) if isinstance(v, tuple) else slice(every - 1, None, every)
        out[key] = (np.asarray(at)[keep], np.asarray(values)[keep])
    return out  # type: ignore[return-value]
