"""What a judge is: it answers requests about pairs with verdicts. No model, no file, no torch in here.

A request shows the two responses of a pair in one of two orders. A verdict speaks of the pair, not of the order:
`p_first` is P(pair.first > pair.second) whichever of them was shown first, so verdicts of both orders can be averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from trimtab.constitution import Constitution
from trimtab.data.records import CandidatePair, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import stable_hash

__all__ = [
    "Judge",
    "JudgeIdentity",
    "JudgeRequest",
    "Order",
    "Outcome",
    "StreamingJudge",
    "Verdict",
    "pair_hash",
]


class Outcome(StrEnum):
    """How one judge call, or one label, ended."""

    OK = "ok"
    """A preference, as a probability."""
    TIE = "tie"
    """The judge itself said that neither response is better; p_first is .5."""
    UNPARSED = "unparsed"
    """The judge answered, but no preference can be read from it."""
    REFUSED = "refused"
    """The judge declined to compare."""
    ERROR = "error"
    """No answer came: a failed call, or a pair that does not fit the judge. Never a tie; asked again next time."""


class Order(StrEnum):
    """Which response of the pair the judge was shown first."""

    FORWARD = "forward"
    """The pair's first response is shown first."""
    REVERSED = "reversed"
    """The pair's second response is shown first."""


@dataclass(frozen=True, slots=True)
class JudgeIdentity:
    """Whose verdict it is; two judges with equal identities give the same verdicts.

    Args:
        name: the judge's name (`local`, `likelihood`, a plugin's).
        model: the model behind it, so that other weights are another judge.
        template: hash of its instructions; empty where it has none.
        seed: of its own randomness.
        wording: what people call the instructions; no part of the key.
    """

    name: str
    model: str = ""
    template: str = ""
    seed: int = 0
    wording: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One question to a judge.

    Args:
        pair: the two responses.
        constitution: what to judge by: all of it.
        order: which response is shown first.
        sample: 0 for the first vote on this pair in this order, 1 for the second, ...
        principle: id of the one principle that is asked about, which is then all that `constitution` holds; None: the
            constitution as a whole.
    """

    pair: CandidatePair
    constitution: Constitution
    order: Order = Order.FORWARD
    sample: int = 0
    principle: str | None = None

    @property
    def shown(self) -> tuple[Response, Response]:
        """The two responses in the order in which the judge sees them."""
        if self.order is Order.FORWARD:
            return self.pair.first, self.pair.second
        return self.pair.second, self.pair.first


@dataclass(frozen=True, slots=True)
class Verdict:
    """One answer of a judge.

    Args:
        outcome: how the call ended.
        p_first: P(pair.first > pair.second), for `ok` and `tie`; None otherwise.
        mass: probability that the judge's model gave to readable answers, where it is known.
        detail: the error, or the text that could not be read.
        logprobs: log-probabilities (nats) of the answers for the pair's first and for its second response, as the
            model gave them; None for one that the server did not list.
        how: where the preference was read: `logprobs`, `schema` (structured output) or `text`; empty for judges that
            answer in no words.
        text: what the judge said, word for word.
        rationale: the part of it before the verdict, where one was asked for.
        prompt_tokens: read by the judge's model for this verdict.
        completion_tokens: written by it.
        cost: of all calls that it took, in the currency of the prices.
        seconds: from the first call to the answer, waiting for rate limits and retries included.

    Raises:
        TrimtabError: `p_first` does not go with `outcome`, or is no probability.
    """

    outcome: Outcome
    p_first: float | None = None
    mass: float | None = None
    detail: str = ""
    logprobs: tuple[float | None, float | None] | None = None
    how: str = ""
    text: str = ""
    rationale: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        decided = self.outcome in (Outcome.OK, Outcome.TIE)
        if decided != (self.p_first is not None):
            wanted = "a probability" if decided else "none"
            raise TrimtabError(
                ErrorKind.FAILED, f"a verdict with outcome {self.outcome} needs {wanted}, not p_first = {self.p_first}"
            )
        if self.p_first is not None and not (math.isfinite(self.p_first) and 0.0 <= self.p_first <= 1.0):
            raise TrimtabError(
                ErrorKind.FAILED, f"a judge returned p_first = {self.p_first}: not a probability in [0, 1]"
            )
        if self.outcome is Outcome.TIE and self.p_first != 0.5:
            raise TrimtabError(ErrorKind.FAILED, f"a judge returned a tie with p_first = {self.p_first}: a tie is .5")

    @staticmethod
    def of_shown(p_shown_first: float, order: Order, *, mass: float | None = None) -> Verdict:
        """A verdict from P(the response shown first > the one shown second)."""
        p_first = p_shown_first if order is Order.FORWARD else 1.0 - p_shown_first
        return Verdict(Outcome.OK, p_first, mass)


@runtime_checkable
class Judge(Protocol):
    """Labels pairs. Found by name through the entry points `trimtab.judges` (see `trimtab.labeling.judges`)."""

    @property
    def identity(self) -> JudgeIdentity:
        """Key of this judge's verdicts in the label store."""

    @property
    def sees_order(self) -> bool:
        """False: the order of presentation cannot matter, and one order is asked."""

    def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Answer every request, in order. A call that failed is a verdict with outcome `error`, not an exception."""


@runtime_checkable
class StreamingJudge(Judge, Protocol):
    """A judge that answers many requests at once, each in its own time: one behind a server."""

    def stream(
        self, requests: Iterable[JudgeRequest], *, concurrency: int, stopping: Callable[[], bool]
    ) -> Iterator[list[tuple[int, Verdict]]]:
        """Take requests as places become free, and hand verdicts out as they come.

        A request's place is free again when the iterator is asked for more: what was handed out is recorded by then, so
        that never more than `concurrency` calls are unrecorded.

        Args:
            requests: read one at a time.
            concurrency: requests being worked on at once.
            stopping: asked several times a second; once True, no request is taken any more, and the calls under way
                get a few seconds to end.

        Yields:
            (number of the request, verdict) of what has just been answered.
        """


def pair_hash(pair: CandidatePair) -> str:
    """sha256 of what a judge reads of a pair, in hex: messages, both responses, and how contrast responses came about.

    The pair's id is not part of it: the same texts under another id are the same question.
    """
    origin = {
        k: v for k, v in pair.origin.items() if k in ("source", "principle", "first", "second", "reading", "opposite")
    }
    messages = [[m.role, m.content] for m in pair.prompt.messages]
    return stable_hash([messages, pair.first.text, pair.second.text, origin])
