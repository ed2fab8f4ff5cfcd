"""The one exception that Trimtab raises on purpose, with a closed set of kinds.

Every room may import this module; it imports nothing. A `TrimtabError` names the file, line or key, the
offending value and, in `hint`, what would be right. Anything else that escapes is a bug.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ErrorKind", "TrimtabError"]


class ErrorKind(StrEnum):
    """What went wrong; `--json` prints it as `error.kind`."""

    USAGE = "usage"
    """A command line that makes no sense."""
    CONFIG = "config"
    """A setting that is unknown, out of range or at odds with another."""
    DATA = "data"
    """A prompt, pair, label or constitution file that cannot be used as it is."""
    MODEL = "model"
    """A model that is missing, broken, or does not fit its role."""
    REWARD = "reward"
    """A scorer that failed or returned what is no score."""
    CHECK = "check"
    """An invariant of the training loop does not hold."""
    RUN = "run"
    """A run directory that is missing, broken, taken or out of date."""
    MISSING = "missing"
    """An extra that is not installed, a credential that is not set, a registry out of reach."""
    INTERRUPTED = "interrupted"
    """Stopped by the user after a checkpoint."""
    FAILED = "failed"
    """The work itself failed: a loss that is not finite, a full disk."""


_EXIT_CODES = {
    ErrorKind.USAGE: 2,
    ErrorKind.CONFIG: 2,
    ErrorKind.MISSING: 4,
    ErrorKind.INTERRUPTED: 130,
}


class TrimtabError(Exception):
    """An error meant for the user.

    Args:
        kind: one of `ErrorKind`.
        message: what is wrong: file, line or key, and the value.
        hint: what would be right, or the command that helps; may be empty.
    """

    def __init__(self, kind: ErrorKind, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint

    @property
    def exit_code(self) -> int:
        """The process exit code for this kind (0 ok, 1 failed, 2 usage or config, 4 missing, 130 interrupted)."""
        return _EXIT_CODES.get(self.kind, 1)

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message
