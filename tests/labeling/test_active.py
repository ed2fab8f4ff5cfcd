"""Choosing pairs: the formulas of information by hand, the budget, the spread over prompts, and that it pays."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.errors import TrimtabError
from trimtab.labeling.active import bald, choose, disagreement, entropy, probabilities

LN2 = math.log(2)
words = st.text("abcdefgh", min_size=1, max_size=6)


def pair(number: int, prompt: int | None = None, first: str = "", second: str = "") -> CandidatePair:
    asked = Prompt(f"x{number}", (Message("user", f"question {number if prompt is None else prompt}"),))
    return CandidatePair(
        f"p{number}", asked, Response(first or f"w{number} a{number} b{number}"), Response(second or f"v{number} yes")
    )


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def scores_of(*p: float) -> list[list[float]]:
    """Scores whose difference is the logit of each p, on different levels."""
    return [[logit(q) + 7.0 * i, 7.0 * i] for i, q in enumerate(p)]


def slow_information(columns: list[list[float]]) -> list[float]:
    """Mutual information from the joint distribution of rater and label, term by term."""
    found = []
    for column in columns:
        voters = [p for p in column if not math.isnan(p)]
        total = 0.0
        for p in voters:
            for q, m in ((p, math.fsum(voters)), (1 - p, math.fsum(1 - v for v in voters))):
                if q > 0:
                    total += q / len(voters) * math.log(q * len(voters) / m)
        found.append(total if len(voters) > 1 else 0.0)
    return found


def test_entropy_has_its_hand_values() -> None:
    # -.25 ln .25 - .75 ln .75 = .5623351446
    assert entropy([0.0, 0.5, 1.0, 0.25]).tolist() == pytest.approx([0.0, LN2, 0.0, 0.5623351446188083], abs=1e-15)


def test_members_who_contradict_each_other_say_all_there_is_to_say() -> None:
    # certain and opposite: one bit; .9 against .1: ln 2 - H(.9) = .368064; agreed, however unsure: nothing
    p = [[1.0, 0.9, 0.5, 0.8], [0.0, 0.1, 0.5, 0.8]]
    assert disagreement(p).tolist() == pytest.approx([LN2, 0.3680642071684971, 0.0, 0.0], abs=1e-15)


def test_bald_goes_by_differences_of_scores() -> None:
    ensemble = [scores_of(0.9, 0.6), scores_of(0.1, 0.6)]
    assert bald(ensemble).tolist() == pytest.approx([0.3680642071684971, 0.0], abs=1e-12)
    assert probabilities(scores_of(0.9, 0.6)).tolist() == pytest.approx([0.9, 0.6], abs=1e-12)


@given(st.lists(st.lists(st.one_of(st.just(math.nan), st.floats(0, 1)), min_size=3, max_size=3), min_size=1))
def test_disagreement_is_the_mutual_information_of_rater_and_label(columns: list[list[float]]) -> None:
    found = disagreement(np.array(columns).T)
    assert found == pytest.approx(slow_information(columns), abs=1e-12)
    assert (found >= 0).all()
    assert (found <= LN2 + 1e-12).all()


@given(st.permutations(range(4)), st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_raters_have_no_order_and_the_responses_no_side(order: list[int], p: list[float]) -> None:
    votes = np.array(p).reshape(4, 2)
    assert disagreement(votes[order]) == pytest.approx(disagreement(votes), abs=1e-12)
    assert disagreement(1 - votes) == pytest.approx(disagreement(votes), abs=1e-12)


def test_one_voter_disagrees_with_nobody() -> None:
    assert disagreement([[0.5, math.nan], [math.nan, math.nan]]).tolist() == [0.0, 0.0]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), words, words, st.floats(0.01, 0.99)), max_size=20),
    st.integers(0, 25),
    st.sets(st.integers(0, 19)),
    st.one_of(st.none(), st.integers(1, 3)),
    st.integers(0, 3),
)
def test_exactly_the_budget_is_chosen_and_nothing_twice(
    rows: list[tuple[int, str, str, float]], n: int, labeled: set[int], per_prompt: int | None, seed: int
) -> None:
    pairs = [pair(i, x, y1, y2) for i, (x, y1, y2, _) in enumerate(rows)]
    labeled &= set(range(len(pairs)))
    scores = np.array(scores_of(*(p for *_, p in rows))).reshape(-1, 2)
    found = choose(pairs, n, scores=scores, labeled=labeled, per_prompt=per_prompt, seed=seed).tolist()
    assert len(found) == min(n, len(pairs) - len(labeled))
    assert len(set(found)) == len(found)
    assert not set(found) & labeled
    # the order of the list decides nothing, not even between equals
    mixed = np.random.default_rng(seed).permutation(len(pairs))
    place = {int(old): new for new, old in enumerate(mixed)}
    again = choose(
        [pairs[i] for i in mixed], n, scores=scores[mixed], labeled={place[i] for i in labeled},
        per_prompt=per_prompt, seed=seed,
    )  # fmt: skip
    assert {int(mixed[i]) for i in again} == set(found)


def test_the_least_certain_come_first() -> None:
    pairs = [pair(i) for i in range(5)]
    assert choose(pairs, 3, scores=scores_of(0.99, 0.45, 0.7, 0.02, 0.51)).tolist() == [4, 1, 2]


def test_where_judges_vote_their_disagreement_decides_and_a_model_is_one_of_them() -> None:
    pairs = [pair(i) for i in range(3)]
    votes = [[0.5, 0.95, 0.9], [0.5, 0.9, 0.2]]
    assert choose(pairs, 3, judge_votes=votes).tolist() == [2, 1, 0]
    # against the one vote that is left, the model decides; an ensemble counts once
    model = scores_of(0.5, 0.05, 0.9)
    assert choose(pairs, 1, scores=model, judge_votes=votes[:1]).tolist() == [1]
    assert choose(pairs, 1, scores=[model, model], judge_votes=votes[:1]).tolist() == [1]
    assert choose(pairs, 3, scores=[model, scores_of(0.5, 0.05, 0.3)], rule="disagreement").tolist()[0] == 2
    # one vote alone is no disagreement: its uncertainty is what there is to go by
    assert choose(pairs, 1, judge_votes=votes[1:]).tolist() == [0]


def test_beside_judges_an_ensemble_counts_once() -> None:
    pairs = [pair(0), pair(1)]
    # one model against the judge says .368 of the first pair and nothing of the second; three would say .286 and .319
    members = [scores_of(0.9, 0.99), scores_of(0.9, 0.5), scores_of(0.9, 0.01)]
    assert choose(pairs, 1, scores=members, judge_votes=[[0.1, 0.5]]).tolist() == [0]


def test_of_what_nobody_voted_on_nothing_is_known() -> None:
    assert choose([pair(0), pair(1)], 1, judge_votes=[[0.6, math.nan]]).tolist() == [1]


def test_an_ensemble_without_a_rule_goes_by_the_uncertainty_of_its_mean() -> None:
    pairs = [pair(i) for i in range(2)]
    # the members differ about the first, and are at a loss about the second
    ensemble = [scores_of(0.99, 0.5), scores_of(0.8, 0.5)]
    assert choose(pairs, 1, scores=ensemble).tolist() == [1]
    assert choose(pairs, 1, scores=ensemble, rule="disagreement").tolist() == [0]


def test_prompts_share_the_budget() -> None:
    pairs = [pair(i, prompt=i // 5) for i in range(15)]
    scores = scores_of(*([0.5] * 5 + [0.7] * 5 + [0.9] * 5))
    assert sorted(i // 5 for i in choose(pairs, 3, scores=scores)) == [0, 1, 2]
    assert sorted(i // 5 for i in choose(pairs, 3, scores=scores, per_prompt=2)) == [0, 0, 1]
    # what is labeled counts: two of the first prompt leave it out of the next three
    assert sorted(i // 5 for i in choose(pairs, 3, scores=scores, labeled=[0, 1])) == [1, 1, 2]
    # a cap yields where nothing else is left
    assert len(choose(pairs, 14, scores=scores, per_prompt=1)) == 14


def test_the_same_again_waits_until_nothing_else_is_left() -> None:
    text = "one two three four five six seven eight nine ten"
    pairs = [
        pair(0, 0, text, "no"),
        pair(1, 0, "no", text),  # the sides exchanged
        pair(2, 0, f"{text} eleven", "no"),
        pair(3, 0, "something else altogether", "no"),
        pair(4, 1, "the same", "the  same"),  # two responses that do not differ
    ]
    scores = scores_of(0.5, 0.5, 0.5, 0.9, 0.5)
    found = choose(pairs, 5, scores=scores, per_prompt=5).tolist()
    assert found[0] in (0, 1, 2)
    assert found[1] == 3
    assert len(found) == 5
    assert 4 in choose(pairs, 2, scores=scores, labeled=[0, 1, 3]).tolist()


def test_equals_are_drawn_by_the_seed() -> None:
    pairs = [pair(i) for i in range(40)]
    draws = {tuple(choose(pairs, 5, seed=seed).tolist()) for seed in range(6)}
    assert len(draws) == 6
    assert choose(pairs, 5, seed=3).tolist() == choose(pairs, 5, seed=3).tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": [[0.0, 1.0]]}, r"scores have the shape \[1, 2\]"),
        ({"scores": [[0.0, 1.0], [math.inf, 0.0]]}, "scores of pair 1 are not finite"),
        ({"judge_votes": [[0.5]]}, r"judge_votes have the shape \[1, 1\]"),
        ({"judge_votes": [[0.5, 1.5]]}, r"judge_votes\[0, 1\] = 1.5 is no probability"),
        ({"rule": "uncertainty"}, "with 0 rows"),
        ({"rule": "disagreement", "scores": [[0.0, 1.0]] * 2}, "with 1 rows"),
        ({"n": -1}, "n = -1"),
        ({"per_prompt": 0}, "per_prompt = 0"),
        ({"labeled": [2]}, "labeled has number 2"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(TrimtabError, match=message):
        choose([pair(0), pair(1)], **{"n": 1, **arguments})  # type: ignore[arg-type]


def test_in_a_planted_world_half_of_the_labels_do() -> None:
    """One number decides, and a threshold on it is learned: chance needs many labels, bisection few."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, 400)
    pairs = [pair(i) for i in range(400)]
    truth = x > 0.237

    def labels_needed(active: bool) -> int:
        labeled = [int(np.argmin(x)), int(np.argmax(x))]
        for _ in range(60):
            low, high = x[[i for i in labeled if not truth[i]]].max(), x[[i for i in labeled if truth[i]]].min()
            threshold = (low + high) / 2
            if ((x > threshold) == truth).mean() >= 0.995:
                return len(labeled)
            margin = 20 * (x - threshold)
            scores = np.stack([margin, np.zeros(400)], axis=1) if active else None
            labeled += choose(pairs, 2, scores=scores, labeled=labeled, seed=1).tolist()
        return len(labeled)

    assert labels_needed(active=True) <= labels_needed(active=False) / 2
