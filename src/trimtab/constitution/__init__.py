"""A constitution: the principles that the judge goes by, and what the model revises its responses by.

`principles` holds what a constitution is, `reading` its files, `wording` and `check` what can be said about its text.
"""

from __future__ import annotations

from trimtab.constitution.principles import Constitution, Principle, Turn
from trimtab.constitution.reading import load_constitution

__all__ = ["Constitution", "Principle", "Turn", "load_constitution"]
