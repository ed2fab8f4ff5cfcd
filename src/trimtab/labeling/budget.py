"""What asking costs: prices, caps, a running count, and what would be asked and paid before anybody is asked."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest

__all__ = ["Budget", "Estimate", "Expected", "Expecting", "Prices", "estimate"]


@dataclass(frozen=True, slots=True)
class Prices:
    """What a judge charges, in any one currency, for a million tokens; None where it is not known."""

    input: float | None = None
    output: float | None = None

    @property
    def known(self) -> bool:
        return self.input is not None or self.output is not None

    def cost(self, prompt_tokens: int | None, completion_tokens: int | None) -> float | None:
        """The price of one call; None without prices, or where the server did not count the tokens."""
        if not self.known or prompt_tokens is None:
            return None
        spent = prompt_tokens * (self.input or 0.0) + (completion_tokens or 0) * (self.output or 0.0)
        return spent / 1e6


@dataclass
class Budget:
    """Caps on what one command asks for, and what it has asked for so far. Used from several threads.

    Args:
        max_cost: in the currency of the prices; None: no cap.
        max_calls: calls to judges, retries included; None: no cap.
        found: questions that the label store had the answer to.
        questions: questions in all, each counted once.
        answered: of those, answered by now (the ones found included).
        calls: calls made.
        cost: what they cost; calls whose end is not known count as expected.
        tokens: prompt and completion tokens of the calls that were answered.
        exhausted: a call was wanted that the caps do not allow.
    """

    max_cost: float | None = None
    max_calls: int | None = None
    found: int = 0
    questions: int = 0
    answered: int = 0
    calls: int = 0
    cost: float = 0.0
    tokens: int = 0
    exhausted: bool = False
    _reserved: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, expected: float = 0.0) -> bool:
        """Ask for leave to make one call that is expected to cost so much; its end is told to `end`."""
        with self._lock:
            over = self.max_cost is not None and self.cost + self._reserved + expected > self.max_cost
            if over or (self.max_calls is not None and self.calls >= self.max_calls):
                self.exhausted = True
                return False
            self.calls += 1
            self._reserved += expected
            return True

    def end(self, expected: float = 0.0, cost: float | None = None, tokens: int = 0) -> None:
        """A call that `begin` allowed has ended: what it cost (None: as expected), and its tokens."""
        with self._lock:
            self._reserved = max(self._reserved - expected, 0.0)
            self.cost += expected if cost is None else cost
            self.tokens += tokens

    def allow(self, wanted: int) -> int:
        """Leave for calls that cost nothing: how many of `wanted` may be made; they are counted as made."""
        with self._lock:
            left = wanted if self.max_calls is None else max(self.max_calls - self.calls, 0)
            self.exhausted |= left < wanted
            self.calls += min(wanted, left)
            return min(wanted, left)


class Expected(NamedTuple):
    """What one call is expected to take; tokens are guessed from the length of the text."""

    prompt_tokens: int
    completion_tokens: int
    cost: float | None


@runtime_checkable
class Expecting(Protocol):
    """A judge that knows beforehand what a call takes."""

    def expect(self, request: JudgeRequest) -> Expected:
        """What asking this would take."""

    def seconds(self, calls: int, tokens: int, concurrency: int) -> float | None:
        """How long so many calls would take with the rate limits; None where nothing limits them."""


@dataclass(frozen=True)
class Estimate:
    """What one judge would be asked.

    Args:
        judge: whose answers.
        questions: in all.
        recorded: of them, answered already.
        calls: that are left to make.
        prompt_tokens: of those; None where the judge does not say.
        completion_tokens: at most.
        cost: at most; None without prices.
        seconds: from the time that recorded calls took and the rate limits; None where nothing is known.
    """

    judge: JudgeIdentity
    questions: int
    recorded: int
    calls: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost: float | None
    seconds: float | None


def estimate(
    judge: object,
    identity: JudgeIdentity,
    missing: Sequence[JudgeRequest],
    recorded: Iterable[float | None],
    *,
    questions: int,
    concurrency: int,
) -> Estimate:
    """Add up what the missing answers would take.

    Args:
        judge: who would be asked.
        identity: of the judge.
        missing: what is not answered yet.
        recorded: seconds of each answer that is recorded.
        questions: in all.
        concurrency: calls at a time.
    """
    seconds = [s for s in recorded if s is not None]
    # recorded seconds are of calls that ran side by side
    pace = math.fsum(seconds) / len(seconds) / concurrency if seconds else None
    taken = None if pace is None else pace * len(missing)
    done = questions - len(missing)
    if not isinstance(judge, Expecting):
        return Estimate(identity, questions, done, len(missing), None, None, None, taken)
    expected = [judge.expect(request) for request in missing]
    costs = [e.cost for e in expected if e.cost is not None]
    prompt, completion = sum(e.prompt_tokens for e in expected), sum(e.completion_tokens for e in expected)
    limited = judge.seconds(len(missing), prompt + completion, concurrency)
    bounds = [s for s in (taken, limited) if s is not None]
    cost = math.fsum(costs) if len(costs) == len(expected) else None
    return Estimate(identity, questions, done, len(missing), prompt, completion, cost, max(bounds) if bounds else None)
