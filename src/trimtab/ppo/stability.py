"""What keeps an update from doing harm: batches that are not finite kept aside, and how noisy the gradient is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from trimtab.core.gradient_noise import gradient_moments
from trimtab.models.writing import writing_weights
from trimtab.ppo.experience import Experience

__all__ = ["KEPT_BATCHES", "NoiseScale", "keep_batch"]

KEPT_BATCHES = 8
"""Most batches kept aside in a run: what matters stands in the first ones."""
_MEMORY = 0.9


class NoiseScale:
    """Running estimate of the policy's gradient noise scale, in responses.

    Noise and signal are averaged by themselves, each new update counting a tenth, before they are divided.
    """

    def __init__(self) -> None:
        self._noise = self._signal = self._weight = 0.0

    def add(self, small_norm: float, large_norm: float, small: int, large: int) -> None:
        """Norms of one update's mean gradient over its first `small` responses and over all `large`."""
        moments = gradient_moments(small_norm, large_norm, small, large)
        self._noise = _MEMORY * self._noise + moments.noise
        self._signal = _MEMORY * self._signal + moments.signal
        self._weight = _MEMORY * self._weight + 1.0

    def signals(self) -> dict[str, float]:
        """`policy/gradient_noise_scale`; nothing while the estimates do not make sense (a signal of 0 or less)."""
        if self._weight == 0.0 or self._signal <= 0.0:
            return {}
        return {"policy/gradient_noise_scale": max(0.0, self._noise / self._signal)}

    def state_dict(self) -> dict[str, float]:
        return {"noise": self._noise, "signal": self._signal, "weight": self._weight}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self._noise, self._signal, self._weight = state["noise"], state["signal"], state["weight"]


def keep_batch(directory: Path, name: str, batch: Experience, gradients: Mapping[str, Tensor]) -> Path | None:
    """Write a minibatch whose loss or gradient is not finite to `directory`/`name`.safetensors, for a look at it.

    Args:
        directory: made if need be.
        name: of the file, without its ending.
        batch: the minibatch.
        gradients: by parameter; of each, the largest absolute value is kept (NaN and infinity as they are).

    Returns:
        The file, or None where `KEPT_BATCHES` are there already.
    """
    if directory.is_dir() and len(list(directory.glob("*.safetensors"))) >= KEPT_BATCHES:
        return None
    tensors = {
        key: value.contiguous()
        for key, value in vars(batch).items()
        if isinstance(value, Tensor) and key != "trunk"  # the trunk's output follows from the ids
    }
    tensors |= {f"gradient/{key}": value.abs().max() for key, value in gradients.items()}
    path = directory / f"{name}.safetensors"
    with writing_weights(directory):
        directory.mkdir(parents=True, exist_ok=True)
        save_file(tensors, path, metadata={"prompt_width": str(batch.prompt_width)})
    return path
