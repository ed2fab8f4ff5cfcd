"""Python dicts as consoles print them: `{'loss': 0.0, 'kl': np.float64(0.1), 'epoch': '0.01'}`, anywhere in a line."""

from __future__ import annotations

import re
from typing import Any

from trimtab.doctor.importers.numbers import number

__all__ = ["dicts_in"]

_TOKEN = re.compile(
    r"""(?P<text>'(?:[^'\\\n]|\\.){0,2000}'|"(?:[^"\\\n]|\\.){0,2000}")"""
    r"|(?P<mark>[{}\[\](),:])"
    r"|(?P<word>[^\s{}\[\](),:'\"]+)"
    r"|(?P<space>\s+)"
    r"|(?P<odd>.)"
)
_DEEPEST = 8
_MOST_TOKENS = 20_000
_MOST_FAILURES = 100


def dicts_in(line: str) -> tuple[list[tuple[int, dict[str, Any]]], bool]:
    """The dicts of numbers in a line, each with the place where it begins; and whether one is not closed."""
    found: list[tuple[int, dict[str, Any]]] = []
    at = line.find("{")
    failed = 0
    while at >= 0 and failed < _MOST_FAILURES:
        parser = _Parser(line, at)
        value = parser.value(0)
        if isinstance(value, dict) and value and parser.whole:
            found.append((at, value))
            at = line.find("{", parser.at)
            continue
        if parser.ended and at == line.rfind("{") and len(line) - at > 2 and line[at + 1] in "'\"":
            return found, True
        failed += 1
        at = line.find("{", at + 1)
    return found, False


def _unquoted(text: str) -> str:
    """The text that a Python literal stands for."""
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    try:
        return inner.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        return inner


class _Parser:
    """Reads one dict; what is no number, text, dict or list makes the value None."""

    def __init__(self, line: str, at: int) -> None:
        self.line = line
        self.at = at
        self.whole = True
        self.ended = False
        self._left = _MOST_TOKENS

    def value(self, depth: int) -> Any:
        kind, text = self._next()
        if kind == "text":
            return _unquoted(text)
        if text == "{" and depth < _DEEPEST:
            return self._dict(depth)
        if text in ("[", "("):
            return self._skip_to("]" if text == "[" else ")")
        if kind == "word":
            return self._word(text)
        self.whole = False
        return None

    def _dict(self, depth: int) -> dict[str, Any] | None:
        record: dict[str, Any] = {}
        while self.whole:
            kind, text = self._next()
            if text == "}":
                return record
            if text == "," and record:
                continue
            if kind not in ("text", "word"):
                break
            key = _unquoted(text) if kind == "text" else text
            if self._next()[1] != ":":
                break
            value = self.value(depth + 1)
            if self.whole and value is not None:
                record[key] = value
        self.whole = False
        return None

    def _word(self, word: str) -> Any:
        """A bare value: a number, or a call that wraps one (`tensor(0.5, device='cuda')`)."""
        before = self.at
        if self._next()[1] == "(":
            start = self.at
            self._skip_to(")")
            return number(f"{word}({self.line[start : self.at]}")
        self.at = before
        return {"True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}.get(word, number(word))

    def _skip_to(self, end: str) -> None:
        depth, opening = 1, "[" if end == "]" else "("
        while depth and self.whole:
            kind, text = self._next()
            if kind == "mark":
                depth += (text == opening) - (text == end)

    def _next(self) -> tuple[str, str]:
        while True:
            match = _TOKEN.match(self.line, self.at)
            self._left -= 1
            if match is None or self._left < 0:
                self.whole, self.ended = False, match is None
                return "", ""
            self.at = match.end()
            if match.lastgroup != "space":
                return match.lastgroup or "", match.group()
