"""What the training pairs tell of a preference model, beside its scores on held-out ones."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.pipeline.pm_doctor import seen_by_the_doctor, seen_in_training_pairs


def made(n: int, seed: int) -> list[Pair]:
    rng = random.Random(seed)

    def text() -> Response:
        return Response(" ".join(f"{rng.choice('abcdefghijk')}{rng.randrange(500)}" for _ in range(6)))

    prompts = [Prompt(f"q{seed}-{i}", (Message("user", f"Say {seed} {i}."),)) for i in range(n)]
    return [Pair(f"{seed}-{i}", prompt, text(), text()) for i, prompt in enumerate(prompts)]


class Knowing:
    """Right on the pairs that it knows, and on `share` of the others."""

    name = "knowing"

    def __init__(self, known: list[Pair], share: float) -> None:
        self.known = {(p.prompt.id, p.chosen.text) for p in known}
        self.other = {(p.prompt.id, p.rejected.text) for p in known}
        self.share = share

    def score(self, prompts, responses):
        return np.array([self._of(p.id, r.text) for p, r in zip(prompts, responses, strict=True)])

    def _of(self, prompt: str, text: str) -> float:
        if (prompt, text) in self.known | self.other:
            return 1.0 if (prompt, text) in self.known else -1.0
        return random.Random(f"{prompt} {text}").gauss(0, 1)

    def on(self, pairs: list[Pair]) -> np.ndarray:
        """Scores [n, 2] with the stated share of the pairs right."""
        right = np.arange(len(pairs)) < self.share * len(pairs)
        scores = np.array([[self._of(p.prompt.id, r.text) for r in (p.chosen, p.rejected)] for p in pairs])
        low, high = scores.min(axis=1), scores.max(axis=1)
        return np.column_stack([np.where(right, high, low), np.where(right, low, high)])


def ids(training: list[Pair], share: float = 0.75) -> dict[str, str]:
    held_out = made(200, 9)
    scorer = Knowing(training, share)
    found = seen_in_training_pairs(scorer, training, held_out, scorer.on(held_out))
    return {fault.id: fault.severity for fault in found}


def test_a_model_that_knows_its_training_pairs_by_heart_is_overfitted():
    assert ids(made(200, 1)) == {"pm-overfit": "warning"}
    assert ids(made(200, 1), share=0.97) == {}


def test_repeated_training_pairs_are_named():
    few = made(30, 1)
    assert "low-diversity" in ids([replace(p, id=f"{p.id}/{i}") for i in range(10) for p in few], share=0.97)


@pytest.mark.parametrize(("turned", "expected"), [(30, {"noisy-labels", "inconsistent-preferences"}), (0, set())])
def test_pairs_that_were_labeled_twice_tell_wrong_labels(turned, expected):
    pairs = made(1000, 1)
    again = [replace(p, id=f"{p.id}/again") for p in pairs[:80]]
    again[:turned] = [replace(p, chosen=p.rejected, rejected=p.chosen) for p in again[:turned]]
    assert set(ids([*pairs, *again], share=0.97)) == expected


def test_without_training_pairs_nothing_is_said():
    assert ids([]) == {}


def test_a_pair_that_is_there_many_times_counts_once():
    # 8 of 20 pairs wrong: too few to call the model weak, however often they are copied
    pairs = made(20, 3)
    scores = np.column_stack([np.zeros(20), np.where(np.arange(20) < 8, 1.0, -1.0)])
    assert "pm-low-accuracy" in {f.id for f in seen_by_the_doctor(made(400, 4), np.tile(scores, (20, 1)))}
    assert seen_by_the_doctor(pairs, scores) == []
    assert seen_by_the_doctor(pairs * 20, np.tile(scores, (20, 1))) == []
