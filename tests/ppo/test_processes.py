"""Two processes (gloo) against one: the same weights and signals, one checkpoint, no hanging, no surprises."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors.torch import load_file

from ppo_processes import Case, finish, start, train, weights
from ppo_settings import small
from trimtab.config.schema import PPOConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.launch import Launch
from trimtab.ppo.shared import check_shares
from trimtab.runs.run import Run
from trimtab.training.world import World

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch has no torch.distributed with gloo",
)

SMALL = small(iterations=5, checkpoint_every=2).model_dump(mode="json", exclude_defaults=True)
ONE_UPDATE = SMALL | {"minibatches": 1}
RLOO = {"advantage": "rloo", "responses_per_prompt": 2, "value_learning_rate": 1e-5}
STEADY = {
    "micro_batch_size": 2, "value_normalisation": True, "kl_controller": "adaptive", "kl_target_nats": 0.1,
    "kl_horizon_episodes": 40, "max_update_kl": 0.02, "score_outlier_sds": 1.0, "language_data": "x.jsonl",
    "language_batch_size": 3, "reward_whitening": True, "gradient_clip": "joint", "value_coef": 0.5,
    "score_normalisation": "running",
}  # fmt: skip

CASES = [
    Case("ddp-gae", ONE_UPDATE),
    Case("fsdp-gae", ONE_UPDATE, "fsdp"),
    Case("ddp-rloo", ONE_UPDATE | RLOO),
    Case("fsdp-rloo", SMALL | RLOO, "fsdp"),
    Case("ddp-minibatches", SMALL | STEADY),
    Case("fsdp-minibatches", SMALL | STEADY | {"language_batch_size": 4, "reference_share": 0.25}, "fsdp"),
    Case("ddp-shared-layers", SMALL | {"kl_placement": "loss", "kl_estimator": "full"}, boundary=1),
    Case("fsdp-shared-layers", SMALL | {"value": "prompt", "entropy_coef": 0.01}, "fsdp", boundary=1),
    # 11 prompts: what has no opponent yet is now and then an odd number of them
    Case("ddp-opponents", SMALL | {"score_transform": "win_probability"}, prompts=11),
]

# of one process alone, or of how its work is cut up
_OWN = ("time/", "rate/", "memory/", "policy/gradient_noise_scale")


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    directory = tmp_path_factory.mktemp("two")
    for code, output in finish(start(directory, CASES)):
        assert code == 0, output
    return directory


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_processes_train_what_one_does(both, case, tmp_path):
    torch.set_num_threads(1)
    alone = train(case, World.single(), tmp_path)
    found = load_file(both / f"{case.name}.safetensors")
    history, _ = json.loads((both / f"{case.name}.json").read_text())
    mine = weights(alone)
    assert found.keys() == mine.keys()
    for name, weight in mine.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    assert len(history) == 5
    assert all(row["response/length_std"] > 0.5 for row in history)
    for row, other in zip(alone.history, history, strict=True):
        compared = {key for key in row if not key.startswith(_OWN)}
        assert compared == {key for key in other if not key.startswith(_OWN)}
        assert other["time/synchronisation_s"] > 0
        assert "time/synchronisation_s" not in row
        for key in compared:
            assert math.isclose(row[key], other[key], rel_tol=1e-4, abs_tol=1e-5), (case.name, row["step"], key)


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    # two split processes end in the fifth iteration (one is killed), one goes on, as if it had made all of them
    config = SMALL | {"checkpoint_every": 1}
    actions = {3: {"kind": "set", "key": "ppo.beta", "value": 0.2}}
    first = Case("first", config, "fsdp", run="r", actions=actions, dies=(1, 4))
    outcome = finish(start(tmp_path, [first]))
    assert all(code != 0 for code, _ in outcome), outcome
    whole = train(Case("whole", config, run="w", actions=actions), World.single(), tmp_path)
    resumed = train(Case("second", config, run="r", actions=actions), World.single(), tmp_path)
    assert [row["step"] for row in resumed.history] == [1, 2, 3, 4, 5]
    assert [row["kl/beta"] for row in resumed.history] == [0.05, 0.05, 0.05, 0.2, 0.2]
    for name, weight in weights(whole).items():
        torch.testing.assert_close(weights(resumed)[name], weight, rtol=0, atol=1e-5)
    # and two that keep all weights go on from what one process wrote
    again = Case("again", config | {"iterations": 6}, run="r")
    for code, output in finish(start(tmp_path, [again])):
        assert code == 0, output
    longer = train(Case("longer", config | {"iterations": 6}, run="w"), World.single(), tmp_path)
    found = load_file(tmp_path / "again.safetensors")
    for name, weight in weights(longer).items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-5)
    run = Run.open(tmp_path / "r")
    assert [row["step"] for row in run.metrics("ppo") if row["step"]] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_dies_ends_the_others_with_an_error(tmp_path, rank):
    outcome = finish(start(tmp_path, [Case("dying", SMALL, dies=(rank, 2))]), timeout=60)
    assert outcome[rank][0] == -9
    code, output = outcome[1 - rank]
    assert code == 1
    assert f"process {1 - rank} of 2 lost another one" in output


@pytest.mark.slow
def test_where_the_memory_of_one_process_runs_out_all_halve(tmp_path):
    # 8 responses in one minibatch, 4 a process; process 1 holds 3, so that both go on with 2
    cases = [
        Case("told", ONE_UPDATE | {"micro_batch_size": 2}), Case("found", ONE_UPDATE, full=(1, 3)),
        Case("split", ONE_UPDATE, "fsdp", full=(1, 3)),
    ]  # fmt: skip
    for code, output in finish(start(tmp_path, cases[:2])):
        assert code == 0, output
    told, found = (load_file(tmp_path / f"{case.name}.safetensors") for case in cases[:2])
    assert all(torch.equal(weight, found[name]) for name, weight in told.items())
    rows = json.loads((tmp_path / "found.json").read_text())[0]
    assert [row["memory/micro_batch_size"] for row in rows] == [2.0] * 5
    # with weights split over them they cannot start again in the middle: said at once, no hanging
    outcome = finish(start(tmp_path, cases[2:]), timeout=60)
    assert [code for code, _ in outcome] == [1, 1]
    assert "memory ran out in an update with 4 responses at once: 4 responses" in outcome[1][1]
    assert "name a smaller ppo.micro_batch_size" in outcome[1][1]


@pytest.mark.slow
def test_processes_with_different_settings_are_refused(tmp_path):
    outcome = finish(start(tmp_path, [Case("odd", SMALL, odd=1)]))
    for code, output in outcome:
        assert code == 1
        assert "process 1 and process 0 differ in what they train: beta is 0.123 there and 0.05 here" in output


def _world(size):
    return World(Launch(0, size), torch.device("cpu"))


@pytest.mark.parametrize(
    ("changes", "size", "says"),
    [
        ({"minibatches": 4}, 4, "4 processes x 4 minibatches"),
        (RLOO | {"minibatches": 1, "responses_per_prompt": 8}, 2, "2 processes x 8 responses"),
    ],
)
def test_a_batch_that_cannot_be_parted_is_refused(changes, size, says):
    config = PPOConfig.model_validate(SMALL | changes)
    with pytest.raises(TrimtabError, match=says) as caught:
        check_shares(config, _world(size), "ddp", "float32")
    assert caught.value.kind == ErrorKind.CONFIG


def test_split_weights_with_a_loss_scale_are_refused():
    with pytest.raises(TrimtabError, match="float16"):
        check_shares(PPOConfig.model_validate(SMALL), _world(2), "fsdp", "float16")
