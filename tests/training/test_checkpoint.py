"""Checkpoints: exact round trips, exact continuation, and directories that were cut short."""

from __future__ import annotations

import json
import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from torch import nn

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.seeds import torch_stream
from trimtab.training import checkpoint as module
from trimtab.training.checkpoint import (
    checkpoints,
    latest_checkpoint,
    load_checkpoint,
    prune,
    save_checkpoint,
    step_path,
)
from trimtab.training.optim import Optimiser
from trimtab.training.precision import Precision

STATE = {
    "step": 3,
    "weights": {"a": torch.arange(6.0).view(2, 3), "b": torch.tensor(7), "c": torch.ones(2, dtype=torch.bfloat16)},
    "list": [1, 2.5, None, True, "x", [torch.zeros(0)]],
    "odd": {0: "zero", "$tensor": "not a tensor", "inf": float("inf")},
    "empty": {},
}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, list | tuple):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or a != a)


def test_round_trip(tmp_path):
    path = save_checkpoint(tmp_path / "deep" / "c", STATE)
    assert same(STATE, load_checkpoint(path))
    assert sorted(p.name for p in path.iterdir()) == ["state.json", "tensors.safetensors"]
    assert [p.name for p in path.parent.iterdir()] == ["c"]


LEAVES = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=5)
TREES = st.recursive(
    LEAVES | st.integers(0, 5).map(lambda n: torch.arange(n)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREES)
def test_any_tree_comes_back_as_it_was(tmp_path, tree):
    assert same({"t": tree}, load_checkpoint(save_checkpoint(tmp_path / "c", {"t": tree})))


def test_tied_tensors_and_views_are_saved(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    state = {"a": whole, "b": whole, "c": whole[:, 1:3], "d": whole.T}
    assert same(state, load_checkpoint(save_checkpoint(tmp_path / "c", state)))


def test_other_values_are_refused(tmp_path):
    with pytest.raises(TypeError, match="/a is a set"):
        save_checkpoint(tmp_path / "c", {"a": {1, 2}})
    with pytest.raises(TypeError, match="neither str nor int"):
        save_checkpoint(tmp_path / "c", {"a": {1.5: 1}})
    assert not (tmp_path / "c").exists()


class Training:
    """A small model with everything that a trainer keeps: optimiser, loss scale, random stream."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimiser = Optimiser(
            self.net, 0.05, total_updates=6, weight_decay=0.1, schedule="cosine", warmup_fraction=0.2
        )
        self.precision = Precision("float16", initial_scale=2.0**16, growth_interval=2)
        self.generator = torch_stream(3, "data")

    def steps(self, count: int) -> None:
        for _ in range(count):
            x = torch.randn(16, 6, generator=self.generator)
            with self.precision.autocast():
                loss = (self.net(x).squeeze(-1) - x.sum(-1)).square().mean()
            self.precision.scale(loss).backward()
            self.precision.unscale(self.optimiser)
            self.optimiser.scale_gradients(self.optimiser.gradient_norm(), 1.0)
            self.precision.step([self.optimiser])

    def state(self):
        return {
            "net": self.net.state_dict(), "optimiser": self.optimiser.state_dict(),
            "precision": self.precision.state_dict(), "generator": self.generator.get_state(),
        }  # fmt: skip

    def load(self, state) -> None:
        self.net.load_state_dict(state["net"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.precision.load_state_dict(state["precision"])
        self.generator.set_state(state["generator"])


def test_three_steps_saved_and_three_more_are_six_steps_bit_for_bit(tmp_path):
    undisturbed, first, second = Training(), Training(), Training()
    undisturbed.steps(6)
    first.steps(3)
    second.steps(1)  # anything: it is overwritten
    second.load(load_checkpoint(save_checkpoint(tmp_path / "c", first.state())))
    assert same(first.state(), load_checkpoint(tmp_path / "c"))
    second.steps(3)
    assert undisturbed.precision.skipped > 0
    assert undisturbed.optimiser.updates > 3
    a, b = undisturbed.state(), second.state()
    for state in (a, b):  # tuples come back as lists
        for group in state["optimiser"]["adamw"]["param_groups"]:
            group["betas"] = list(group["betas"])
    assert same(a, b)


def test_a_write_that_fails_leaves_the_old_checkpoint_and_no_rubbish(tmp_path, monkeypatch):
    path = save_checkpoint(tmp_path / "c", {"step": 1})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_flush", full)
    with pytest.raises(TrimtabError, match=r"c: cannot be written: No space.*\n.*is lost") as caught:
        save_checkpoint(path, {"step": 2})
    assert caught.value.kind is ErrorKind.FAILED
    assert load_checkpoint(path) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_rename_that_fails_leaves_the_old_checkpoint_under_its_name(tmp_path, monkeypatch):
    path = save_checkpoint(tmp_path / "c", {"step": 1})
    moves = []

    def second_fails(source, target):
        moves.append(target)
        if len(moves) == 2:
            raise OSError(28, "No space left on device")
        os.rename(source, target)

    monkeypatch.setattr(module.os, "replace", second_fails)
    with pytest.raises(TrimtabError, match="No space"):
        save_checkpoint(path, {"step": 2})
    assert load_checkpoint(path) == {"step": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


def test_a_full_disk_under_safetensors_is_told_in_plain_words(tmp_path, monkeypatch):
    def full(*_):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(TrimtabError, match=r"c: cannot be written: I/O error: No space") as caught:
        save_checkpoint(tmp_path / "c", STATE)
    assert caught.value.kind is ErrorKind.FAILED
    assert list(tmp_path.iterdir()) == []


def test_an_existing_checkpoint_is_replaced(tmp_path):
    for step in (1, 2):
        save_checkpoint(tmp_path / "c", {"step": step, "t": torch.tensor(step)})
    assert load_checkpoint(tmp_path / "c")["step"] == 2
    assert [p.name for p in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize(
    "damage", ["no state", "no tensors", "cut state", "cut tensors", "flipped bit", "format", "empty"]
)
def test_a_damaged_checkpoint_is_refused_and_named(tmp_path, damage):
    path = save_checkpoint(step_path(tmp_path, 5), STATE)
    state, tensors = path / "state.json", path / "tensors.safetensors"
    match damage:
        case "no state":
            state.unlink()
        case "no tensors":
            tensors.unlink()
        case "cut state":
            state.write_text(state.read_text()[:-9])
        case "cut tensors":
            os.truncate(tensors, tensors.stat().st_size // 2)
        case "flipped bit":
            data = bytearray(tensors.read_bytes())
            data[-1] ^= 1
            tensors.write_bytes(data)
        case "format":
            state.write_text(json.dumps(json.loads(state.read_text()) | {"format": 99}))
        case "empty":
            state.write_text("")
    with pytest.raises(TrimtabError, match=r"step-000005 cannot be used") as error:
        load_checkpoint(path)
    assert error.value.kind is ErrorKind.RUN


@pytest.mark.parametrize(
    "change",
    [
        {"state": None},
        {"state": [1]},
        {"state": {"a": {"$tensor": "nope"}}},
        {"state": {"a": {"$float": "zz"}}},
        {"state": {"a": {"$pairs": [1]}}},
        {"state": {"a": {"$pairs": [[[1], 2]]}}},
        {"state": {"iteration": -5}},
        {"state": {"iteration": True}},
        {"state": {"step": 1.5}},
        {"no": "state"},
        "a list",
        "deep",
        "long number",
        "a directory",
    ],
)
def test_a_state_that_none_of_ours_is_names_the_file(tmp_path, change):
    path = save_checkpoint(step_path(tmp_path, 5), {"iteration": 1, "a": torch.ones(2)})
    file = path / "state.json"
    written = json.loads(file.read_text())
    match change:
        case {"no": key}:
            written.pop(key)
            file.write_text(json.dumps(written))
        case dict():
            file.write_text(json.dumps(written | change))
        case "a list":
            file.write_text("[1]")
        case "deep":
            file.write_text("[" * 200_000)
        case "long number":
            file.write_text(f'{{"format": {"9" * 6000}}}')
        case _:
            file.unlink()
            file.mkdir()
    with pytest.raises(TrimtabError, match=r"step-000005 cannot be used: state\.json") as error:
        load_checkpoint(path)
    assert error.value.hint.startswith("remove that directory: the stage then goes on from the checkpoint before it")


def test_latest_ignores_what_is_half_written_and_prune_keeps_the_newest(tmp_path):
    assert latest_checkpoint(tmp_path / "none") is None
    for step in (2, 10, 4):
        save_checkpoint(step_path(tmp_path, step), {"step": step})
    (tmp_path / ".step-000012.77.tmp").mkdir()
    (tmp_path / "step-000011").mkdir()
    (tmp_path / "step-000011" / "tensors.safetensors").touch()
    (tmp_path / "notes.txt").touch()
    assert [s for s, _ in checkpoints(tmp_path)] == [2, 4, 10]
    assert latest_checkpoint(tmp_path) == step_path(tmp_path, 10)
    prune(tmp_path, 1, spare=frozenset({2}))
    assert [s for s, _ in checkpoints(tmp_path)] == [2, 10]
