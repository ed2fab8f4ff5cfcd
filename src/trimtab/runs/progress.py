"""Progress on stderr: a bar with the time left on a terminal, else one plain line a step; nothing when quiet."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

__all__ = ["Progress", "counter", "duration", "is_quiet", "progress", "set_quiet"]

_SECONDS_A_LINE = 2.0
_quiet = False


def set_quiet(quiet: bool) -> None:
    """Whether progress stays silent in this process where the caller does not say (`--quiet`)."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """What `set_quiet` said last."""
    return _quiet


def progress(
    total: int | None,
    description: str,
    *,
    done: int = 0,
    quiet: bool | None = None,
    stream: TextIO | None = None,
) -> Progress:
    """A context manager that shows how far a task is.

    On a terminal a bar; elsewhere, and where `TERM=dumb`, one plain line a step; steps that follow each other within
    two seconds share a line, and the last step has its own. `NO_COLOR` is honoured.

    Args:
        total: number of steps; None = not known.
        description: what is being done, in a few words.
        done: steps that a resumed task had done before; they do not count in the time left.
        quiet: show nothing; None = as `set_quiet` said.
        stream: where to; None = stderr.
    """
    stream = sys.stderr if stream is None else stream
    if _quiet if quiet is None else quiet:
        return Progress(total, description, done)
    if stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown"):
        return _Bar(total, description, done, stream)
    return _Lines(total, description, done, stream)


class Progress:
    """What `progress` returns; this one shows nothing."""

    def __init__(self, total: int | None, description: str, done: int) -> None:
        self.total = total
        self.description = description
        self.done = done
        self._done_before = done
        self._started = time.monotonic()

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._show_start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._show_end()

    def advance(self, steps: int = 1, **figures: float | int | str) -> None:
        """`steps` more are done; `figures` are shown beside them."""
        self.done += steps
        self._show_step(" ".join(f"{name}={_figure(value)}" for name, value in figures.items()))

    def start_from(self, done: int, total: int) -> None:
        """The total is known by now, and that `done` steps were done before: they do not count in the time left."""
        self.done, self._done_before, self.total = done, done, total

    def seconds_left(self) -> float | None:
        """Expected time to the end, from the mean pace so far; None while nothing is known."""
        new = self.done - self._done_before
        if self.total is None or new <= 0:
            return None
        return (time.monotonic() - self._started) / new * max(self.total - self.done, 0)

    def _show_start(self) -> None: ...

    def _show_step(self, figures: str) -> None: ...

    def _show_end(self) -> None: ...


class _Lines(Progress):
    def __init__(self, total: int | None, description: str, done: int, stream: TextIO) -> None:
        super().__init__(total, description, done)
        self._stream = stream
        self._last = float("-inf")

    def _show_step(self, figures: str) -> None:
        now = time.monotonic()
        at_end = self.total is not None and self.done >= self.total
        if not at_end and now - self._last < _SECONDS_A_LINE:
            return
        self._last = now
        parts = [f"{self.description}: {self.done}"]
        if self.total is not None:
            share = min(self.done / self.total, 1.0) if self.total else 1.0
            parts[0] += f"/{self.total}"
            parts.append(f"{int(100 * share)} %")
        left = self.seconds_left()
        if left is not None:
            parts.append(f"{duration(left)} left")
        self._stream.write("  ".join([*parts, figures]).rstrip() + "\n")
        self._stream.flush()


class _Bar(Progress):
    def __init__(self, total: int | None, description: str, done: int, stream: TextIO) -> None:
        super().__init__(total, description, done)
        self._stream = stream
        self._rich: RichProgress | None = None
        self._task: TaskID | None = None

    def _show_start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed}/{task.fields[of]}", markup=False),
            TaskProgressColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            TextColumn("{task.fields[figures]}", markup=False),
            console=Console(file=self._stream),
        )
        self._rich.start()
        of = "?" if self.total is None else self.total
        self._task = self._rich.add_task(
            self.description, total=self.total, completed=self.done, of=of, left="", figures=""
        )

    def _show_step(self, figures: str) -> None:
        if self._rich is None or self._task is None:
            return
        seconds = self.seconds_left()
        left = "" if seconds is None else f"{duration(seconds)} left"
        self._rich.update(self._task, completed=self.done, figures=figures, left=left)

    def _show_end(self) -> None:
        if self._rich is not None:
            self._rich.stop()


def counter(description: str) -> tuple[Progress, Callable[[int, int], None]]:
    """A progress bar, and the function that moves it, for work that reports (done, in all)."""
    bar = progress(None, description)

    def report(done: int, total: int) -> None:
        if bar.total is None:
            bar.start_from(done, total)
        bar.advance(done - bar.done)

    return bar, report


def duration(seconds: float) -> str:
    """Seconds as `9 s`, `1:23` or `2:03:04`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _figure(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
