"""Every setting of [dpo] does what it says: changing it changes the weights, or what is recorded, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpo_training import CODEC, fork, started
from preference_training import polite_pairs, same_weights
from trimtab import dpo
from trimtab.config.schema import DPOConfig
from trimtab.worlds.tiny import prompts

CONFIG = DPOConfig(
    epochs=1, batch_size=4, learning_rate=1e-3, validation_fraction=0.25, max_tokens=40, checkpoint_every=2,
    max_new_tokens=8,
)  # fmt: skip
PAIRS = [replace(p, p_chosen=0.6 + 0.03 * i) for i, p in enumerate(polite_pairs(12))]
CHANGES_THE_WEIGHTS = {
    "loss": "ipo", "beta": 0.5, "label_smoothing": 0.2, "soft_labels": False, "language_coef": 0.5, "epochs": 2,
    "batch_size": 3, "learning_rate": 2e-3, "learning_rate_schedule": "constant", "warmup_fraction": 0.9,
    "weight_decay": 0.5, "max_grad_norm": 1e-3, "validation_fraction": 0.5,
}  # fmt: skip
CHANGES_WHAT_IS_RECORDED = {"checkpoint_every": 1, "keep_checkpoints": 3, "temperature": 3.0, "max_new_tokens": 4}
TESTED_ELSEWHERE = {"micro_batch_size", "max_tokens", "too_long", "patience", "probe_prompts"}


def trained(tmp_path, name: str, **changes):
    config, run, policy = CONFIG.model_copy(update=changes), started(tmp_path, name), fork()
    dpo.train(config, policy, CODEC, PAIRS, run=run, held_out=dpo.HeldOut(prompts(3, 9)))
    recorded = [{k: v for k, v in s.items() if k != "time"} for s in run.samples()]
    kept = sorted(path.name for path in run.checkpoint_dir("dpo").iterdir())
    return policy, (recorded, kept)


def test_no_setting_is_left_out():
    known = {*CHANGES_THE_WEIGHTS, *CHANGES_WHAT_IS_RECORDED, *TESTED_ELSEWHERE}
    assert known == set(DPOConfig.model_fields)


@pytest.mark.parametrize("name", CHANGES_THE_WEIGHTS)
def test_it_changes_the_weights(name, tmp_path):
    changed, _ = trained(tmp_path, "changed", **{name: CHANGES_THE_WEIGHTS[name]})
    assert not same_weights(trained(tmp_path, "plain")[0], changed)


@pytest.mark.parametrize("name", CHANGES_WHAT_IS_RECORDED)
def test_it_changes_what_is_recorded_alone(name, tmp_path):
    plain, before = trained(tmp_path, "plain")
    changed, after = trained(tmp_path, "changed", **{name: CHANGES_WHAT_IS_RECORDED[name]})
    assert same_weights(plain, changed)
    assert before != after
