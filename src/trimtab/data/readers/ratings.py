"""Several rated responses to one prompt (UltraFeedback and its kin) as pairs: the better rated is chosen.

The rating is the named one, or the first of these that every response of the record has: `fine-grained_score`, the mean
over `annotations`, `overall_score`, `overall_rating`, `rating`, `score`, `reward`, `rank` (the least is best). The
margin is the difference of the ratings. Equal ratings are a tie, P(chosen) = .5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trimtab.data.lines import PROMPT_COLUMNS, LineError, kind, messages_of, prompt_of, without
from trimtab.data.readers.huggingface import PROMPT_NAMES
from trimtab.data.records import Pair, Prompt, Response

__all__ = ["LISTS", "Pairing", "rated_pairs"]

LISTS = ("completions", "responses", "generations", "answers", "candidates")
_TEXTS = ("response", "text", "completion", "content", "answer", "output")
_SCORES = ("overall_score", "overall_rating", "rating", "score", "reward")
_PARALLEL = ("ratings", "scores", "rating", "score", "rewards", "ranks", "rank")
_MODELS = ("models", "generation_models", "model")
_NOT_RATED = ("", "n/a", "na", "none", "null")

Pairing = str
"""`all`: every two responses; `best-worst`: one pair a prompt; `best-rest`: the best against each other one."""


@dataclass(frozen=True, slots=True)
class _Rated:
    text: str
    rating: float
    model: str


def rated_pairs(record: dict[str, Any], name: str, rating: str = "", pairing: Pairing = "all") -> list[Pair]:
    """The pairs of a record; none where fewer than two responses are rated. Raises `LineError`."""
    column = next(c for c in LISTS if isinstance(record.get(c), list))
    asked = "prompt" if "prompt" in record else next((n for n in PROMPT_NAMES if n in record), "prompt")
    messages = messages_of(record.get(asked), asked)
    prompt = prompt_of({c: record[c] for c in PROMPT_COLUMNS if c in record}, messages)
    rated, used = _rated(record, column, rating)
    rated = sorted(rated, key=lambda r: -r.rating)  # stable: equal ones stay in the order of the file
    pairs = list(combinations(range(len(rated)), 2))
    if pairing == "best-worst":
        pairs = [(0, len(rated) - 1)] if len(rated) > 1 else []
    elif pairing == "best-rest":
        pairs = [(0, i) for i in range(1, len(rated))]
    extra = without(record, "id", asked, column, *used, *_MODELS, *PROMPT_COLUMNS)
    return [_pair(name, prompt, rated[i], rated[j], (i, j), len(pairs), extra) for i, j in pairs]


def _pair(
    name: str, prompt: Prompt, better: _Rated, worse: _Rated, at: tuple[int, int], count: int, extra: Mapping[str, Any]
) -> Pair:
    models = {"chosen_model": better.model, "rejected_model": worse.model} if better.model and worse.model else {}
    margin = better.rating - worse.rating
    return Pair(
        name if count == 1 else f"{name}/{at[0] + 1}-{at[1] + 1}",
        prompt,
        Response(better.text),
        Response(worse.text),
        0.5 if margin == 0 else None,
        margin,
        {**extra, **models, "chosen_rating": better.rating, "rejected_rating": worse.rating},
    )


def _rated(record: Mapping[str, Any], column: str, wanted: str) -> tuple[list[_Rated], list[str]]:
    """The rated responses of a record, and the columns beside the list that were used."""
    items = record[column]
    if items and all(isinstance(item, Mapping) for item in items):
        how = wanted or _shared_rating(items, column)
        return [
            _Rated(_text(item, i, column), value, str(item.get("model") or ""))
            for i, item in enumerate(items, 1)
            if (value := _rating(item, how, i, column)) is not None
        ], []
    names = [wanted] if wanted else [n for n in _PARALLEL if isinstance(record.get(n), list)]
    if not names or not isinstance(record.get(names[0]), list):
        raise LineError(f"{column} has no ratings: neither in its items nor as a list {_PARALLEL[0]} beside it")
    values = record[names[0]]
    models = next((record[m] for m in _MODELS if isinstance(record.get(m), list)), [""] * len(items))
    if len(values) != len(items) or len(models) != len(items):
        raise LineError(f"{column} has {len(items)} responses, but {names[0]} has {len(values)} values")
    sign = -1 if names[0].startswith("rank") else 1
    rated = []
    for i, (text, value, model) in enumerate(zip(items, values, models, strict=True), 1):
        if not isinstance(text, str):
            raise LineError(f"item {i} of {column} is {kind(text)}; it is a text")
        number = _number(value, f"item {i} of {names[0]}")
        if number is not None:
            rated.append(_Rated(text, sign * number, str(model or "")))
    return rated, [names[0]]


def _shared_rating(items: list[Mapping[str, Any]], column: str) -> str:
    for how in ("fine-grained_score", "annotations", *_SCORES, "rank"):
        if all(_has(item, how) for item in items):
            return how
    for how in ("fine-grained_score", "annotations", *_SCORES, "rank"):
        if any(_has(item, how) for item in items):
            return how
    raise LineError(f"the items of {column} have no rating: {', '.join(_SCORES)}, annotations or rank is expected")


def _has(item: Mapping[str, Any], how: str) -> bool:
    return bool(item.get(how)) if how == "annotations" else item.get(how) is not None


def _rating(item: Mapping[str, Any], how: str, number: int, column: str) -> float | None:
    """A response's rating: a column, one aspect of `annotations`, or their mean; None where it is not rated."""
    where = f"{how} of item {number} of {column}"
    annotations = item.get("annotations")
    if how == "annotations" or (how not in item and isinstance(annotations, Mapping) and how in annotations):
        chosen = annotations if how == "annotations" else {how: annotations[how]}  # type: ignore[index]
        if not isinstance(chosen, Mapping):
            return None
        values = [_number(a.get("Rating") if isinstance(a, Mapping) else a, where) for a in chosen.values()]
        known = [v for v in values if v is not None]
        return math.fsum(known) / len(known) if known else None
    value = _number(item.get(how), where)
    return -value if value is not None and how == "rank" else value


def _number(value: Any, where: str) -> float | None:
    if value is None or (isinstance(value, str) and value.strip().lower() in _NOT_RATED):
        return None
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise LineError(f"{where} is {str(value)[:40]!r}; it is a number")
    return number


def _text(item: Mapping[str, Any], number: int, column: str) -> str:
    value = next((item[name] for name in _TEXTS if name in item), None)
    if not isinstance(value, str):
        raise LineError(f"item {number} of {column} has no text; it stands in {', '.join(_TEXTS)}")
    return value
