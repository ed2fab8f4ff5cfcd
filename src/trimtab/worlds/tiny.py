"""The language of the tiny world: its words, its prompts, and the texts that the base model learns from.

A prompt is eight words, three of one topic among five neutral ones. A response is up to fifteen words and an
end-of-text token. The demonstrations mix good and bad habits in the shares stated below, so that a model trained on
them has room to improve and yet samples everything good now and then. Nothing here knows the gold score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from trimtab.data.records import Message, Prompt, Response

__all__ = [
    "BOS",
    "EOS",
    "FOCUS_SHARES",
    "LENGTH_SHARES",
    "MAX_RESPONSE_TOKENS",
    "NEUTRAL",
    "PAD",
    "POLITE",
    "PROMPT_TOKENS",
    "PROMPT_TOPIC_WORDS",
    "RUDE",
    "SPECIALS",
    "TONE_SHARES",
    "TOPICS",
    "UNK",
    "VARIETY_SHARES",
    "WORDS",
    "demonstration_text",
    "demonstrations",
    "prompt_topic",
    "prompts",
]

TOPICS: Mapping[str, tuple[str, ...]] = {
    "garden": ("seed", "soil", "leaf", "root", "bloom", "rake"),
    "sea": ("wave", "boat", "tide", "sail", "shell", "reef"),
    "kitchen": ("bread", "soup", "oven", "salt", "spoon", "onion"),
    "music": ("drum", "song", "chord", "flute", "choir", "tempo"),
    "sky": ("star", "moon", "comet", "orbit", "cloud", "planet"),
    "forest": ("oak", "moss", "fox", "trail", "fern", "owl"),
    "workshop": ("saw", "nail", "plank", "lathe", "glue", "hinge"),
    "market": ("price", "stall", "coin", "buyer", "scale", "cart"),
}
"""Eight topics of six words each; the name of a topic is not a word of the language."""

POLITE = ("please", "thanks", "kindly", "gladly", "welcome", "sorry", "dear", "friend")
RUDE = ("stupid", "shut", "idiot", "lazy", "boring", "useless", "nonsense", "fool")
NEUTRAL = (
    "the", "a", "and", "with", "of", "in", "on", "to", "for", "from", "is", "has",
    "can", "will", "may", "then", "now", "also", "some", "more", "this", "that", "here", "there",
    "first", "next", "well", "good", "new", "old", "small", "large", "about", "near", "under", "over",
)  # fmt: skip

WORDS: tuple[str, ...] = tuple(w for words in TOPICS.values() for w in words) + POLITE + RUDE + NEUTRAL
"""The hundred words of the language."""

PAD, BOS, EOS, UNK = "<pad>", "<bos>", "<eos>", "<unk>"
SPECIALS = (PAD, BOS, EOS, UNK)
"""Special tokens, first in the vocabulary in this order: four different ids."""

PROMPT_TOKENS = 8
"""Every prompt has exactly this many words."""
PROMPT_TOPIC_WORDS = 3
"""Distinct words of the topic in every prompt; the others are neutral."""
MAX_RESPONSE_TOKENS = 16
"""Longest response, the end-of-text token included."""

TONE_SHARES: Mapping[str, float] = {"polite": 0.35, "rude": 0.25, "plain": 0.40}
"""polite: one or two polite words; rude: one or two rude words; plain: neither."""
FOCUS_SHARES: Mapping[str, float] = {"on": 0.60, "off": 0.30, "vague": 0.10}
"""on: content words of the prompt's topic; off: of another topic; vague: of any topic, word by word."""
LENGTH_SHARES: Mapping[str, float] = {"short": 0.25, "medium": 0.50, "long": 0.25}
"""short: 3 to 5 words; medium: 6 to 11; long: 12 to 15."""
VARIETY_SHARES: Mapping[str, float] = {"varied": 0.70, "repetitive": 0.30}
"""varied: no word twice; repetitive: everything from two content words and two neutral ones."""

_LENGTHS: Mapping[str, tuple[int, int]] = {"short": (3, 5), "medium": (6, 11), "long": (12, 15)}
_CONTENT_SHARE = 0.5
_TOPIC_OF = {word: topic for topic, words in TOPICS.items() for word in words}


def prompt_topic(text: str) -> str | None:
    """The topic that a prompt sets: the one with most words in it, the first mentioned of equals.

    Args:
        text: the prompt; words that are not of the language count for nothing.

    Returns:
        A key of `TOPICS`, or None where the text names no topic word.
    """
    counts = Counter(_TOPIC_OF[w] for w in text.split() if w in _TOPIC_OF)
    # most_common sorts stably and a Counter keeps the order of first mention
    return counts.most_common(1)[0][0] if counts else None


def prompts(n: int, seed: int, *, prefix: str = "tiny") -> list[Prompt]:
    """Draw `n` prompts, all different, with the topics in turn.

    Args:
        n: how many.
        seed: the same seed gives the same list, and a longer list begins with the shorter one.
        prefix: ids are `<prefix>-00000` and so on.

    Returns:
        Prompts of `PROMPT_TOKENS` words, each tagged with its topic.
    """
    rng = np.random.default_rng([seed, 1])
    topics = tuple(TOPICS)
    seen: set[str] = set()
    drawn: list[Prompt] = []
    while len(drawn) < n:
        topic = topics[len(drawn) % len(topics)]
        words = [
            *_pick(rng, TOPICS[topic], PROMPT_TOPIC_WORDS),
            *_pick(rng, NEUTRAL, PROMPT_TOKENS - PROMPT_TOPIC_WORDS),
        ]
        rng.shuffle(words)
        text = " ".join(words)
        if text not in seen:
            seen.add(text)
            drawn.append(Prompt(f"{prefix}-{len(drawn):05d}", (Message("user", text),), tags=(topic,)))
    return drawn


def demonstrations(of: Sequence[Prompt], seed: int) -> list[tuple[Prompt, Response]]:
    """Draw one demonstration for each prompt, habits in the stated shares.

    Args:
        of: the prompts, each naming a topic.
        seed: the same seed and prompts give the same texts.

    Returns:
        Pairs of prompt and finished response; `tokens` counts the end-of-text token.
    """
    rng = np.random.default_rng([seed, 2])
    pairs = []
    for prompt in of:
        text = demonstration_text(prompt.text, rng)
        pairs.append((prompt, Response(text, finished=True, tokens=len(text.split()) + 1)))
    return pairs


def demonstration_text(prompt_text: str, rng: np.random.Generator) -> str:
    """One response in the manner of the corpus, 3 to 15 words.

    Args:
        prompt_text: sets the topic; without one, every response is vague.
        rng: drawn from.
    """
    tone, focus, length, variety = (
        _choose(rng, shares) for shares in (TONE_SHARES, FOCUS_SHARES, LENGTH_SHARES, VARIETY_SHARES)
    )
    low, high = _LENGTHS[length]
    n = int(rng.integers(low, high + 1))
    manners = {"polite": POLITE, "rude": RUDE, "plain": ()}[tone]
    n_tone = min(int(rng.integers(1, 3)), n - 2) if manners else 0
    n_content = max(1, int(rng.binomial(n - n_tone, _CONTENT_SHARE)))
    n_neutral = n - n_tone - n_content
    content: Sequence[str] = _content_words(prompt_text, focus, rng)
    neutral: Sequence[str] = NEUTRAL
    if variety == "repetitive":
        content, neutral = _pick(rng, content, 2), _pick(rng, NEUTRAL, 2)
        body = [*_with_repeats(rng, content, n_content), *_with_repeats(rng, neutral, n_neutral)]
    else:
        n_content = min(n_content, len(content))
        body = [*_pick(rng, content, n_content), *_pick(rng, neutral, n - n_tone - n_content)]
    rng.shuffle(body)
    tone_words = _pick(rng, manners, n_tone)
    # a tone word opens the response, a second one closes it: a habit that the model can learn
    return " ".join([*tone_words[:1], *body, *tone_words[1:]])


def _content_words(prompt_text: str, focus: str, rng: np.random.Generator) -> Sequence[str]:
    topic = prompt_topic(prompt_text)
    if topic is None or focus == "vague":
        return tuple(_TOPIC_OF)
    if focus == "off":
        topic = _pick(rng, [t for t in TOPICS if t != topic], 1)[0]
    return TOPICS[topic]


def _choose(rng: np.random.Generator, shares: Mapping[str, float]) -> str:
    names = tuple(shares)
    return names[int(rng.choice(len(names), p=list(shares.values())))]


def _pick(rng: np.random.Generator, words: Sequence[str], n: int) -> list[str]:
    """`n` different words in random order."""
    return [words[int(i)] for i in rng.permutation(len(words))[:n]]


def _with_repeats(rng: np.random.Generator, words: Sequence[str], n: int) -> list[str]:
    return [words[int(i)] for i in rng.integers(0, len(words), size=n)]
