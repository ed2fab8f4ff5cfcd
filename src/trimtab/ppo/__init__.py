"""Reinforcement learning from a score: rollout, experience, update (PPO, RLOO and GRPO advantages on one loop).

`train` is the stage; the modules read in the order of an iteration: rollout, shaping, experience, update, trainer.
"""

from trimtab.ppo.trainer import HeldOut, PPOResult, train

__all__ = ["HeldOut", "PPOResult", "train"]
