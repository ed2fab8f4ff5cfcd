"""Text of unknown origin made safe to look at: what a model, a file or a setting says is data, never markup.

Control characters, characters that reorder the text around them, invisible ones and lone surrogates become visible
escapes; text of any length is cut with a note.
"""

from __future__ import annotations

import re

from markupsafe import Markup, escape

__all__ = ["Cut", "cut", "visible", "visible_html"]

# C0 and C1 controls but tab and line feed; zero-width space, marks, overrides and isolates of direction, line and
# paragraph separators, invisible operators, interlinear marks, the byte order mark, tags, surrogates, noncharacters.
# Joiners (U+200C, U+200D) stay: Persian, Indic scripts and emoji are spelled with them.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ufdd0-\ufdef\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_MARKS = re.compile("((?:[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]){4})"
                    "[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]+")  # fmt: skip
"""More than four combining marks on one letter: they would be drawn over the lines above."""


class Cut(str):
    """A text cut short; `total` is the number of characters that it had."""

    total: int

    def __new__(cls, text: str, total: int) -> Cut:
        made = super().__new__(cls, text)
        made.total = total
        return made

    @property
    def is_cut(self) -> bool:
        """Whether anything is missing."""
        return len(self) < self.total


def cut(text: object, limit: int) -> Cut:
    """The first `limit` characters of a text; what is no text is shown as Python shows it."""
    whole = text if isinstance(text, str) else "" if text is None else str(text)
    return Cut(whole[:limit], len(whole))


def visible(text: object) -> str:
    """The text with visible escapes, such as `\\u202e`: for a terminal, or to be escaped for HTML."""
    plain = str(text).replace("\r\n", "\n")
    return _MARKS.sub(r"\1", _HIDDEN.sub(lambda found: _name(found[0]), plain))


def visible_html(text: object) -> Markup:
    """The text as HTML: escaped, with each visible escape in a `<span class="esc">`."""
    plain = _MARKS.sub(r"\1", str(text).replace("\r\n", "\n"))
    parts: list[Markup] = []
    at = 0
    for found in _HIDDEN.finditer(plain):
        parts += [escape(plain[at : found.start()]), Markup('<span class="esc">{}</span>').format(_name(found[0]))]
        at = found.end()
    return Markup("").join([*parts, escape(plain[at:])])


def _name(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
