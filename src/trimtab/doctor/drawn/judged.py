"""Verdicts of judges, scores of preference models and preference pairs: sound ones, and ones with a single fault.

A pair has a true margin (log odds that the first response is better), drawn from a normal distribution; a judge or a
preference model sees it through what is wrong with it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.doctor.drawn.curves import Floats, Generator

__all__ = ["JUDGED", "SOUND", "write_judged"]

Rows = list[dict[str, Any]]
_TOPICS = ("bread", "taxes", "rivers", "chess", "sleep", "bridges", "whales", "grammar", "violins", "rain", "maps",
           "bees", "clocks", "soup", "glass", "tents", "moss", "trains", "paint", "yeast")  # fmt: skip


def _sigmoid(x: Floats | float) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x)))


def verdicts(
    rng: Generator,
    pairs: int = 400,
    *,
    sharp: float = 2.5,
    place: float = 0.0,
    longer: float = 0.0,
    own: float = 0.0,
    unparsed: float = 0.01,
    template: float = 0.0,
    samples: int = 1,
    gold: bool = True,
) -> Rows:
    """A judge's verdict file, both orders of every pair.

    Args:
        sharp: standard deviation of the log odds that the judge goes by: how clear pairs are to it.
        place: log odds in favour of the response shown first.
        longer: log odds in favour of the longer one, for each factor of e in length.
        own: log odds in favour of its own responses.
        unparsed: share of verdicts that cannot be read.
        template: standard deviation of what the wording of the template does to a pair's log odds; two templates.
        samples: verdicts for each order.
        gold: whether people's labels are there.
    """
    margin = rng.normal(0, sharp, pairs)
    people = rng.random(pairs) < _sigmoid(margin * rng.uniform(0.6, 1.0))
    size = np.round(np.exp(rng.normal(5.2, 0.5, (2, pairs)))).astype(int)
    names = ["mine-7b", "other-9b"] if own else ["other-9b", "third-8b"]
    made_by = rng.permuted(np.tile(np.arange(2), (pairs, 1)), axis=1)
    rows: Rows = []
    for i in range(pairs):
        seen = margin[i] + longer * float(np.log(size[0, i] / size[1, i]))
        if own:
            seen += own if names[made_by[i, 0]] == "mine-7b" else -own
        for wording in ("a", "b") if template else ("",):
            leaning = rng.normal(0, template) if template else 0.0
            for order in ("12", "21"):
                for sample in range(samples):
                    odds = seen + leaning + (place if order == "12" else -place)
                    lost = rng.random() < unparsed
                    row = {
                        "pair_id": f"p{i}", "judge": "mine-7b", "order": order, "sample": sample,
                        "winner": None if lost else 1 if rng.random() < _sigmoid(1.5 * odds) else 2,
                        "status": "unparsed" if lost else "ok", "length_1": int(size[0, i]),
                        "length_2": int(size[1, i]), "generator_1": names[made_by[i, 0]],
                        "generator_2": names[made_by[i, 1]],
                    }  # fmt: skip
                    if wording:
                        row["template"] = wording
                    if gold:
                        row["gold"] = 1 if people[i] else 2
                    rows.append(row)
    return rows


def panel(rng: Generator, pairs: int = 300, *, sharp: float = 2.0, judges: int = 3) -> Rows:
    """Several judges on the same pairs, each reading the margin with an error of its own; no reference labels."""
    margin = rng.normal(0, sharp, pairs)
    rows: Rows = []
    for judge in range(judges):
        seen = margin + rng.normal(0, 1, pairs)
        wins = rng.random(pairs) < _sigmoid(2 * seen)
        rows += [
            {"pair_id": f"p{i}", "judge": f"judge-{judge}", "order": "12" if (i + judge) % 2 else "21",
             "winner": 1 if wins[i] else 2}
            for i in range(pairs)
        ]  # fmt: skip
    return rows


def scores(
    rng: Generator,
    pairs: int = 600,
    *,
    spread: float = 1.3,
    hot: float = 1.0,
    longer: float = 0.0,
    turned: float = 0.0,
    scale: float = 1.0,
    texts: str = "",
    reworded: float | None = None,
    blind: float = 0.0,
    same: float = 0.0,
) -> Rows:
    """Chosen and rejected scores of a preference model whose margins are calibrated unless said otherwise.

    Args:
        spread: standard deviation of the true margins; what a model can see of its pairs.
        hot: factor on the margins after the labels were drawn: above 1 is too sure of itself.
        longer: what each factor of e in length adds.
        turned: share of labels that are wrong at any margin.
        scale: of the scores as written.
        texts: `varied`, or `narrow`: the best-scored responses all use the same few words.
        reworded: noise of the margin that goes with the wording of the pair; rows come twice. None: once.
        blind: what the margins have besides the truth.
        same: how little responses of one pair differ, and all scores with it: 0 not, 1 not at all.
    """
    margin = rng.normal(0, spread, pairs)
    first = (rng.random(pairs) < _sigmoid(margin)) ^ (rng.random(pairs) < turned)
    size = np.round(np.exp(rng.normal(5.0, 0.5, (2, pairs)))).astype(int)
    shown = hot * margin + blind * rng.standard_normal(pairs) + longer * np.log(size[0] / size[1])
    base = rng.normal(0, 1.2, pairs)
    rows: Rows = []
    for i in range(pairs):
        a, b = (0, 1) if first[i] else (1, 0)
        for _ in range(1 if reworded is None else 2):
            gap = (shown[i] + (rng.normal(0, reworded) if reworded else 0.0)) * (1 - same)
            both = [scale * (base[i] + gap / 2), scale * (base[i] - gap / 2)]
            row: dict[str, Any] = {
                "pair_id": f"p{i}", "chosen_score": both[a], "rejected_score": both[b],
                "chosen_length": int(size[a, i]), "rejected_length": int(size[b, i]),
            }  # fmt: skip
            if texts:
                row |= {
                    "chosen": _text(rng, texts == "narrow" and both[a] > 0.6),
                    "rejected": _text(rng, texts == "narrow" and both[b] > 0.6),
                }
            rows.append(row)
    return rows


def _text(rng: Generator, narrow: bool) -> str:
    if narrow:
        lead = "what a wonderful question you ask and I am so glad to help you with it today"
        return f"{lead} {lead} about w{rng.integers(40)}"
    return " ".join(f"w{k}" for k in rng.zipf(1.35, int(rng.integers(20, 60))) % 4000)


def pairs(
    rng: Generator, n: int = 500, *, prompts: int = 400, copies: float = 0.02, contrary: float = 0.02,
    longer: float = 0.56, labeled_twice: int = 100,
) -> Rows:  # fmt: skip
    """Preference pairs as texts.

    Args:
        prompts: how many there are.
        copies: share of rows that repeat an earlier one.
        contrary: share of pairs labeled twice whose labels differ.
        longer: share of pairs whose longer response is the chosen one.
        labeled_twice: pairs that come again, by another annotator.
    """
    rows: Rows = []
    for _ in range(n):
        if rows and rng.random() < copies:
            rows.append(dict(rows[int(rng.integers(len(rows)))]))
            continue
        at = int(rng.integers(prompts))
        short, long = sorted(rng.choice(np.arange(8, 70), 2, replace=False).tolist())
        texts = [" ".join(f"w{k}" for k in rng.integers(0, 3000, size)) for size in (long, short)]
        chosen, rejected = texts if rng.random() < longer else texts[::-1]
        topic = _TOPICS[at % len(_TOPICS)]
        rows.append({"prompt": f"question {at}: tell me about {topic} {at * 7 % 101}", "chosen": chosen,
                     "rejected": rejected, "annotator": "a"})  # fmt: skip
    for row in rows[:labeled_twice]:
        turned = rng.random() < contrary
        rows.append(
            {"prompt": row["prompt"], "chosen": row["rejected" if turned else "chosen"],
             "rejected": row["chosen" if turned else "rejected"], "annotator": "b"}
        )  # fmt: skip
    return rows


Draw = Callable[[Generator, float], Rows]

JUDGED: dict[str, Draw] = {
    "judge-position-bias": lambda rng, s: verdicts(rng, place=0.6 + 1.2 * s),
    "judge-inconsistency": lambda rng, s: verdicts(rng, sharp=0.55 * (1.15 - s) + 0.1, samples=2),
    "judge-disagreement": lambda rng, s: panel(rng, sharp=0.9 * (1.05 - s)),
    "judge-length-bias": lambda rng, s: verdicts(rng, 700, sharp=1.5, longer=1.5 + 2.5 * s),
    "judge-self-preference": lambda rng, s: verdicts(rng, sharp=1.5, own=0.8 + 1.5 * s, gold=False),
    "judge-unparsed": lambda rng, s: verdicts(rng, unparsed=0.08 + 0.25 * s),
    "judge-template-sensitivity": lambda rng, s: verdicts(rng, 300, template=1.5 + 3 * s, samples=2),
    "inconsistent-preferences": lambda rng, s: pairs(rng, contrary=0.2 + 0.25 * s),
    "low-diversity": lambda rng, s: pairs(rng, prompts=int(4 + 20 * (1 - s)), copies=0.15 + 0.4 * s),
    "noisy-labels": lambda rng, s: scores(rng, 2000, spread=3.0, turned=0.15 + 0.2 * s),
    "pm-narrow": lambda rng, s: scores(rng, texts="narrow"),
    "pm-self-contradiction": lambda rng, s: scores(rng, 400, spread=2.0, reworded=1.0 + 1.5 * s),
    "pm-low-accuracy": lambda rng, s: scores(rng, spread=0.45 * (1.15 - s), blind=0.8),
    "pm-score-collapse": lambda rng, s: scores(rng, spread=0.25, blind=0.8, same=0.95 + 0.045 * s),
    "pm-miscalibrated": lambda rng, s: scores(rng, hot=2.5 + 4 * s),
    "pm-length-bias": lambda rng, s: scores(rng, longer=1.5 + 3 * s),
}
"""Files with one fault, by finding; strength from .4 to 1."""

SOUND: dict[str, Callable[[Generator], Rows]] = {
    "verdicts": lambda rng: verdicts(rng, sharp=rng.uniform(3, 6), longer=rng.uniform(0, 0.3)),
    "verdicts-repeated": lambda rng: verdicts(rng, 200, sharp=rng.uniform(4, 7), samples=2),
    "panel": lambda rng: panel(rng, sharp=rng.uniform(5, 8)),
    "scores": lambda rng: scores(rng, spread=rng.uniform(1.6, 2.5), longer=rng.uniform(-0.1, 0.2)),
    "scores-texts": lambda rng: scores(rng, spread=rng.uniform(1.6, 2.5), texts="varied"),
    "pairs": lambda rng: pairs(rng, longer=rng.uniform(0.48, 0.62)),
}
"""Files of sound judges, preference models and preference data."""


def write_judged(rows: Iterable[dict[str, Any]], directory: Path, name: str = "judgments.jsonl") -> Path:
    """Rows as a JSONL file in a directory."""
    target = directory / name
    with target.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    return target
