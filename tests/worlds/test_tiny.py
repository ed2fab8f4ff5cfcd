"""The language: its words, prompts that set a topic, and demonstrations in the stated shares."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from trimtab.worlds import tiny


def test_the_words_are_a_hundred_and_all_different() -> None:
    assert len(tiny.WORDS) == len(set(tiny.WORDS)) == 100
    assert len(tiny.TOPICS) == 8
    assert {len(words) for words in tiny.TOPICS.values()} == {6}
    assert len(tiny.POLITE) == len(tiny.RUDE) == 8
    assert not set(tiny.SPECIALS) & set(tiny.WORDS)
    # a topic's name would give it away
    assert not set(tiny.TOPICS) & set(tiny.WORDS)


def test_every_prompt_has_eight_words_and_says_its_topic() -> None:
    drawn = tiny.prompts(400, seed=3)
    for prompt in drawn:
        words = prompt.text.split()
        assert len(words) == 8
        (topic,) = prompt.tags
        assert sum(w in tiny.TOPICS[topic] for w in words) == 3
        assert sum(w in tiny.NEUTRAL for w in words) == 5
        assert tiny.prompt_topic(prompt.text) == topic
    assert len({p.text for p in drawn}) == len({p.id for p in drawn}) == 400
    assert set(Counter(p.tags[0] for p in drawn).values()) == {50}


def test_prompts_are_a_function_of_the_seed_and_a_longer_list_begins_with_the_shorter() -> None:
    assert tiny.prompts(60, seed=1)[:20] == tiny.prompts(20, seed=1)
    assert tiny.prompts(20, seed=1) != tiny.prompts(20, seed=2)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("the seed and the wave", "garden"),  # one each: the first mentioned
        ("the wave and the seed", "sea"),
        ("seed wave boat", "sea"),
        ("the and with", None),
        ("", None),
        ("garden garden unheard", None),
    ],
)
def test_topic_of_a_text(text: str, topic: str | None) -> None:
    assert tiny.prompt_topic(text) == topic


@pytest.fixture(scope="module")
def corpus() -> list[tuple[str, list[str]]]:
    rng = np.random.default_rng(7)
    drawn = tiny.prompts(4000, seed=7)
    return [(p.text, tiny.demonstration_text(p.text, rng).split()) for p in drawn]


def test_demonstrations_fit_and_use_the_language_only(corpus: list[tuple[str, list[str]]]) -> None:
    lengths = [len(words) for _, words in corpus]
    assert min(lengths) == 3
    assert max(lengths) == tiny.MAX_RESPONSE_TOKENS - 1
    assert {w for _, words in corpus for w in words} == set(tiny.WORDS)


def test_demonstrations_keep_the_stated_shares(corpus: list[tuple[str, list[str]]]) -> None:
    n = len(corpus)
    tolerance = 4 * 0.5 / n**0.5  # four standard deviations of a share, at most
    polite = sum(any(w in tiny.POLITE for w in words) for _, words in corpus) / n
    rude = sum(any(w in tiny.RUDE for w in words) for _, words in corpus) / n
    assert polite == pytest.approx(tiny.TONE_SHARES["polite"], abs=tolerance)
    assert rude == pytest.approx(tiny.TONE_SHARES["rude"], abs=tolerance)
    for name, (low, high) in {"short": (3, 5), "medium": (6, 11), "long": (12, 15)}.items():
        share = sum(low <= len(words) <= high for _, words in corpus) / n
        assert share == pytest.approx(tiny.LENGTH_SHARES[name], abs=tolerance), name
    # every content word of a focused response is of the prompt's topic
    content = [
        ({t for w in words for t in tiny.TOPICS if w in tiny.TOPICS[t]}, tiny.prompt_topic(p)) for p, words in corpus
    ]
    on = sum(topics == {topic} for topics, topic in content) / n
    # a vague response with one content word hits the topic one time in eight
    assert tiny.FOCUS_SHARES["on"] - tolerance < on < tiny.FOCUS_SHARES["on"] + 0.2 / 8 + tolerance
    # a long response repeats itself exactly if it is of the repetitive kind
    long = [words for _, words in corpus if len(words) >= 12]
    repetitive = sum(len(set(words)) < len(words) for words in long) / len(long)
    assert repetitive == pytest.approx(tiny.VARIETY_SHARES["repetitive"], abs=4 * 0.5 / len(long) ** 0.5)


def test_demonstrations_count_their_end_token_and_follow_the_seed() -> None:
    drawn = tiny.prompts(10, seed=0)
    pairs = tiny.demonstrations(drawn, seed=5)
    assert [p for p, _ in pairs] == drawn
    assert all(r.finished and r.tokens == len(r.text.split()) + 1 for _, r in pairs)
    assert pairs == tiny.demonstrations(drawn, seed=5)
    assert pairs != tiny.demonstrations(drawn, seed=6)


@pytest.mark.parametrize("shares", [tiny.TONE_SHARES, tiny.FOCUS_SHARES, tiny.LENGTH_SHARES, tiny.VARIETY_SHARES])
def test_shares_add_up(shares: dict[str, float]) -> None:
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-12)
