"""Sound runs: what the logs of training that works look like, from smooth to noisy.

Levels are those that people report (peers' documentation, maintainers' answers, public runs): KL of .02-.15 nats a
token at the end, entropy falling to between a fifth and nine tenths, gradient norms of .05-10 with a heavy tail, clip
fractions of 0-.15, explained variance rising to .4-.9 from a cold critic's negative start. Nothing is copied.
"""

from __future__ import annotations

from math import erf, sqrt

import numpy as np

from trimtab.doctor.drawn.curves import Drawn, Floats, Generator, batch_noise, heavy, positive, saturating, share

__all__ = ["DIRECT_KINDS", "GRPO_KINDS", "PM_KINDS", "PPO_KINDS", "direct", "grpo", "ppo", "preference_model"]

GRPO_KINDS = (
    "plain", "earned-length", "sharp", "one-update", "beta-0", "warm-up", "slow-start", "thinking", "high-entropy",
    "zero-groups", "noisy", "smooth", "short", "long", "half-precision", "brief", "narrow-start", "scored",
)  # fmt: skip
PPO_KINDS = ("plain", "slow-start", "sharp", "warm-up", "cold-critic", "adaptive", "noisy", "one-update", "brief",
             "half-precision")  # fmt: skip
DIRECT_KINDS = ("plain", "falling-both", "small-batch", "warm-up", "strong", "long", "low-beta")
PM_KINDS = ("plain", "small-batch", "warm-up", "hard-data", "long", "confident")

_LENGTHS = {"short": (60, 90), "long": (600, 1500)}


def _rows(rng: Generator, kind: str) -> int:
    low, high = _LENGTHS.get(kind, (120, 400))
    return int(rng.integers(low, high))


def _rate(rng: Generator, n: int, warm: float, peak: float) -> Floats:
    """Learning rate: warm-up, then constant, linear or cosine."""
    t = np.arange(n) / n
    after = (np.ones(n), 1 - t, 0.5 * (1 + np.cos(np.pi * t)))[int(rng.integers(3))]
    return np.asarray(peak * np.minimum(1, (t + 1 / n) / max(warm, 1 / n)) * after)


def _gradient(rng: Generator, n: int, level: float | None = None) -> Floats:
    level = float(np.exp(rng.uniform(np.log(0.05), np.log(8)))) if level is None else level
    drift = np.exp(rng.uniform(-0.5, 0.3) * np.arange(n) / n)
    norm = level * drift * heavy(rng, n, rng.uniform(0.1, 0.35))
    return np.where(rng.random(n) < 0.006, norm * rng.uniform(2, 5), norm)


def _progress(rng: Generator, n: int, kind: str) -> Floats:
    if kind == "sharp":
        return saturating(n, rng.uniform(0.03, 0.08))
    if kind == "slow-start":
        return saturating(n, rng.uniform(0.2, 0.4), delay=rng.uniform(0.15, 0.35))
    way = saturating(n, rng.uniform(0.12, 0.45))
    if kind == "warm-up":
        way = way * np.clip(np.arange(n) / (rng.uniform(0.08, 0.2) * n), 0, 1)
    return way


def _alike(mean: Floats, size: int, spread: float) -> Floats:
    """Share of groups of `size` responses that are all right or all wrong, prompts being Beta-distributed in ease."""
    a, b = mean * spread, (1 - mean) * spread
    right = np.prod([(a + i) / (spread + i) for i in range(size)], axis=0)
    wrong = np.prod([(b + i) / (spread + i) for i in range(size)], axis=0)
    return np.asarray(right + wrong)


def _lengths(rng: Generator, n: int, kind: str, way: Floats, curves: dict[str, Floats]) -> None:
    start = rng.uniform(2500, 9000) if kind == "thinking" else rng.uniform(80, 700)
    change = {
        "earned-length": rng.uniform(1.6, 3.0), "brief": rng.uniform(0.35, 0.6), "thinking": rng.uniform(0.8, 1.5),
    }.get(kind, rng.uniform(0.75, 1.35))  # fmt: skip
    wobble = 1 + rng.uniform(0.02, 0.07) * batch_noise(rng, n, rng.uniform(0, 0.4))
    curves["response/length_mean"] = start * (1 + (change - 1) * way) * wobble
    curves["response/length_max"] = curves["response/length_mean"] * rng.uniform(1.8, 3) * wobble
    curves["response/length_min"] = curves["response/length_mean"] * rng.uniform(0.1, 0.3)
    cut = rng.uniform(0.1, 0.45) if kind == "thinking" else rng.uniform(0, 0.05)
    left = rng.uniform(0.3, 0.8) if kind == "thinking" else rng.uniform(0.3, 1.3)
    rows = rng.choice([64, 128, 256, 512])
    level = share(cut * (1 + (left - 1) * way))
    curves["response/truncated_fraction"] = rng.binomial(int(rows), level) / rows
    curves["response/distinct_2"] = share(
        rng.uniform(0.45, 0.8) - rng.uniform(0, 0.1) * way + 0.01 * batch_noise(rng, n)
    )
    curves["response/repetition"] = share(rng.uniform(0.01, 0.06) + 0.01 * way + 0.005 * batch_noise(rng, n))


def grpo(rng: Generator, kind: str = "plain", rows: int | None = None) -> Drawn:
    """A sound group-relative run: correctness of 0 to 1, or a model's score (`scored`) on a scale of its own."""
    n = rows or _rows(rng, kind)
    way = _progress(rng, n, kind)
    size = int(rng.choice([4, 8, 16]))
    prompts = int(rng.choice([8, 16, 32, 64, 128])) if kind != "noisy" else int(rng.choice([4, 6, 8]))
    if kind == "smooth":
        prompts = 256
    start = rng.uniform(0.05, 0.4)
    end = start + rng.uniform(0.2, 0.55)
    truth = start + (end - start) * way
    curves: dict[str, Floats] = {}
    lag = rng.uniform(0, 0.5)
    noise = batch_noise(rng, n, lag)
    if kind == "scored":
        scale = float(np.exp(rng.uniform(np.log(1e-3), np.log(1e3))))
        shift = scale * rng.uniform(-8, 3)
        within: Floats = np.full(n, 0.35)
        curves["score/mean"] = scale * (truth + within * noise / np.sqrt(prompts)) + shift
        curves["score/std"] = positive(rng, scale * within * rng.uniform(1.1, 1.6), n, 0.06)
        curves["score/group_std"] = positive(rng, scale * within, n, 0.06)
        zero: Floats = np.zeros(n)
    else:
        ease = rng.uniform(1.0, 4.0)
        within = np.sqrt(truth * (1 - truth))
        curves["score/mean"] = share(truth + within * noise / np.sqrt(prompts * min(size, 2)))
        curves["score/std"] = positive(rng, within, n, 0.06)
        curves["score/group_std"] = within * np.sqrt(ease / (ease + 1)) * positive(rng, 1.0, n, 0.08)
        zero = np.minimum(_alike(truth, size, ease), 0.4)
        if kind == "zero-groups":
            zero = np.full(n, rng.uniform(0.25, 0.4))
    curves["group/zero_std_fraction"] = rng.binomial(prompts, zero, n) / prompts
    level = rng.uniform(0.01, 0.12) * {"beta-0": 2.5, "sharp": 1.3}.get(kind, 1.0)
    drift = (way**1.3 * 0.7 + 0.3 * np.arange(n) / n) if kind != "sharp" else 0.6 * way + 0.4 * np.arange(n) / n
    curves["kl/reference_per_token"] = level * drift * heavy(rng, n, rng.uniform(0.05, 0.2)) + 1e-5
    h = {"high-entropy": rng.uniform(2.0, 4.0), "narrow-start": rng.uniform(0.04, 0.1)}.get(
        kind, rng.uniform(0.25, 1.5)
    )
    left = {"sharp": rng.uniform(0.15, 0.5), "narrow-start": rng.uniform(0.4, 0.7)}.get(kind, rng.uniform(0.3, 0.95))
    curves["policy/entropy"] = h * (1 + (left - 1) * way) * (1 + rng.uniform(0.02, 0.06) * batch_noise(rng, n, 0.3))
    curves["policy/gradient_norm"] = _gradient(rng, n)
    warm = rng.uniform(0.05, 0.15) if kind == "warm-up" else 0.02
    curves["policy/learning_rate"] = _rate(rng, n, warm, float(rng.choice([3e-7, 1e-6, 2e-6, 1e-5])))
    single = kind == "one-update" or rng.random() < 0.3
    clipped = 0.0 if single else float(np.exp(rng.uniform(np.log(5e-4), np.log(0.1))))
    curves["policy/clip_fraction"] = share(clipped * heavy(rng, n, 0.3))
    curves["kl/update"] = np.zeros(n) if single else rng.uniform(1e-4, 4e-3) * heavy(rng, n, 0.4)
    curves["policy/ratio_mean"] = np.ones(n) if single else 1 + 0.002 * rng.standard_normal(n)
    curves["policy/loss"] = rng.uniform(0.001, 0.05) * batch_noise(rng, n)
    curves["advantage/mean"] = 0.01 * rng.standard_normal(n)
    curves["advantage/std"] = positive(rng, 0.9, n, 0.03)
    curves["rollout/logprob_gap_mean"] = positive(rng, rng.uniform(0.004, 0.018), n, 0.12)
    curves["kl/beta"] = np.full(n, 0.0 if kind == "beta-0" else float(rng.choice([0.001, 0.01, 0.04])))
    _lengths(rng, n, kind, way, curves)
    every: dict[str, int] = {}
    if kind == "earned-length" or rng.random() < 0.4:
        curves["eval/accuracy"] = share(0.9 * truth + rng.uniform(0.008, 0.02) * rng.standard_normal(n))
        every["eval/accuracy"] = int(rng.choice([5, 10, 20]))
    _half(rng, n, kind, curves)
    updates = {"ppo.epochs": 1, "ppo.minibatches": 1} if single else {"ppo.epochs": 2, "ppo.minibatches": 4}
    return Drawn("grpo", np.arange(1, n + 1), curves, every, updates)


def _half(rng: Generator, n: int, kind: str, curves: dict[str, Floats]) -> None:
    """float16: the loss scale finds its level in the first steps, later an update is skipped now and then."""
    if kind != "half-precision":
        return
    skipped = (np.arange(n) < rng.integers(3, 9)) | (rng.random(n) < 0.01)
    curves["precision/overflow"] = skipped.astype(float)
    curves["precision/skipped_updates"] = np.cumsum(skipped).astype(float)
    curves["precision/loss_scale"] = np.maximum(65536 / 2.0 ** np.minimum(np.cumsum(skipped), 9), 64)
    infinite = skipped & (np.arange(n) < 5) & (rng.random(n) < 0.5)
    for key in ("policy/gradient_norm", "gradient_norm"):
        if key in curves:
            curves[key] = np.where(infinite, np.inf, curves[key])


def ppo(rng: Generator, kind: str = "plain", rows: int | None = None) -> Drawn:
    """A sound PPO run on a preference model's scores, whose scale is that model's own."""
    n = rows or _rows(rng, kind)
    base = grpo(
        rng, kind if kind in ("slow-start", "sharp", "warm-up", "noisy", "half-precision", "brief") else "plain", n
    )
    curves = {
        k: v
        for k, v in base.curves.items()
        if not k.startswith(("group/", "score/", "advantage/", "kl/reference", "kl/beta", "eval/"))
    }
    way = _progress(rng, n, kind)
    scale = float(np.exp(rng.uniform(np.log(0.3), np.log(4))))
    level, gain = scale * rng.uniform(-3, 1), scale * rng.uniform(0.8, 3)
    batch = int(rng.choice([32, 64, 128, 256])) if kind != "noisy" else 16
    curves["score/mean"] = level + gain * way + scale * batch_noise(rng, n, rng.uniform(0, 0.4)) / np.sqrt(batch)
    curves["score/std"] = positive(rng, scale, n, 0.07)
    kl = rng.uniform(1.5, 12) * (0.75 * way + 0.25 * np.arange(n) / n) * heavy(rng, n, 0.08)
    curves["kl/reference"] = kl + rng.uniform(0.05, 0.3) * batch_noise(rng, n)
    curves["kl/reference_per_token"] = curves["kl/reference"] / curves["response/length_mean"]
    beta = np.full(n, float(rng.choice([0.01, 0.02, 0.05])) * scale)
    if kind == "adaptive":
        beta = beta * np.exp(np.cumsum(np.clip(kl / 6 - 1, -0.2, 0.2)) * 0.01)
    curves["kl/beta"] = beta
    curves["reward/penalty"] = -beta * curves["kl/reference"]
    curves["reward/mean"] = curves["score/mean"] + curves["reward/penalty"]
    spread = np.sqrt(curves["score/std"] ** 2 + 0.1 * scale**2)
    top, half = rng.uniform(0.4, 0.9), rng.uniform(0.08, 0.2) if kind == "cold-critic" else rng.uniform(0.01, 0.05)
    t = np.arange(n) / n
    explained = top - (top + rng.uniform(0.2, 2.0 if kind == "cold-critic" else 0.6)) * 0.5 ** (t / half)
    curves["value/explained_variance"] = np.minimum(explained + 0.04 * batch_noise(rng, n), 0.99)
    curves["value/loss"] = 0.5 * spread**2 * (1 - explained) * heavy(rng, n, 0.15)
    curves["value/return_mean"] = curves["reward/mean"]
    curves["value/return_std"] = spread
    curves["value/mean"] = curves["reward/mean"] + 0.3 * scale * batch_noise(rng, n, 0.5) - scale * 0.5 ** (t / half)
    curves["value/clip_fraction"] = share(rng.uniform(0, 0.08) * heavy(rng, n, 0.4))
    curves["value/gradient_norm"] = _gradient(rng, n, rng.uniform(0.5, 10)) * (1 + 10 * 0.5 ** (t / half))
    curves["advantage/mean"] = 0.03 * scale * rng.standard_normal(n)
    curves["advantage/std"] = positive(rng, scale * np.sqrt(1 - top), n, 0.05)
    curves["response/eos_count"] = np.round(batch * (1 - curves["response/truncated_fraction"]))
    curves["response/eos_fraction"] = 1 - curves["response/truncated_fraction"]
    curves["policy/entropy_sequence"] = curves["policy/entropy"] * curves["response/length_mean"]
    return Drawn("ppo", np.arange(1, n + 1), curves, {}, base.settings)


def _pairs_right(rng: Generator, level: Floats, batch: int) -> Floats:
    """Shares of a batch's pairs that are ordered right."""
    right: Floats = rng.binomial(batch, share(level)) / batch
    return right


def _calibrated(margin: Floats) -> tuple[Floats, Floats]:
    """[n] share of pairs ordered right, and [n] mean loss; margins are normal with variance 2 `margin`."""
    z, weight = np.polynomial.hermite_e.hermegauss(31)
    weight = weight / weight.sum()
    drawn = margin[:, None] + np.sqrt(2 * np.maximum(margin, 0))[:, None] * z
    right = np.array([0.5 * (1 + erf(0.5 * sqrt(max(m, 0.0)))) for m in margin])
    return right, np.logaddexp(0, -drawn) @ weight


def direct(rng: Generator, kind: str = "plain", rows: int | None = None) -> Drawn:
    """A sound DPO run: both implicit rewards may fall, the margin grows, held-out accuracy follows."""
    n = rows or _rows(rng, kind)
    way = saturating(n, rng.uniform(0.12, 0.4))
    if kind == "warm-up":
        way = way * np.clip(np.arange(n) / (0.1 * n), 0, 1)
    batch = int(rng.choice([4, 8])) if kind == "small-batch" else int(rng.choice([16, 32, 64, 128]))
    gained = rng.uniform(0.15, 1.2) if kind != "strong" else rng.uniform(1.2, 2.5)
    margin = way * gained
    chosen = way * (rng.uniform(-0.9, -0.4) if kind == "falling-both" else rng.uniform(-0.3, 0.3))
    jitter = 1.2 / np.sqrt(batch) * np.maximum(margin, 0.05)
    logp = -rng.uniform(60, 400)
    beta = 0.01 if kind == "low-beta" else 0.1
    curves: dict[str, Floats] = {
        "dpo/chosen_reward": chosen + jitter * batch_noise(rng, n),
        "dpo/margin": margin + jitter * batch_noise(rng, n),
    }
    curves["dpo/rejected_reward"] = curves["dpo/chosen_reward"] - curves["dpo/margin"]
    # margins of a calibrated policy: normal with variance twice their mean, so that labels follow sigmoid(margin)
    right, loss = _calibrated(margin)
    curves["dpo/accuracy"] = _pairs_right(rng, right, batch)
    spread = np.sqrt(2 * np.maximum(margin, 1e-3))
    curves["loss/train"] = np.maximum(loss + 0.4 * spread / np.sqrt(batch) * batch_noise(rng, n), 0.02)
    wide = abs(logp) * 0.25 / np.sqrt(batch)
    curves["dpo/chosen_logprob"] = logp + chosen / max(beta, 0.1) + wide * batch_noise(rng, n)
    curves["dpo/rejected_logprob"] = logp * 1.05 + (chosen - margin) / max(beta, 0.1) + wide * batch_noise(rng, n)
    curves["sft/loss"] = np.zeros(n)  # logged beside, and not part of the loss
    curves["gradient_norm"] = _gradient(rng, n, rng.uniform(0.5, 20))
    curves["learning_rate"] = _rate(rng, n, 0.1, float(rng.choice([5e-7, 1e-6, 5e-6])))
    held = rng.choice([256, 512, 1000])
    held_right, held_loss = _calibrated(0.85 * margin)
    curves["accuracy/validation"] = rng.binomial(int(held), held_right) / held
    curves["loss/validation"] = held_loss + 0.004 * rng.standard_normal(n)
    gap = max(2, n // int(rng.integers(5, 10)))
    return Drawn("direct", np.arange(1, n + 1), curves, {"accuracy/validation": gap, "loss/validation": gap})


def preference_model(rng: Generator, kind: str = "plain", rows: int | None = None) -> Drawn:
    """A sound preference model: one epoch, held-out accuracy of .66-.8 close to that of the training pairs."""
    n = rows or _rows(rng, kind)
    way = saturating(n, rng.uniform(0.06, 0.25))
    if kind == "warm-up":
        way = way * np.clip(np.arange(n) / (0.08 * n), 0, 1)
    batch = int(rng.choice([4, 8])) if kind == "small-batch" else int(rng.choice([16, 32, 64]))
    top = rng.uniform(0.66, 0.7) if kind == "hard-data" else rng.uniform(0.69, 0.82)
    level = 0.5 + (top - 0.5) * way
    margin = way * (2.6 if kind == "confident" else rng.uniform(0.6, 1.4)) * (top - 0.5) / 0.2
    spread = 0.3 + 0.9 * margin
    curves: dict[str, Floats] = {
        "accuracy/train": _pairs_right(rng, level + 0.02 * way, batch),
        "loss/train": np.maximum(0.693 - (0.693 - 1.55 * (1 - top)) * way * 0.8
                                 + 0.22 / np.sqrt(batch) * batch_noise(rng, n), 0.02),
        "margin/mean": margin + spread / np.sqrt(batch) * batch_noise(rng, n),
        "gradient_norm": _gradient(rng, n, rng.uniform(0.5, 12)),
        "learning_rate": _rate(rng, n, 0.05, float(rng.choice([1e-6, 9e-6, 2e-5]))),
        "pm/score_mean": rng.uniform(-1, 1) + 0.3 * way + 0.15 * batch_noise(rng, n),
        "pm/score_std": positive(rng, 0.3 + spread, n, 0.05),
    }  # fmt: skip
    curves["pm/score_min"] = curves["pm/score_mean"] - 2 * curves["pm/score_std"]
    curves["pm/score_max"] = curves["pm/score_mean"] + 2 * curves["pm/score_std"]
    curves["pm/chosen_score"] = curves["pm/score_mean"] + curves["margin/mean"] / 2
    curves["pm/rejected_score"] = curves["pm/score_mean"] - curves["margin/mean"] / 2
    curves["margin/std"] = positive(rng, spread, n, 0.05)
    curves["margin/length_correlation"] = rng.uniform(-0.15, 0.22) + 0.03 * batch_noise(rng, n)
    curves["calibration/ece"] = positive(rng, rng.uniform(0.015, 0.06), n, 0.2)
    curves["calibration/temperature"] = positive(rng, rng.uniform(0.75, 1.35), n, 0.05)
    held = int(rng.choice([400, 1000, 2000]))
    curves["accuracy/validation"] = rng.binomial(held, level) / held
    curves["loss/validation"] = 0.693 - (0.693 - 1.6 * (1 - top)) * way * 0.75 + 0.004 * rng.standard_normal(n)
    gap = max(2, n // int(rng.integers(6, 12)))
    at = ("accuracy/validation", "loss/validation", "pm/score_std", "margin/std", "margin/length_correlation",
          "calibration/ece", "calibration/temperature")  # fmt: skip
    return Drawn("preference-model", np.arange(1, n + 1), curves, dict.fromkeys(at, gap))
