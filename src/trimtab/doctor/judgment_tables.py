"""Which kind of material a table is, and the tables without pairs: statistics of judges, accuracies over folds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

from trimtab.doctor.judgment_keys import Column, Columns, columns_of, number
from trimtab.doctor.judgments import AccuracyRow, JudgeStatistics, JudgmentMaterial
from trimtab.doctor.log import Skipped

__all__ = ["recognise"]

_ACCURACY: Final = ("acc", "accs", "accuracy", "accuracies")
_SIZE: Final = ("n", "count", "num", "size", "total", "pairs", "samples", "examples", "parsed")
_HELD_OUT: Final = ("val", "valid", "validation", "test", "eval", "heldout", "dev")
_PEOPLE: Final = ("human", "humans", "people", "crowd", "experts", "expert")


def recognise(records: Sequence[Mapping[str, Any]], path: str) -> JudgmentMaterial | None:
    """See `judgments.from_records`."""
    rows = [record for record in records if isinstance(record, Mapping)]
    if not rows:
        return None
    skipped: tuple[Skipped, ...] = ()
    if len(rows) < len(records):
        first = next(i for i, record in enumerate(records) if not isinstance(record, Mapping))
        skipped = (Skipped("not an object", len(records) - len(rows), first + 1),)
    columns = columns_of(rows)
    if not columns or _is_training_log(columns):
        return None
    from trimtab.doctor.judgment_pairs import find_pairs, find_scores, find_verdicts  # most files are training logs

    if statistics := _statistics(columns):
        return JudgmentMaterial(path, "judge-statistics", len(rows), statistics=statistics, skipped=skipped)
    if accuracies := _accuracies(columns):
        return JudgmentMaterial(path, "fold-accuracies", len(rows), accuracies=accuracies, skipped=skipped)
    pairs = find_pairs(columns)
    scores = find_scores(columns)
    verdicts, second = find_verdicts(columns, scores, path)
    found = [("verdicts", verdicts is not None), ("pair-scores", bool(scores)), ("pairs", pairs is not None)]
    name = "+".join(what for what, there in found if there)
    if not name:
        return None
    return JudgmentMaterial(
        path, name, len(rows), verdicts, scores, pairs=pairs, second_order=second, skipped=skipped
    )  # fmt: skip


def _is_training_log(columns: Columns) -> bool:
    """Losses, learning rates and gradients, or a step that rises beside numbers only, are a trainer's."""
    for column in columns.values():
        numeric = any(not math.isnan(number(v)) for v in column.present[:50])
        if numeric and (column.has("loss", "lr", "grad") or {"learning", "rate"} <= set(column.words)):
            return True
    steps = [
        c
        for c in columns.values()
        if c.words[-1:] in (("step",), ("steps",), ("iteration",), ("iter",), ("episode",), ("timesteps",))
    ]
    if not steps or any(_looks_like_an_id(c) for c in columns.values()):
        return False
    values = [number(v) for v in steps[0].present]
    return len(set(values)) > 1 and all(b >= a for a, b in pairwise(values))


def _looks_like_an_id(column: Column) -> bool:
    return column.words[-1:] in (("id",), ("idx",), ("uid",), ("uuid",), ("hash",))


# statistics of judges


def _statistics(columns: Columns) -> tuple[JudgeStatistics, ...]:
    if any(_looks_like_an_id(c) or any(isinstance(v, list) for v in c.present[:5]) for c in columns.values()):
        return ()
    roles: dict[str, Column] = {}
    for column in columns.values():
        role = _statistic(set(column.words))
        whole = all(x == int(x) for v in column.present if math.isfinite(x := number(v)))
        if (
            role
            and (whole or role not in ("n", "own_n"))
            and role not in roles
            and any(not math.isnan(number(v)) for v in column.present)
        ):
            roles[role] = column
    decisive = [r for r in ("longer", "own", "first", "flips", "consistent") if r in roles and _is_share(roles[r])]
    if len(decisive) + ("agreement" in roles) + ("n" in roles) < 2 or not decisive:
        return ()
    names = _names(columns)
    shares = {role: _shares(column) for role, column in roles.items() if role not in ("n", "own_n")}
    counts = {role: [_count(v) for v in roles[role].values] for role in ("n", "own_n") if role in roles}
    empty: list[None] = [None] * len(names)
    flips = shares.get("flips") or [None if c is None else 1 - c for c in shares.get("consistent", empty)]
    return tuple(
        JudgeStatistics(
            name,
            counts.get("n", empty)[i],
            shares.get("longer", empty)[i],
            shares.get("own", empty)[i],
            counts.get("own_n", empty)[i],
            shares.get("first", empty)[i],
            flips[i],
            shares.get("agreement", empty)[i],
            shares.get("unparsed", empty)[i],
            any(word in _PEOPLE for word in name.lower().replace("-", " ").replace("_", " ").split()),
        )
        for i, name in enumerate(names)
    )


def _statistic(words: set[str]) -> str:
    """Which aggregate a key names; empty for none."""
    count = bool(words & set(_SIZE)) and not words & {"share", "rate", "fraction", "wins", "win"}
    winning = words & {"wins", "win", "won", "share", "rate", "pref", "prefer", "prefers", "preferred", "preference"}
    if words & {"self", "own"}:
        return "own_n" if count else "own" if winning or words & {"bias", "enhancement"} else ""
    tables = (
        ("longer", "longer" in words or ("long" in words and bool(winning))),
        ("first", bool(words & {"first", "1", "primacy"}) and bool(winning | (words & {"p"}))),
        ("flips", bool(words & {"flip", "flips", "flipped", "inconsistent", "inconsistency"})),
        ("consistent", bool(words & {"consistency", "consistent"})),
        ("unparsed", bool(words & {"unparsed", "invalid", "unparsable"})),
        ("agreement", bool(words & {"agreement", "agree", "accuracy", "acc"})),
        ("n", count or words == {"n"}),
    )
    return next((role for role, there in tables if there), "")


def _is_share(column: Column) -> bool:
    values = [x for v in column.present if not math.isnan(x := number(v))]
    return bool(values) and all(0 <= x <= 100 for x in values) and any(x != int(x) for x in values)


def _shares(column: Column) -> list[float | None]:
    """A column of shares, or of per cents, as shares."""
    values = [number(v) for v in column.values]
    known = [x for x in values if not math.isnan(x)]
    low, high = (1.0, 100.0) if known and median(known) > 1 else (0.0, 1.0)
    return [x / high if low <= x <= high else None for x in values]


def _count(value: Any) -> int | None:
    x = number(value)
    return int(x) if math.isfinite(x) and x >= 1 else None


def _names(columns: Columns) -> list[str]:
    """What each row is about: the first column of texts that differ, or nothing."""
    for column in columns.values():
        texts = [v for v in column.present if isinstance(v, str) and math.isnan(number(v))]
        if len(texts) == len(column.values) and (len(set(texts)) == len(texts)):
            return [str(v) for v in column.values]
    return [""] * max(len(c.values) for c in columns.values())


# accuracies over folds


def _accuracies(columns: Columns) -> tuple[AccuracyRow, ...]:
    accuracy = [c for c in columns.values() if c.has(*_ACCURACY)]
    training = next((c for c in accuracy if c.has("train", "training")), None)
    held_out = [c for c in accuracy if c is not training and not c.has("std", "sd", "sem")]
    lists = next((c for c in held_out if any(_fold_list(v) for v in c.present)), None)
    folds = next((c for c in columns.values() if c.words in (("fold",), ("fold", "id"), ("fold", "idx"))), None)
    size = next((c for c in columns.values() if c.has(*_SIZE) and not c.has("train", *_ACCURACY)), None)
    scalar = next((c for c in held_out if not any(isinstance(v, list) for v in c.present)), None)
    source = lists or (scalar if scalar and (folds or (size and scalar.has(*_HELD_OUT))) else None)
    if source is None or any(_looks_like_an_id(c) and c is not folds for c in columns.values()):
        return ()
    rows: dict[str, tuple[list[float], int | None, list[float]]] = {}
    groups = _groups(columns, (source, *accuracy))
    for i, value in enumerate(source.values):
        values = _fold_list(value) or [x for x in [number(value)] if 0 <= x <= 1]
        if not values:
            continue
        pairs = _count(size.values[i]) if size is not None else None
        if pairs is not None and size is not None and size.has(*_HELD_OUT) and lists is not None:
            pairs *= len(values)  # held-out pairs of one fold
        kept = rows.setdefault(groups[i], ([], pairs, []))
        kept[0].extend(values)
        if training is not None:
            kept[2].extend(_fold_list(training.values[i]) or [x for x in [number(training.values[i])] if 0 <= x <= 1])
        if folds is not None and kept[1] is not None and pairs is not None and size is not None:
            per_fold = size.has(*_HELD_OUT) and len(kept[0]) > len(values)
            rows[groups[i]] = (kept[0], kept[1] + pairs if per_fold else kept[1], kept[2])
    return tuple(
        AccuracyRow(group, tuple(values), pairs, sum(train) / len(train) if train else None)
        for group, (values, pairs, train) in rows.items()
    )


def _fold_list(value: Any) -> list[float] | None:
    """A list of accuracies; None for anything else."""
    if not isinstance(value, list) or len(value) < 2:
        return None
    values = [number(v) for v in value]
    return values if all(0 <= x <= 1 for x in values) else None


def _groups(columns: Columns, measured: Sequence[Column]) -> list[str]:
    """What a row was trained on and with: the columns that are neither measured nor a seed or fold."""
    chosen = []
    for column in columns.values():
        scalars = column.present
        if column in measured or not scalars or any(isinstance(v, list | dict) for v in scalars):
            continue
        if column.has("seed", "fold", "run", "repeat", "trial", "time", "mean", "std", "loss", "auc", "ece", "index"):
            continue
        if len(column.values) > 1 and len(set(map(str, scalars))) > max(2, len(column.values) // 2):
            continue
        chosen.append(column)
    rows = max(len(c.values) for c in columns.values())
    return [", ".join(f"{c.key}={c.values[i]}" for c in chosen if c.values[i] not in (None, "")) for i in range(rows)]
