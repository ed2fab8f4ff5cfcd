"""What a PPO run is put together from: its learner, its KL controller, the demonstrations mixed in."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from trimtab.config.project import Parallel
from trimtab.config.schema import PPOConfig
from trimtab.core.controllers import AdaptiveKL, FixedKL, KLController, ScheduledKL
from trimtab.core.normalisers import RunningMoments
from trimtab.data.demonstrations import Demonstration
from trimtab.models.language import Example, encode_demonstrations
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.models.tokens import TextCodec
from trimtab.ppo.rollout import PromptOrder
from trimtab.ppo.update import Learner
from trimtab.training.optim import Optimiser
from trimtab.training.precision import Precision
from trimtab.training.sharding import Sharded
from trimtab.training.world import World
from trimtab.training.zero import Zero

__all__ = ["language", "make_controller", "make_learner", "warn_of_biased_penalty"]


def make_learner(
    config: PPOConfig,
    policy: CausalModel,
    reference: CausalModel,
    preference: ScalarModel | None,
    precision: Precision,
    generator: torch.Generator | None = None,
    world: World | None = None,
    *,
    parallel: Parallel = "ddp",
) -> Learner:
    """Policy and value model with their optimisers.

    Args:
        policy: what is trained.
        reference: what the value model starts from, unless it starts from `preference`.
        preference: see `config.value_init`.
        generator: draws the value model's adapters, where it has new ones.
        world: the processes that train together; None: this one alone.
        parallel: how what is trained is split over them, see `ModelConfig.parallel`.
    """
    world = world or World.single()
    updates = config.epochs * config.minibatches

    def optimiser(model: CausalModel | ScalarModel, learning_rate: float, iterations: int) -> Optimiser:
        zero = next((one for one in sharded if isinstance(one, Zero) and one.role is model), None)
        return (Optimiser if zero is None else zero.optimiser)(
            model, learning_rate, total_updates=iterations * updates, weight_decay=config.weight_decay,
            eps=config.adam_epsilon, schedule=config.learning_rate_schedule, warmup_fraction=config.warmup_fraction,
            world=world,
        )  # fmt: skip

    value = None
    iterations = config.iterations - config.value_warmup_iterations
    if config.advantage == "gae":
        if config.value_init == "preference" and preference is not None:
            value = preference.fork(trainable=True, generator=generator)
        else:
            value = ScalarModel.from_causal(reference, head_std="zero", generator=generator)
    sharded: list[Sharded[Any]] = []
    if parallel != "ddp" and world.size > 1:
        made = Sharded if parallel == "fsdp" else partial(Zero, parallel=parallel)
        sharded = [made(role, world) for role in (policy, value) if role is not None]
        policy, value = sharded[0].role, sharded[1].role if value is not None else None
    optimisers = {"policy": optimiser(policy, config.learning_rate, iterations)}
    if value is not None:
        optimisers["value"] = optimiser(value, config.value_learning_rate, config.iterations)
    moments = RunningMoments() if config.value_normalisation else None
    return Learner(policy, reference, value, optimisers, precision, moments, world=world, sharded=sharded)


def language(
    config: PPOConfig, policy: CausalModel, codec: TextCodec, demonstrations: Sequence[Demonstration], seed: int
) -> Callable[[int], list[Example]]:
    """The demonstrations of an update by its number: `config.language_batch_size` of an endless shuffled pass.

    Raises:
        TrimtabError: one is longer than the model's context.
    """
    examples = encode_demonstrations(policy, codec, demonstrations, "ppo.language_data")
    order, size = PromptOrder(len(examples), seed, "language-order"), config.language_batch_size
    return lambda number: [examples[i] for i in order.take(number * size, size)]


def make_controller(config: PPOConfig) -> KLController:
    """What moves beta."""
    # The settings' own rules guarantee what each controller needs; the assertions say so to the type checker.
    if config.kl_controller == "adaptive":
        assert config.kl_target_nats is not None
        assert config.kl_horizon_episodes is not None
        return AdaptiveKL(config.beta, config.kl_target_nats, config.kl_horizon_episodes)
    if config.kl_controller == "scheduled":
        assert config.beta_schedule is not None
        return ScheduledKL(config.beta_schedule)
    return FixedKL(config.beta)


def warn_of_biased_penalty(config: PPOConfig) -> None:
    """As a reward only k1 has the KL's gradient (see core.kl; a full KL even ignores the token it stands at)."""
    if config.kl_placement != "loss" and config.kl_estimator != "k1" and config.beta > 0:
        warnings.warn(
            f'ppo.kl_estimator = "{config.kl_estimator}" as a reward does not have the gradient of the KL: use "k1", '
            'or penalise the KL in the loss (ppo.kl_placement = "loss")',
            RuntimeWarning,
            stacklevel=3,
        )
