"""Learning curves as power laws: value(n) = ceiling - amount * n^-exponent, fitted to a few measured points."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["PowerLaw", "fit_power_law"]

_EXPONENTS = np.geomspace(0.05, 2.0, 60)
"""What is tried: below, the curve is a logarithm; above, it is flat after the first point."""


class PowerLaw(NamedTuple):
    """`amount` below 0 means that the value falls with n."""

    ceiling: float
    amount: float
    exponent: float

    def at(self, n: float) -> float:
        """The value at n."""
        return float(self.ceiling - self.amount * n**-self.exponent)


def fit_power_law(sizes: ArrayLike, values: ArrayLike, *, top: float = math.inf) -> PowerLaw:
    """Least squares over ceiling and amount for each exponent of a grid from 0.05 to 2; the best of them.

    Source of the form: Hestness et al., arXiv 1712.00409.

    Args:
        sizes: [m] different positive numbers, at least three.
        values: [m] finite.
        top: the ceiling is at most this (1 for an accuracy).

    Raises:
        TrimtabError: fewer than three different sizes, sizes that are not positive, or values that are not finite.
    """
    n, y = np.asarray(sizes, dtype=np.float64), np.asarray(values, dtype=np.float64)
    if n.shape != y.shape or len(np.unique(n)) < 3 or not (n > 0).all() or not np.isfinite(y).all():
        raise TrimtabError(
            ErrorKind.DATA,
            f"a power law through {len(np.unique(n))} sizes",
            "measure at three different numbers of pairs or more",
        )
    best, least = PowerLaw(float(y.mean()), 0.0, 1.0), math.inf
    for exponent in _EXPONENTS:
        law = _line(n**-exponent, y, top, float(exponent))
        error = float(((law.ceiling - law.amount * n**-exponent - y) ** 2).sum())
        if error < least - 1e-15:
            best, least = law, error
    return best


def _line(x: NDArray[np.float64], y: NDArray[np.float64], top: float, exponent: float) -> PowerLaw:
    centred = x - x.mean()
    slope = float(centred @ y) / float(centred @ centred)
    ceiling = float(y.mean()) - slope * float(x.mean())
    if ceiling > top:
        ceiling, slope = top, float(x @ (y - top)) / float(x @ x)
    return PowerLaw(ceiling, -slope, exponent)
