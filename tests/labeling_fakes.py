"""A constitution, pairs, and judges that do as they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trimtab.constitution import Constitution, load_constitution
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.labeling.aggregate import Vote
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Order, Verdict

__all__ = ["ScriptedJudge", "candidate", "two_principles", "votes"]

_TEXT = """
name = "two"

[[principles]]
id = "warm"
text = "Prefer the warmer response."
weight = 3.0
reading = "please kindly"
opposite = "stupid fool"

[[principles]]
id = "short"
text = "Prefer the shorter response."
weight = 1.0
reading = "small new"
opposite = "large old"
"""


def two_principles(directory: Path) -> Constitution:
    """A constitution of two principles with readings, loaded from a file in `directory`."""
    path = directory / "constitution.toml"
    path.write_text(_TEXT, encoding="utf-8")
    return load_constitution(path)


def candidate(number: int, first: str = "yes", second: str = "no", /, **origin: object) -> CandidatePair:
    """A pair with the id `p<number>` and a prompt of its own."""
    prompt = Prompt(f"x{number}", (Message("user", f"question {number}"),))
    return CandidatePair(f"p{number}", prompt, Response(first), Response(second), origin)


def votes(
    verdicts: Mapping[tuple[Order, int], Verdict], judge: str = "one", principle: str | None = None
) -> list[Vote]:
    """Votes of one judge by order and sample."""
    return [Vote(JudgeIdentity(judge), principle, order, sample, v) for (order, sample), v in verdicts.items()]


class ScriptedJudge:
    """Answers with `answer(request)` and remembers what it was asked."""

    def __init__(
        self,
        answer: Callable[[JudgeRequest], Verdict],
        *,
        sees_order: bool = True,
        identity: JudgeIdentity | None = None,
    ) -> None:
        self.identity = identity or JudgeIdentity("scripted", "v1", "t1", 0)
        self.sees_order = sees_order
        self.asked: list[JudgeRequest] = []
        self.batches: list[int] = []
        self._answer = answer

    def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        self.asked += requests
        self.batches.append(len(requests))
        return [self._answer(r) for r in requests]
