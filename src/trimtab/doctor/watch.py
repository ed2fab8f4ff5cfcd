"""What every live monitor does: look at the signals so far now and then, and raise each alarm once.

The same detectors as `trimtab doctor` look at the same series, so that an alarm says what a look at the finished log
up to that step would say. A look costs time that grows with the log: no look begins while the looks so far took more
than a fiftieth of the time that the training took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.doctor.diagnosis import Diagnosis
from trimtab.doctor.finding import Finding, Severity
from trimtab.doctor.hooks import Hooks
from trimtab.doctor.log import Log
from trimtab.doctor.record import finding_dict
from trimtab.doctor.telling import alarm_line
from trimtab.hostile import visible

__all__ = ["Alarms", "Watch", "append_alarm", "to_stderr"]

SHARE = 0.02
"""Most of the training's time that looks may take."""


def to_stderr(text: str) -> None:
    """One line for the person at the terminal; above a progress bar where there is one."""
    sys.stderr.write(visible(text) + "\n")
    sys.stderr.flush()


class Alarms:
    """Which alarms were raised: each finding once, and again when its severity rises."""

    def __init__(self) -> None:
        self._raised: dict[str, str] = {}

    def new(self, diagnosis: Diagnosis) -> list[Finding]:
        """The loud findings that were not raised before, or not as loudly."""
        found = []
        for finding in diagnosis.findings:
            before = self._raised.get(finding.id)
            if finding.severity.loud and (before is None or Severity(before).rank < finding.severity.rank):
                self._raised[finding.id] = str(finding.severity)
                found.append(finding)
        return found

    def state_dict(self) -> dict[str, str]:
        """Severity by finding."""
        return dict(self._raised)

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        """Take up a saved state."""
        known = set(Severity)
        self._raised = {key: value for key, value in state.items() if value in known}


class Watch:
    """Looks at a log in the making.

    Args:
        read: makes the log of the rows so far.
        name: of the run, for hooks.
        every: at least so many counts (see `due`) between two looks.
        hooks: who else hears of alarms.
        keep: keeps an alarm (step, finding as JSON); None = nowhere.
        say: where alarms are told.
        lang: one of the catalogue's languages.
        clock: seconds, rising.
    """

    def __init__(
        self,
        read: Callable[[Sequence[Mapping[str, Any]]], Log],
        *,
        name: str,
        every: int,
        hooks: Hooks | None = None,
        keep: Callable[[int, dict[str, Any]], None] | None = None,
        say: Callable[[str], None] = to_stderr,
        lang: str = "en",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.alarms = Alarms()
        self.spent = 0.0
        self._read, self._name, self._every, self._keep, self._say = read, name, every, keep, say
        self._hooks, self._lang, self._clock = hooks or Hooks(), lang, clock
        self._began = clock()
        self._last = self._now = 0
        self._broken = False

    def due(self, count: int) -> bool:
        """Whether it is time for a look: `every` since the last count that was due, and within the share of time.

        Args:
            count: iterations, or log entries, so far.
        """
        if self._broken or count - self._last < self._every:
            return False
        self._now = count
        return self.spent <= SHARE * (self._clock() - self._began)

    def look(self, rows: Sequence[Mapping[str, Any]], step: int) -> list[Finding]:
        """Look at the rows now; new alarms are told, kept and sent. Nothing that goes wrong here gets out.

        Returns:
            The new alarms.
        """
        self._last = self._now
        started = self._clock()
        try:
            return self._look(rows, step)
        except Exception as error:  # noqa: BLE001 - a fault of the watcher must not end the training that it watches
            self._broken = True
            self._say(f"doctor: stopped watching after a fault of its own: {type(error).__name__}: {error}")
            return []
        finally:
            self.spent += self._clock() - started

    def finish(self) -> None:
        """Wait for hooks that are under way."""
        self._hooks.wait()

    def _look(self, rows: Sequence[Mapping[str, Any]], step: int) -> list[Finding]:
        from trimtab.doctor.driver import diagnose_materials

        log = self._read(rows)
        new = self.alarms.new(diagnose_materials([log]))
        if not new:
            return new
        told = [finding_dict(finding, self._lang, log.framework) for finding in new]
        lines = [alarm_line(finding, self._lang) for finding in new]
        for line in lines:
            self._say(f"doctor: {line}")
        if self._keep is not None:
            for finding in told:
                self._keep(step, finding)
        self._hooks.send(
            {"source": "trimtab doctor", "run": self._name, "step": step, "text": "\n".join(lines), "alarms": told}
        )
        return new


def append_alarm(path: Path, step: int, finding: Mapping[str, Any]) -> None:
    """Append an alarm to a `findings.jsonl` that is no run's."""
    from trimtab.runs.files import append_jsonl

    append_jsonl(path, [{"step": step, "time": round(time.time(), 3), "finding": dict(finding)}])
