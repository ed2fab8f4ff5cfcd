"""Judges with known faults, as verdict records: what an audit has to find, and what it must not."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.labeling.verdicts import VerdictTable

__all__ = ["draw_records", "draw_table"]


def draw_records(
    rng: np.random.Generator,
    pairs: int,
    *,
    judge: str = "j",
    accuracy: float = 0.8,
    position: float = 0.0,
    length: float = 0.0,
    own: float = 0.0,
    gold_longer: float = 0.5,
    pairs_a_prompt: int = 2,
    prompt_noise: float = 0.0,
    own_quality: float = 0.5,
) -> list[dict[str, Any]]:
    """Both orders of every pair, judged by one judge.

    Each verdict is, with probability `position`, the response shown first; else with probability `length` the longer
    one; else with probability `own` the one of the judge's own model; else the better one with probability `accuracy`
    (which varies between prompts by `prompt_noise`).
    """
    records = []
    for pair in range(pairs):
        prompt = pair // pairs_a_prompt
        if pair % pairs_a_prompt == 0:
            right = float(np.clip(accuracy + prompt_noise * rng.normal(), 0.02, 0.98))
        gold = int(rng.integers(1, 3))
        longer = gold if rng.random() < gold_longer else 3 - gold
        mine = gold if rng.random() < own_quality else 3 - gold
        lengths = {longer: int(rng.integers(150, 300)), 3 - longer: int(rng.integers(20, 140))}
        for order in (1, 2):
            if rng.random() < position:
                winner = order
            elif rng.random() < length:
                winner = longer
            elif rng.random() < own:
                winner = mine
            else:
                winner = gold if rng.random() < right else 3 - gold
            records.append(
                {
                    "pair_id": f"p{pair}", "prompt_id": f"x{prompt}", "judge": judge, "order": ("12", "21")[order - 1],
                    "winner": winner, "gold": gold, "length_1": lengths[1], "length_2": lengths[2],
                    "generator_1": judge if mine == 1 else "other", "generator_2": judge if mine == 2 else "other",
                }
            )  # fmt: skip
    return records


def draw_table(seed: int, pairs: int, **faults: Any) -> VerdictTable:
    """`draw_records` as a table."""
    return VerdictTable.from_records(draw_records(np.random.default_rng(seed), pairs, **faults))
