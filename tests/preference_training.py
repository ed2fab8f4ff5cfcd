"""What the tests of preference training share: small models, pairs that can and cannot be learned, and a kill."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from trimtab.config.schema import PreferenceConfig
from trimtab.data.records import Pair, Response
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.runs.run import Run
from trimtab.worlds.model import build_model
from trimtab.worlds.tiny import NEUTRAL, POLITE, RUDE, prompts

CONFIG = PreferenceConfig(epochs=3, batch_size=8, learning_rate=3e-3, validation_fraction=0.25, max_tokens=40)


def base(boundary: int = 0) -> CausalModel:
    model = CausalModel(build_model(0), boundary)
    model.requires_grad_(False)
    return model


def polite_pairs(n: int, seed: int = 0) -> list[Pair]:
    """One polite and one rude response to each prompt, the rest of the words drawn alike."""
    rng = np.random.default_rng(seed)
    pairs = []
    for i, prompt in enumerate(prompts(n, 1)):
        filler = [" ".join(rng.choice(NEUTRAL, 4)) for _ in range(2)]
        polite, rude = f"{filler[0]} {rng.choice(POLITE)}", f"{filler[1]} {rng.choice(RUDE)}"
        pairs.append(Pair(f"p{i}", prompt, Response(polite), Response(rude), p_chosen=0.9))
    return pairs


def noise(n: int) -> list[Pair]:
    """Labels that have nothing to do with the responses: what is learned of them does not carry over."""
    rng = np.random.default_rng(5)
    said = [" ".join(rng.choice(NEUTRAL, 4)) for _ in range(2 * n)]
    return [Pair(f"n{i}", p, Response(said[2 * i]), Response(said[2 * i + 1])) for i, p in enumerate(prompts(n, 1))]


def ranked(n: int) -> list[Pair]:
    """Three pairs to each prompt, of three responses: each stands in two of them."""
    pairs = []
    for i, prompt in enumerate(prompts(n, 3)):
        best, middle, worst = (Response(f"{NEUTRAL[i % len(NEUTRAL)]} {w}") for w in (POLITE[0], NEUTRAL[0], RUDE[0]))
        for j, (a, b) in enumerate([(best, middle), (best, worst), (middle, worst)]):
            pairs.append(Pair(f"r{i}-{j}", prompt, a, b))
    return pairs


def started(directory, name: str = "r") -> Run:
    run = Run.create(directory, name, config={}, seed=1)
    run.begin_stage("pm", "f")
    return run


def die_at(run: Run, step: int, work: Callable[[], object], key: str = "loss/train") -> None:
    """Let the training be interrupted when it logs `key` at `step`."""
    log = run.log

    def dying(stage, at, signals):
        if at == step and key in signals:
            raise KeyboardInterrupt
        log(stage, at, signals)

    run.log = dying
    with pytest.raises(KeyboardInterrupt):
        work()
    run.log = log


def same_weights(a: ScalarModel, b: ScalarModel) -> bool:
    mine, other = a.own_state(), b.own_state()
    return all(torch.equal(mine[name], other[name]) for name in mine)
