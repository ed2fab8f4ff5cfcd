"""The live monitor: a callback of the PPO trainer that raises alarms while the run goes on. It never acts.

    trimtab.ppo.train(..., callbacks=[DoctorMonitor(every=10)])

Alarms go to the terminal, to the run's `findings.jsonl` and to hooks. What was raised is part of the checkpoint, so a
resumed run does not repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.doctor.hooks import Hooks
from trimtab.doctor.log import Log
from trimtab.doctor.watch import Watch, to_stderr
from trimtab.runs.callbacks import Action, IterationView
from trimtab.runs.run import Run

__all__ = ["DoctorMonitor"]

_STAGE = "ppo"


class DoctorMonitor:
    """A `StatefulCallback` that looks every so many iterations.

    Args:
        every: iterations between two looks, at least (see `trimtab.doctor.watch` for the limit on time).
        hooks: who else hears of alarms.
        say: where alarms are told; None = stderr.
        lang: one of the catalogue's languages.
        iterations: how many there will be, where there is no run to tell; the last one is always looked at.
    """

    def __init__(
        self,
        every: int = 10,
        *,
        hooks: Hooks | None = None,
        say: Callable[[str], None] | None = None,
        lang: str = "en",
        iterations: int | None = None,
    ) -> None:
        self._every, self._hooks, self._say, self._lang = every, hooks, say or to_stderr, lang
        self._iterations = iterations
        self._rows: list[Mapping[str, Any]] = []
        self._watch: Watch | None = None
        self._state: Mapping[str, str] = {}

    @property
    def seconds(self) -> float:
        """Time that looks took so far."""
        return 0.0 if self._watch is None else self._watch.spent

    def on_iteration(self, view: IterationView) -> Action | None:
        """Take in the iteration's signals; look when it is time."""
        watch = self._watch or self._begin(view.run)
        if not self._rows and view.run is not None:
            self._rows = list(view.run.metrics(_STAGE))  # what was logged before this process, and this iteration
        else:
            self._rows.append({"stage": _STAGE, "step": view.step, **view.signals})
        last = view.step == self._iterations
        if last or watch.due(view.step):
            watch.look(self._rows, view.step)
        if last:
            watch.finish()
        return None

    def state_dict(self) -> dict[str, Any]:
        """Which alarms were raised."""
        return {"alarms": dict(self._state) if self._watch is None else self._watch.alarms.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a saved state."""
        alarms = state.get("alarms")
        self._state = alarms if isinstance(alarms, Mapping) else {}
        if self._watch is not None:
            self._watch.alarms.load_state_dict(self._state)

    def _begin(self, run: Run | None) -> Watch:
        from trimtab.doctor import importers

        config = {} if run is None else _dotted(run.config)
        planned = config.get("ppo.iterations")
        if self._iterations is None and isinstance(planned, int):
            self._iterations = planned
        path = "" if run is None else str(run.path)

        def read(rows: Sequence[Mapping[str, Any]]) -> Log:
            return importers.log_of_rows(
                rows, path=path, dress="trimtab", config=config, planned_steps=self._iterations
            )

        def keep(step: int, finding: dict[str, Any]) -> None:
            if run is not None:
                run.record_finding(_STAGE, step, finding)

        self._watch = Watch(
            read, name=Path(path).name, every=self._every, hooks=self._hooks, keep=keep, say=self._say, lang=self._lang
        )
        self._watch.alarms.load_state_dict(self._state)
        return self._watch


def _dotted(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's resolved settings by dotted key."""
    return {
        f"{section}.{name}": value
        for section, values in config.items()
        if isinstance(values, Mapping)
        for name, value in values.items()
    }
