"""How the KL coefficient beta moves: not at all, toward a target KL, or along a schedule.

Each has `.beta`, `.update(kl, n_episodes)`, called once an iteration, and a state that fits in JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["AdaptiveKL", "FixedKL", "KLController", "ScheduledKL", "piecewise_linear"]

_MAX_ERROR = 0.2


class KLController(Protocol):
    """What a trainer needs of a controller."""

    @property
    def beta(self) -> float:
        """KL coefficient now."""
        ...

    def update(self, kl: int | float, n_episodes: int) -> None:
        """Take note of an iteration: its KL to the reference and its number of responses."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers from which `load_state_dict` goes on."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        ...


def _coefficient(beta: int | float) -> float:
    if not (math.isfinite(beta) and beta >= 0):
        raise TrimtabError(
            ErrorKind.CONFIG, f"beta = {beta} is out of range", "it must be at least 0: a negative one rewards drift"
        )
    return float(beta)


class FixedKL:
    """A constant beta.

    Args:
        beta: at least 0.

    Raises:
        TrimtabError: beta is negative or not finite.
    """

    def __init__(self, beta: int | float) -> None:
        self._beta = _coefficient(beta)

    @property
    def beta(self) -> float:
        """KL coefficient."""
        return self._beta

    def update(self, kl: int | float, n_episodes: int) -> None:
        """Nothing to do."""

    def state_dict(self) -> dict[str, Any]:
        """{"beta"}."""
        return {"beta": self._beta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self._beta = _coefficient(state["beta"])


class AdaptiveKL:
    """Proportional control of beta toward a target KL.

        beta *= 1 + clip(kl / target - 1, -0.2, 0.2) * n_episodes / horizon

    Source: Ziegler et al., arXiv 1909.08593, section 2.2.

    Args:
        beta: at the start, above 0 (it is multiplied and could never leave 0).
        target: KL to the reference to steer to, in the unit of the `kl` given to `update` (nats a sequence).
        horizon: responses over which beta may change by the whole (clipped) error.

    Raises:
        TrimtabError: one of the three is not positive.
    """

    def __init__(self, beta: int | float, target: int | float, horizon: int | float) -> None:
        for key, value in (("beta", beta), ("kl_target_nats", target), ("kl_horizon_episodes", horizon)):
            if not (math.isfinite(value) and value > 0):
                raise TrimtabError(
                    ErrorKind.CONFIG, f"adaptive beta: {key} = {value} is out of range", "it must be positive"
                )
        self._beta = float(beta)
        self.target = float(target)
        self.horizon = float(horizon)

    @property
    def beta(self) -> float:
        """KL coefficient now."""
        return self._beta

    def update(self, kl: int | float, n_episodes: int) -> None:
        """Move beta.

        Args:
            kl: mean KL to the reference of this iteration's responses, in the unit of the target; may be negative (k1).
            n_episodes: responses of this iteration, over all processes.

        Raises:
            TrimtabError: kl is NaN, or the horizon is so short that one iteration could turn beta to 0 or below.
        """
        if math.isnan(kl):
            raise TrimtabError(
                ErrorKind.FAILED, "adaptive beta: the KL to the reference is NaN", "look at the log-probabilities"
            )
        if _MAX_ERROR * n_episodes >= self.horizon:
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"kl_horizon_episodes = {self.horizon:g} is too short for {n_episodes} responses an iteration",
                f"beta could become negative: set it above {_MAX_ERROR * n_episodes:g}, better to several iterations",
            )
        error = min(max(kl / self.target - 1, -_MAX_ERROR), _MAX_ERROR)
        self._beta *= 1 + error * n_episodes / self.horizon

    def state_dict(self) -> dict[str, Any]:
        """{"beta"}; target and horizon belong to the settings."""
        return {"beta": self._beta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self._beta = _coefficient(state["beta"])


class ScheduledKL:
    """Beta as a function of the iteration.

    Args:
        betas: a function of the iteration (from 0), or [iteration, beta] points for `piecewise_linear`.

    Raises:
        TrimtabError: bad points, or a beta that is negative or not finite (when it is reached).
    """

    def __init__(self, betas: Callable[[int], int | float] | Sequence[tuple[int, int | float]]) -> None:
        self._betas = betas if callable(betas) else piecewise_linear(betas)
        self._step = 0
        self._beta = _coefficient(self._betas(0))

    @property
    def beta(self) -> float:
        """KL coefficient of the present iteration."""
        return self._beta

    def update(self, kl: int | float, n_episodes: int) -> None:
        """Go to the next iteration; neither argument matters."""
        self._go_to(self._step + 1)

    def state_dict(self) -> dict[str, Any]:
        """{"step"}; the schedule belongs to the settings."""
        return {"step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict`."""
        self._go_to(int(state["step"]))

    def _go_to(self, step: int) -> None:
        self._step = step
        self._beta = _coefficient(self._betas(step))


def piecewise_linear(points: Sequence[tuple[int, int | float]]) -> Callable[[int], float]:
    """The function that runs straight from point to point and stays level before the first and after the last.

    Args:
        points: (step, value) with strictly increasing steps, at least one.

    Returns:
        step -> value.

    Raises:
        TrimtabError: no points, or steps that do not increase.
    """
    steps = [int(step) for step, _ in points]
    values = [float(value) for _, value in points]
    if not steps or any(later <= earlier for earlier, later in pairwise(steps)):
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"schedule points {list(points)} are no schedule",
            "there must be at least one point, and the steps must increase",
        )
    return lambda step: float(np.interp(step, steps, values))
