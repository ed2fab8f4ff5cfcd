"""Pairs of one seed to choose from, with their features, labels and cheap votes; and held-out pairs with gold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from bench.tiny_world import world
from trimtab import sampling
from trimtab.config.schema import SampleConfig
from trimtab.constitution import load_constitution
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.labeling import label_pairs
from trimtab.models.tokens import left_pad
from trimtab.worlds import project as tiny_project
from trimtab.worlds.gold import gold
from trimtab.worlds.judge import JudgePreset, SimulatedJudge
from trimtab.worlds.tiny import MAX_RESPONSE_TOKENS, WORDS

__all__ = ["Pool", "pool"]

PROMPTS, EACH, HELD_OUT_EACH = 1000, 2, 4
HASTY = JudgePreset("hasty", sharpness=3.0, noise=2.0, blind=False)
"""A judge that sees what gold sees, and hardly looks."""

Floats = NDArray[np.float64]
Learner = TypeVar("Learner")


@dataclass
class Pool:
    """All of one seed: pairs [P], differences of features [P, d], labels [P], votes of two cheap judges [2, P]; and of
    the held-out pairs that gold tells apart, differences of features [H, d] and of gold [H]."""

    pairs: list[CandidatePair]
    features: Floats
    labels: Floats
    cheap: Floats
    held_out: Floats
    gold: Floats
    _learner: list[object] = field(default_factory=list)

    def learner(self, make: Callable[[Sequence[CandidatePair]], Learner]) -> Learner:
        """`make(pairs)`, made once."""
        if not self._learner:
            self._learner.append(make(self.pairs))
        return self._learner[0]  # type: ignore[return-value]


@lru_cache(maxsize=1)
def pool(seed: int) -> Pool:
    """The pool of a seed; kept in bench/results/tiny_world/active."""
    path = world.RESULTS / "active" / f"pool-{seed}.npz"
    if not path.exists():
        np.savez(path, **_draw(seed))
    with np.load(path) as kept:
        a = {name: kept[name] for name in kept.files}
    pairs = [
        CandidatePair(f"p{i}", Prompt(f"x{i}", (Message("user", str(x)),)), Response(str(y1)), Response(str(y2)))
        for i, (x, y1, y2) in enumerate(a["texts"])
    ]
    scale = a["features"].std(0)
    scale = np.where(scale > 0, scale, 1.0)
    told = a["gold"] != 0
    return Pool(
        pairs, a["features"] / scale * WEIGHTS, a["labels"], a["cheap"], (a["held_out"] / scale * WEIGHTS)[told],
        a["gold"][told],
    )  # fmt: skip


def _draw(seed: int) -> dict[str, NDArray[np.generic]]:
    model, codec = world.base()
    held_out, training, _ = world.split()
    sampled = []
    for prompts, each in ((training[:PROMPTS], EACH), (held_out, HELD_OUT_EACH)):
        config = SampleConfig(pairs_per_prompt=each, max_new_tokens=MAX_RESPONSE_TOKENS, batch_size=256)
        sampled.append(sampling.sample_pairs(model, codec, prompts, None, config, seed=seed))
    pairs, others = sampled
    constitution = load_constitution(Path(tiny_project.__file__).parent / "constitution.toml")

    def votes(preset: str | JudgePreset) -> Floats:
        judge = SimulatedJudge(preset, seed=seed)  # type: ignore[arg-type]
        return np.array([v.p_first for v in label_pairs(pairs, judge, constitution, batch_size=4096)])

    return {
        "texts": np.array([(p.prompt.text, p.first.text, p.second.text) for p in pairs]),
        "features": _differences(pairs),
        "labels": votes("faithful"),
        "cheap": np.stack([votes("blind"), votes(HASTY)]),
        "held_out": _differences(others),
        "gold": np.array([gold(p.prompt.text, p.first.text) - gold(p.prompt.text, p.second.text) for p in others]),
    }


def _differences(pairs: Sequence[CandidatePair]) -> Floats:
    sides = [(p.prompt, p.first) for p in pairs], [(p.prompt, p.second) for p in pairs]
    first, second = (np.hstack([_states(side), _counts(side)]) for side in sides)
    return first - second


@torch.no_grad()
def _states(side: Sequence[tuple[Prompt, Response]]) -> Floats:
    """[n, 128] the base model's last hidden states of the response: at its end, and their mean."""
    model, codec = world.base()
    rows = []
    for prompt, response in side:
        ids = codec.response_ids(response)
        rows.append((codec.prompt_ids(prompt), ids if ids[-1:] == [codec.eos_id] else [*ids, codec.eos_id]))
    found = []
    for start in range(0, len(rows), 256):
        part = rows[start : start + 256]
        hidden = model.hidden(*left_pad([p + r for p, r in part], codec.pad_id))
        found += [torch.cat([h[-1], h[-len(r) :].mean(0)]).numpy() for h, (_, r) in zip(hidden, part, strict=True)]
    return np.array(found, dtype=np.float64)


def _counts(side: Sequence[tuple[Prompt, Response]]) -> Floats:
    """[n, 103] log(1 + count) of every word; words shared with the prompt, length, share of distinct words."""
    place = {word: i for i, word in enumerate(WORDS)}
    found = np.zeros((len(side), len(WORDS) + 3))
    for row, (prompt, response) in zip(found, side, strict=True):
        words = response.text.split()
        for word, count in Counter(words).items():
            if word in place:
                row[place[word]] = np.log1p(count)
        row[-3:] = len(set(words) & set(prompt.text.split())), len(words), len(set(words)) / max(len(words), 1)
    return found


WEIGHTS = np.concatenate([np.full(128, 0.3), np.full(len(WORDS), 0.3), np.ones(3)])
"""How large each feature's differences are beside the ridge, after scaling to standard deviation 1."""
