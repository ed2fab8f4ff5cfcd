"""Settings that the tests of PPO start from."""

from __future__ import annotations

from trimtab.config.schema import PPOConfig


def small(**changes: object) -> PPOConfig:
    """Two iterations of eight responses, with learning rates that move something."""
    settings = {
        "iterations": 2, "batch_size": 8, "max_new_tokens": 6, "learning_rate": 1e-3, "value_learning_rate": 1e-3,
        "epochs": 2, "minibatches": 2, "checkpoint_every": 1, "probe_prompts": 2,
    }  # fmt: skip
    return PPOConfig.model_validate(settings | changes)
