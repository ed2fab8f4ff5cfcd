"""The records that flow between stages: prompts, responses, candidate pairs, labeled pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CandidatePair", "Message", "Pair", "Prompt", "Response"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: one or more messages, the last of them the user's.

    `id` is unique in its file; `tags` name the topic; `extra` holds the other columns of the line, untouched.
    """

    id: str
    messages: tuple[Message, ...]
    tags: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The prompt as plain text: the content of a single message, else one `role: content` line a message."""
        if len(self.messages) == 1:
            return self.messages[0].content
        return "\n".join(f"{m.role}: {m.content}" for m in self.messages)


@dataclass(frozen=True, slots=True)
class Response:
    """A response. `finished`: it ended with an EOS token of its own; `tokens`: its length with EOS, where known."""

    text: str
    finished: bool = True
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CandidatePair:
    """Two responses to one prompt, not yet labeled. `origin` says how each came about (`contrast`: the reading)."""

    id: str
    prompt: Prompt
    first: Response
    second: Response
    origin: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """A labeled pair. `p_chosen` is P(chosen > rejected), at least .5 in files that we write; None = a hard label.

    `weight` (0 or more) says how much the pair counts in training, against 1 for others. `principles` is
    P(chosen > rejected) by each principle that a judge was asked about alone; of either side of .5.
    """

    id: str
    prompt: Prompt
    chosen: Response
    rejected: Response
    p_chosen: float | None = None
    margin: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    principles: Mapping[str, float] = field(default_factory=dict)
