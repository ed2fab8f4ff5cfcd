"""Experience: a rollout with scores, KL, token rewards, values, advantages and returns; what the updates learn from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.config.schema import PPOConfig
from trimtab.core.advantages import gae, grpo, prompt_value_advantages, rloo
from trimtab.core.kl import full_kl, kl_estimate
from trimtab.core.masked import masked_sum, whiten
from trimtab.core.normalisers import RunningMoments
from trimtab.core.rewards import sequence_rewards, token_rewards
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.ppo.rollout import Rollout

__all__ = [
    "Experience",
    "LogProbs",
    "batch_logprobs",
    "batch_trunk",
    "batch_values",
    "build_experience",
    "response_values",
]


@dataclass(frozen=True)
class LogProbs:
    """Log-probabilities of a rollout's response tokens, all [B, T]; `full_kl` only where the config penalises it."""

    old: Tensor
    reference: Tensor
    full_kl: Tensor | None = None


@dataclass(frozen=True)
class Experience:
    """What a minibatch needs. Shapes: [B, L] ids, mask; [B, T] the rest; values are [B] with `value = "prompt"`.

    `values` and `returns` are in the unit of the rewards; the update scales them where value normalisation is on.
    """

    ids: Tensor
    mask: Tensor
    prompt_width: int
    response_mask: Tensor
    old_logprobs: Tensor
    ref_logprobs: Tensor
    advantages: Tensor
    raw_advantages: Tensor
    rewards: Tensor
    values: Tensor | None = None
    returns: Tensor | None = None
    trunk: Tensor | None = None
    """Output of the shared layers [B, L, D]: frozen, so that every role and epoch can start from it."""
    importance: Tensor | None = None
    """What each token's policy loss is multiplied by [B, T]; None: 1."""

    def __len__(self) -> int:
        return self.ids.shape[0]

    def rows(self, index: Tensor, *, cut_padding: bool) -> Experience:
        """The experience of some responses.

        Args:
            index: int64, which responses.
            cut_padding: drop the columns that are padding in all of them. In bfloat16 and float16 the width of a batch
                changes log-probabilities by rounding (up to .16 in the ratio), so there it must stay what it was when
                the old log-probabilities were computed.
        """
        mask, response_mask = self.mask[index], self.response_mask[index]
        first = int(mask.any(0).int().argmax()) if cut_padding else 0
        width = int(response_mask.any(0).sum()) if cut_padding else response_mask.shape[1]
        columns = slice(first, self.prompt_width + width)

        def cut(x: Tensor | None) -> Tensor | None:
            return None if x is None else (x[index, :width] if x.dim() == 2 else x[index])

        return Experience(
            ids=self.ids[index, columns],
            mask=mask[:, columns],
            prompt_width=self.prompt_width - first,
            response_mask=response_mask[:, :width],
            old_logprobs=self.old_logprobs[index, :width],
            ref_logprobs=self.ref_logprobs[index, :width],
            advantages=self.advantages[index, :width],
            raw_advantages=self.raw_advantages[index, :width],
            rewards=self.rewards[index, :width],
            values=cut(self.values),
            returns=cut(self.returns),
            trunk=None if self.trunk is None else self.trunk[index, columns],
            importance=cut(self.importance),
        )


@torch.no_grad()
def batch_trunk(policy: CausalModel, rollout: Rollout, rows: int, of: int, most: float) -> Tensor | None:
    """Output of the shared layers [B, L, D]; None where nothing is shared or it takes too much memory.

    Args:
        rows: responses at a time.
        of: responses of the whole iteration, of which the rollout may be a part.
        most: bytes that it may take.
    """
    if policy.boundary == 0:
        return None
    first = policy.trunk(rollout.ids[:rows], rollout.mask[:rows])
    if first[0].numel() * first.element_size() * of > most:
        return None
    rest = [
        policy.trunk(rollout.ids[start : start + rows], rollout.mask[start : start + rows])
        for start in range(rows, len(rollout.ids), rows)
    ]
    return torch.cat([first, *rest])


@torch.no_grad()
def batch_logprobs(
    policy: CausalModel,
    reference: CausalModel,
    rollout: Rollout,
    config: PPOConfig,
    *,
    reuse: bool,
    rows: int,
    trunk: Tensor | None = None,
) -> LogProbs:
    """Old and reference log-probabilities, `rows` responses at a time.

    Args:
        trunk: see `batch_trunk`.
        reuse: take the sampler's log-probabilities as the old ones (float32, where both agree to rounding).
    """
    want_full = config.kl_estimator == "full" and config.kl_placement != "loss"
    old, ref, full = [], [], []
    for start in range(0, rollout.ids.shape[0], rows):
        part = slice(start, start + rows)
        ids, mask = rollout.ids[part], rollout.mask[part]
        known = None if trunk is None else trunk[part]
        of_ref = response_logprobs(
            reference, ids, mask, rollout.prompt_width, config.temperature, trunk=known, want_logits=want_full
        )
        ref.append(of_ref.logprobs)
        if reuse and not want_full:
            old.append(rollout.logprobs[part])
            continue
        of_old = response_logprobs(
            policy, ids, mask, rollout.prompt_width, config.temperature, trunk=known, want_logits=want_full
        )
        old.append(rollout.logprobs[part] if reuse else of_old.logprobs)
        if want_full:
            assert of_old.logits is not None
            assert of_ref.logits is not None
            full.append(full_kl(of_old.logits, of_ref.logits))
    return LogProbs(torch.cat(old), torch.cat(ref), torch.cat(full) if full else None)


@torch.no_grad()
def batch_values(
    value: ScalarModel, rollout: Rollout, config: PPOConfig, rows: int, trunk: Tensor | None = None
) -> Tensor:
    """The value model's raw output: before each response token [B, T], or after the prompt [B]."""
    parts = []
    for start in range(0, rollout.ids.shape[0], rows):
        part = slice(start, start + rows)
        known = None if trunk is None else trunk[part]
        parts.append(response_values(value, rollout.ids[part], rollout.mask[part], rollout.prompt_width, config, known))
    return torch.cat(parts)


def response_values(
    value: ScalarModel, ids: Tensor, mask: Tensor, prompt_width: int, config: PPOConfig, trunk: Tensor | None
) -> Tensor:
    """Values [B, T] of the states before each response token, or V(prompt) [B]; differentiable."""
    if config.value == "prompt":
        known = None if trunk is None else trunk[:, :prompt_width]
        return value.values(ids[:, :prompt_width], mask[:, :prompt_width], trunk=known)[:, -1].float()
    return value.values(ids, mask, trunk=trunk)[:, prompt_width - 1 : -1].float()


def build_experience(
    rollout: Rollout,
    logprobs: LogProbs,
    scores: Tensor,
    values: Tensor | None,
    config: PPOConfig,
    beta: float,
    moments: RunningMoments | None = None,
    trunk: Tensor | None = None,
) -> Experience:
    """Rewards, advantages and returns from shaped scores and the KL penalty.

    Args:
        scores: shaped scores [B].
        values: the value model's raw output, None for the critic-free advantages.
        moments: statistics of the returns, with value normalisation: raw values are scaled by them.
    """
    mask = rollout.response_mask
    rewards = _rewards(logprobs, scores, mask, config, beta)
    returns = None
    if config.advantage == "gae":
        if values is None:
            raise ValueError("gae needs values")
        if moments is not None and moments.count > 0:
            values = moments.denormalise(values)
        if config.value == "prompt":
            advantages, returns = prompt_value_advantages(rewards, values, mask, config.gamma)
            returns = returns[:, 0]
        else:
            advantages, returns = gae(rewards, values, mask, config.gamma, config.gae_lambda)
    else:
        of_group = rloo if config.advantage == "rloo" else grpo
        advantages = of_group(masked_sum(rewards, mask, dim=-1), rollout.groups).unsqueeze(-1) * mask
    used = whiten(advantages, mask) if config.advantage_whitening else advantages
    return Experience(
        ids=rollout.ids,
        mask=rollout.mask,
        prompt_width=rollout.prompt_width,
        response_mask=mask,
        old_logprobs=logprobs.old,
        ref_logprobs=logprobs.reference,
        advantages=used,
        raw_advantages=advantages,
        rewards=rewards,
        values=values,
        returns=returns,
        trunk=trunk,
    )


def _rewards(logprobs: LogProbs, scores: Tensor, mask: Tensor, config: PPOConfig, beta: float) -> Tensor:
    kl = logprobs.full_kl
    if kl is None:
        kl = kl_estimate(
            logprobs.old, logprobs.reference, "k1" if config.kl_placement == "loss" else config.kl_estimator
        )
    if config.kl_placement == "loss":
        rewards = token_rewards(scores, kl, mask, 0.0)
    elif config.kl_placement == "token":
        rewards = token_rewards(scores, kl, mask, beta)
    else:
        rewards = sequence_rewards(scores, kl, mask, beta, "sum" if config.kl_placement == "sequence_sum" else "mean")
    # The mean carries the sign of "better or worse than before": only the scale is taken out.
    return whiten(rewards, mask, shift_mean=False) if config.reward_whitening else rewards
