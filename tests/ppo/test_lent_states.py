"""A preference model on the policy's shared layers scores a rollout without running them again."""

from __future__ import annotations

import copy
from typing import ClassVar

import numpy as np
import pytest
import torch

from ppo_settings import small
from trimtab import ppo
from trimtab.config.layout import Lora
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.ppo import shared
from trimtab.preference import PreferenceModel
from trimtab.scoring import MixtureScorer, lend
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_model


def base_of(lora=None, boundary=1):
    model = CausalModel(build_model(0), boundary, lora=lora)
    model.requires_grad_(False)
    return model


def preference_on(base, codec) -> PreferenceModel:
    """With a head that says something, and some move of its own layers."""
    model = ScalarModel.from_causal(base, generator=torch.Generator().manual_seed(1))
    return PreferenceModel(model, codec, Precision("float32"), max_tokens=48)


class Asked(shared.RolloutStates):
    """Counts what is found."""

    found: ClassVar[list[bool]] = []

    def find(self, row):
        hidden = super().find(row)
        Asked.found.append(hidden is not None)
        return hidden


@pytest.fixture
def asked(monkeypatch):
    Asked.found = []
    monkeypatch.setattr(shared, "RolloutStates", Asked)
    return Asked.found


def scores(result) -> list[float]:
    return [row["score/mean"] for row in result.history]


@pytest.mark.parametrize("lora", [None, Lora(4, 8.0)])
@pytest.mark.parametrize("mixed", [False, True])
def test_only_rows_of_other_tokens_are_run_and_scores_are_the_same(codec, few_prompts, asked, monkeypatch, lora, mixed):
    base = base_of(lora)
    pm = preference_on(base, codec)
    apart = copy.copy(pm)
    apart.models = [copy.deepcopy(pm.model)]
    apart.model = apart.models[0]

    def trained(of: PreferenceModel):
        scorer = MixtureScorer([(of, 1.0)]) if mixed else of
        return ppo.train(small(), base.fork(True), codec, few_prompts, scorer)

    alone = trained(apart)
    assert asked == []
    ran, trunk = [], ScalarModel.trunk

    def counting(self, ids, mask, positions=None):
        ran.append(len(ids))
        return trunk(self, ids, mask, positions)

    monkeypatch.setattr(pm.model, "trunk", lambda *args: counting(pm.model, *args), raising=False)
    found = trained(pm)
    # an untrained model samples special tokens, which do not come back from text as they were
    assert any(asked)
    assert sum(ran) == len(asked) - sum(asked)
    np.testing.assert_allclose(scores(found), scores(alone), rtol=0, atol=1e-5)
    assert pm.cache is None


def test_a_model_on_other_layers_or_in_another_precision_is_lent_nothing(codec):
    base, other = base_of(), base_of()
    pm = preference_on(base, codec)
    kept = object()
    lend(pm, other, "float32", kept)
    assert pm.cache is None
    lend(pm, base_of(boundary=2), "float32", kept)
    assert pm.cache is None
    lend(pm, base.fork(True), "bfloat16", kept)
    assert pm.cache is None
    lend(pm, base.fork(True), "float32", kept)
    assert pm.cache is kept
    lend(pm, base, "float32", None)
    assert pm.cache is None


def test_it_is_taken_back_when_the_scorer_fails(codec, few_prompts, monkeypatch):
    base = base_of()
    pm = preference_on(base, codec)

    def broken(*_args):
        assert pm.cache is not None
        raise RuntimeError("no score")

    monkeypatch.setattr(pm, "score", broken)
    with pytest.raises(RuntimeError, match="no score"):
        ppo.train(small(), base.fork(True), codec, few_prompts, pm)
    assert pm.cache is None
