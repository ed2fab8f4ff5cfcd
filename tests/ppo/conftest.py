"""A policy of the tiny world with random weights: enough for everything that does not need a model that speaks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from trimtab.data.records import Prompt, Response
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.worlds.model import build_model, build_tokenizer
from trimtab.worlds.tiny import prompts


class LengthScorer:
    """A score that differs between responses and is quick: words, with a little weight on the first letters."""

    name = "length"

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
        return np.array([0.1 * len(r.text.split()) + 0.01 * (sum(map(ord, r.text[:9])) % 17) for r in responses])


@pytest.fixture
def codec() -> TextCodec:
    return TextCodec(build_tokenizer())


@pytest.fixture
def base() -> CausalModel:
    model = CausalModel(build_model(0))
    model.requires_grad_(False)
    return model


@pytest.fixture
def few_prompts() -> list[Prompt]:
    return prompts(12, 3)


@pytest.fixture
def scorer() -> LengthScorer:
    return LengthScorer()
