"""The catalogue as one: every room's messages together, and how a message becomes a sentence.

Figures are shown with three significant digits, whole numbers as they are, lists joined, messages in the same language.
A key that no room knows is its own text, so that a plugin's detector may simply say what it found:
`Message("The scores of {n} prompts are missing", {"n": 3})`. Rendering never fails: what cannot be filled stays as it
is.
"""

from __future__ import annotations

import numbers
import string
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from trimtab.doctor.finding import Message
from trimtab.doctor.messages import LANGUAGES, Text, explain, faces, judgments, policy, prescriptions
from trimtab.figures import figure

__all__ = ["MESSAGES", "ROOMS", "has", "placeholders", "render", "title"]

ROOMS = (policy, judgments, prescriptions, explain, faces)
"""The modules beside this one that hold messages; no key is in two of them."""

MESSAGES: Mapping[str, Text] = {key: text for room in ROOMS for key, text in room.MESSAGES.items()}

_JOINED = {"en": ", ", "zh": "、"}


def render(message: Message, lang: str = "en") -> str:
    """The message as a sentence.

    Args:
        message: an entry of the catalogue with its values.
        lang: one of `LANGUAGES`; any other is English.

    Returns:
        The text. It may hold text from a log (names of keys): escape it for where it is shown.
    """
    text = MESSAGES.get(message.key)
    template = message.key if text is None else (text.zh if lang == "zh" else text.en)
    try:
        return _formatter(lang if lang in LANGUAGES else "en").vformat(template, (), message.values)
    except (ValueError, IndexError, AttributeError, TypeError):
        return template


def has(key: str) -> bool:
    """Whether the catalogue has an entry of this key."""
    return key in MESSAGES


def title(finding: str, lang: str = "en") -> str:
    """A finding's name in a few words; the id itself where there is none (a plugin's)."""
    key = f"{finding}.title"
    return render(Message(key), lang) if has(key) else finding


@cache
def placeholders(template: str) -> frozenset[str]:
    """The names of the values that a template needs.

    Raises:
        ValueError: it is no template.
    """
    return frozenset(name for _, name, _, _ in string.Formatter().parse(template) if name is not None)


@cache
def _formatter(lang: str) -> _Formatter:
    return _Formatter(lang)


class _Formatter(string.Formatter):
    """`str.format` with the catalogue's figures; it reads no attributes and no items of what it is given."""

    def __init__(self, lang: str) -> None:
        self._lang = lang

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        return kwargs.get(field_name, "{" + field_name + "}"), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec and isinstance(value, numbers.Real):
            try:
                return format(value, format_spec)
            except (ValueError, OverflowError):  # `:d` of a float
                pass
        return _shown(value, self._lang)


def _shown(value: Any, lang: str) -> str:
    if isinstance(value, Message):
        return render(value, lang)
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return figure(float(value))
    if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        return _JOINED[lang].join(_shown(item, lang) for item in value)
    return str(value)
