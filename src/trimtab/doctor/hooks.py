"""Where alarms go besides the terminal: a web hook, a command. Neither can stop or slow the training.

Both get one JSON object for each look that found something new:

    {"source": "trimtab doctor", "run": ..., "step": ..., "text": "...", "alarms": [finding, ...]}

Delivery is in the background with a time limit; a failed one is told once on stderr and not repeated.
"""

from __future__ import annotations

import atexit
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import dump_json

__all__ = ["Hooks"]

SECONDS = 10.0


@dataclass
class Hooks:
    """A web hook and a command that hear of alarms.

    Args:
        webhook: an http or https address that the JSON is POSTed to; empty = none.
        command: program and arguments; the JSON comes on its stdin; its output is dropped; empty = none.
        timeout: seconds that either may take.
        say: where failures are told.

    Raises:
        TrimtabError: kind config: the address is not http or https, or the command is no list of texts.
    """

    webhook: str = ""
    command: Sequence[str] = ()
    timeout: float = SECONDS
    say: Callable[[str], None] = print
    _threads: list[threading.Thread] = field(default_factory=list, repr=False)
    _told: set[str] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        if self.webhook and not _is_web_address(self.webhook):
            raise TrimtabError(
                ErrorKind.CONFIG, f"doctor.webhook: {self.webhook!r} is no web address", "http://... or https://..."
            )
        if isinstance(self.command, str) or not all(isinstance(word, str) and word for word in self.command):
            raise TrimtabError(
                ErrorKind.CONFIG,
                f"doctor.command: {self.command!r} is no list of words",
                'the program and each argument by itself, as in ["notify-send", "Trimtab"]',
            )

    def send(self, payload: Mapping[str, Any]) -> None:
        """Hand `payload` (strict JSON) to both, in the background."""
        data = dump_json(payload).encode()
        for wanted, deliver in ((self.webhook, self._post), (self.command, self._run)):
            if wanted:
                if not self._threads:
                    atexit.register(self.wait)
                # a daemon: a server that answers a byte at a time must not keep the process from ending
                thread = threading.Thread(target=deliver, args=(data,), name="trimtab-doctor-hook", daemon=True)
                thread.start()
                self._threads = [t for t in self._threads if t.is_alive()] + [thread]

    def wait(self) -> None:
        """Until what was sent has arrived or failed, or the time for it is over."""
        end = time.monotonic() + self.timeout + 1
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))

    def _post(self, data: bytes) -> None:
        request = urllib.request.Request(
            self.webhook, data, {"Content-Type": "application/json", "User-Agent": "trimtab-doctor"}, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                answer.read(1)
        except (OSError, ValueError, HTTPException) as error:
            self._failed("web hook", str(error) or type(error).__name__)

    def _run(self, data: bytes) -> None:
        try:
            done = subprocess.run(
                list(self.command), input=data, timeout=self.timeout, check=False,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            self._failed("command", f"{self.command[0]} took longer than {self.timeout:g} s")
        except (OSError, ValueError) as error:
            self._failed("command", str(error))
        else:
            if done.returncode:
                self._failed("command", f"{self.command[0]} ended with {done.returncode}")

    def _failed(self, kind: str, why: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            self.say(f"doctor: the {kind} failed ({why}); the training goes on")


def _is_web_address(text: str) -> bool:
    try:
        address = urlsplit(text)
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # a bracket that is not closed, a port that is no number
        return False
