"""The checkpoint at the best value of a signal stays, whatever happens; and a run may end with it."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ppo_settings import small
from trimtab import ppo
from trimtab.config.schema import PPOConfig
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.ppo.retention import Best, best_by
from trimtab.runs.callbacks import Action
from trimtab.runs.run import Run
from trimtab.scoring import FunctionScorer
from trimtab.training.checkpoint import checkpoints, load_checkpoint, step_path

VALUES = [0.3, 0.9, 0.1, 0.9, 0.2, 0.5, 0.05, 0.4]
"""Of the signal after iterations 1 to 8."""


def _scorer(values: list[float], first: int = 1):
    """Scores every batch of training as told; kept apart from the responses on purpose."""
    at = [first - 1]

    def score(prompts: Any, responses: Any) -> np.ndarray:
        at[0] += 1
        return np.full(len(responses), values[at[0] - 1]) + 1e-9 * np.arange(len(responses))

    return FunctionScorer("told", score)


def _run(path, name: str = "r") -> Run:
    run = Run.create(path, name, config={}, seed=5, existing="resume")
    run.begin_stage("ppo", "f")
    return run


def _train(base, codec, prompts, run, values=VALUES, first=1, callbacks=(), **changes):
    settings = {"iterations": len(values), "keep_checkpoints": 2, "checkpoint_every": 3, "keep_best": "score/mean"}
    return ppo.train(
        small(**settings | changes), base.fork(trainable=True), codec, prompts, _scorer(values, first), run=run, seed=5,
        callbacks=callbacks,
    )  # fmt: skip


def _steps(run: Run) -> list[int]:
    return [step for step, _ in checkpoints(run.checkpoint_dir("ppo"))]


@given(
    rows=st.lists(st.one_of(st.none(), st.floats(-5, 5), st.just(float("nan"))), max_size=12),
    steps=st.sets(st.integers(1, 12)),
    lower=st.booleans(),
)
def test_the_best_of_what_was_measured_and_kept(rows, steps, lower):
    history = [{"step": i, **({} if x is None else {"s": x})} for i, x in enumerate(rows, 1)]
    found = Best("s", lower).step(history, steps)
    known = {i: x for i, x in enumerate(rows, 1) if x is not None and x == x and i in steps}
    if not known:
        assert found is None
    else:
        assert known[found] == (min if lower else max)(known.values())
        assert not any(x == known[found] for i, x in known.items() if i < found)


def test_after_a_rollback_the_weights_are_not_those_measured():
    history = [{"step": 1, "s": 1.0}, {"step": 2, "s": 5.0}]
    assert Best("s").step(history, [1, 2], [{"after": 2, "kind": "rollback", "step": 1}]) == 1
    assert Best("s").step(history, [1, 2], [{"after": 2, "kind": "set"}]) == 2


@pytest.mark.parametrize(
    ("signal", "steps"),
    [
        (None, [6, 8]),
        ("score/mean", [2, 6, 8]),  # written when it was best, though none was due; the second .9 is no better
        ("-score/mean", [7, 8]),  # the lowest, .05, is among the newest two
    ],
)
def test_the_best_stays_beside_the_newest(base, codec, few_prompts, tmp_path, signal, steps):
    run = _run(tmp_path)
    _train(base, codec, few_prompts, run, keep_best=signal)
    assert _steps(run) == steps


def test_the_best_survives_a_kill_and_a_change_of_the_signal(base, codec, few_prompts, tmp_path):
    whole = _run(tmp_path, "whole")
    undisturbed = _train(base, codec, few_prompts, whole)

    class Kill:
        def on_iteration(self, view: Any) -> None:
            if view.step == 5:
                raise KeyboardInterrupt

    run = _run(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        _train(base, codec, few_prompts, run, callbacks=[Kill()])
    assert _steps(run) == [2, 3]
    resumed = _train(base, codec, few_prompts, run, first=4)
    assert _steps(run) == _steps(whole) == [2, 6, 8]
    for name, weight in undisturbed.policy.own_state().items():
        assert torch.equal(resumed.policy.own_state()[name], weight)
    kept = [load_checkpoint(step_path(r.checkpoint_dir("ppo"), 2))["policy"] for r in (whole, run)]
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])
    # another signal from now on: of what is still there
    _train(base, codec, few_prompts, run, [*VALUES, 0.01], first=9, keep_best="-score/mean")
    assert _steps(run) == [8, 9]


def test_a_run_ends_with_its_best_policy(base, codec, few_prompts, tmp_path):
    run = _run(tmp_path)
    result = _train(base, codec, few_prompts, run, end_with="best")
    kept = load_checkpoint(step_path(run.checkpoint_dir("ppo"), 2))["policy"]
    assert result.best == 2
    assert all(torch.equal(weight, kept[name]) for name, weight in result.policy.own_state().items())
    last = load_checkpoint(step_path(run.checkpoint_dir("ppo"), 8))["policy"]
    assert any(not torch.equal(weight, last[name]) for name, weight in result.policy.own_state().items())
    again = _train(base, codec, few_prompts, run, end_with="best")  # nothing left to do: the same end
    assert all(torch.equal(weight, kept[name]) for name, weight in again.policy.own_state().items())


def test_a_checkpoint_of_other_weights_is_not_the_best(base, codec, few_prompts, tmp_path):
    class Back:
        def on_iteration(self, view: Any) -> Action | None:
            return Action("rollback", step=1, reason="no") if view.step == 2 else None

    run = _run(tmp_path)
    _train(base, codec, few_prompts, run, [0.3, 0.9, 0.1, 0.2], callbacks=[Back()], checkpoint_every=1)
    assert _steps(run) == [1, 3, 4]


def test_a_lost_best_is_no_reason_to_fail(base, codec, few_prompts, tmp_path):
    run = _run(tmp_path)
    _train(base, codec, few_prompts, run, VALUES[:4])
    shutil.rmtree(step_path(run.checkpoint_dir("ppo"), 2))
    _train(base, codec, few_prompts, run, first=5)
    assert _steps(run) == [4, 6, 8]


HELD_OUT = ppo.HeldOut([], {"gold": None, "refusals": None})


@pytest.mark.parametrize(
    ("key", "held_out", "says"),
    [
        ("policy/entropi", None, "PPO logs no signal policy/entropi"),
        ("-loss/train", None, "PPO logs no signal loss/train"),
        ("eval/refusal", HELD_OUT, "does not measure eval/refusal"),
        ("eval/score", None, "does not measure eval/score"),
        ("gold/mean", None, "does not measure gold/mean"),
    ],
)
def test_a_signal_that_will_not_be_there_is_refused_at_the_start(key, held_out, says):
    with pytest.raises(TrimtabError, match=says) as error:
        best_by(small(keep_best=key), held_out)
    assert error.value.kind == ErrorKind.CONFIG


def test_signals_that_will_be_there_are_taken():
    assert best_by(small(), None) is None
    assert best_by(small(keep_best="-eval/refusals"), HELD_OUT) == Best("eval/refusals", True)
    assert best_by(small(keep_best="gold/mean"), HELD_OUT) == Best("gold/mean")
    assert best_by(small(keep_best="eval/score"), HELD_OUT) == Best("eval/score")


def test_best_by_nothing_is_refused():
    with pytest.raises(ValueError, match='end_with = "best" needs keep_best'):
        PPOConfig(end_with="best")


def test_a_signal_that_never_comes_is_said(base, codec, few_prompts, tmp_path):
    with pytest.warns(RuntimeWarning, match="score/other was not measured"):
        _train(base, codec, few_prompts, _run(tmp_path), VALUES[:1], keep_best="score/other")
