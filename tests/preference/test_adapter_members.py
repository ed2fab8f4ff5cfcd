"""Preference models that are adapters on one base model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from preference_training import CONFIG, die_at, polite_pairs, same_weights, started
from trimtab import preference
from trimtab.config.layout import Lora
from trimtab.models.adapters import ADAPTER
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_model, build_tokenizer

LAYOUTS = {"lora": 0, "lora-top:1": 1}
SOME = CONFIG.model_copy(update={"epochs": 2, "members": 3, "dropout": 0.1, "head_dropout": 0.1, "patience": 2})


def base(layout: str = "lora-top:1", dtype: torch.dtype = torch.float32) -> CausalModel:
    model = CausalModel(build_model(0).to(dtype), LAYOUTS[layout], lora=Lora(4, 8.0))
    model.requires_grad_(False)
    return model


@pytest.fixture
def codec() -> TextCodec:
    return TextCodec(build_tokenizer())


def storages(model) -> set[int]:
    return {p.data_ptr() for p in model.hf.parameters()}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_members_are_an_adapter_and_a_head_each_and_come_back_on_one_base(codec, tmp_path, layout, dtype):
    precision = Precision(dtype)
    start, pairs = base(layout, precision.torch_dtype), polite_pairs(40)
    before = {name: weight.clone() for name, weight in start.hf.named_parameters()}
    ensemble = preference.train(SOME, start, codec, pairs, seed=2, precision=precision)
    assert isinstance(ensemble, preference.PreferenceEnsemble)
    assert all(torch.equal(before[name], weight) for name, weight in start.hf.named_parameters())
    body = {p.data_ptr() for p in start.backbone.body.parameters()}
    drawn = [dict(m.own_state()) for m in ensemble.models]
    for model in ensemble.models:
        assert body <= storages(model)
        assert len(model.own_state()) == (2 - LAYOUTS[layout]) * 7 * 2 + 1
    assert not same_weights(ensemble.models[0], ensemble.models[1])
    name = "model.layers.1.self_attn.q_proj.lora_A.default.weight"
    assert float((drawn[0][name] - drawn[1][name]).abs().max()) > 0.05  # other draws, not other updates
    ensemble.save(tmp_path / "pm")
    assert (tmp_path / "pm" / ADAPTER).is_dir()
    assert (tmp_path / "pm" / "member-2" / ADAPTER).is_dir()
    loaded = preference.load_preference(tmp_path / "pm", precision, start)
    assert all(body <= storages(model) for model in loaded.models)
    prompts, responses = [p.prompt for p in pairs], [p.chosen for p in pairs]
    assert np.array_equal(loaded.score(prompts, responses), ensemble.score(prompts, responses))
    merged = preference.load_preference(tmp_path / "pm", precision)  # whole models, of merged weights
    if dtype == "float32":
        np.testing.assert_allclose(merged.score(prompts, responses), ensemble.score(prompts, responses), atol=1e-5)


def test_training_adapters_learns(codec):
    pairs = polite_pairs(80)
    config = CONFIG.model_copy(update={"epochs": 6, "learning_rate": 1e-2})
    model = preference.train(config, base("lora"), codec, pairs, seed=0)
    _, held_out = preference.split_by_prompt(pairs, config.validation_fraction, 0)
    assert preference.evaluate(model, held_out).accuracy.mean > 0.9


def test_a_killed_training_of_adapters_goes_on_to_the_same_weights(codec, tmp_path):
    config = CONFIG.model_copy(update={"epochs": 2, "checkpoint_every": 3, "dropout": 0.1})

    def train(run):
        return preference.train(config, base(), codec, polite_pairs(40), run=run, seed=4)

    straight = train(started(tmp_path, "a"))
    run = started(tmp_path, "b")
    die_at(run, 5, lambda: train(run))
    assert same_weights(train(run).model, straight.model)


def test_the_seed_draws_the_adapters(codec):
    config = CONFIG.model_copy(update={"epochs": 1, "learning_rate": 1e-9})
    first, again, other = (preference.train(config, base(), codec, polite_pairs(16), seed=s).model for s in (1, 1, 2))
    assert same_weights(first, again)
    name = "model.layers.1.mlp.up_proj.lora_A.default.weight"
    assert float((first.own_state()[name] - other.own_state()[name]).abs().max()) > 0.01
