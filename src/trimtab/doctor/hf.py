"""The doctor beside a `transformers.Trainer` and everything built on it, such as TRL's trainers.

    from trimtab.doctor.hf import DoctorCallback

    trainer = GRPOTrainer(..., callbacks=[DoctorCallback()])

Alarms are printed while the training runs and kept in `findings.jsonl` in the trainer's output directory. Nothing is
ever changed. transformers is imported when the callback is asked for, not with this module.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.doctor.hooks import Hooks
from trimtab.doctor.log import Log
from trimtab.doctor.watch import Watch, append_alarm, to_stderr

if TYPE_CHECKING:
    from transformers import TrainerCallback

__all__ = ["DoctorCallback"]


class _Behaviour:
    """What the callback does; `DoctorCallback` is this and a `TrainerCallback`.

    Args:
        every: log entries between two looks, at least (see `trimtab.doctor.watch` for the limit on time).
        webhook: an http or https address that alarms are POSTed to as JSON; None = none.
        command: program and arguments that get alarms as JSON on stdin; None = none.
        timeout: seconds that either may take; they never stop the training.
        lang: `en` or `zh`.
        mapping: our signal -> the log's key, for keys that are not known.

    Raises:
        TrimtabError: kind config: `webhook` or `command` make no sense.
    """

    def __init__(
        self,
        every: int = 5,
        *,
        webhook: str | None = None,
        command: Sequence[str] | None = None,
        timeout: float = 10.0,
        lang: str = "en",
        mapping: Mapping[str, str] | None = None,
    ) -> None:
        self._every, self._lang, self._mapping = every, lang, dict(mapping or {})
        self._hooks = Hooks(webhook or "", command if command is not None else (), timeout, to_stderr)
        self._watch: Watch | None = None
        self._resumed = False

    @property
    def seconds(self) -> float:
        """Time that looks took so far."""
        return 0.0 if self._watch is None else self._watch.spent

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note whether an earlier training is taken up."""
        self._resumed = state.global_step > 0

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Look when it is time. The trainer's own history is read: it holds what was logged before a resume, too."""
        if not state.is_world_process_zero:
            return
        watch = self._watch or self._begin(args, state)
        if watch.due(len(state.log_history)):
            watch.look(list(state.log_history), state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A last look at everything, and a wait for hooks that are under way."""
        if state.is_world_process_zero and state.log_history:
            watch = self._watch or self._begin(args, state)
            watch.look(list(state.log_history), state.global_step)
            watch.finish()

    def _begin(self, args: Any, state: Any) -> Watch:
        from trimtab.doctor import importers

        directory = Path(args.output_dir or ".")
        config = _plain(args.to_dict())
        planned = state.max_steps if state.max_steps and state.max_steps > 0 else None

        def read(rows: Sequence[Mapping[str, Any]]) -> Log:
            return importers.log_of_rows(
                rows, path=str(directory), dress="hf-log-history", config=config, planned_steps=planned,
                mapping=self._mapping,
            )  # fmt: skip

        def keep(step: int, finding: dict[str, Any]) -> None:
            append_alarm(directory / "findings.jsonl", step, finding)

        name = str(getattr(args, "run_name", None) or directory.name)
        self._watch = Watch(read, name=name, every=self._every, hooks=self._hooks, keep=keep, lang=self._lang)
        if self._resumed:
            self._watch.alarms.load_state_dict(_raised(directory / "findings.jsonl", state.global_step))
        return self._watch


def _raised(path: Path, step: int) -> dict[str, str]:
    """Alarms that an earlier process raised up to `step`: severity by finding."""
    from trimtab.runs.files import read_jsonl

    lines = read_jsonl(path).records if path.is_file() else []
    return {
        str(found.get("id")): str(found.get("severity"))
        for line in lines
        if isinstance(found := line.get("finding"), dict) and isinstance(at := line.get("step"), int) and at <= step
    }


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are plain values."""
    return {k: v for k, v in config.items() if isinstance(v, str | int | float | bool) or v is None or _is_json(v)}


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


@cache
def _callback() -> type:
    from transformers import TrainerCallback

    return type(
        "DoctorCallback", (_Behaviour, TrainerCallback), {"__doc__": _Behaviour.__doc__, "__module__": __name__}
    )


if TYPE_CHECKING:

    class DoctorCallback(_Behaviour, TrainerCallback):  # type: ignore[misc]
        """See `_Behaviour`."""
else:

    def __getattr__(name: str) -> Any:
        if name == "DoctorCallback":
            return _callback()
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
