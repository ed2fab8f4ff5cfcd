"""The judge of contrast pairs that asks nobody: the response sampled under the reading is the better one."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.judges import JudgeContext
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Outcome, Verdict

__all__ = ["ConstructionJudge", "make"]


class ConstructionJudge:
    """P(first > second) is 1 where the first response came from the reading, and 0 where it came from the opposite.

    The texts decide, not the names: where the constitution's reading is by now what was the opposite when the pair was
    sampled, and the other way round, the verdict is the other way round too.
    """

    sees_order = False
    identity = JudgeIdentity("construction")

    def judge(self, requests: Sequence[JudgeRequest]) -> list[Verdict]:
        """Answer every request; the outcome is always `ok`.

        Raises:
            TrimtabError: a pair that was not sampled by contrast, or under another text than the constitution has.
        """
        return [Verdict(Outcome.OK, _p_first(request)) for request in requests]


def make(context: JudgeContext) -> ConstructionJudge:
    """The `construction` judge (entry point)."""
    return ConstructionJudge()


def _p_first(request: JudgeRequest) -> float:
    pair, origin = request.pair, request.pair.origin
    if origin.get("source") != "contrast":
        raise TrimtabError(
            ErrorKind.DATA,
            f"pair {pair.id!r} was not sampled by contrast (source {origin.get('source')!r})",
            'label.judge = "construction" needs sample.source = "contrast"; sample again, or choose another judge',
        )
    principle = next((p for p in request.constitution.principles if p.id == origin.get("principle")), None)
    sampled = (origin.get("reading"), origin.get("opposite"))
    now = (principle.reading, principle.opposite) if principle is not None else (None, None)
    if sampled not in (now, now[::-1]) or None in sampled:
        raise TrimtabError(
            ErrorKind.DATA,
            f"pair {pair.id!r} was sampled under readings of principle {origin.get('principle')!r} that constitution "
            f"{request.constitution.name!r} does not have",
            "the constitution has changed since: sample the pairs again",
        )
    first_from_reading = origin.get("first") == "reading"
    return float(first_from_reading == (sampled == now))
