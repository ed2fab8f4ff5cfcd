"""Tables with one pair a row (or one verdict): texts, scores of preference models, verdicts of judges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from trimtab.doctor.judgment_keys import Column, Columns, Verdicts, number, paired, read_winners
from trimtab.doctor.judgment_orders import flipped, swapped_back
from trimtab.doctor.judgment_roles import (
    GOLD,
    IDENTITY,
    JUDGE,
    LENGTH,
    SCORE,
    SLICE,
    VERDICT,
    generators_of,
    gold_of,
    has_places,
    ids_of,
    is_text,
    judge_column,
    last_turn,
    lengths_of,
    name_of,
    names_in,
    numbers_of,
    orders_of,
    text_of,
    texts_of,
)
from trimtab.doctor.judgments import Floats, PairTable, ScoreTable
from trimtab.errors import TrimtabError
from trimtab.labeling.verdicts import Coded, VerdictTable

__all__ = ["find_pairs", "find_scores", "find_verdicts"]

_TURNS: Final = ("\n\nAssistant:", "\n\nassistant:")
_EXCHANGED: Final = 0.95
"""Share of pairs whose scores must be the same in both orders for a model that does not see the order."""


# texts


def find_pairs(columns: Columns) -> PairTable | None:
    """Pairs with `chosen` and `rejected` texts (or messages, or dialogues that begin alike)."""
    sides = [(a, b) for a, b in paired(columns.values(), "sides") if is_text(a) and is_text(b)]
    if not sides:
        return None
    one, two = min(sides, key=lambda pair: len(pair[0].words))
    texts = [(text_of(a), text_of(b)) for a, b in zip(one.values, two.values, strict=True)]
    rows = [i for i, (a, b) in enumerate(texts) if a is not None and b is not None]
    if len(rows) < 2:
        return None
    prompt = next((c for c in columns.values() if c.words in _PROMPT_KEYS), None)
    triples = []
    for i in rows:
        a, b = texts[i]
        assert a is not None
        assert b is not None
        asked = text_of(prompt.values[i]) if prompt is not None else None
        before, last = last_turn(one.values[i])
        if asked is not None or before:
            triples.append((before if asked is None else asked, last, last_turn(two.values[i])[1]))
        else:
            triples.append(_without_common_start(a, b))
    soft = next((c for c in columns.values() if c.words in (("p", "chosen"), ("prob", "chosen"))), None)
    p = np.array([math.nan if soft is None else number(soft.values[i]) for i in rows], dtype=np.float64)
    makers = generators_of(columns, "sides")
    written = tuple((str(makers[0].values[i]), str(makers[1].values[i])) for i in rows) if makers else ()
    who = judge_column(columns)
    return PairTable(
        tuple(t[0] or "" for t in triples),
        tuple(t[1] for t in triples),
        tuple(t[2] for t in triples),
        p,
        written,
        None if who is None else Coded.of_names(name_of(who.values[i]) for i in rows),
    )


_PROMPT_KEYS: Final = (
    ("prompt",), ("question",), ("instruction",), ("input",), ("query",), ("context",), ("messages",), ("history",),
)  # fmt: skip


def _without_common_start(a: str, b: str) -> tuple[str, str, str]:
    """Prompt and responses of two dialogues: what both begin with, up to the last turn that they share."""
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    turns = [at + len(mark) for mark in _TURNS if (at := a.rfind(mark, 0, same + 1)) >= 0]
    cut = max(turns, default=0)
    return a[:cut], a[cut:].strip(), b[cut:].strip()


# scores


def find_scores(columns: Columns) -> tuple[ScoreTable, ...]:
    """Scores of preference models on pairs: by chosen and rejected, by place with a label, or as lists of two."""
    found: list[tuple[Column, Column, Floats, Floats, bool, float | None]] = []
    by_order = [(a, b) for a, b in paired(columns.values(), "orders") if _is_two(a) and _is_two(b) and a.has(*SCORE)]
    for a, b in by_order:
        one, two = _two(a), _two(b)
        both = np.isfinite(one).all(axis=1) & np.isfinite(two).all(axis=1)
        if both.any():
            alike = float(np.isclose(one[both], two[both][:, ::-1], rtol=1e-3, atol=1e-6).all(axis=1).mean())
            kept = float(np.isclose(one[both], two[both], rtol=1e-3, atol=1e-6).all(axis=1).mean())
            found.append((a, b, one[:, 0], one[:, 1], False, max(alike, kept)))
    if not by_order:
        lists = [c for c in columns.values() if _is_two(c) and c.has(*SCORE)]
        found += [(c, c, _two(c)[:, 0], _two(c)[:, 1], False, None) for c in lists]
    for family, sided in (("sides", True), ("places", False)):
        for a, b in paired(columns.values(), family):
            if _is_score(a, b, alone=sided) and not any(a is f[0] or b is f[1] for f in found):
                found.append((a, b, numbers_of(a), numbers_of(b), sided, None))
    if not found and (margin := next((c for c in columns.values() if _is_margin(c)), None)) is not None:
        found.append((margin, margin, numbers_of(margin), np.zeros(len(margin.values)), True, None))
    return tuple(_score_table(columns, *each) for each in found if np.isfinite(each[2] - each[3]).sum() >= 2)


def _score_table(
    columns: Columns, a: Column, b: Column, one: Floats, two: Floats, sided: bool, same: float | None
) -> ScoreTable:
    n = len(one)
    label = None if sided else gold_of(columns)
    free = False
    gold = np.full(n, 1 if sided else -1, dtype=np.int8)
    if label is not None:
        gold = np.array([-1 if w is None else w for w in label.winners], dtype=np.int8)
        if label.free_coding:
            right = np.where(gold == 1, one > two, two > one)[gold > 0]
            if right.size and right.mean() < 0.5:
                gold = np.array([-1 if w is None else w for w in flipped(label.winners)], dtype=np.int8)
            free = True
    texts = texts_of(columns)
    return ScoreTable(
        one,
        two,
        gold,
        *lengths_of(columns, n, texts),
        ids_of(columns, n, prompts=False),
        names_in(columns, SLICE, n),
        names_in(columns, ("split",), n),
        (a.key, b.key),
        texts,
        a.has("implicit", "logratio", "logratios", "dpo"),
        free,
        same,
    )


def _is_two(column: Column) -> bool:
    sample = column.present[:50]
    return bool(sample) and all(
        isinstance(v, list) and len(v) == 2 and not any(math.isnan(number(x)) for x in v) for v in sample
    )


def _two(column: Column) -> Floats:
    pairs = [v if isinstance(v, list) and len(v) == 2 else (None, None) for v in column.values]
    return np.array([[number(x) for x in v] for v in pairs], dtype=np.float64).reshape(-1, 2)


def _is_score(a: Column, b: Column, *, alone: bool) -> bool:
    if not (a.has(*SCORE) or (alone and len(a.words) == 1)) or a.has(*LENGTH, "logps", "logprob", "logprobs", "id"):
        return False
    values = [number(v) for v in (*a.present, *b.present)]
    return len(values) > 2 and sum(math.isfinite(x) for x in values) > 0.5 * len(values)


def _is_margin(column: Column) -> bool:
    if column.words not in (("margin",), ("score", "diff"), ("reward", "diff"), ("score", "margin"), ("margins",)):
        return False
    values = [x for v in column.present if math.isfinite(x := number(v))]
    return any(x < 0 for x in values) and any(x > 0 for x in values)


# verdicts


def find_verdicts(columns: Columns, scores: Sequence[ScoreTable], path: str) -> tuple[VerdictTable | None, str]:
    """The verdicts of judges, and what is known of the second order; see `JudgmentMaterial`."""
    if any(s.same_both_orders is not None and s.same_both_orders >= _EXCHANGED for s in scores):
        return None, ""
    records, second = _long_records(columns, scores)
    if not records:
        return None, second
    try:
        return VerdictTable.from_records(records, path), second
    except TrimtabError:
        return None, second


def _long_records(columns: Columns, scores: Sequence[ScoreTable]) -> tuple[list[dict[str, Any]], str]:
    common = _common(columns)
    if (ours := _own_labels(columns)) is not None:
        return [r for part in ours for r in _records(common, *part)], "mapped back"
    raters = _raters(columns)
    if raters:
        parts = [_records(common, read.winners, 0, column.key) for column, read in raters]
        return [r for part in parts for r in part], ""
    gold = common["gold"]
    for a, b in paired(columns.values(), "orders"):
        one, two = read_winners(a), read_winners(b)
        if one is None or two is None or not (a.has(*VERDICT)) or a.has(*GOLD):
            continue
        mapped = swapped_back(one.winners, two.winners, gold, 3.0 if two.identity else 0.0)
        if mapped is None:
            return _records(common, one.winners, 1), "unknown"
        back = two.winners if mapped else flipped(two.winners)
        return _records(common, one.winners, 1) + _records(common, back, 2), "mapped back" if mapped else "raw"
    ordered = _by_order_of_scores(columns)
    if ordered is not None:
        return _records(common, ordered[0], 1) + _records(common, ordered[1], 2), "mapped back"
    if scores:
        return [], ""
    return _one_verdict_a_row(columns, common)


def _one_verdict_a_row(columns: Columns, common: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    judged = judge_column(columns) is not None
    candidates = [c for c in columns.values() if c.has(*VERDICT) and not c.has(*GOLD, *IDENTITY)]
    candidates += [c for c in columns.values() if judged and c.has(*GOLD)]
    read = next(((c, v) for c in candidates if (v := read_winners(c)) is not None), None)
    probability = next((c for c in columns.values() if c.words in (("p", "1"), ("p", "first"))), None)
    if probability is not None and read is None:
        p = [number(v) for v in probability.values]
        common["p_1"] = p
        read = probability, Verdicts([None if math.isnan(x) else 1 if x > 0.5 else 2 if x < 0.5 else 0 for x in p])
    if read is None or not (judged or has_places(columns)):
        return [], ""
    column, verdicts = read
    if column.has(*GOLD):
        common["gold"] = None
    orders = orders_of(columns)
    if orders is None or all(o == 0 for o in orders):
        return _records(common, verdicts.winners, 0), ""
    standard = {"pair_id", "winner", "order"} <= set(columns) or {"pair_id", "p_1", "order"} <= set(columns)
    mapped = True if standard else _mapped(columns, common, verdicts.winners, orders, verdicts.identity)
    if mapped is None:
        return _records(common, verdicts.winners, 0), "unknown"
    turned = flipped(verdicts.winners)
    back = [w if mapped or o != 2 else t for w, t, o in zip(verdicts.winners, turned, orders, strict=True)]
    return _records(common, back, orders), "mapped back" if mapped else "raw"


def _mapped(
    columns: Columns, common: dict[str, Any], winners: Sequence[int | None], orders: Sequence[int], identity: bool
) -> bool | None:
    """Whether the verdicts of order 2 are mapped back, from the pairs that were asked in both orders."""
    by_question: dict[tuple[str, str], dict[int, int]] = {}
    for i, (order, pair, judge) in enumerate(zip(orders, common["pair"], common["judge"], strict=True)):
        if order:
            by_question.setdefault((pair, judge), {})[order] = i
    both = [(q[1], q[2]) for q in by_question.values() if len(q) == 2]
    gold = None if common["gold"] is None else [common["gold"][i] for i, _ in both]
    prior = 3.0 if identity else 0.0
    return swapped_back([winners[i] for i, _ in both], [winners[j] for _, j in both], gold, prior)


def _records(
    common: dict[str, Any], winners: Sequence[int | None], orders: int | Sequence[int], judge: str | None = None
) -> list[dict[str, Any]]:
    """Records in the form of a verdict file."""
    records = []
    for i, winner in enumerate(winners):
        order = orders if isinstance(orders, int) else orders[i]
        record: dict[str, Any] = {
            "pair_id": common["pair"][i],
            "judge": judge or common["judge"][i],
            "winner": "tie" if winner == 0 else winner,
        }
        if winner is None:
            record["status"] = common["failure"][i]
        if order:
            record["order"] = "12" if order == 1 else "21"
        if common["gold"] is not None and (g := common["gold"][i]) is not None:
            record["gold"] = "tie" if g == 0 else g
        record.update({k: v[i] for k, v in common["more"].items() if v[i] is not None})
        records.append(record)
    return records


def _common(columns: Columns) -> dict[str, Any]:
    """What every verdict of a row carries."""
    n = max(len(c.values) for c in columns.values())
    judge = judge_column(columns)
    strategy = next((c for c in columns.values() if c.words == ("strategy",)), None)
    names = ["judge" if judge is None else name_of(v) or "judge" for v in (judge.values if judge else [None] * n)]
    if strategy is not None:
        names = [f"{name}/{v}" if v else name for name, v in zip(names, strategy.values, strict=True)]
    texts = texts_of(columns)
    one, two = lengths_of(columns, n, texts)
    ids = ids_of(columns, n)
    slices = names_in(columns, SLICE, n)
    makers = generators_of(columns, "places")
    more: dict[str, list[Any]] = {
        "length_1": [None if math.isnan(x) else x for x in one.tolist()],
        "length_2": [None if math.isnan(x) else x for x in two.tolist()],
        "slice": [slices.of(i) for i in range(n)],
    }
    pair = [ids.of(i) or f"row-{i + 1}" for i in range(n)]
    if makers is not None:
        more["generator_1"] = [name_of(v) for v in makers[0].values]
        more["generator_2"] = [name_of(v) for v in makers[1].values]
        more["prompt_id"] = list(pair)
        more["response_id_1"] = [f"{p}/{m}" for p, m in zip(pair, more["generator_1"], strict=True)]
        more["response_id_2"] = [f"{p}/{m}" for p, m in zip(pair, more["generator_2"], strict=True)]
        pair = [f"{p}/{a}/{b}" for p, a, b in zip(pair, more["generator_1"], more["generator_2"], strict=True)]
    for name in ("template", "principle", "annotator", "group"):
        column = next((c for c in columns.values() if c.words == (name,) and c is not judge), None)
        if column is not None:
            more[name] = [name_of(v) for v in column.values]
    sample = next((c for c in columns.values() if c.words in (("sample",), ("repeat",), ("seed",), ("trial",))), None)
    if sample is not None:
        more["sample"] = [int(x) if math.isfinite(x := number(v)) and x >= 0 else None for v in sample.values]
    turn = next((c for c in columns.values() if c.words == ("turn",)), None)
    if turn is not None:
        pair = [f"{p}/turn {v}" for p, v in zip(pair, turn.values, strict=True)]
    gold = gold_of(columns)
    status = next((c for c in columns.values() if c.words in (("status",), ("outcome",))), None)
    failure = [str(v).lower() if str(v).lower() in ("refused", "error") else "unparsed"
               for v in (status.values if status else [None] * n)]  # fmt: skip
    return {"pair": pair, "judge": names, "gold": None if gold is None else gold.winners, "more": more,
            "failure": failure}  # fmt: skip


def _raters(columns: Columns) -> list[tuple[Column, Verdicts]]:
    """Several people or judges side by side: `annotator1`, `annotator2`, `annotator3`."""
    found = []
    for column in columns.values():
        numbered = len(column.words) >= 2 and column.words[-1].isdigit() and column.has(*JUDGE)
        if numbered and (read := read_winners(column)) is not None:
            found.append((column, read))
    return found if len(found) >= 2 else []


def _own_labels(columns: Columns) -> list[tuple[list[int | None], int]] | None:
    """Our own labels: P(first > second) over both orders, and the gap between the orders."""
    if not {"pair_id", "outcome", "p_first", "order_gap"} <= set(columns):
        return None
    p = numbers_of(columns["p_first"])
    half = numbers_of(columns["order_gap"]) / 2
    return [
        ([None if math.isnan(x) else 1 if x > 0.5 else 2 if x < 0.5 else 0 for x in side.tolist()], order)
        for side, order in ((np.where(np.isnan(half), p, p + half), 1), (np.where(np.isnan(p), p, p - half), 2))
        if np.isfinite(side).any()
    ]


def _by_order_of_scores(columns: Columns) -> tuple[list[int | None], list[int | None]] | None:
    """Verdicts of a judge that scores both responses in each order: the higher score wins."""
    for a, b in paired(columns.values(), "orders"):
        if _is_two(a) and _is_two(b) and a.has(*SCORE):
            one, two = _two(a), _two(b)
            straight = float(np.nanmean(np.abs(one - two)))
            crossed = float(np.nanmean(np.abs(one - two[:, ::-1])))
            if crossed < straight:
                two = two[:, ::-1]
            return _higher(one), _higher(two)
    return None


def _higher(scores: Floats) -> list[int | None]:
    return [None if math.isnan(a - b) else 1 if a > b else 2 if b > a else 0 for a, b in scores.tolist()]
