"""The gradient noise scale: about how many examples an update can average before more of them stop helping."""

from __future__ import annotations

from typing import NamedTuple

from trimtab.core.masked import Number

__all__ = ["GradientMoments", "gradient_moments"]


class GradientMoments(NamedTuple):
    """Unbiased estimates from one pair of gradients; single ones are noisy and may be negative: average them first."""

    noise: float
    """Trace of the covariance of one example's gradient."""
    signal: float
    """Squared norm of the true gradient. The noise scale is noise / signal, in examples."""


def gradient_moments(small_norm: Number, large_norm: Number, small: int, large: int) -> GradientMoments:
    """Noise and signal of a gradient from its norms over few and over many examples.

    E|g_B|^2 = |G|^2 + tr(S) / B for a mean over B independent examples; two sizes give two equations. Source:
    McCandlish et al., arXiv 1812.06162, appendix A.1.

    Args:
        small_norm: norm of the mean gradient over `small` examples.
        large_norm: the same over `large` examples, of which the others are a part.
        small: at least 1.
        large: more than `small`.

    Raises:
        ValueError: the sizes are not in this order.
    """
    if not 1 <= small < large:
        raise ValueError(f"small = {small}, large = {large}: 1 <= small < large is needed")
    low, high = float(small_norm) ** 2, float(large_norm) ** 2
    return GradientMoments(
        noise=(low - high) / (1 / small - 1 / large),
        signal=(large * high - small * low) / (large - small),
    )
