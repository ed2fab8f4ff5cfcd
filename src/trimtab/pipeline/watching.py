"""Who looks on while a stage trains: the doctor's live monitor, as the settings have it."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.config.schema import Config
from trimtab.doctor.hooks import Hooks
from trimtab.doctor.monitor import DoctorMonitor
from trimtab.doctor.watch import to_stderr
from trimtab.runs.callbacks import Callback
from trimtab.runs.progress import is_quiet

__all__ = ["watchers"]


def watchers(config: Config) -> Sequence[Callback]:
    """The callbacks of the PPO stage.

    Raises:
        TrimtabError: kind config: the doctor's web hook or command make no sense.
    """
    settings = config.doctor
    if not settings.live:
        return ()
    hooks = Hooks(settings.webhook, settings.command, say=_narrate)
    return (DoctorMonitor(settings.every, hooks=hooks, say=_narrate),)


def _narrate(text: str) -> None:
    if not is_quiet():
        to_stderr(text)
