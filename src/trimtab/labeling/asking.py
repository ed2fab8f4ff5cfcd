"""Asking judges: what is recorded is not asked again, what is answered is recorded before the next thing is asked.

Questions are claimed in the label store before they are asked, so that processes that share a store share the work. A
process that is killed leaves at most the calls under way unrecorded: `batch_size` of them.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from types import FrameType

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.budget import Budget
from trimtab.labeling.claims import LEASE_SECONDS, Lease, new_owner
from trimtab.labeling.protocol import Judge, JudgeIdentity, JudgeRequest, Outcome, StreamingJudge, Verdict
from trimtab.labeling.questions import Key, Question
from trimtab.labeling.store import LabelStore

__all__ = ["answer"]

_POLL_SECONDS = (0.05, 1.0)
"""Shortest and longest pause between looks at what another process is asking."""
_ROUND = 16
"""With several judges: batches before the next judge has its turn, so that a budget leaves whole labels behind."""


def answer(
    judges: Sequence[Judge],
    questions: Sequence[Question],
    *,
    store: LabelStore | None = None,
    batch_size: int = 16,
    budget: Budget | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Key, Verdict]:
    """The answer to every question, from the store or from its judge.

    The first Ctrl-C (or SIGTERM) lets the calls under way end, for a few seconds at most, and records them; the second
    stops at once.

    Args:
        judges: those that the questions name.
        questions: equal keys are asked once.
        store: answers recorded there are not asked for again (errors are); new ones are recorded as they come.
        batch_size: calls at a time.
        budget: caps; counts what is done.
        progress: called with (questions answered, questions in all) as answers come; recorded ones count at once.

    Raises:
        TrimtabError: the budget is used up (kind interrupted), a judge fails altogether, or the store does.
        KeyboardInterrupt: stopped; what was answered is recorded.
    """
    desk = _Desk(
        {judge.identity: judge for judge in judges}, questions, store, batch_size, budget or Budget(), progress
    )
    desk.look_up()
    desk.ask_missing()
    return desk.answers


class _Desk:
    """The state of one call of `answer`."""

    def __init__(
        self,
        judges: Mapping[JudgeIdentity, Judge],
        questions: Sequence[Question],
        store: LabelStore | None,
        batch_size: int,
        budget: Budget,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.judges, self.store, self.batch_size, self.budget = judges, store, batch_size, budget
        self.questions = {question.key: question for question in questions}
        self.answers: dict[Key, Verdict] = {}
        self.owner = new_owner()
        self._progress = progress
        self._stopping: Callable[[], bool] = lambda: False

    def look_up(self) -> None:
        """Take what is recorded."""
        if self.store is not None:
            found = self.store.find(self.questions)
            self.answers = {key: v for key, v in found.items() if v.outcome is not Outcome.ERROR}
        self.budget.found += len(self.answers)
        self.budget.questions += len(self.questions)
        self.budget.answered += len(self.answers)
        self._tell()

    def ask_missing(self) -> None:
        missing = [question for key, question in self.questions.items() if key not in self.answers]
        if not missing:
            return
        size = len(missing) if len(self.judges) == 1 else _ROUND * self.batch_size * len(self.judges)
        with _patient() as self._stopping, self._lease():
            for start in range(0, len(missing), size):
                by_judge: dict[JudgeIdentity, list[Question]] = {}
                for question in missing[start : start + size]:
                    by_judge.setdefault(question.judge, []).append(question)
                for identity, asked in by_judge.items():
                    self._ask(self.judges[identity], asked)
                    self._check_halted()

    def _check_halted(self) -> None:
        if self._stopping():
            raise KeyboardInterrupt
        if self.budget.exhausted:
            spent = f"{self.budget.calls} calls" + (f", {self.budget.cost:.4g}" if self.budget.cost else "")
            kept = " and recorded" if self.store is not None else ""
            raise TrimtabError(
                ErrorKind.INTERRUPTED,
                f"the budget is used up ({spent}): {len(self.answers)} of {len(self.questions)} questions are "
                f"answered{kept}",
                "raise label.max_calls or label.max_cost and give the same command again: only what is missing is "
                "asked for",
            )

    @property
    def _halted(self) -> bool:
        return self._stopping() or self.budget.exhausted

    def _ask(self, judge: Judge, questions: Sequence[Question]) -> None:
        """Ask one judge; what another process is asking meanwhile is waited for."""
        todo, pause = deque(questions), _POLL_SECONDS[0]
        while todo and not self._halted:
            busy: list[Question] = []
            before = len(self.answers)
            for asked, verdicts in self._answered(judge, self._claimed(todo, busy)):
                self._record(asked, verdicts)
            todo = deque(busy)
            if todo:
                pause = _POLL_SECONDS[0] if len(self.answers) > before else min(2 * pause, _POLL_SECONDS[1])
                time.sleep(pause)

    def _claimed(self, todo: deque[Question], busy: list[Question]) -> Iterator[Question]:
        """The questions that are ours to ask, claimed as they are taken."""
        while todo and not self._halted:
            window = [todo.popleft() for _ in range(min(self.batch_size, len(todo)))]
            if self.store is None:
                yield from window
                continue
            claimed = self.store.claim(window, self.owner)
            if claimed.recorded:
                self.answers.update(claimed.recorded)
                self.budget.found += len(claimed.recorded)
                self.budget.answered += len(claimed.recorded)
                self._tell()
            busy += claimed.busy
            yield from claimed.mine

    def _answered(self, judge: Judge, questions: Iterator[Question]) -> Iterator[tuple[list[Question], list[Verdict]]]:
        """What the judge answers, in the groups in which it does."""
        if not isinstance(judge, StreamingJudge):
            yield from self._batches(judge, questions)
            return
        taken: list[Question] = []

        def requests() -> Iterator[JudgeRequest]:
            for question in questions:
                taken.append(question)
                yield question.request

        for group in judge.stream(requests(), concurrency=self.batch_size, stopping=lambda: self._halted):
            yield [taken[number] for number, _ in group], [verdict for _, verdict in group]

    def _batches(self, judge: Judge, questions: Iterator[Question]) -> Iterator[tuple[list[Question], list[Verdict]]]:
        while not self._halted and (batch := list(islice(questions, self.batch_size))):
            batch = batch[: self.budget.allow(len(batch))]
            if not batch:
                return
            verdicts = judge.judge([question.request for question in batch])
            if len(verdicts) != len(batch):
                raise TrimtabError(
                    ErrorKind.FAILED,
                    f"judge {judge.identity.name!r} returned {len(verdicts)} verdicts for {len(batch)} requests",
                    "a judge answers every request, a failed one with outcome error",
                )
            yield batch, verdicts

    def _record(self, questions: Sequence[Question], verdicts: Sequence[Verdict]) -> None:
        keys = [question.key for question in questions]
        self.answers.update(zip(keys, verdicts, strict=True))
        if self.store is not None:
            self.store.record(questions, verdicts)
            # where another process recorded a verdict in the meantime, that one counts: labels and store always agree
            self.answers.update(self.store.find(keys))
        self.budget.answered += len(keys)
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            self._progress(len(self.answers), len(self.questions))

    @contextmanager
    def _lease(self) -> Iterator[None]:
        """Hold claims while asking, and give up what is left of them."""
        if self.store is None:
            yield
            return
        try:
            with Lease(self.owner, self.store.renew, LEASE_SECONDS):
                yield
        finally:
            self.store.release(self.owner)


@contextmanager
def _patient() -> Iterator[Callable[[], bool]]:
    """Whether to stop: the first Ctrl-C or SIGTERM only says so, a second one does what it would have done."""
    asked: list[int] = []
    before: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}

    def note(number: int, frame: FrameType | None) -> None:
        handler = before[signal.Signals(number)]
        if asked and callable(handler):
            handler(number, frame)
        asked.append(number)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            # what nobody handles ends the process, or does nothing, as before
            if callable(handler := signal.getsignal(number)):
                before[number] = handler
                signal.signal(number, note)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
