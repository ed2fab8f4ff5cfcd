"""What may watch and steer a training loop: callbacks that see each iteration's signals and may return an action.

The trainer applies an action, records it, and keeps it in the checkpoint, so that a resumed run is the same run. A
callback that draws random numbers has a generator of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from trimtab.runs.run import Run

__all__ = ["Action", "Callback", "IterationView", "StatefulCallback"]


@dataclass(frozen=True, slots=True)
class Action:
    """What a callback asks of the trainer.

    Args:
        kind: `set`: the setting `key` becomes `value` from the next iteration on; `rollback`: go back to the checkpoint
            of `step` (None: the last one); `stop`: checkpoint and end the stage.
        key: `set` only: a dotted setting of the stage, such as `ppo.learning_rate`.
        value: `set` only.
        step: `rollback` only.
        reason: for the record and the user.

    Raises:
        ValueError: the fields do not fit the kind.
    """

    kind: Literal["set", "rollback", "stop"]
    key: str | None = None
    value: Any = None
    step: int | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ("set", "rollback", "stop"):
            raise ValueError(f"an action is set, rollback or stop, not {self.kind!r}")
        if (self.kind == "set") != (self.key is not None):
            raise ValueError('key belongs to kind "set", and that kind needs one')
        if self.kind != "set" and self.value is not None:
            raise ValueError(f"value has no meaning for kind {self.kind!r}")
        if self.kind != "rollback" and self.step is not None:
            raise ValueError(f"step has no meaning for kind {self.kind!r}")

    def to_dict(self) -> dict[str, Any]:
        """The action as a JSON object, without the fields that are not set."""
        return {k: v for k, v in asdict(self).items() if v is not None and v != ""}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Action:
        """The inverse of `to_dict`."""
        return cls(**record)


@dataclass(frozen=True, slots=True)
class IterationView:
    """What a callback sees after an iteration: its number, its signals as logged, the run (None: no run directory)."""

    step: int
    signals: Mapping[str, float | int | None]
    run: Run | None = None


@runtime_checkable
class Callback(Protocol):
    """Called once after every iteration, after its signals are logged and before the checkpoint."""

    def on_iteration(self, view: IterationView) -> Action | None:
        """Look at the iteration; return what should be done, or None."""
        ...


@runtime_checkable
class StatefulCallback(Callback, Protocol):
    """A callback whose state (JSON-able) is kept in checkpoints."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed callback needs."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state."""
        ...
