"""PPO in every layout: where it starts, what moves, what a checkpoint holds, and that a killed run goes on."""

from __future__ import annotations

import pytest
import torch

from ppo_settings import small
from trimtab import ppo
from trimtab.config.layout import Lora
from trimtab.config.schema import PPOConfig
from trimtab.models.adapters import adapted
from trimtab.models.roles import CausalModel, ScalarModel
from trimtab.runs.run import Run
from trimtab.training.checkpoint import latest_checkpoint, load_checkpoint
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_model

LAYOUTS = {"full": (0, None), "top:1": (1, None), "lora": (0, Lora(4, 8.0)), "lora-top:1": (1, Lora(4, 8.0))}
WITH_ADAPTERS = ["lora", "lora-top:1"]


def made(layout: str, dtype: torch.dtype = torch.float32) -> CausalModel:
    model = CausalModel(build_model(0).to(dtype), LAYOUTS[layout][0], lora=LAYOUTS[layout][1])
    model.requires_grad_(False)
    return model


def _run(tmp_path, name: str) -> Run:
    run = Run.create(tmp_path, name, config={}, seed=0)
    run.begin_stage("ppo", "f")
    return run


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_first_kl_is_0_and_training_moves_the_policy(codec, few_prompts, scorer, layout, dtype):
    precision = Precision(dtype)
    base = made(layout, precision.torch_dtype)
    policy = base.fork(True)
    settings = small(learning_rate=1e-2)
    before = {name: weight.clone() for name, weight in policy.own_state().items()}
    result = ppo.train(settings, policy, codec, few_prompts, scorer, precision=precision)
    first = result.history[0]
    assert abs(first["check/kl_at_start"]) < (1e-5 if dtype == "float32" else 1e-12)
    assert first["check/first_ratio_deviation"] < 1e-4
    assert any(not torch.equal(weight, before[name]) for name, weight in policy.own_state().items())
    assert result.history[-1]["kl/reference"] != 0


@pytest.mark.parametrize("layout", WITH_ADAPTERS)
def test_only_adapters_and_the_value_head_move_and_are_kept(codec, few_prompts, scorer, tmp_path, layout):
    base = made(layout)
    before = {name: weight.clone() for name, weight in base.hf.named_parameters()}
    policy, run = base.fork(True), _run(tmp_path, "r")
    result = ppo.train(small(), policy, codec, few_prompts, scorer, run=run)
    assert all(torch.equal(before[name], weight) for name, weight in base.hf.named_parameters())
    state = load_checkpoint(latest_checkpoint(run.checkpoint_dir("ppo")))
    layers = 2 - LAYOUTS[layout][0]
    assert len(state["policy"]) == layers * 7 * 2
    assert all(".lora_" in name for name in state["policy"])
    assert len(state["value"]) == layers * 7 * 2 + 1
    assert len(state["optimisers"]["policy"]["adamw"]["state"]) == layers * 7 * 2
    assert result.value is not None
    shared = {p.data_ptr() for p in base.backbone.body.parameters()}
    for role in (policy, result.value):
        assert shared <= {p.data_ptr() for p in role.hf.parameters()}


@pytest.mark.parametrize("layout", WITH_ADAPTERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_killed_run_goes_on_as_if_undisturbed(codec, few_prompts, scorer, tmp_path, layout, dtype):
    precision = Precision(dtype)
    base = made(layout, precision.torch_dtype)
    config = small(iterations=4, checkpoint_every=2, learning_rate=1e-2)

    def train(run: Run, callbacks=()):
        return ppo.train(
            config, base.fork(True), codec, few_prompts, scorer, run=run, seed=1, callbacks=callbacks,
            precision=precision,
        )  # fmt: skip

    class KilledError(Exception):
        pass

    class Kill:
        def on_iteration(self, view):
            if view.step == 3:
                raise KilledError

    straight = train(_run(tmp_path, "a"))
    run = _run(tmp_path, "b")
    with pytest.raises(KilledError):
        train(run, [Kill()])
    resumed = train(run)
    for one, other in ((straight.policy, resumed.policy), (straight.value, resumed.value)):
        state = other.own_state()
        for name, weight in one.own_state().items():
            assert torch.equal(state[name], weight), name
    timing = ("time/", "rate/", "memory/")
    for a, b in zip(straight.history, resumed.history, strict=True):
        wanted = {k: v for k, v in a.items() if not k.startswith(timing)}
        assert wanted == {k: b[k] for k in wanted}


@pytest.mark.parametrize("layout", WITH_ADAPTERS)
def test_the_value_model_starts_from_the_preference_models_adapters(codec, few_prompts, scorer, layout):
    base = made(layout)
    pm = ScalarModel.from_causal(base, generator=torch.Generator().manual_seed(1))
    for parameter in pm.trainable_parameters():
        parameter.data.add_(0.02)
    start = {name: weight.clone() for name, weight in pm.own_state().items()}
    config = small(iterations=1, value_learning_rate=1e-12)
    result = ppo.train(config, base.fork(True), codec, few_prompts, scorer, preference=pm)
    assert result.value is not None
    for name, weight in result.value.own_state().items():
        torch.testing.assert_close(weight, start[name], rtol=0, atol=1e-9)
    assert {p.data_ptr() for p in base.backbone.body.parameters()} <= {
        p.data_ptr() for p in result.value.hf.parameters()
    }


def test_a_policy_that_goes_on_from_its_adapters_has_them_in_the_reference(codec, few_prompts, scorer):
    policy = made("lora").fork(True)
    for parameter in policy.trainable_parameters():
        parameter.data.add_(0.02)
    result = ppo.train(small(iterations=1), policy, codec, few_prompts, scorer)
    assert abs(result.history[0]["check/kl_at_start"]) < 1e-5
    assert adapted(policy.hf)


def test_a_critic_free_run_with_adapters_and_the_kl_in_the_loss(codec, few_prompts, scorer):
    config = PPOConfig(
        advantage="rloo", responses_per_prompt=2, kl_placement="loss", kl_estimator="full", beta=0.1, iterations=2,
        batch_size=8, max_new_tokens=6, probe_prompts=0,
    )  # fmt: skip
    result = ppo.train(config, made("lora-top:1").fork(True), codec, few_prompts, scorer)
    assert result.value is None
    assert abs(result.history[0]["check/kl_at_start"]) < 1e-5
