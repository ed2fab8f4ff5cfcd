"""Which engine samples a run's rollouts, and how far its log-probabilities are the trainer's.

The native loop in float32 computes what the trainer computes, so its log-probabilities serve as the old ones. Those of
any other engine, or in less than float32, are never taken over: the trainer computes the old ones itself, the gap
between both is a signal, and `ppo.importance_cap` corrects for it.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from trimtab.config.schema import PPOConfig
from trimtab.core.importance import truncated_importance
from trimtab.core.masked import masked_mean
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.engines.hf import TransformersEngine
from trimtab.models.engines.protocol import GenerationEngine, NativeEngine
from trimtab.models.engines.vllm import VllmEngine, VllmServerEngine, require_vllm
from trimtab.ppo.experience import Experience
from trimtab.ppo.rollout import Rollout
from trimtab.ppo.update import Learner
from trimtab.runs.run import Run
from trimtab.training.world import World

__all__ = ["check_engine", "correct", "make_engine", "samples_as_trainer", "stateless", "sync"]


def check_engine(config: PPOConfig, dtype: str) -> None:
    """Refuse what can be refused before a model is loaded.

    Raises:
        TrimtabError: vllm is not installed, or a correction of what does not differ is asked for.
    """
    if config.importance_cap is not None and samples_as_trainer(config, dtype):
        raise TrimtabError(
            ErrorKind.CONFIG,
            f'ppo.importance_cap = {config.importance_cap:g} has no effect with ppo.engine = "native" in float32: '
            "sampler and trainer are one",
            "leave it out, or sample with another engine or in bfloat16",
        )
    if config.engine == "vllm":
        require_vllm()


def make_engine(config: PPOConfig, dtype: str, world: World, pad_id: int, run: Run | None) -> GenerationEngine:
    """The engine that the settings name. Weights are handed over to vLLM in `engine/` of the run.

    Raises:
        TrimtabError: as `check_engine`, or vllm in several processes.
    """
    check_engine(config, dtype)
    if config.engine == "native":
        return NativeEngine()
    if config.engine == "transformers":
        return TransformersEngine()
    # a name that nobody else can know or hold already
    directory = Path(tempfile.mkdtemp(prefix="trimtab-engine-")) if run is None else run.path / "engine"
    if config.engine != "vllm":
        return VllmServerEngine(config.engine, directory, pad_id)
    if world.size > 1:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f'ppo.engine = "vllm" with {world.size} processes: each would start one on the same devices',
            "start a vLLM server and name its URL: ppo.engine",
        )
    return VllmEngine(directory, pad_id, config.engine_options)


def stateless(engine: GenerationEngine) -> GenerationEngine:
    """What samples from any model, as the reference: the engine itself, or the native loop in place of own weights."""
    return NativeEngine() if engine.own_weights else engine


def sync(engine: GenerationEngine, learner: Learner) -> None:
    """Bring an engine's weights up to the policy's; every process has to call this."""
    if not engine.own_weights:
        return
    sharded = learner.sharded[0] if learner.sharded else None
    policy = learner.policy if sharded is None else sharded.restore()
    if learner.world.first:
        engine.sync(policy)
    if sharded is not None:  # the copy has done its work
        for _, parameter in policy.own_parameters():
            parameter.data = parameter.data.new_empty(0)
    learner.world.tell(None)


def samples_as_trainer(config: PPOConfig, dtype: str) -> bool:
    """Whether the sampler's log-probabilities are the trainer's, to rounding."""
    return config.engine == "native" and dtype == "float32"


def correct(experience: Experience, rollout: Rollout, config: PPOConfig) -> tuple[Experience, dict[str, float]]:
    """The experience with importance weights, and signals about them, where the settings ask for a correction."""
    if config.importance_cap is None:
        return experience, {}
    mask = rollout.response_mask
    found = truncated_importance(experience.old_logprobs, rollout.logprobs, mask, config.importance_cap)
    return replace(experience, importance=found.weights), {
        "rollout/is_weight_mean": float(masked_mean(found.weights, mask)),
        "rollout/is_truncated_fraction": float(masked_mean(found.truncated, mask)),
    }
