"""Update: several epochs of shuffled minibatches over one experience, with exact gradient accumulation.

A minibatch's losses are sums over its tokens divided by its token count, so micro-batches of any size add up to the
same gradient (to float rounding), whether they follow each other or stand in several processes. Policy and value model
share no trained weight; with `gradient_clip = "joint"` their gradients share one norm, and `value_coef` weighs between
them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from trimtab.config.schema import PPOConfig
from trimtab.core.kl import kl_loss
from trimtab.core.losses import policy_loss, value_loss
from trimtab.core.masked import masked_average
from trimtab.core.normalisers import RunningMoments
from trimtab.models.language import Example, negative_log_likelihood
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.ppo.experience import Experience, response_values
from trimtab.ppo.memory import Memory
from trimtab.ppo.stability import NoiseScale
from trimtab.training.optim import Optimiser
from trimtab.training.precision import Precision
from trimtab.training.sharding import Sharded
from trimtab.training.world import World

__all__ = ["Learner", "UpdateStats", "update"]


@dataclass
class Learner:
    """What is trained, and with what.

    `value` is None for the critic-free advantages; `optimisers` are named `policy` and `value`; `moments` are the
    statistics of the returns where value normalisation is on; `language` draws the demonstrations of an update, by its
    number, where their loss is mixed in; `keep` puts a minibatch aside that is not finite, with the largest absolute
    gradient of every weight; `world` are the processes that train together, `sharded` the roles split over them;
    `memory` says how many responses are in memory at once.
    """

    policy: CausalModel
    reference: CausalModel
    value: ScalarModel | None
    optimisers: dict[str, Optimiser]
    precision: Precision
    moments: RunningMoments | None = None
    language: Callable[[int], Sequence[Example]] | None = None
    pad_id: int = 0
    keep: Callable[[Experience, Mapping[str, Tensor]], None] | None = None
    noise: NoiseScale = field(default_factory=NoiseScale)
    world: World = field(default_factory=World.single)
    sharded: Sequence[Sharded[Any]] = ()
    memory: Memory = field(default_factory=lambda: Memory(PPOConfig()))


@dataclass
class UpdateStats:
    """Means over the updates of an iteration, maxima, and what the very first minibatch showed."""

    updates: int = 0
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    maxima: dict[str, float] = field(default_factory=dict)
    first_ratio_deviation: float | None = None

    def add(self, figures: dict[str, float]) -> None:
        """Figures of one update that was made."""
        self.updates += 1
        for key, value in figures.items():
            self.sums[key] += value
            self.counts[key] += 1

    def signals(self) -> dict[str, float]:
        means = {key: total / self.counts[key] for key, total in self.sums.items()}
        return means | self.maxima | {"policy/updates": float(self.updates)}

    def take_maxima(self, world: World) -> None:
        """Maxima over all processes instead of this one's."""
        if world.size == 1:
            return
        rows = world.hear([self.maxima, self.first_ratio_deviation])
        self.maxima = {key: max(row[key] for row, _ in rows) for key in self.maxima}
        self.first_ratio_deviation = max((first for _, first in rows if first is not None), default=None)


def update(
    learner: Learner,
    experience: Experience,
    config: PPOConfig,
    beta: float,
    generator: torch.Generator,
    *,
    train_policy: bool = True,
) -> UpdateStats:
    """Run `config.epochs` passes of `config.minibatches` updates each, or fewer with `config.max_update_kl`.

    Args:
        beta: KL coefficient of this iteration (used here only with `kl_placement = "loss"`).
        generator: shuffles the responses.
        train_policy: False: the value model alone is trained.
    """
    stats = UpdateStats()
    for epoch in range(config.epochs):
        order = torch.randperm(len(experience), generator=generator).to(experience.ids.device)
        for index in order.chunk(config.minibatches):
            pass_ = _Pass(learner, experience, index, config, beta, stats, train_policy)
            figures = learner.world.add_up(pass_.run(want_entropy=epoch == 0))
            norms = _step(pass_)
            if norms is None:
                continue
            stats.add(figures | norms)
            if config.max_update_kl is not None and figures.get("kl/update", 0.0) > config.max_update_kl:
                stats.take_maxima(learner.world)
                return stats
    stats.take_maxima(learner.world)
    return stats


@dataclass
class _Pass:
    """One update: the minibatch `index` of the experience, of which this process takes its part."""

    learner: Learner
    experience: Experience
    index: Tensor
    config: PPOConfig
    beta: float
    stats: UpdateStats
    train_policy: bool
    first_norm: tuple[float, int] | None = None
    """Norm of the policy's mean gradient over the first micro-batch (0: it has none), and its responses."""

    def run(self, *, want_entropy: bool) -> dict[str, float]:
        """Backward passes over this process's responses, as many at once as memory holds; figures of them all."""
        learner, stats = self.learner, self.stats
        own = self.index[learner.world.share(len(self.index))]
        maxima, first = dict(stats.maxima), stats.first_ratio_deviation

        def undo() -> None:
            for optimiser in learner.optimisers.values():
                optimiser.clear()
            stats.maxima, stats.first_ratio_deviation, self.first_norm = dict(maxima), first, None

        figures = learner.memory.update.run(lambda rows: self._backward(own, rows, want_entropy), len(own), undo)
        if self.first_norm is not None and learner.world.size > 1:  # their mean square is the better estimate
            norm, rows = self.first_norm
            squares = learner.world.add_up({"square": norm * norm, "some": float(norm > 0)})
            self.first_norm = math.sqrt(squares["square"] / max(squares["some"], 1.0)), rows
        if self.first_norm is not None and not self.first_norm[0] > 0:
            self.first_norm = None
        return figures

    def _backward(self, own: Tensor, rows: int, want_entropy: bool) -> dict[str, float]:
        """Backward passes over micro-batches of `rows` of the responses `own`; gradients add up."""
        learner, config, index = self.learner, self.config, self.index
        figures: dict[str, float] = defaultdict(float)
        tokens = self.experience.response_mask[index].sum()
        parts = own.split(rows)
        for part in parts:
            batch = self.experience.rows(part, cut_padding=learner.precision.dtype == "float32")
            found: dict[str, float] = {}
            if self.train_policy:
                optimiser = learner.optimisers["policy"]
                loss, found = optimiser.forward(
                    _policy_part, learner, batch, config, self.beta, tokens, self.stats, want_entropy
                )
                optimiser.backward(learner.precision.scale(loss))
                if self.first_norm is None and len(parts) > 1 and not learner.sharded:
                    self._first(batch, tokens)
            if learner.value is not None:
                of_tokens = config.value == "token"
                denominator = tokens if of_tokens else torch.tensor(float(len(index)), device=tokens.device)
                optimiser = learner.optimisers["value"]
                loss, more = optimiser.forward(_value_part, learner, learner.value, batch, config, denominator)
                optimiser.backward(learner.precision.scale(loss))
                found |= more
            for key, value in found.items():
                figures[key] += value
        if self.train_policy and learner.language is not None:
            figures |= self._language()
        return dict(figures)

    def _first(self, batch: Experience, tokens: Tensor) -> None:
        norm = float(self.learner.optimisers["policy"].gradient_norm()) / self.learner.precision.loss_scale
        share = float(batch.response_mask.sum()) / float(tokens)
        # the sum over the micro-batch was divided by the tokens of all: the mean over its own is wanted
        self.first_norm = (norm / share if share > 0 else 0.0), len(batch)

    def _language(self) -> dict[str, float]:
        learner = self.learner
        assert learner.language is not None
        optimiser = learner.optimisers["policy"]
        examples = learner.language(optimiser.updates + learner.precision.skipped)
        own = examples[learner.world.share(len(examples))]
        with learner.precision.autocast():
            loss, count = optimiser.forward(negative_log_likelihood, learner.policy, learner.pad_id, own)
        if learner.world.size > 1:  # this process's part of the mean; where all have all examples, an equal part
            tokens = sum(len(response) for _, response in examples)
            loss = loss * (count / (tokens if len(own) < len(examples) else tokens * learner.world.size))
        optimiser.backward(learner.precision.scale(self.config.language_coef * loss))
        return {"policy/language_loss": float(loss.detach())}


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
            want_entropy="gradient" if config.entropy_coef else want_entropy,
            want_logits=in_loss and config.kl_estimator == "full",
        )  # fmt: skip
    mask = batch.response_mask
    out = policy_loss(
        new.logprobs,
        batch.old_logprobs,
        batch.advantages,
        mask,
        config.clip_range,
        config.dual_clip,
        tokens,
        batch.importance,
    )
    if stats.first_ratio_deviation is None:
        log_ratio = (new.logprobs.detach() - batch.old_logprobs)[mask]
        deviation = float(log_ratio.expm1().abs().max())
        # one that is no number belongs to an update that will be skipped: the next one still starts at ratio 1
        stats.first_ratio_deviation = deviation if math.isfinite(deviation) else None
    stats.maxima["policy/ratio_max"] = max(stats.maxima.get("policy/ratio_max", 0.0), float(out.ratio_max))
    loss = out.loss
    if in_loss:
        loss = loss + beta * _kl_term(learner, batch, config, new.logits, new.logprobs, tokens)
    entropy = None if new.entropy is None else masked_average(new.entropy, mask, tokens)
    if config.entropy_coef and entropy is not None:
        loss = loss - config.entropy_coef * entropy
    figures = {
        "policy/loss": float(loss.detach()),
        "policy/clip_fraction": float(out.clip_fraction),
        "policy/dual_clip_fraction": float(out.dual_clip_fraction),
        "kl/update": float(out.approx_kl),
    }
    if entropy is not None and want_entropy:
        figures["policy/entropy"] = float(entropy.detach())
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


def _step(of: _Pass) -> dict[str, float] | None:
    """Clip and step; the gradients' norms, or None where the update was skipped because they are not finite."""
    learner, config = of.learner, of.config
    optimisers = {k: o for k, o in learner.optimisers.items() if of.train_policy or k != "policy"}
    for optimiser in optimisers.values():
        optimiser.add_up()
        learner.precision.unscale(optimiser)
    norms = {name: optimiser.gradient_norm() for name, optimiser in optimisers.items()}
    if of.first_norm is not None and config.language_data is None and bool(norms["policy"].isfinite()):
        learner.noise.add(of.first_norm[0], float(norms["policy"]), of.first_norm[1], len(of.index))
    finite = all(bool(norm.isfinite()) for norm in norms.values())
    if not finite and learner.precision.dtype != "float16" and learner.keep is not None:
        learner.keep(of.experience.rows(of.index, cut_padding=False), _gradients(learner))
    if config.gradient_clip == "joint":
        joint = torch.stack(list(norms.values())).norm()
        bounds = dict.fromkeys(norms, (joint, config.max_grad_norm))
    else:
        of_value = config.value_max_grad_norm or config.max_grad_norm
        bounds = {name: (norm, of_value if name == "value" else config.max_grad_norm) for name, norm in norms.items()}
    for name, (norm, bound) in bounds.items():
        optimisers[name].scale_gradients(norm, bound)
    moved = learner.precision.step(list(optimisers.values()), config.max_skipped_updates)
    return {f"{name}/gradient_norm": float(norm) for name, norm in norms.items()} if moved else None


def _gradients(learner: Learner) -> dict[str, Tensor]:
    """The largest absolute gradient of every weight, over all processes that hold parts of it; NaN stays NaN."""
    models = {"policy": learner.policy, "value": learner.value}
    found = {
        f"{role}/{name}": learner.optimisers[role].gradient_of(parameter)
        for role, model in models.items()
        if model is not None
        for name, parameter in model.own_parameters()
    }
    gradients = {name: gradient for name, gradient in found.items() if gradient is not None}
    # a process may hold nothing of a small weight
    own = torch.stack([g.abs().max() if g.numel() else g.new_zeros(()) for g in gradients.values()])
    return dict(zip(gradients, learner.world.gather(own[None]).amax(0), strict=True))
