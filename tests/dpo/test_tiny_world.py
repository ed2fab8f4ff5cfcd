"""In the tiny world: DPO on the simulated judge's labels of a model's own responses raises the exact gold score."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpo_training import CODEC, reference
from trimtab import dpo, sampling
from trimtab.config.schema import DPOConfig, SampleConfig
from trimtab.constitution import load_constitution
from trimtab.labeling import label_pairs
from trimtab.labeling.labels import to_pairs
from trimtab.runs.run import Run
from trimtab.worlds import project
from trimtab.worlds.gold import GoldScorer
from trimtab.worlds.judge import SimulatedJudge
from trimtab.worlds.tiny import prompts

CONFIG = DPOConfig(
    epochs=4, batch_size=32, learning_rate=2e-3, max_tokens=48, max_new_tokens=12, validation_fraction=0.1
)


@pytest.mark.parametrize("seed", range(3))
def test_gold_rises(seed, tmp_path):
    base, told = reference(), load_constitution(Path(project.__file__).parent / "constitution.toml")
    sample = SampleConfig(pairs_per_prompt=2, max_new_tokens=12, batch_size=256)
    candidates = sampling.sample_pairs(base, CODEC, prompts(300, seed), None, sample, seed=seed)
    pairs = to_pairs(candidates, label_pairs(candidates, SimulatedJudge("faithful", seed=seed), told, batch_size=1024))
    run = Run.create(tmp_path, "r", config={}, seed=seed)
    run.begin_stage("dpo", "f")
    held_out = dpo.HeldOut(prompts(128, 77), {"gold": GoldScorer()})
    dpo.train(CONFIG, base.fork(trainable=True), CODEC, pairs, run=run, seed=seed, held_out=held_out)
    _, gold = run.signal("gold/mean", "dpo")
    _, accuracy = run.signal("accuracy/validation", "dpo")
    assert gold[-1] > gold[0] + 0.06
    assert accuracy[-1] > 0.6
