"""Pairs for the label store's benches: short, all different, made on the spot; and the principle that judges them."""

from __future__ import annotations

from trimtab.constitution import Constitution, Principle
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.labeling.templates import Template

__all__ = ["CONSTITUTION", "WORDING", "pairs"]

WORDING = Template(
    "short",
    "{principles}",
    "{prompt}\n<A {code}>{first}</A>\n<B {code}>{second}</B>",
    "Which is better? Answer with one letter, A or B.",
)
"""Few tokens: a server on a busy processor reads a hundred a second."""

CONSTITUTION = Constitution("short", (Principle("helpful", "Prefer the more helpful response."),))

_THINGS = ("boat", "clock", "garden", "kettle", "ladder", "lamp", "piano", "roof", "sock", "table")
_ASKS = ("How do I clean a {}?", "What is a {} for?", "Where can I buy a {}?", "Who invented the {}?", "Draw a {}.",
         "Is my {} broken?", "Sell me a {}.", "Describe a {}.", "Why a {}?", "Rhyme with {}.")  # fmt: skip
_REPLIES = ("Gladly: take your time with the {}.", "No.", "A {} is a {}.", "Ask a friend about {} number one.")


def pairs(n: int) -> list[CandidatePair]:
    """The first `n` pairs."""
    made = []
    for i in range(n):
        thing, ask = _THINGS[i % 10], _ASKS[i // 10 % 10]
        first, second = _REPLIES[i % 4], _REPLIES[(i + 1 + i // 100 % 3) % 4]
        number = f" ({i})" if i >= 100 else ""
        prompt = Prompt(f"x{i}", (Message("user", ask.format(thing) + number),))
        responses = [Response(text.format(*[thing] * text.count("{}"))) for text in (first, second)]
        made.append(CandidatePair(f"p{i}", prompt, *responses))
    return made
