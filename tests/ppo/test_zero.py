"""Two processes under DeepSpeed's ZeRO (gloo) against one without: the same weights, signals and checkpoints."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math

import pytest
import torch
from safetensors.torch import load_file

from ppo_processes import Case, finish, start, train, weights
from ppo_settings import small
from trimtab.config.project import ModelConfig
from trimtab.config.schema import PPOConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.launch import Launch
from trimtab.ppo.shared import check_shares
from trimtab.training import zero
from trimtab.training.world import World

needs_deepspeed = pytest.mark.skipif(
    not (
        torch.distributed.is_available()
        and torch.distributed.is_gloo_available()
        and importlib.util.find_spec("deepspeed")
    ),
    reason="needs torch.distributed with gloo, and deepspeed: pip install 'trimtab[deepspeed]'",
)

SMALL = small(iterations=5, checkpoint_every=2).model_dump(mode="json", exclude_defaults=True)
RLOO = {"advantage": "rloo", "responses_per_prompt": 2, "value_learning_rate": 1e-5}
STEADY = {
    "micro_batch_size": 2, "value_normalisation": True, "kl_controller": "adaptive", "kl_target_nats": 0.1,
    "kl_horizon_episodes": 40, "max_update_kl": 0.02, "language_data": "x.jsonl", "language_batch_size": 4,
    "reward_whitening": True, "gradient_clip": "joint", "value_coef": 0.5, "weight_decay": 0.1,
    "learning_rate_schedule": "linear", "value_warmup_iterations": 1,
}  # fmt: skip

CASES = {
    "zero1": [
        Case("gae", SMALL, "zero1"),
        Case("steady", SMALL | STEADY | {"language_batch_size": 3}, "zero1"),
    ],
    "zero2": [
        Case("gae", SMALL | {"minibatches": 1}, "zero2"),
        Case("rloo", SMALL | RLOO, "zero2"),
        Case("steady", SMALL | STEADY | {"reference_share": 0.25}, "zero2"),
        Case("shared-layers", SMALL | {"kl_placement": "loss", "kl_estimator": "full"}, "zero2", boundary=1),
    ],
    "zero3": [
        Case("gae", SMALL | {"minibatches": 1, "recompute": True}, "zero3"),
        Case("steady", SMALL | STEADY, "zero3"),
        Case("shared-layers", SMALL | {"value": "prompt", "entropy_coef": 0.01}, "zero3", boundary=1),
    ],
}

# of one process alone, or of how its work is cut up
_OWN = ("time/", "rate/", "memory/", "policy/gradient_noise_scale")


def _same(case, directory):
    """What two processes have left in the directory is what one process comes to."""
    torch.set_num_threads(1)
    alone = train(case, World.single(), directory)
    found = load_file(directory / f"{case.name}.safetensors")
    history, _ = json.loads((directory / f"{case.name}.json").read_text())
    mine = weights(alone)
    assert found.keys() == mine.keys()
    for name, weight in mine.items():
        torch.testing.assert_close(
            found[name], weight, rtol=0, atol=1e-5, msg=lambda m, n=name: f"{case.name} {n}: {m}"
        )
    assert len(history) == case.settings["iterations"]
    for row, other in zip(alone.history, history, strict=True):
        compared = {key for key in row if not key.startswith(_OWN)}
        assert compared == {key for key in other if not key.startswith(_OWN)}
        for key in compared:
            assert math.isclose(row[key], other[key], rel_tol=1e-4, abs_tol=1e-5), (case.name, row["step"], key)
    return alone


@needs_deepspeed
@pytest.mark.slow
@pytest.mark.parametrize("parallel", CASES)
def test_two_processes_train_what_one_does(tmp_path, parallel):
    for code, output in finish(start(tmp_path, CASES[parallel])):
        assert code == 0, output
        assert "deprecated" not in output
    for case in CASES[parallel]:
        _same(case, tmp_path)


@needs_deepspeed
@pytest.mark.slow
def test_an_update_that_is_not_finite_moves_neither_model_and_leaves_nothing_behind(tmp_path):
    # the updates of the second iteration overflow
    settings = SMALL | {"iterations": 3, "kl_placement": "loss", "kl_estimator": "k3", "max_skipped_updates": 9}
    beta = {step: {"kind": "set", "key": "ppo.beta", "value": value} for step, value in ((1, 1e30), (2, 0.05))}
    cases = [Case(parallel, settings, parallel, run=parallel, actions=beta) for parallel in CASES]
    for code, output in finish(start(tmp_path, cases)):
        assert code == 0, output
    for case in cases:
        alone = _same(dataclasses.replace(case, run=f"{case.name}-alone"), tmp_path)
        assert [row.get("precision/skipped_updates", 0) for row in alone.history] == [0, 4, 4]
        kept, expected = (
            {path.name: load_file(path) for path in (tmp_path / run / "nonfinite").glob("*.safetensors")}
            for run in (case.name, f"{case.name}-alone")
        )
        assert kept.keys() == expected.keys()
        assert len(kept) == 4
        for name, found in kept.items():
            for key, x in expected[name].items():
                torch.testing.assert_close(found[key], x, rtol=1e-3, atol=1e-5, msg=f"{case.name} {name} {key}")


@needs_deepspeed
@pytest.mark.slow
def test_a_killed_run_goes_on_under_another_stage_or_in_one_process(tmp_path):
    config = SMALL | {"checkpoint_every": 1, "iterations": 3}
    outcome = finish(start(tmp_path, [Case("first", config, "zero3", run="r", dies=(1, 2))]))
    assert all(code != 0 for code, _ in outcome), outcome
    for code, output in finish(start(tmp_path, [Case("then", config, "zero2", run="r")])):
        assert code == 0, output
    whole = train(Case("whole", config, run="w"), World.single(), tmp_path)
    found = load_file(tmp_path / "then.safetensors")
    for name, weight in weights(whole).items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-5)
    # what DeepSpeed's processes have written, one process without it reads
    longer = {"iterations": 4}
    alone = train(Case("alone", config | longer, run="r"), World.single(), tmp_path)
    undisturbed = train(Case("longer", config | longer, run="w"), World.single(), tmp_path)
    assert [row["step"] for row in alone.history] == [1, 2, 3, 4]
    for name, weight in weights(undisturbed).items():
        torch.testing.assert_close(weights(alone)[name], weight, rtol=0, atol=1e-5)


@pytest.mark.parametrize("parallel", ["zero1", "zero2", "zero3"])
def test_without_deepspeed_the_message_says_how_to_get_it(monkeypatch, parallel):
    monkeypatch.setattr(zero.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(TrimtabError, match=rf'model.parallel = "{parallel}": deepspeed is not installed') as caught:
        check_shares(PPOConfig.model_validate(SMALL), World(Launch(0, 2), torch.device("cpu")), parallel, "float32")
    assert caught.value.kind == ErrorKind.MISSING
    assert "pip install 'trimtab[deepspeed]'" in caught.value.hint


@needs_deepspeed
def test_a_loss_scale_is_refused():
    with pytest.raises(TrimtabError, match=r'"zero2" with model.dtype = "float16"'):
        check_shares(PPOConfig.model_validate(SMALL), World(Launch(0, 2), torch.device("cpu")), "zero2", "float16")


def test_adapters_are_refused():
    with pytest.raises(ValueError, match=r'parallel = "zero3" splits what is trained, and adapters'):
        ModelConfig(trainable="lora", parallel="zero3")
