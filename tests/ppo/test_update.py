"""One update: accumulation, clipping, precision."""

from __future__ import annotations

import pytest
import torch

from ppo_settings import small
from trimtab import ppo
from trimtab.training.precision import Precision


def _weights(result: ppo.PPOResult) -> dict[str, torch.Tensor]:
    found = {f"policy.{k}": v.clone() for k, v in result.policy.own_state().items()}
    if result.value is not None:
        found |= {f"value.{k}": v.clone() for k, v in result.value.own_state().items()}
    return found


def _train(base, codec, prompts, scorer, precision=None, **changes):
    return ppo.train(small(**changes), base.fork(trainable=True), codec, prompts, scorer, seed=5, precision=precision)


@pytest.mark.parametrize(
    "settings", [{}, {"value": "prompt"}, {"kl_placement": "loss", "kl_estimator": "k3", "beta": 0.5}]
)
def test_micro_batches_add_up_to_the_minibatch(base, codec, few_prompts, scorer, settings):
    # One update, so that differences are rounding and not their growth; responses differ in length. The gradient is
    # compared through the weights after one AdamW step with a large epsilon, where the step is nearly linear in it.
    common = {
        "iterations": 1,
        "epochs": 1,
        "minibatches": 1,
        "adam_epsilon": 1.0,
        "learning_rate": 1.0,
        "value_learning_rate": 1.0,
    }
    whole = _weights(_train(base, codec, few_prompts, scorer, **common, **settings))
    start = {f"policy.{k}": v for k, v in base.own_state().items()}
    assert max(float((whole[k] - v).abs().max()) for k, v in start.items()) > 1e-4
    for size in (1, 3):
        parts = _weights(_train(base, codec, few_prompts, scorer, micro_batch_size=size, **common, **settings))
        for name, weight in whole.items():
            torch.testing.assert_close(parts[name], weight, rtol=1e-4, atol=2e-7, msg=lambda m, n=name: f"{n}: {m}")


def test_separate_clip_bounds_each_model(base, codec, few_prompts, scorer):
    free = _train(base, codec, few_prompts, scorer, max_grad_norm=1e9)
    tight = _train(base, codec, few_prompts, scorer, max_grad_norm=1e9, value_max_grad_norm=1e-3)
    # The logged norm is the one before clipping, so the first iteration's first update agrees in both; the policy is
    # untouched by the value model's bound until the value model has changed (the second iteration).
    assert tight.history[0]["policy/gradient_norm"] == free.history[0]["policy/gradient_norm"]
    free_value, tight_value = free.value.own_state(), tight.value.own_state()
    assert any(not torch.equal(free_value[k], tight_value[k]) for k in free_value)


def test_value_coefficient_acts_through_the_joint_clip(base, codec, few_prompts, scorer):
    runs = [
        _weights(_train(base, codec, few_prompts, scorer, gradient_clip="joint", max_grad_norm=0.01, value_coef=c))
        for c in (0.1, 10.0)
    ]
    assert any(not torch.allclose(runs[0][k], runs[1][k], atol=1e-7) for k in runs[0] if k.startswith("policy."))


@pytest.mark.parametrize("settings", [{}, {"value": "prompt"}, {"kl_placement": "loss", "kl_estimator": "full"}])
def test_kept_output_of_the_shared_layers_changes_nothing_but_the_work(
    codec, few_prompts, scorer, monkeypatch, settings
):
    from trimtab.models.backbone import Backbone
    from trimtab.models.roles import CausalModel
    from trimtab.worlds.model import build_model

    layers, calls = Backbone.layers, []

    def counted(self, hidden, mask, positions, first, last):
        calls.append((first, last))
        return layers(self, hidden, mask, positions, first, last)

    monkeypatch.setattr(Backbone, "layers", counted)
    results, trunks = [], []
    for budget in (1.0, 0.0):
        shared = CausalModel(build_model(0), 1)
        shared.requires_grad_(False)
        calls.clear()
        results.append(_weights(_train(shared, codec, few_prompts, scorer, iterations=1, trunk_gib=budget, **settings)))
        trunks.append(sum(last > 0 and first == 0 for first, last in calls))
    for name, weight in results[1].items():
        torch.testing.assert_close(results[0][name], weight, rtol=0, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")
    assert trunks[0] < trunks[1] / 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_trains_and_measures_the_gap(base, codec, few_prompts, scorer, dtype):
    model = base.hf.to(getattr(torch, dtype))
    from trimtab.models.roles import CausalModel

    frozen = CausalModel(model)
    frozen.requires_grad_(False)
    result = _train(frozen, codec, few_prompts, scorer, Precision(dtype, initial_scale=2.0**10))
    for row in result.history:
        assert 0 <= row["rollout/logprob_gap_mean"] <= row["rollout/logprob_gap_max"]
        assert row["check/first_ratio_deviation"] == 0.0  # the trainer's own log-probabilities, computed twice
        assert row.get("precision/skipped_updates", 0) == 0
    assert result.history[0]["check/kl_at_start"] == 0.0
    assert ("precision/loss_scale" in result.history[0]) == (dtype == "float16")


def test_float16_overflow_is_skipped_and_counted(base, codec, few_prompts, scorer):
    from trimtab.models.roles import CausalModel

    frozen = CausalModel(base.hf.to(torch.float16))
    frozen.requires_grad_(False)
    start = {k: v.float().clone() for k, v in frozen.own_state().items()}
    precision = Precision("float16", initial_scale=2.0**40)  # every scaled gradient overflows
    result = _train(frozen, codec, few_prompts, scorer, precision, iterations=1, epochs=1, minibatches=2)
    assert result.history[0]["precision/skipped_updates"] == 2
    assert result.history[0]["precision/loss_scale"] == 2.0**38
    for name, weight in result.policy.own_state().items():
        assert torch.equal(weight, start[name]), name
