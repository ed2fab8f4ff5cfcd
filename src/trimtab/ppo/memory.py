"""How many responses of a PPO iteration are in memory at once: in the update, in scoring passes, in sampling.

With `ppo.micro_batch_size = "auto"` each of the three starts from what the budget holds, or from all, and is halved
when memory runs out; the sizes are part of the checkpoints, since sums of other parts round otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from trimtab.config.schema import PPOConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.backbone import Decoder
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel, Role
from trimtab.training.memory import RowLimit, RowMemory, kept_for_backward, machine_bytes
from trimtab.training.precision import Precision
from trimtab.training.world import World

__all__ = ["Memory", "decoding_bytes", "make_memory", "recompute", "update_memory"]

_FIND = 'set ppo.micro_batch_size = "auto", which finds a size that fits; or '
_TELL = "name a smaller ppo.micro_batch_size (with weights split over processes none can be found by trying); or "
_GIB = 2**30
_COUNTED_TOKENS = 64


class Memory:
    """The limits of the three kinds of work.

    Args:
        config: its `micro_batch_size`.
        world: processes that train together.
        sharded: weights are split over them: an update talks to the others all the time, and cannot be repeated by
            halves.
        update_rows: of an update and of scoring passes, what they start from; None: all.
        rollout_rows: of sampling.
    """

    def __init__(
        self,
        config: PPOConfig,
        world: World | None = None,
        *,
        sharded: bool = False,
        update_rows: int | None = None,
        rollout_rows: int | None = None,
    ) -> None:
        self.found = config.micro_batch_size == "auto"
        self._size = 1 if world is None else world.size
        told = None if config.micro_batch_size == "auto" else config.micro_batch_size
        rows = update_rows if self.found else told
        self.update = RowLimit(
            "an update", rows, adapts=self.found and not sharded, world=world,
            instead=_TELL if self.found and sharded else "" if self.found else _FIND,
        )  # fmt: skip
        self.scoring = RowLimit(
            "a scoring pass", rows, adapts=self.found, world=world, instead="" if self.found else _FIND
        )
        self.rollout = RowLimit("sampling", rollout_rows if self.found else None, adapts=True, world=world)

    def signals(self, config: PPOConfig) -> dict[str, float]:
        """Responses that a process has in memory at once; of scoring and sampling only where that is not all."""
        share = config.batch_size // self._size
        found = {"memory/micro_batch_size": float(self.update.of(share // config.minibatches))}
        for name, limit in (("memory/scoring_rows", self.scoring), ("memory/rollout_rows", self.rollout)):
            if limit.of(share) < share:
                found[name] = float(limit.of(share))
        return found

    def state_dict(self) -> dict[str, int | None]:
        return {"update": self.update.rows, "scoring": self.scoring.rows, "rollout": self.rollout.rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict()`; a size that the settings name stays."""
        self.rollout.rows = state["rollout"]
        if self.found:
            self.update.rows, self.scoring.rows = state["update"], state["scoring"]


def make_memory(
    config: PPOConfig, policy: CausalModel, precision: Precision, prompt_width: int, world: World, *, sharded: bool
) -> Memory:
    """The limits that a run starts with.

    Args:
        policy: before it is split over processes.
        prompt_width: tokens of the longest prompt.
    """
    budget = config.activation_gib * _GIB if config.activation_gib is not None else math.inf
    if config.activation_gib is None and policy.device.type != "cuda":
        budget = machine_bytes() / 2
    if config.micro_batch_size != "auto" or math.isinf(budget):
        return Memory(config, world, sharded=sharded)
    of_update = update_memory(config, policy, precision, prompt_width)
    a_row = decoding_bytes(config, policy, precision, prompt_width)
    found = [of_update.rows(budget), max(1, int(budget / a_row)) if a_row else config.batch_size]
    rows, sampled = (min(row) for row in zip(*world.hear(found), strict=True))  # machines may differ
    return Memory(config, world, sharded=sharded, update_rows=rows, rollout_rows=sampled)


def update_memory(config: PPOConfig, policy: CausalModel, precision: Precision, prompt_width: int) -> RowMemory:
    """Activations of an update by its responses, each as long as they get.

    The policy's alone: the value model takes its turn afterwards, with the same layers and a smaller head. Counted over
    a shorter row where that is enough: but for eager attention what is kept grows with the tokens.
    """
    body, width = policy.backbone, prompt_width + config.max_new_tokens
    shorter = 1.0 if body.config._attn_implementation == "eager" else max(1.0, width / _COUNTED_TOKENS)
    prompt, new = (max(1, round(tokens / shorter)) for tokens in (prompt_width, config.max_new_tokens))
    recomputes, body.recompute = body.recompute, False
    full = config.kl_placement == "loss" and config.kl_estimator == "full"

    def forward(rows: int) -> object:
        ids = torch.zeros(rows, prompt + new, dtype=torch.int64, device=policy.device)
        with precision.autocast():
            return response_logprobs(
                policy, ids, torch.ones_like(ids, dtype=torch.bool), prompt, config.temperature,
                want_entropy="gradient" if config.entropy_coef else False, want_logits=full,
            )  # fmt: skip

    try:
        kept = kept_for_backward(forward, policy.parameters())
    finally:
        body.recompute = recomputes
    kept = RowMemory(kept.fixed, math.ceil(kept.per_row * width / (prompt + new)))
    if not recomputes:
        return kept
    # kept: what each layer reads; and all of one layer while it is computed again
    layers = body.layer_count - policy.boundary
    read = width * int(policy.hf.config.get_text_config().hidden_size) * precision.torch_dtype.itemsize
    return RowMemory(kept.fixed, kept.per_row // layers + layers * read)


@torch.no_grad()
def decoding_bytes(config: PPOConfig, policy: CausalModel, precision: Precision, prompt_width: int) -> int | None:
    """Bytes that a response takes while it is sampled: keys and values, and a step's probabilities.

    None where the model keeps its cache itself.
    """
    one = torch.zeros(1, 1, dtype=torch.int64, device=policy.device)
    with precision.autocast():
        decoder = Decoder(policy.backbone, one == 0, prompt_width + config.max_new_tokens)
        if not decoder.split:
            return None
        decoder.prefill(one)
    cache = sum(x.nbytes for held in decoder.cache.buffers for x in held or ())
    # logits, log-probabilities and probabilities in float32, their sums in float64
    return int(cache) + policy.vocabulary_size * (3 * 4 + 8)


def recompute(config: PPOConfig, *roles: Role | None) -> None:
    """Turn `ppo.recompute` on in what is trained.

    Raises:
        TrimtabError: a model cannot be run layer by layer.
    """
    for role in roles:
        if role is None or not config.recompute:
            continue
        if role.backbone.splittable is not None:
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"ppo.recompute: {type(role.hf).__name__} cannot be run layer by layer, {role.backbone.splittable}",
                "leave it out; ppo.micro_batch_size = 1 needs the least memory without it",
            )
        role.backbone.recompute = True
