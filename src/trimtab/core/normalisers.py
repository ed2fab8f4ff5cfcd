"""Running mean and variance, for scores and returns."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.core.masked import EPSILON, require_counted
from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["RunningMoments"]


class RunningMoments:
    """Mean and population variance of all values seen, merged batch by batch in float64.

    Before the first update the mean is 0 and the variance 1, so that normalising changes nothing. Source: Chan,
    Golub and LeVeque (1979), the parallel update.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    @property
    def count(self) -> int:
        """Values seen."""
        return self._count

    @property
    def mean(self) -> float:
        """Mean of the values seen; 0 before the first."""
        return self._mean

    @property
    def var(self) -> float:
        """Population variance of the values seen; 1 before the first."""
        return self._squares / self._count if self._count else 1.0

    @property
    def std(self) -> float:
        """Square root of `var`."""
        return math.sqrt(self.var)

    def update(self, x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"] | None = None) -> None:
        """Take in a batch.

        Args:
            x: any shape.
            mask: the same shape; None = all count.

        Raises:
            TrimtabError: nothing counts, or a counted value is NaN or infinite (nothing is taken in then: it would stay
                in the statistics for ever).
        """
        require_counted(torch.ones_like(x, dtype=torch.bool) if mask is None else mask)
        # on the CPU, because not every accelerator has float64
        new = (x if mask is None else x[mask]).detach().to("cpu", torch.float64)
        if not bool(new.isfinite().all()):
            raise TrimtabError(
                ErrorKind.FAILED, "running statistics were given NaN or infinity", "scores and returns must be finite"
            )
        count, mean = new.numel(), float(new.mean())
        squares = float((new - mean).square().sum())
        total, gap = self._count + count, mean - self._mean
        self._squares += squares + gap * gap * self._count * count / total
        self._mean += gap * count / total
        self._count = total

    def normalise(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """(x - mean) / sqrt(var + 1e-8)."""
        return (x.float() - self._mean) / math.sqrt(self.var + EPSILON)

    def denormalise(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The inverse of `normalise`: x sqrt(var + 1e-8) + mean."""
        return x.float() * math.sqrt(self.var + EPSILON) + self._mean

    def state_dict(self) -> dict[str, Any]:
        """{"count", "mean", "squares"}: plain numbers; squares is the sum of squared deviations."""
        return {"count": self._count, "mean": self._mean, "squares": self._squares}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self._count = int(state["count"])
        self._mean = float(state["mean"])
        self._squares = float(state["squares"])
