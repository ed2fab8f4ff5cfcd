"""Rounds of labeling: the budget, that a repeated run asks the same, and what the learner between rounds sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from labeling_fakes import votes
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.labeling.aggregate import Label, aggregate
from trimtab.labeling.protocol import Order, Outcome, Verdict
from trimtab.labeling.rounds import WordLearner, label_in_rounds

_FILL = ["the", "a", "of", "in", "on", "to", "by", "at", "it", "so", "we", "us"]


def pairs(n: int) -> list[CandidatePair]:
    """Half of them by "good" against "bad"; the other half differ in words that do not matter."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(n):
        a, b = (" ".join(rng.choice(_FILL, 5)) for _ in range(2))
        if i % 2:
            a, b = (f"good {a}", f"bad {b}") if i % 4 == 1 else (f"bad {a}", f"good {b}")
        made.append(CandidatePair(f"p{i}", Prompt(f"x{i}", (Message("user", f"q{i}"),)), Response(a), Response(b)))
    return made


def decide(asked: Sequence[CandidatePair]) -> list[Label]:
    def p(pair: CandidatePair) -> float:
        first, second = (("good" in y.text) - ("bad" in y.text) for y in (pair.first, pair.second))
        return 0.5 + 0.2 * float(np.sign(first - second))

    return [aggregate(x.id, votes({(Order.FORWARD, 0): Verdict(Outcome.OK, p(x))}), constitution="c") for x in asked]


class Asked:
    def __init__(self) -> None:
        self.rounds: list[list[str]] = []

    def __call__(self, batch: Sequence[CandidatePair]) -> list[Label]:
        self.rounds.append([p.id for p in batch])
        return decide(batch)


@pytest.mark.parametrize("how", ["random", "active"])
@pytest.mark.parametrize("n", [1, 7, 40, 99, 100, 150])
def test_as_many_pairs_as_allowed_are_asked_about_once_and_come_back_in_order(how: str, n: int) -> None:
    everything, ask = pairs(100), Asked()
    chosen, labels = label_in_rounds(everything, n, ask, how=how)  # type: ignore[arg-type]
    asked = [i for batch in ask.rounds for i in batch]
    assert len(asked) == len(set(asked)) == min(n, 100)
    assert [p.id for p in chosen] == [y.pair_id for y in labels]
    assert [p.id for p in chosen] == [p.id for p in everything if p.id in set(asked)]
    # 16, then half as many again
    sizes = [16, 8, 12, 18, 27, 41]
    assert [len(batch) for batch in ask.rounds[:-1]] == sizes[: len(ask.rounds) - 1]
    assert 0 < len(ask.rounds[-1]) <= sizes[len(ask.rounds) - 1]


@pytest.mark.parametrize("how", ["random", "active"])
def test_a_larger_budget_asks_about_all_that_a_smaller_one_asks_about(how: str) -> None:
    everything = [replace(p, prompt=replace(p.prompt, messages=(Message("user", f"q{i // 2}"),)))
                  for i, p in enumerate(pairs(100))]  # fmt: skip
    small: list[str] = []
    for n in (5, 16, 20, 40, 57, 90, 100):
        chosen, _ = label_in_rounds(everything, n, decide, how=how, seed=2)  # type: ignore[arg-type]
        ids = [p.id for p in chosen]
        assert set(small) <= set(ids), n
        small = ids


def test_the_same_verdicts_lead_to_the_same_questions() -> None:
    first, second, other = Asked(), Asked(), Asked()
    for ask, seed in ((first, 0), (second, 0), (other, 1)):
        label_in_rounds(pairs(100), 40, ask, seed=seed)
    assert first.rounds == second.rounds != other.rounds


def test_what_words_have_told_is_not_asked_again() -> None:
    everything, ask = pairs(200), Asked()
    label_in_rounds(everything, 80, ask)
    plain = [sum(int(i[1:]) % 2 == 0 for i in batch) / len(batch) for batch in ask.rounds]
    # the words decide every second pair: of these nothing is left to learn after the first rounds
    assert plain[0] < 0.8
    assert min(plain[3:]) > 0.8


def test_the_learner_finds_the_words_that_decide() -> None:
    everything = pairs(200)
    labels = decide(everything)
    scores = WordLearner(everything).scores(list(range(100))[::-1], [labels[i].p_first or 0 for i in range(100)][::-1])
    said, truth = scores[100:, 0] - scores[100:, 1], np.array([(y.p_first or 0) - 0.5 for y in labels[100:]])
    decided = truth != 0
    assert (np.sign(said) == np.sign(truth))[decided].all()
    assert np.abs(said[decided]).min() > np.abs(said[~decided]).max()


def test_labels_that_failed_teach_nothing_and_stay() -> None:
    def fail(batch: Sequence[CandidatePair]) -> list[Label]:
        return [aggregate(x.id, votes({(Order.FORWARD, 0): Verdict(Outcome.ERROR)})) for x in batch]

    chosen, labels = label_in_rounds(pairs(50), 20, fail)
    assert len(chosen) == 20
    assert {y.outcome for y in labels} == {Outcome.ERROR}
