"""Tables of judgments, scores and pairs drawn for the tests of the doctor; every one from a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.doctor.detectors import judge, judge_statistics, preference_data, scores
from trimtab.doctor.finding import Finding, NotDiagnosable
from trimtab.doctor.judgments import from_records

Rows = list[dict[str, Any]]

DETECTORS = (*judge.DETECTORS, *judge_statistics.DETECTORS, *scores.DETECTORS, *preference_data.DETECTORS)


def look(rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Finding], dict[str, NotDiagnosable]]:
    """Findings and unchecked ids of a table of records, by id."""
    material = from_records(rows, "made-up")
    assert material is not None
    said = [v for d in DETECTORS if d.reads(material) for v in d.look(material)]
    return (
        {v.id: v for v in said if isinstance(v, Finding)},
        {v.id: v for v in said if isinstance(v, NotDiagnosable)},
    )


def loud(rows: Sequence[Mapping[str, Any]]) -> set[str]:
    """Ids of the findings from warning on."""
    return {id for id, finding in look(rows)[0].items() if finding.severity.loud}


def verdicts(
    seed: int = 0,
    pairs: int = 300,
    *,
    accuracy: float = 0.9,
    place: float = 0.0,
    length: float = 0.0,
    unparsed: float = 0.0,
    orders: Sequence[str] = ("12", "21"),
    samples: int = 1,
    templates: Sequence[str] = (),
    template_noise: float = 0.0,
    gold: bool = True,
    judge: str = "judge",
) -> Rows:
    """Verdict files of a judge that is right with `accuracy` on average, more surely on clear pairs.

    `place` (log odds) favours the response shown first, `length` (log odds per log length) the longer one.
    """
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for i in range(pairs):
        better = int(rng.integers(1, 3))
        long = rng.integers(50, 400, 2)
        clear = min(max(rng.beta(accuracy * 6, (1 - accuracy) * 6), 0.5), 0.995)
        sure = np.log(clear / (1 - clear)) * (1 if better == 1 else -1) + length * np.log(long[0] / long[1])
        first = {t: rng.normal(0, template_noise) if template_noise else 0.0 for t in templates or ("",)}
        for template in templates or ("",):
            for order in orders:
                for sample in range(samples):
                    odds = sure + first[template] + (place if order == "12" else -place)
                    winner: int | None = 1 if rng.random() < 1 / (1 + np.exp(-odds)) else 2
                    if rng.random() < unparsed:
                        winner = None
                    row: dict[str, Any] = {
                        "pair_id": f"p{i}", "judge": judge, "order": order, "winner": winner, "sample": sample,
                        "length_1": int(long[0]), "length_2": int(long[1]),
                    }  # fmt: skip
                    if template:
                        row["template"] = template
                    if gold:
                        row["gold"] = better
                    if winner is None:
                        row["status"] = "unparsed"
                    rows.append(row)
    return rows


def side_by_side(rows: Rows, *, raw: bool, keys: tuple[str, str] = ("decision_0", "decision_1")) -> Rows:
    """The same verdicts with both orders in one row, the second one raw (as places) or mapped back."""
    name = {1: "A>B", 2: "B>A", "tie": "A=B", None: None}
    turned = {1: 2, 2: 1}
    wide: dict[str, dict[str, Any]] = {}
    for row in rows:
        winner = row["winner"]
        one = wide.setdefault(
            row["pair_id"], {"pair_id": row["pair_id"], "len_A": row["length_1"], "len_B": row["length_2"]}
        )
        if "gold" in row:
            one["label"] = name[row["gold"]]
        if row["order"] == "12":
            one[keys[0]] = name[winner]
        else:
            one[keys[1]] = name[turned.get(winner, winner) if raw else winner]
    return list(wide.values())


def score_rows(
    seed: int = 0,
    pairs: int = 500,
    *,
    spread: float = 2.0,
    temperature: float = 1.0,
    length: float = 0.0,
    noise: float = 0.0,
    scale: float = 1.0,
    shift: float = 0.0,
) -> Rows:
    """Chosen and rejected scores of a calibrated preference model whose margins have deviation `spread`.

    `temperature` multiplies the margins after the labels were drawn (above 1: too sure), `length` adds to them per log
    length, `noise` turns that share of the labels round; `scale` and `shift` change all scores alike.
    """
    rng = np.random.default_rng(seed)
    margin = rng.normal(0, spread, pairs)
    first = (rng.random(pairs) < 1 / (1 + np.exp(-margin))) ^ (rng.random(pairs) < noise)
    long = rng.integers(50, 400, (2, pairs))
    shown = margin * temperature + length * np.log(long[0] / long[1])
    base = rng.normal(0, 2, pairs)
    scores_ = scale * np.stack([base + shown / 2, base - shown / 2]) + shift
    rows = []
    for i in range(pairs):
        a, b = (0, 1) if first[i] else (1, 0)
        rows.append(
            {"chosen_score": float(scores_[a, i]), "rejected_score": float(scores_[b, i]),
             "chosen_length": int(long[a, i]), "rejected_length": int(long[b, i])}
        )  # fmt: skip
    return rows


def pair_rows(seed: int = 0, pairs: int = 400, *, longer: float = 0.55, prompts: int | None = None) -> Rows:
    """Preference pairs of made-up words, the chosen one longer with that probability."""
    rng = np.random.default_rng(seed)
    rows: Rows = []
    for i in range(pairs):
        about = i if prompts is None else int(rng.integers(prompts))
        sizes = sorted(rng.choice(np.arange(5, 60), 2, replace=False).tolist(), reverse=bool(rng.random() < longer))
        texts = [" ".join(f"w{w}" for w in rng.integers(0, 3000, n)) for n in sizes]
        rows.append({"prompt": f"question {about} about w{about * 7}", "chosen": texts[0], "rejected": texts[1]})
    return rows
