"""Named random streams: each use of chance has a stream of its own, derived from the run's seed.

A stream depends on the seed and its name alone. Adding a probe, or drawing more in one place, leaves all others as they
were.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

__all__ = ["numpy_stream", "stream_seed", "torch_stream"]


def stream_seed(seed: int, *names: str | int) -> int:
    """An integer in [0, 2**63) for (seed, names), by SHA-256; names are told apart by place, type and length."""
    text = "\x1f".join(f"{type(n).__name__}:{len(str(n))}:{n}" for n in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def torch_stream(seed: int, *names: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """A torch generator for a named purpose, e.g. `torch_stream(seed, "rollout", iteration)`."""
    return torch.Generator(device=device).manual_seed(stream_seed(seed, *names))


def numpy_stream(seed: int, *names: str | int) -> np.random.Generator:
    """A numpy generator for a named purpose."""
    return np.random.default_rng(stream_seed(seed, *names))
