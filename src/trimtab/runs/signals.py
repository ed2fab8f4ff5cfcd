"""The table of signals: every metric that a run may log, with unit, meaning, healthy band and the rules that read it.

The logger refuses a key that is not here; the docs page, the dashboard's tooltips and the doctor are made from it. A
healthy band is where the signal of a run of ordinary settings is expected; outside is a reason to look, not a verdict
(the doctor's rules decide with context). `source` says where the band is from; "heuristic" is said where there is none.
"""

from __future__ import annotations

import difflib
import re

from trimtab.runs.signal_table import ROWS, STAGES, Band, Signal

__all__ = ["PATTERNS", "RESERVED", "SIGNALS", "STAGES", "Band", "Signal", "lookup", "nearest"]

RESERVED = frozenset({"stage", "step", "time", "attempt", "nonfinite", "rewind_to"})
"""Keys of a metrics line that are not signals."""

_WILDCARD = re.compile(r"<\w+>|\*")

SIGNALS: dict[str, Signal] = {signal.key: signal for signal in ROWS}
"""The whole table, by key or pattern."""

PATTERNS: dict[str, re.Pattern[str]] = {
    key: re.compile(".+".join(re.escape(part) for part in _WILDCARD.split(key)))
    for key in SIGNALS
    if _WILDCARD.search(key)
}
"""The patterns among the keys, as regular expressions; an exact key goes before a pattern."""


def lookup(key: str) -> Signal | None:
    """The declaration of `key`: its own, else that of the pattern that it fits, else None."""
    if key in PATTERNS:
        return None  # "score/<name>" itself is no key that can be logged
    exact = SIGNALS.get(key)
    if exact is not None:
        return exact
    return next((SIGNALS[name] for name, pattern in PATTERNS.items() if pattern.fullmatch(key)), None)


def nearest(key: str) -> str | None:
    """The declared key that looks most like `key`, for error messages."""
    found = difflib.get_close_matches(key, [k for k in SIGNALS if k not in PATTERNS], n=1)
    return found[0] if found else None
