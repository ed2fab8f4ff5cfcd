"""What a column of a table of judgments is for: who judged, which pair, how long, written by whom."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from trimtab.doctor.judgment_keys import Column, Columns, Verdicts, number, paired, read_winners
from trimtab.doctor.judgments import Floats
from trimtab.labeling.verdicts import Coded

__all__ = [
    "FORWARD",
    "GOLD",
    "IDENTITY",
    "JUDGE",
    "LENGTH",
    "ORDER",
    "REVERSED",
    "SCORE",
    "SLICE",
    "VERDICT",
    "generators_of",
    "gold_of",
    "has_places",
    "ids_of",
    "is_text",
    "judge_column",
    "last_turn",
    "lengths_of",
    "name_of",
    "names_in",
    "numbers_of",
    "orders_of",
    "text_of",
    "texts_of",
]

SCORE: Final = (
    "score", "scores", "reward", "rewards", "rm", "logit", "logits", "value", "rating", "ratings", "utility", "pm", "r",
)  # fmt: skip
LENGTH: Final = ("len", "length", "lengths", "chars", "characters", "tokens")
GOLD: Final = (
    "label", "labels", "gold", "golden", "reference", "target", "truth", "human", "preferred", "correct", "better",
    "expected",
)  # fmt: skip
VERDICT: Final = (
    "decision", "decisions", "winner", "verdict", "verdicts", "judgment", "judgement", "vote", "votes", "choice",
    "preference", "pred", "prediction", "predicted", "judge",
)  # fmt: skip
JUDGE: Final = ("judge", "annotator", "evaluator", "rater", "labeler", "labeller", "grader", "worker")
SLICE: Final = ("slice", "source", "subset", "category", "section", "domain", "task", "topic", "dataset")
IDENTITY: Final = ("id", "idx", "uid", "uuid", "hash", "index")
ORDER: Final = ("order", "ordering", "position", "presentation", "swap", "swapped", "flipped", "reversed")
FORWARD: Final = frozenset("12 ab forward original normal straight orig false 1 no".split())  # noqa: SIM905
REVERSED: Final = frozenset("21 ba reverse reversed backward swapped swap true 2 yes flipped".split())  # noqa: SIM905


def is_text(column: Column) -> bool:
    sample = column.present[:20]
    return bool(sample) and all(
        (isinstance(v, str) and math.isnan(number(v))) or (isinstance(v, list) and text_of(v) is not None)
        for v in sample
    )


def text_of(value: Any) -> str | None:
    """A text, or messages written out; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(m, dict) and "content" in m for m in value):
        return "\n\n".join(f"{m.get('role', '')}: {m['content']}" for m in value)
    return None


def last_turn(value: Any) -> tuple[str, str]:
    """What came before the response, and the response: messages are taken apart, a text is all response."""
    if isinstance(value, list) and text_of(value) is not None:
        return text_of(value[:-1]) or "", str(value[-1]["content"])
    return "", text_of(value) or ""


def gold_of(columns: Columns) -> Verdicts | None:
    for column in columns.values():
        words_of_others = column.has(*IDENTITY, "hash", "type", "name")
        if column.has(*GOLD) and not words_of_others and (read := read_winners(column)) is not None:
            return read
    return None


def judge_column(columns: Columns) -> Column | None:
    found = [c for c in columns.values() if c.has(*JUDGE) and not c.words[-1].isdigit() and not c.has(*VERDICT[:-1])]
    named = [c for c in found if c.present and not any(isinstance(v, float) for v in c.present[:20])]
    return min(named, key=lambda c: (len(c.words), c.words[-1] != "name"), default=None)


def orders_of(columns: Columns) -> list[int] | None:
    column = next((c for c in columns.values() if c.has(*ORDER) and not c.has(*IDENTITY)), None)
    if column is None:
        return None
    codes = []
    for value in column.values:
        text = "".join(ch for ch in str(value).lower() if ch.isalnum())
        codes.append(1 if text in FORWARD else 2 if text in REVERSED else 0)
    return codes


def ids_of(columns: Columns, n: int, *, prompts: bool = True) -> Coded:
    """Ids of the pairs; with `prompts`, an id of the prompt is taken for one where there is no other."""
    found = [c for c in columns.values() if c.words[-1:] and c.words[-1] in IDENTITY and len(c.present) == n]
    if not prompts:
        found = [
            c for c in found if not c.has("prompt", "question", "instruction") or len(set(map(str, c.values))) == n
        ]
    best = min(found, key=lambda c: (c.words != ("pair", "id"), -len(set(map(str, c.values)))), default=None)
    subset = next((c for c in columns.values() if c.words == ("subset",)), None)
    if best is None:
        return Coded.of_names(f"row-{i + 1}" for i in range(n))
    if subset is not None and best.words == ("idx",):
        return Coded.of_names(f"{s}/{v}" for s, v in zip(subset.values, best.values, strict=True))
    return Coded.of_names(str(v) for v in best.values)


def names_in(columns: Columns, keys: Sequence[str], n: int) -> Coded:
    for key in keys:
        column = next((c for c in columns.values() if c.words == (key,)), None)
        if column is not None and all(isinstance(v, str | int) for v in column.present):
            return Coded.of_names(name_of(v) for v in column.values)
    return Coded.of_names([None] * n)


def name_of(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return "/".join(map(str, value)) if isinstance(value, list) else str(value)


def generators_of(columns: Columns, family: str) -> tuple[Column, Column] | None:
    for a, b in paired(columns.values(), family):
        known = a.has("model", "generator", "policy", "system") and not a.has(*SCORE, *LENGTH)
        if known and all(isinstance(v, str) for v in (*a.present, *b.present)):
            return a, b
    return None


def texts_of(columns: Columns) -> tuple[tuple[str, str], ...]:
    for family in ("sides", "places"):
        for a, b in paired(columns.values(), family):
            names = a.has("model", "generator", "policy", "system", "id", "winner") or not (is_text(a) and is_text(b))
            if not names and read_winners(a) is None:
                return tuple((last_turn(x)[1], last_turn(y)[1]) for x, y in zip(a.values, b.values, strict=True))
    return ()


def has_places(columns: Columns) -> bool:
    return bool(texts_of(columns)) or any(
        a.has(*LENGTH, "model", "generator", "response") for a, _ in paired(columns.values(), "places")
    )


def lengths_of(columns: Columns, n: int, texts: Sequence[tuple[str, str]]) -> tuple[Floats, Floats]:
    for family in ("sides", "places"):
        for a, b in paired(columns.values(), family):
            if a.has(*LENGTH) and np.isfinite(numbers_of(a)).any():
                return numbers_of(a), numbers_of(b)
    if texts:
        sizes = np.array([[len(a), len(b)] for a, b in texts], dtype=np.float64)
        return sizes[:, 0], sizes[:, 1]
    return np.full(n, math.nan), np.full(n, math.nan)


def numbers_of(column: Column) -> Floats:
    return np.array([number(v) for v in column.values], dtype=np.float64)
