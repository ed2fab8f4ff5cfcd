"""What a review is made of: items, votes, and what an annotator is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import stable_hash

__all__ = ["OVERALL", "Choice", "Item", "Plan", "Progress", "Served", "Winner", "check_name", "winner_of"]

OVERALL = "overall"
"""The aspect that every vote has."""

_LONGEST_NAME = 64

Winner = int
"""1 or 2 of the item's own responses, 0 for neither."""


class Choice(StrEnum):
    """What an annotator says of the two responses as shown."""

    A = "a"
    """The one shown first is better."""
    B = "b"
    """The one shown second is better."""
    TIE = "tie"
    """They are equally good."""
    BOTH_BAD = "both_bad"
    """Neither is acceptable; as a preference, a tie."""
    SKIP = "skip"
    """No opinion: no vote, and the item goes to somebody else."""


@dataclass(frozen=True, slots=True)
class Item:
    """Two responses to one prompt, in an order of their own that nobody is shown.

    Args:
        prompt: with the tags by which results are sliced.
        first, second: the responses.
        systems: what wrote them, such as `main@300`; told to no annotator.
        answer: of a gold question: which response is right, 1, 2, or 0 for a tie; None: not a gold question.
        id: of the pair, for exports; empty: made of the content.
        extra: whatever else is known, kept for exports.
    """

    prompt: Prompt
    first: Response
    second: Response
    systems: tuple[str, str] = ("first", "second")
    answer: Winner | None = None
    id: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """sha256 of prompt, responses and systems, in hex: the same item is in a review once."""
        messages = [[m.role, m.content] for m in self.prompt.messages]
        return stable_hash([messages, self.first.text, self.second.text, self.systems, self.answer is not None])


@dataclass(frozen=True, slots=True)
class Plan:
    """How a review is done.

    Args:
        votes_per_item: how many annotators see each item.
        repeats: share of what an annotator is shown that repeats an earlier item with the sides swapped.
        gold: share that are gold questions, as long as there are unseen ones; both shares together are at most .5.
        aspects: what is asked beside the overall preference: helpful, honest, harmless, or ids of principles.
        lease_s: seconds for which an item that was handed out is kept for its annotator.
        seed: of the sides and of who sees what when.

    Raises:
        TrimtabError: a number out of range, or an aspect that is empty, named twice or called `overall`.
    """

    votes_per_item: int = 2
    repeats: float = 0.1
    gold: float = 0.1
    aspects: tuple[str, ...] = ()
    lease_s: float = 1800.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.votes_per_item <= 1000:
            raise _refused(f"{self.votes_per_item} votes an item", "from 1 to 1000")
        if not (self.repeats >= 0 and self.gold >= 0 and self.repeats + self.gold <= 0.5):
            raise _refused(
                f"a share of {self.repeats} repeats and {self.gold} gold questions", "shares from 0, together up to 0.5"
            )
        if not 1 <= self.lease_s <= 1e7:
            raise _refused(f"a lease of {self.lease_s} s", "from 1 second to some months")
        if len({*self.aspects, OVERALL}) != len(self.aspects) + 1:
            raise _refused(f"aspects {', '.join(self.aspects)}", f"name each once; {OVERALL} is always asked")
        for aspect in self.aspects:
            check_name(aspect, "an aspect")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an annotator is. `left` is what is planned now; others who vote at the same time make it less."""

    done: int
    left: int


@dataclass(frozen=True, slots=True)
class Served:
    """An item as an annotator is shown it: nothing here tells whose response is which, nor why it is asked.

    Args:
        ticket: names this showing; a vote refers to it.
        prompt: (role, content) of each message.
        a, b: the responses; which is which is drawn anew for each annotator.
        aspects: what is asked beside the overall preference.
        guidelines: version of the guidelines in force; empty where there are none.
        progress: before this vote.
    """

    ticket: str
    prompt: tuple[tuple[str, str], ...]
    a: str
    b: str
    aspects: tuple[str, ...]
    guidelines: str
    progress: Progress

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "ticket": self.ticket,
            "prompt": [{"role": role, "content": content} for role, content in self.prompt],
            "a": self.a,
            "b": self.b,
            "aspects": list(self.aspects),
            "guidelines": self.guidelines,
            "done": self.progress.done,
            "left": self.progress.left,
        }


def winner_of(choice: Choice | str, swapped: bool) -> Winner | None:
    """Which of the item's own responses a choice is for; None for a skip.

    Args:
        choice: of what was shown.
        swapped: whether the item's second response was shown first.
    """
    if choice == Choice.SKIP:
        return None
    if choice not in (Choice.A, Choice.B):
        return 0
    return 1 if (choice == Choice.A) != swapped else 2


def check_name(name: str, what: str) -> str:
    """`name` if it can name an annotator, a group, an aspect or a review.

    Raises:
        TrimtabError: it is empty, too long, has white space at an end, or characters that cannot be printed.
    """
    if not name or name != name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise _refused(f"{name[:80]!r} as the name of {what}", f"1 to {_LONGEST_NAME} printable characters")
    return name


def _refused(what: str, right: str) -> TrimtabError:
    return TrimtabError(ErrorKind.USAGE, f"a review cannot have {what}", right)
