"""Learning-rate schedules, stepped by optimiser update."""

from __future__ import annotations

import math

from trimtab.errors import ErrorKind, TrimtabError

__all__ = ["learning_rate_factor"]


def learning_rate_factor(
    step: int,
    total: int,
    schedule: str,
    warmup_fraction: int | float = 0.0,
) -> float:
    """What to multiply the peak learning rate with for one update.

    Over the first w = ceil(warmup_fraction total) updates the factor rises in equal steps from 0 (which no update gets)
    to 1 at update w. From there it stays at 1, or falls to 0 at `total`, in a line or in half a cosine wave.

    Args:
        step: updates made before this one, from 0.
        total: updates of the whole run; beyond it the factor stays where it ended.
        schedule: "constant", "linear" or "cosine".
        warmup_fraction: share of the updates that warm up, in [0, 1].

    Returns:
        A factor in [0, 1].

    Raises:
        TrimtabError: an unknown schedule or a number out of range.
    """
    if schedule not in ("constant", "linear", "cosine"):
        raise TrimtabError(
            ErrorKind.CONFIG, f'no learning-rate schedule "{schedule}"', 'there are "constant", "linear", "cosine"'
        )
    if step < 0 or total < 1 or not 0 <= warmup_fraction <= 1:
        raise TrimtabError(
            ErrorKind.CONFIG,
            f"learning-rate schedule: step {step} of {total} with warmup_fraction = {warmup_fraction} is out of range",
            "steps count from 0, there is at least 1, and the fraction is in [0, 1]",
        )
    # a product such as .07 * 100 lies a rounding error above the whole number that is meant
    warmup = math.ceil(warmup_fraction * total - 1e-9)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if schedule == "constant":
        return 1.0
    if step >= total:
        return 0.0
    done = (step - warmup) / (total - warmup)
    return 1 - done if schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
