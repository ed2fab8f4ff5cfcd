"""Update: several epochs of shuffled minibatches over one experience, with exact gradient accumulation.

A minibatch's losses are sums over its tokens divided by its token count, so micro-batches of any size add up to the
same gradient (to float rounding). Policy and value model share no trained weight; with `gradient_clip = "joint"` their
gradients share one norm, and `value_coef` weighs between them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from trimtab.config.schema import PPOConfig
from trimtab.core.kl import kl_loss
from trimtab.core.losses import policy_loss, value_loss
from trimtab.core.masked import masked_average
from trimtab.core.normalisers import RunningMoments
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.ppo.experience import Experience, response_values
from trimtab.training.optim import Optimiser
from trimtab.training.precision import Precision

__all__ = ["Learner", "UpdateStats", "update"]


@dataclass
class Learner:
    """What is trained, and with what.

    `value` is None for the critic-free advantages; `optimisers` are named `policy` and `value`; `moments` are the
    statistics of the returns where value normalisation is on.
    """

    policy: CausalModel
    reference: CausalModel
    value: ScalarModel | None
    optimisers: dict[str, Optimiser]
    precision: Precision
    moments: RunningMoments | None = None


@dataclass
class UpdateStats:
    """Means over the updates of an iteration, maxima, and what the very first minibatch showed."""

    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    maxima: dict[str, float] = field(default_factory=dict)
    first_ratio_deviation: float | None = None

    def add(self, figures: dict[str, float]) -> None:
        """Figures of one update."""
        for key, value in figures.items():
            self.sums[key] += value
            self.counts[key] += 1

    def signals(self) -> dict[str, float]:
        return {key: total / self.counts[key] for key, total in self.sums.items()} | self.maxima


def update(
    learner: Learner, experience: Experience, config: PPOConfig, beta: float, generator: torch.Generator
) -> UpdateStats:
    """Run `config.epochs` passes of `config.minibatches` updates each.

    Args:
        beta: KL coefficient of this iteration (used here only with `kl_placement = "loss"`).
        generator: shuffles the responses.
    """
    stats = UpdateStats()
    for epoch in range(config.epochs):
        order = torch.randperm(len(experience), generator=generator).to(experience.ids.device)
        for index in order.chunk(config.minibatches):
            figures = _accumulate(learner, experience, index, config, beta, stats, want_entropy=epoch == 0)
            stats.add(figures | _step(learner, config))
    return stats


def _accumulate(
    learner: Learner,
    experience: Experience,
    index: Tensor,
    config: PPOConfig,
    beta: float,
    stats: UpdateStats,
    *,
    want_entropy: bool,
) -> dict[str, float]:
    """Backward passes over the micro-batches of one minibatch; figures add up over them."""
    figures: dict[str, float] = defaultdict(float)
    tokens = experience.response_mask[index].sum()
    for part in index.split(config.micro_batch_size or len(index)):
        batch = experience.rows(part, cut_padding=learner.precision.dtype == "float32")
        loss, found = _policy_part(learner, batch, config, beta, tokens, stats, want_entropy)
        learner.precision.scale(loss).backward()
        if learner.value is not None:
            denominator = tokens if config.value == "token" else torch.tensor(float(len(index)), device=tokens.device)
            loss, more = _value_part(learner, learner.value, batch, config, denominator)
            learner.precision.scale(loss).backward()
            found |= more
        for key, value in found.items():
            figures[key] += value
    return dict(figures)


def _policy_part(
    learner: Learner,
    batch: Experience,
    config: PPOConfig,
    beta: float,
    tokens: Tensor,
    stats: UpdateStats,
    want_entropy: bool,
) -> tuple[Tensor, dict[str, float]]:
    in_loss = config.kl_placement == "loss" and beta > 0
    with learner.precision.autocast():
        new = response_logprobs(
            learner.policy, batch.ids, batch.mask, batch.prompt_width, config.temperature, trunk=batch.trunk,
            want_entropy=want_entropy, want_logits=in_loss and config.kl_estimator == "full",
        )  # fmt: skip
    mask = batch.response_mask
    out = policy_loss(
        new.logprobs, batch.old_logprobs, batch.advantages, mask, config.clip_range, config.dual_clip, tokens
    )
    if stats.first_ratio_deviation is None:
        log_ratio = (new.logprobs.detach() - batch.old_logprobs)[mask]
        stats.first_ratio_deviation = float(log_ratio.expm1().abs().max())
    stats.maxima["policy/ratio_max"] = max(float(out.ratio_max), stats.maxima.get("policy/ratio_max", 0.0))
    loss = out.loss
    if in_loss:
        loss = loss + beta * _kl_term(learner, batch, config, new.logits, new.logprobs, tokens)
    figures = {
        "policy/loss": float(loss.detach()),
        "policy/clip_fraction": float(out.clip_fraction),
        "policy/dual_clip_fraction": float(out.dual_clip_fraction),
        "kl/update": float(out.approx_kl),
    }
    if new.entropy is not None:
        figures["policy/entropy"] = float(masked_average(new.entropy, mask, tokens))
    return loss, figures


def _kl_term(
    learner: Learner, batch: Experience, config: PPOConfig, logits: Tensor | None, logprobs: Tensor, tokens: Tensor
) -> Tensor:
    """KL to the reference as a loss, averaged over the tokens of the whole minibatch."""
    if logits is None:
        return kl_loss(logprobs, batch.ref_logprobs, batch.response_mask, config.kl_estimator, tokens)
    with torch.no_grad(), learner.precision.autocast():
        ref = response_logprobs(
            learner.reference, batch.ids, batch.mask, batch.prompt_width, config.temperature, trunk=batch.trunk,
            want_logits=True,
        )  # fmt: skip
    assert ref.logits is not None
    return kl_loss(logits, ref.logits, batch.response_mask, "full", tokens)


def _value_part(
    learner: Learner, value: ScalarModel, batch: Experience, config: PPOConfig, denominator: Tensor
) -> tuple[Tensor, dict[str, float]]:
    with learner.precision.autocast():
        values = response_values(value, batch.ids, batch.mask, batch.prompt_width, config, batch.trunk)
    old, returns = batch.values, batch.returns
    if old is None or returns is None:
        raise ValueError("a value model needs an experience with values")
    if learner.moments is not None:
        old, returns = learner.moments.normalise(old), learner.moments.normalise(returns)
    mask = batch.response_mask
    if config.value == "prompt":  # one value a row: a column of width 1, every row counts
        values, old, returns = values.unsqueeze(1), old.unsqueeze(1), returns.unsqueeze(1)
        mask = torch.ones_like(values, dtype=torch.bool)
    out = value_loss(values, old, returns, mask, config.value_clip_range, denominator)
    figures = {"value/loss": float(out.loss.detach()), "value/clip_fraction": float(out.clip_fraction)}
    return out.loss if config.value_coef is None else config.value_coef * out.loss, figures


def _step(learner: Learner, config: PPOConfig) -> dict[str, float]:
    optimisers = learner.optimisers
    for optimiser in optimisers.values():
        learner.precision.unscale(optimiser)
    norms = {name: optimiser.gradient_norm() for name, optimiser in optimisers.items()}
    if config.gradient_clip == "joint":
        joint = torch.stack(list(norms.values())).norm()
        bounds = dict.fromkeys(norms, (joint, config.max_grad_norm))
    else:
        of_value = config.value_max_grad_norm or config.max_grad_norm
        bounds = {name: (norm, of_value if name == "value" else config.max_grad_norm) for name, norm in norms.items()}
    for name, (norm, bound) in bounds.items():
        optimisers[name].scale_gradients(norm, bound)
    learner.precision.step(list(optimisers.values()))
    return {f"{name}/gradient_norm": float(norm) for name, norm in norms.items()}
