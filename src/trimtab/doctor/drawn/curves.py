"""The pieces that a drawn run is made of: noise as training logs have it, curves that rise, ramps from an onset on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Drawn", "Floats", "batch_noise", "heavy", "positive", "ramp", "saturating", "share"]

Floats = NDArray[np.float64]
Generator = np.random.Generator


@dataclass
class Drawn:
    """A drawn run in canonical quantities.

    Args:
        kind: `grpo`, `ppo`, `direct` or `preference-model`.
        steps: [N] the step of each row.
        curves: [N] each, by canonical key; NaN is logged as NaN.
        every: keys that only each so manyth row has (evaluations); the last row has them too.
        settings: what the framework's own settings would say, by the keys of our runs.
    """

    kind: str
    steps: NDArray[np.int64]
    curves: dict[str, Floats]
    every: dict[str, int] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps)

    def has(self, key: str, row: int) -> bool:
        """Whether a row shows a key."""
        k = self.every.get(key, 1)
        return key in self.curves and ((row + 1) % k == 0 or (k > 1 and row == len(self) - 1))

    def strided(self, stride: int) -> Drawn:
        """The same run, logged at each `stride`-th step only; evaluations stay at the steps that they were made at."""
        if stride == 1:
            return self
        keep = np.arange(stride - 1, len(self), stride)
        curves = {k: v[keep] for k, v in self.curves.items()}
        every = {k: max(1, e // stride) for k, e in self.every.items()}
        return replace(self, steps=self.steps[keep], curves=curves, every=every)

    def resumed(self, at: int, back: int, rng: Generator) -> Drawn:
        """The same run, killed at row `at` and taken up again `back` rows earlier: these rows come twice."""
        rows = np.concatenate([np.arange(at), np.arange(at - back, len(self))])
        jitter = np.where(np.arange(len(rows)) >= at, 1 + 0.01 * rng.standard_normal(len(rows)), 1.0)
        curves = {k: v[rows] * (jitter if k in ("score/mean", "loss/train") else 1.0) for k, v in self.curves.items()}
        return replace(self, steps=self.steps[rows], curves=curves)

    def without(self, at: int, width: int) -> Drawn:
        """The same run with rows lost from `at` on: what a logger that was down leaves."""
        rows = np.concatenate([np.arange(at), np.arange(at + width, len(self))])
        return replace(self, steps=self.steps[rows], curves={k: v[rows] for k, v in self.curves.items()})

    def relabeled(self, scale: float, shift: float) -> Drawn:
        """The same run whose logger writes scores and rewards in another unit; training itself is not touched."""
        curves = dict(self.curves)
        for key, v in self.curves.items():
            if key.startswith(("score/", "reward/")):
                curves[key] = v * scale + (0.0 if key.endswith("std") or key == "reward/penalty" else shift)
        return replace(self, curves=curves)

    def rescaled(self, scale: float, shift: float) -> Drawn:
        """The same run trained on scores of another unit; what is made of scores follows."""
        levels = ("score/mean", "score/min", "score/max", "reward/mean", "eval/score")
        spreads = ("score/std", "score/group_std", "reward/std", "advantage/std", "advantage/mean", "value/return_std")
        curves = dict(self.curves)
        for key, v in self.curves.items():
            if key in levels or (key.startswith("score/") and key not in spreads):
                curves[key] = v * scale + shift
            elif key in spreads:
                curves[key] = v * scale
            elif key == "value/loss":
                curves[key] = v * scale**2
            elif key == "kl/beta":
                curves[key] = v * scale
        return replace(self, curves=curves)


def batch_noise(rng: Generator, n: int, lag: float = 0.0) -> Floats:
    """[n] of unit variance: white, with a part that carries over from batch to batch (AR(1) with `lag`)."""
    white = rng.standard_normal(n)
    if lag <= 0:
        return white
    out = np.empty(n)
    last = rng.standard_normal()
    for i in range(n):
        last = lag * last + np.sqrt(1 - lag * lag) * white[i]
        out[i] = last
    return out


def heavy(rng: Generator, n: int, spread: float, freedom: float = 4.0) -> Floats:
    """[n] a factor about 1 with heavy tails: gradient norms, estimates of a KL."""
    factor: Floats = np.exp(np.clip(spread * rng.standard_t(freedom, n) / np.sqrt(freedom / (freedom - 2)), -2.5, 2.5))
    return factor


def positive(rng: Generator, level: float | Floats, n: int, spread: float) -> Floats:
    """[n] a positive quantity about `level`."""
    out: Floats = np.asarray(level) * np.exp(spread * rng.standard_normal(n))
    return out


def saturating(n: int, half: float, delay: float = 0.0) -> Floats:
    """[n] from 0 towards 1, half-way a share `half` of the run after a slow start of `delay`."""
    t = np.arange(n) / max(n - 1, 1)
    late = t if delay <= 0 else np.log1p(np.exp((t - delay) / 0.04)) * 0.04
    out: Floats = 1 - 0.5 ** (late / half)
    return out


def ramp(n: int, at: int, over: float) -> Floats:
    """[n] 0 up to row `at`, then smoothly up to 1 within `over` rows."""
    x = np.clip((np.arange(n) - at) / max(over, 1.0), 0, 1)
    out: Floats = x * x * (3 - 2 * x)
    return out


def share(values: Floats) -> Floats:
    """Clipped to what a share can be."""
    return np.clip(values, 0.0, 1.0)
