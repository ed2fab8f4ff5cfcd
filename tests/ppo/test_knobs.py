"""Every setting of [ppo] changes the run: one owner each, none is read by nobody."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ppo_settings import small
from trimtab import ppo
from trimtab.config.schema import PPOConfig
from trimtab.models.roles import ScalarModel
from trimtab.runs.run import Run
from trimtab.scoring import FunctionScorer, MixtureScorer

# setting -> (another value, what both runs need for it to matter)
FLIPS: dict[str, tuple[Any, dict[str, Any]]] = {
    "iterations": (1, {}),
    "batch_size": (4, {}),
    "responses_per_prompt": (2, {}),
    "temperature": (0.5, {}),
    "max_new_tokens": (3, {}),
    "reward": ({"other": 1.0}, {}),
    "length_penalty": (0.5, {}),
    "missing_eos_penalty": (1.0, {}),
    "score_normalisation": ("batch", {}),
    "score_transform": ("tanh", {}),
    "score_clip": (0.2, {}),
    "reward_whitening": (True, {}),
    "kl_placement": ("sequence_mean", {"beta": 1.0}),
    "kl_estimator": ("k3", {"beta": 1.0}),
    "kl_controller": ("scheduled", {}),  # the schedule itself comes with it, see below
    "beta": (0.5, {}),
    # KL is 0 at the first iteration whatever the target: beta tells targets apart from the third on
    "kl_target_nats": (
        9.0,
        {
            "kl_controller": "adaptive",
            "kl_target_nats": 1e-4,
            "kl_horizon_episodes": 40,
            "iterations": 4,
            "learning_rate": 1e-2,
        },
    ),
    "kl_horizon_episodes": (20, {"kl_controller": "adaptive", "kl_target_nats": 9.0, "kl_horizon_episodes": 40}),
    "beta_schedule": ([(0, 0.3), (1, 0.1)], {"kl_controller": "scheduled", "beta_schedule": [(0, 0.3), (1, 0.9)]}),
    "advantage": ("rloo", {"responses_per_prompt": 2, "value_learning_rate": 1e-5}),
    "gamma": (0.7, {}),
    "gae_lambda": (0.5, {}),
    "advantage_whitening": (False, {}),
    "value": ("prompt", {}),
    "value_init": ("reference", {}),
    "value_normalisation": (True, {}),
    "value_clip_range": (1e-3, {}),
    "value_learning_rate": (1e-2, {}),
    "value_coef": (5.0, {"gradient_clip": "joint", "max_grad_norm": 0.01}),
    "epochs": (1, {}),
    "minibatches": (4, {}),
    "learning_rate": (1e-2, {}),
    "learning_rate_schedule": ("linear", {}),
    "warmup_fraction": (0.5, {}),
    "weight_decay": (1.0, {}),
    "adam_epsilon": (1e-2, {}),
    "gradient_clip": ("joint", {"max_grad_norm": 0.01}),
    "max_grad_norm": (0.01, {}),
    "value_max_grad_norm": (1e-3, {}),
    "clip_range": (0.01, {"learning_rate": 1e-2}),
    "dual_clip": (1.001, {"learning_rate": 3e-2, "epochs": 4}),
    "score_outlier_sds": (0.1, {}),
    "value_warmup_iterations": (1, {}),
    "entropy_coef": (0.5, {}),
    "max_update_kl": (1e-9, {}),
}
# Settings that must not change what is learned; each is pinned by a test of its own.
OTHERS = {
    "micro_batch_size": "test_update.py::test_micro_batches_add_up_to_the_minibatch",
    "activation_gib": "test_memory.py",
    "trunk_gib": "test_update.py::test_kept_output_of_the_shared_layers_changes_nothing_but_the_work",
    "recompute": "test_memory.py",
    "keep_best": "test_retention.py",
    "end_with": "test_retention.py",
    "checks": "test_trainer.py::test_sampling_at_another_temperature_than_training_is_refused",
    "checkpoint_every": "below",
    "probe_prompts": "below",
    "keep_checkpoints": "below",
    "max_skipped_updates": "test_stability.py",
    "language_data": "test_stability.py",
    "language_coef": "test_stability.py",
    "language_batch_size": "test_stability.py",
    "engine": "test_engines.py",
    "engine_options": "tests/models/test_vllm_engines.py",
    "importance_cap": "test_engines.py",
    "reference_share": "test_stability.py (it acts on the weights after the last iteration)",
}


def test_every_setting_is_covered():
    assert set(FLIPS) | set(OTHERS) == set(PPOConfig.model_fields)


def _history(base, codec, prompts, **settings: Any) -> list[dict[str, float]]:
    config = small(**settings)
    scorers = {
        "preference": FunctionScorer(
            "a", lambda p, r: [0.1 * len(x.split()) + 0.01 * (sum(map(ord, x)) % 17) for x in r]
        ),
        "other": FunctionScorer("b", lambda p, r: [-0.3 * len(x.split()) for x in r]),
    }
    reward = {config.reward: 1.0} if isinstance(config.reward, str) else config.reward
    mixture = MixtureScorer([(scorers[name], weight) for name, weight in reward.items()])
    start = ScalarModel.from_causal(base, generator=torch.Generator().manual_seed(1))
    history = ppo.train(config, base.fork(True), codec, prompts, mixture, preference=start, seed=2).history
    timing = ("time/", "rate/", "memory/")
    return [{k: v for k, v in row.items() if not k.startswith(timing)} for row in history]


@pytest.mark.parametrize("setting", list(FLIPS))
def test_setting_changes_the_run(base, codec, few_prompts, setting):
    value, common = FLIPS[setting]
    changed = common | {setting: value}
    if setting == "kl_controller":
        changed |= {"beta_schedule": [(0, 0.5)]}
    if setting == "advantage":
        common, changed = (
            {"responses_per_prompt": 2},
            {"responses_per_prompt": 2, "advantage": value, "value_learning_rate": 1e-5},
        )
    before, after = _history(base, codec, few_prompts, **common), _history(base, codec, few_prompts, **changed)
    assert len(before) != len(after) or any(
        a[k] != b[k] for a, b in zip(before, after, strict=True) for k in a.keys() & b
    )


def test_checkpoints_and_probes_as_often_and_as_many_as_set(base, codec, few_prompts, scorer, tmp_path):
    found = []
    for every, probes, keep in ((1, 1, 5), (2, 3, 5), (1, 2, 1)):
        run = Run.create(tmp_path, f"r{len(found)}", config={}, seed=0)
        run.begin_stage("ppo", "f")
        config = small(checkpoint_every=every, probe_prompts=probes, keep_checkpoints=keep)
        held_out = ppo.HeldOut(few_prompts[:3], {}, every)
        ppo.train(config, base.fork(True), codec, few_prompts, scorer, run=run, held_out=held_out)
        found.append((len(list(run.checkpoint_dir("ppo").iterdir())), len(run.samples(step=2))))
    assert found == [(2, 1), (1, 3), (1, 2)]
