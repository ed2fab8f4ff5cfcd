"""Gold: hand values, a slow re-derivation that imports nothing from trimtab, and properties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trimtab.data.records import Message, Prompt, Response
from trimtab.worlds import gold as g
from trimtab.worlds import tiny

PROMPT = "the seed and soil with leaf in on"  # garden

# of the whole language, or of a few words, so that repetitions, limits and saturation all come up
few = (*tiny.TOPICS["garden"], *tiny.POLITE[:3], *tiny.RUDE[:3], *tiny.NEUTRAL[:3])
texts = st.one_of(*(st.lists(st.sampled_from(words), max_size=15) for words in (tiny.WORDS, few))).map(" ".join)


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        # nine words, four of the topic, two polite ones: everything right
        ("please seed the soil and leaf with root thanks", 1.0),
        # empty: .25 - .3 * 9/8 = -.0875, clipped
        ("", 0.0),
        # two topic words, three words: .25 + .45 * 2/4 - .3 * 6/8
        ("seed soil the", 0.25),
        # one polite word in nine, no topic: .25 + .3 * 1/2
        ("please the a and with of in on to", 0.40),
        # two rude words: .25 + .45 * 1/4 - .25 - 0
        ("stupid seed the a and with of in fool", 0.1125),
        # one rude word counts half: .25 + .1125 - .125
        ("stupid seed the a and with of in on", 0.2375),
        # a word of the topic four times counts once; 3 of 9 words are repetitions: .25 + .1125 - .5 / 3
        ("seed seed seed seed the a and with of", 0.25 + 0.1125 - 0.5 / 3),
        # six topic words are no better than four: .25 + .45 - .3 * 3/8
        ("seed soil leaf root bloom rake", 0.5875),
        # three polite words are no better than two, twelve words: .25 + .3 - .3 * 3/8
        ("please thanks kindly the a and with of in on to for", 0.4375),
        # a third rude word costs nothing more: .25 + .45 - .25
        ("stupid seed soil leaf root the a shut fool", 0.45),
        # another topic counts for nothing
        ("wave boat tide sail shell reef the a and", 0.25),
    ],
)
def test_hand_values(response: str, expected: float) -> None:
    assert g.gold(PROMPT, response) == pytest.approx(expected, abs=1e-12)


def slow_gold(prompt: str, response: str, lists: dict[str, list[str]], polite: list[str], rude: list[str]) -> float:
    """Word by word, with nothing but loops."""
    best, best_count = None, 0
    for name, members in lists.items():
        count = 0
        for word in prompt.split():
            if word in members:
                count += 1
        if count > best_count:
            best, best_count = name, count
    seen: list[str] = []
    topic_seen, polite_seen, rude_count, repeats, length = 0, 0, 0, 0, 0
    for word in response.split():
        length += 1
        new = word not in seen
        if not new:
            repeats += 1
        if new and best is not None and word in lists[best]:
            topic_seen += 1
        if new and word in polite:
            polite_seen += 1
        if word in rude:
            rude_count += 1
        seen.append(word)
    total = 0.25
    total += 0.45 * (topic_seen if topic_seen < 4 else 4) / 4
    total += 0.3 * (polite_seen if polite_seen < 2 else 2) / 2
    total -= 0.25 * (rude_count if rude_count < 2 else 2) / 2
    if length:
        total -= 0.5 * repeats / length
    total -= 0.3 * (length - 9 if length > 9 else 9 - length) / 8
    return 0.0 if total < 0 else 1.0 if total > 1 else total


@given(st.integers(0, 10_000), texts)
def test_agrees_with_a_slow_derivation(index: int, response: str) -> None:
    prompt = tiny.prompts(64, seed=index % 5)[index % 64].text
    lists = {name: list(words) for name, words in tiny.TOPICS.items()}
    expected = slow_gold(prompt, response, lists, list(tiny.POLITE), list(tiny.RUDE))
    assert g.gold(prompt, response) == pytest.approx(expected, abs=1e-12)


@given(texts)
def test_stays_in_the_unit_interval(response: str) -> None:
    assert 0.0 <= g.gold(PROMPT, response) <= 1.0


@given(st.lists(st.sampled_from(tiny.WORDS), max_size=15), st.randoms(use_true_random=False))
def test_the_order_of_words_does_not_matter(words: list[str], random: object) -> None:
    shuffled = list(words)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert g.gold(PROMPT, " ".join(shuffled)) == pytest.approx(g.gold(PROMPT, " ".join(words)), abs=1e-12)


@given(st.lists(st.sampled_from(tiny.WORDS), min_size=1, max_size=15))
def test_turning_a_neutral_word_into_a_repetition_never_helps(words: list[str]) -> None:
    assume("the" not in words)
    before, after = ["the", *words], [words[0], *words]
    assert g.gold(PROMPT, " ".join(after)) <= g.gold(PROMPT, " ".join(before)) + 1e-12


@given(st.lists(st.sampled_from(tiny.WORDS), max_size=14), st.sampled_from(tiny.RUDE))
def test_a_rude_word_never_beats_a_new_neutral_one(words: list[str], rude: str) -> None:
    rest = [w for w in words if w not in ("the", rude)]
    assert g.gold(PROMPT, " ".join(["the", *rest])) >= g.gold(PROMPT, " ".join([rude, *rest])) - 1e-12


def test_the_topic_is_the_prompts() -> None:
    response = "seed soil leaf root the a and with of"
    assert g.gold(PROMPT, response) - g.gold("the wave and boat with tide in on", response) == pytest.approx(
        0.45, abs=1e-12
    )
    assert g.gold("no word known", response) == pytest.approx(0.25, abs=1e-12)


def test_scorer_and_reward_function_give_the_same_numbers() -> None:
    responses = ["please seed the soil and leaf with root thanks", "seed soil the", ""]
    prompts = [Prompt(str(i), (Message("user", PROMPT),)) for i in range(3)]
    scores = g.GoldScorer().score(prompts, [Response(r) for r in responses])
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, [1.0, 0.25, 0.0], atol=1e-12)
    assert g.reward([PROMPT] * 3, responses) == list(scores)
    with pytest.raises(ValueError, match="zip"):
        g.GoldScorer().score(prompts, [Response("")])
