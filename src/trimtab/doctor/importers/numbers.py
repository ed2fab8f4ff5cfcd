"""Numbers as logs write them: bare, quoted, wrapped in a type, too large for a float, or none at all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["LONGEST_NUMBER", "flatten", "fraction_of", "number", "number_of_text"]

LONGEST_NUMBER = 5_000
_DEEPEST = 12
_WRAPPED = re.compile(
    r"(?:np\.|numpy\.|torch\.)?(?:tensor|array|float\d*|int\d*|Tensor|Decimal)\(\s*(?:\[\s*)?([^\s,()\[\]]+)\s*\]?\s*(?:,[^()]*)?\)"
)
_FRACTION = re.compile(r"\s*(\d{1,15})\s*/\s*(\d{1,15})\s*")
_PLAIN = re.compile(r"[+-]?(?:\d|\.\d|inf|nan|Inf|NaN)", re.ASCII)


def number_of_text(text: str) -> float | None:
    """The number that `text` writes; None where it writes none (`null` and an empty text are none)."""
    text = text.strip()
    if not _PLAIN.match(text):
        wrapped = _WRAPPED.fullmatch(text) if len(text) <= 200 else None
        return number_of_text(wrapped.group(1)) if wrapped else None
    if len(text) > LONGEST_NUMBER or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return float(text[:-1]) / 100 if text.endswith("%") and _is_float(text[:-1]) else None


def number(value: Any) -> float | None:
    """`value` as a float: infinite where it is too large; None where it is no number."""
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return number_of_text(value) if isinstance(value, str) else None


def fraction_of(value: Any) -> tuple[int, int] | None:
    """The two whole numbers of a text such as `10/500`."""
    match = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    return (int(match.group(1)), int(match.group(2))) if match else None


def flatten(record: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Keys and values of `record`; the keys of a table inside it are joined with a slash. Lists are left out."""
    for key, value in record.items():
        if isinstance(value, dict):
            if depth < _DEEPEST:
                yield from flatten(value, f"{prefix}{key}/", depth + 1)
        elif not isinstance(value, list):
            yield f"{prefix}{key}", value


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
