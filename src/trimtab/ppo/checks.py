"""Invariants of the loop, measured while it runs: what breaks silently in other people's PPO is an error here.

float32: the sampler's log-probabilities equal the trainer's (so that the ratio is 1 at the first minibatch), KL to the
reference is 0 at step 0, padding changes nothing. In bfloat16 and float16 the sampler and the trainer differ by
rounding; the trainer then recomputes the old log-probabilities and the gap is held against a measured band.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel
from trimtab.ppo.rollout import Rollout

__all__ = ["BANDS", "Band", "Checks", "logprob_gap", "padding_gap"]


@dataclass(frozen=True)
class Band:
    """Differences of log-probabilities, in nats, that are rounding and not a bug.

    `mean` and `maximum` over an iteration's tokens between sampler and trainer; `padding` between a response alone and
    in its batch, at most.
    """

    mean: float
    maximum: float
    padding: float


BANDS = {
    "float32": Band(1e-4, 1e-3, 1e-3),
    "bfloat16": Band(0.1, 10.0, 2.0),
    "float16": Band(0.02, 2.0, 0.5),
}
"""By compute dtype. In bfloat16 SmolLM2-135M shows .04 on average, always; the largest of an iteration's 1,500 tokens
is .2 to .5 as a rule and was 2.9 once in sixteen iterations, so that only the mean tells rounding from a bug."""

RATIO_TOLERANCE = 1e-3
"""|ratio - 1| at the first minibatch, and nats per token of KL at step 0."""


class Checks:
    """Raises or warns, as `ppo.checks` says, and remembers what was said so that nothing is said twice."""

    def __init__(self, mode: Literal["error", "warn"], dtype: str) -> None:
        self._mode, self._dtype = mode, dtype
        self._said: set[str] = set()

    def gap(self, mean: float, maximum: float) -> None:
        """Sampler against trainer log-probabilities."""
        band = BANDS[self._dtype]
        if not (mean <= band.mean and maximum <= band.maximum):
            self._broken(
                "gap",
                f"log-probabilities of the sampler and of the trainer differ by {mean:.2g} nats on average and "
                f"{maximum:.2g} at most; {self._dtype} explains {band.mean:g} and {band.maximum:g}",
                "sampling and training must use the same weights, temperature, padding and positions",
            )

    def padding(self, gap: float) -> None:
        """Log-probabilities of a response alone against the same response in a padded batch."""
        if not gap <= BANDS[self._dtype].padding:
            self._broken(
                "padding",
                f"padding changes log-probabilities by {gap:.2g} nats; "
                f"{self._dtype} explains {BANDS[self._dtype].padding:g}",
                "the model must honour the attention mask and position ids",
            )

    def kl_at_start(self, kl_per_token: float) -> None:
        """|KL| per token between policy and reference before any update."""
        if not abs(kl_per_token) <= RATIO_TOLERANCE:
            self._broken(
                "kl",
                f"KL to the reference is {kl_per_token:.2g} nats per token before the first update; it must be 0",
                "policy and reference must start as the same model",
            )

    def first_ratio(self, deviation: float) -> None:
        """max |ratio - 1| at the first minibatch of an iteration."""
        if not deviation <= RATIO_TOLERANCE:
            self._broken(
                "ratio",
                f"the probability ratio is off 1 by {deviation:.2g} at the first minibatch of an iteration",
                "old and new log-probabilities must come from the same weights, with dropout off",
            )

    def _broken(self, name: str, message: str, hint: str) -> None:
        if self._mode == "error":
            raise TrimtabError(ErrorKind.CHECK, message, f'{hint}; ppo.checks = "warn" goes on regardless')
        if name not in self._said:
            self._said.add(name)
            warnings.warn(f"{message} ({hint})", RuntimeWarning, stacklevel=3)


def logprob_gap(sampler: Tensor, trainer: Tensor, mask: Tensor) -> tuple[float, float]:
    """Mean and maximum of |sampler - trainer| over counted positions, in nats."""
    gap = (sampler - trainer)[mask].abs()
    return float(gap.mean()), float(gap.max())


@torch.no_grad()
def padding_gap(policy: CausalModel, rollout: Rollout, temperature: float) -> float:
    """Largest difference that padding makes: the most padded response of the batch, alone and in it.

    Compares two forward passes of the trainer, so that it tells padding from sampler trouble.
    """
    row = int(rollout.mask.sum(-1).argmin())
    ids, mask = rollout.ids[row : row + 1], rollout.mask[row : row + 1]
    padded = response_logprobs(policy, ids, mask, rollout.prompt_width, temperature).logprobs[0]
    first = int(mask[0].int().argmax())
    length = int(rollout.response_mask[row].sum())
    columns = slice(first, rollout.prompt_width + length)
    alone = response_logprobs(policy, ids[:, columns], mask[:, columns], rollout.prompt_width - first, temperature)
    return float((padded[:length] - alone.logprobs[0]).abs().max())
