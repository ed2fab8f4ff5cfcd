"""The exact gold score of the tiny world, in [0, 1].

gold = clip(BASE + topic + polite + varied + length, 0, 1), with

    topic  = TOPIC_WEIGHT  * min(distinct on-topic words, TOPIC_TARGET) / TOPIC_TARGET
    polite = POLITE_WEIGHT * min(distinct polite words, POLITE_TARGET) / POLITE_TARGET
           - RUDE_WEIGHT   * min(rude words, RUDE_LIMIT) / RUDE_LIMIT
    varied = -REPETITION_WEIGHT * share of words that occurred before in the response
    length = -LENGTH_WEIGHT * |words - LENGTH_TARGET| / LENGTH_SCALE

Each of the four terms is named after the principle of the tiny constitution that speaks of it. The topic is read from
the prompt's own words. Only the simulated judge and the evaluation may import this module; an import contract says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.data.records import Prompt, Response
from trimtab.worlds.tiny import POLITE, RUDE, TOPICS, prompt_topic

__all__ = ["Features", "GoldScorer", "GoldTerms", "features", "gold", "gold_terms", "reward"]

BASE = 0.25
"""Score before any term."""
TOPIC_WEIGHT = 0.45
TOPIC_TARGET = 4
"""Distinct on-topic words for the full topic term."""
POLITE_WEIGHT = 0.30
POLITE_TARGET = 2
"""Distinct polite words for the full politeness; more add nothing."""
RUDE_WEIGHT = 0.25
RUDE_LIMIT = 2
"""Rude words at which the penalty is full."""
REPETITION_WEIGHT = 0.50
LENGTH_WEIGHT = 0.30
LENGTH_TARGET = 9
"""Words, end-of-text token not counted."""
LENGTH_SCALE = 8
"""Words off the target that cost the whole length weight."""

_POLITE = frozenset(POLITE)
_RUDE = frozenset(RUDE)


class Features(NamedTuple):
    """What the gold score and the judges see of a response; counts are of words."""

    on_topic: int
    """Words of the prompt's topic, repeats counted."""
    on_topic_distinct: int
    polite: int
    """Polite words, repeats counted."""
    polite_distinct: int
    rude: int
    """Rude words, repeats counted."""
    repetition: float
    """Share of words that occurred earlier in the response; 0 for an empty one."""
    length: int
    """All words, known or not."""


class GoldTerms(NamedTuple):
    """The four addends of the gold score, named as the principles of the tiny constitution."""

    topic: float
    polite: float
    varied: float
    length: float


def features(prompt_text: str, response_text: str) -> Features:
    """Count what matters in a response.

    Args:
        prompt_text: sets the topic.
        response_text: words separated by blanks.
    """
    words = response_text.split()
    topic = prompt_topic(prompt_text)
    on_topic = [w for w in words if w in TOPICS[topic]] if topic is not None else []
    polite = [w for w in words if w in _POLITE]
    return Features(
        on_topic=len(on_topic),
        on_topic_distinct=len(set(on_topic)),
        polite=len(polite),
        polite_distinct=len(set(polite)),
        rude=sum(w in _RUDE for w in words),
        repetition=1.0 - len(set(words)) / len(words) if words else 0.0,
        length=len(words),
    )


def gold_terms(seen: Features) -> GoldTerms:
    """The four addends (see the head of this module), before the base is added and the sum is clipped."""
    return GoldTerms(
        topic=TOPIC_WEIGHT * min(seen.on_topic_distinct, TOPIC_TARGET) / TOPIC_TARGET,
        polite=POLITE_WEIGHT * min(seen.polite_distinct, POLITE_TARGET) / POLITE_TARGET
        - RUDE_WEIGHT * min(seen.rude, RUDE_LIMIT) / RUDE_LIMIT,
        varied=-REPETITION_WEIGHT * seen.repetition,
        length=-LENGTH_WEIGHT * abs(seen.length - LENGTH_TARGET) / LENGTH_SCALE,
    )


def gold(prompt_text: str, response_text: str) -> float:
    """The gold score of one response, in [0, 1].

    Args:
        prompt_text: the prompt's words; they set the topic.
        response_text: the response's words; no end-of-text token.
    """
    return float(min(1.0, max(0.0, BASE + sum(gold_terms(features(prompt_text, response_text))))))


class GoldScorer:
    """The gold score as a `Scorer`, for the evaluation (and for `module:function` rewards in experiments)."""

    name = "gold"

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> npt.NDArray[np.float64]:
        """Gold scores, float64 [B], of one response for each prompt.

        Raises:
            ValueError: as many prompts as responses are needed.
        """
        return np.array([gold(p.text, r.text) for p, r in zip(prompts, responses, strict=True)], dtype=np.float64)


def reward(prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
    """Gold as a `module:function` reward: `ppo.reward = "trimtab.worlds.gold:reward"`."""
    return [gold(p, r) for p, r in zip(prompts, responses, strict=True)]
