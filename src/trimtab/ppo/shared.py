"""What the processes of a run share out among themselves: scoring, and the passes that need no gradient.

Each works on its equal part of the responses; then all of them have all results, and what follows (shaping, whitening,
advantages, minibatches) is computed by each of them from the whole batch, as one process would.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from trimtab.config.project import Parallel
from trimtab.config.schema import PPOConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import Role
from trimtab.ppo.engines import samples_as_trainer
from trimtab.ppo.experience import LogProbs, batch_logprobs, batch_trunk, batch_values
from trimtab.ppo.rollout import Rollout
from trimtab.ppo.update import Learner
from trimtab.scoring import Scorer, checked_scores, lend, signals
from trimtab.training.sharding import is_sharded
from trimtab.training.world import World
from trimtab.training.zero import require_deepspeed

__all__ = ["RolloutStates", "check_shares", "evaluate", "fingerprint", "lent", "score", "shared_layers", "told"]


def check_shares(config: PPOConfig, world: World, parallel: Parallel, dtype: str) -> None:
    """Refuse what cannot be parted equally, or not exactly.

    Raises:
        TrimtabError: kind config; or missing, where DeepSpeed is.
    """
    if parallel.startswith("zero"):
        require_deepspeed(parallel)
    rows, prompts = world.size * config.minibatches, world.size * config.responses_per_prompt
    for unit, why in (
        (rows, f"{world.size} processes x {config.minibatches} minibatches"),
        (prompts, f"{world.size} processes x {config.responses_per_prompt} responses to a prompt"),
    ):
        if config.batch_size % unit:
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"ppo.batch_size = {config.batch_size} cannot be parted among {why}",
                f"set it to a multiple of {unit}, or start another number of processes",
            )
    if parallel != "ddp" and dtype == "float16":
        raise TrimtabError(
            ErrorKind.CONFIG,
            f'model.parallel = "{parallel}" with model.dtype = "float16": the loss scale would follow each part by '
            "itself",
            'set model.dtype = "bfloat16", or model.parallel = "ddp"',
        )


def score(world: World, scorer: Scorer, rollout: Rollout) -> Tensor:
    """Scores float64 [B] of all responses."""
    count = len(rollout.prompts)
    own = rollout.part(world.share(count))
    scores: np.ndarray = checked_scores(scorer, own.prompts, own.responses)
    if world.size > 1:
        parts = world.hear(scores.tolist())
        scores = np.concatenate(parts if world.parted(count) else parts[:1]).astype(np.float64)
    return torch.from_numpy(scores).to(rollout.ids.device)


def told(world: World, scorer: Scorer, rollout: Rollout) -> dict[str, float]:
    """What a scorer has to say of the responses that it has just scored: means over the processes' parts.

    To be asked before the scorer sees another batch, so that it need not read this one again.
    """
    own = rollout.part(world.share(len(rollout.prompts)))
    return world.mean(signals(scorer, own.prompts, own.responses))


class RolloutStates:
    """The shared layers' output for responses, looked up by their tokens (`models.kept.KeptStates`).

    Args:
        rollout: the responses.
        trunk: [B, L, D], see `shared_layers`.
    """

    def __init__(self, rollout: Rollout, trunk: Tensor) -> None:
        first, count = rollout.mask.int().argmax(-1).tolist(), rollout.mask.sum(-1).tolist()
        spans = [slice(start, start + length) for start, length in zip(first, count, strict=True)]
        # views: nothing is in memory twice
        self._rows = {tuple(rollout.ids[i, own].tolist()): trunk[i, own] for i, own in enumerate(spans)}

    def find(self, row: Sequence[int]) -> Tensor | None:
        return self._rows.get(tuple(row))

    def keep(self, row: Sequence[int], hidden: Tensor) -> None:
        """Does nothing: a row of other tokens is read again next time."""


@contextmanager
def lent(scorer: Scorer, learner: Learner, rollout: Rollout, world: World, trunk: Tensor | None) -> Iterator[None]:
    """Within it a scorer on the policy's shared layers need not run them for these responses again."""
    if trunk is None:
        yield
        return
    dtype = learner.precision.dtype
    lend(scorer, learner.policy, dtype, RolloutStates(rollout.part(world.share(len(rollout.prompts))), trunk))
    try:
        yield
    finally:
        lend(scorer, learner.policy, dtype, None)


def shared_layers(world: World, learner: Learner, rollout: Rollout, config: PPOConfig) -> Tensor | None:
    """Output of the shared layers for this process's responses; None where nothing is shared or kept."""
    own = rollout.part(world.share(len(rollout.prompts)))
    most = config.trunk_gib * 2**30
    return learner.memory.scoring.run(
        lambda rows: batch_trunk(learner.policy, own, rows, len(rollout.prompts), most), len(own.prompts)
    )


def evaluate(
    world: World, learner: Learner, rollout: Rollout, config: PPOConfig, trunk: Tensor | None
) -> tuple[LogProbs, Tensor | None, Tensor | None]:
    """Log-probabilities [B, T] and raw values of all responses, and the shared layers' output for all of them.

    Args:
        trunk: what `shared_layers` gave.
    """
    own = rollout.part(world.share(len(rollout.prompts)))

    def passes(rows: int) -> tuple[LogProbs, Tensor | None]:
        logprobs = batch_logprobs(
            learner.policy, learner.reference, own, config, 
            reuse=samples_as_trainer(config, learner.precision.dtype), rows=rows, trunk=trunk,
        )  # fmt: skip
        values = None if learner.value is None else batch_values(learner.value, own, config, rows, trunk)
        return logprobs, values

    logprobs, values = learner.memory.scoring.run(passes, len(own.prompts))

    def all_of(x: Tensor | None) -> Tensor | None:
        return None if x is None else world.gather(x)

    found = LogProbs(world.gather(logprobs.old), world.gather(logprobs.reference), all_of(logprobs.full_kl))
    return found, all_of(values), all_of(trunk)


def fingerprint(*roles: Role | None) -> str:
    """Tells weights apart: sha256 of the first few of every own weight that this process holds whole."""
    found = hashlib.sha256()
    for role in roles:
        for name, parameter in role.own_parameters() if role is not None else ():
            if not is_sharded(parameter):
                few = parameter.detach().flatten()[:32].float().cpu()
                found.update(name.encode() + few.numpy().tobytes())
    return found.hexdigest()
