"""Which questions a list of pairs comes to: pairs by judges, principles, orders and votes, each with its key.

A key says all that decides an answer. Two pairs of equal content are one question, whatever their ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from trimtab.constitution import Constitution
from trimtab.data.records import CandidatePair
from trimtab.labeling.protocol import Judge, JudgeIdentity, JudgeRequest, Order, pair_hash

__all__ = ["Key", "PrincipleMode", "Question", "key_of", "questions_about"]

PrincipleMode = Literal["all", "sampled", "each"]


class Key(NamedTuple):
    """The key of a verdict in the label store.

    Args:
        pair_hash: content of the pair, see `protocol.pair_hash`.
        judge: name of the judge.
        model: the model behind it.
        template: hash of its instructions.
        constitution: hash of what was asked: the whole constitution, or one principle of it.
        shown: order of presentation.
        sample: number of the vote.
        seed: of the judge's randomness.
    """

    pair_hash: str
    judge: str
    model: str
    template: str
    constitution: str
    shown: str
    sample: int
    seed: int


@dataclass(frozen=True, slots=True)
class Question:
    """A request with its key and who is asked."""

    key: Key
    request: JudgeRequest
    judge: JudgeIdentity


def key_of(judge: JudgeIdentity, request: JudgeRequest, hashed: str | None = None) -> Key:
    """The key of a request; `hashed` is its pair's hash, where that is known already."""
    return Key(
        pair_hash(request.pair) if hashed is None else hashed,
        judge.name,
        judge.model,
        judge.template,
        request.constitution.hash,
        request.order.value,
        request.sample,
        judge.seed,
    )


def questions_about(
    pairs: Sequence[CandidatePair],
    judges: Sequence[Judge],
    constitution: Constitution,
    *,
    both_orders: bool = True,
    samples: int = 1,
    principles: PrincipleMode = "all",
    seed: int = 0,
) -> list[list[Question]]:
    """The questions about each pair, by judge, principle, order and vote.

    Args:
        pairs: the candidates.
        judges: who is asked.
        constitution: what they judge by.
        both_orders: with either response first; a judge that does not see the order is asked once.
        samples: votes in each order.
        principles: `all`: about the whole constitution at once; `each`: one question a principle that counts;
            `sampled`: about one principle, drawn by weight for each pair and vote, the same for every judge and order.
        seed: of the drawing.
    """
    asker = _Asker(constitution, principles, seed)
    identities = [(judge.identity, tuple(Order) if both_orders and judge.sees_order else (Order.FORWARD,))
                  for judge in judges]  # fmt: skip
    found = []
    for pair in pairs:
        hashed = pair_hash(pair)
        mine: list[Question] = []
        for sample in range(samples):
            asked = asker.asked(hashed, sample)
            for identity, orders in identities:
                for principle, text in asked:
                    for order in orders:
                        request = JudgeRequest(pair, text, order, sample, principle)
                        mine.append(Question(key_of(identity, request, hashed), request, identity))
        found.append(mine)
    return found


class _Asker:
    """What each call is asked to judge by: (id of the principle or None, constitution)."""

    def __init__(self, constitution: Constitution, mode: PrincipleMode, seed: int) -> None:
        self.constitution, self.mode, self.seed = constitution, mode, seed
        self._whole: list[tuple[str | None, Constitution]] = [(None, constitution)]
        self._single = {} if mode == "all" else {p.id: constitution.only(p.id) for p in constitution.counted}

    def asked(self, hashed: str, sample: int) -> list[tuple[str | None, Constitution]]:
        if self.mode == "all":
            return self._whole
        if self.mode == "each":
            return list(self._single.items())
        drawn = self._draw(hashed, sample)
        return [(drawn, self._single[drawn])]

    def _draw(self, hashed: str, sample: int) -> str:
        """One principle by weight, a function of seed, pair and vote alone: a resumed run draws the same."""
        counted = self.constitution.counted
        digest = hashlib.sha256(f"{self.seed}/{hashed}/{sample}/principle".encode()).digest()
        left = int.from_bytes(digest[:8]) / 2**64 * sum(p.weight for p in counted)
        for principle in counted:
            left -= principle.weight
            if left < 0:
                return principle.id
        return counted[-1].id
