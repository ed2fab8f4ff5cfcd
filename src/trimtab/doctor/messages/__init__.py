"""The catalogue of messages: every sentence that the doctor says, in English and in Simplified Chinese.

One entry holds both languages, so that neither can be forgotten. A placeholder `{value}` is filled with a figure of
three significant digits, `{step}` and other integers as they are; a format after a colon (`{rate:.0%}`) is honoured.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LANGUAGES", "Text"]

LANGUAGES = ("en", "zh")


class Text(NamedTuple):
    """One sentence in the languages of the catalogue."""

    en: str
    zh: str
