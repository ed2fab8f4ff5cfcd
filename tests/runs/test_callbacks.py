"""Actions and callbacks."""

from __future__ import annotations

import json

import pytest

from trimtab.runs import Action, Callback, IterationView
from trimtab.runs.callbacks import StatefulCallback


class Stopper:
    def on_iteration(self, view: IterationView) -> Action | None:
        return Action("stop", reason="kl") if (view.signals["kl/reference"] or 0) > 10 else None


class Counter(Stopper):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize(
    "action",
    [
        Action("set", key="ppo.beta", value=0.1, reason="kl too high"),
        Action("set", key="ppo.score_clip", value=None),
        Action("rollback", step=3),
        Action("rollback"),
        Action("stop"),
    ],
)
def test_actions_survive_json(action):
    assert Action.from_dict(json.loads(json.dumps(action.to_dict()))) == action


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "pause"},
        {"kind": "set"},
        {"kind": "stop", "key": "a"},
        {"kind": "stop", "step": 1},
        {"kind": "rollback", "value": 1},
    ],
)
def test_actions_that_make_no_sense_are_refused(fields):
    with pytest.raises(ValueError, match=r"."):
        Action(**fields)


def test_plain_classes_are_callbacks():
    assert isinstance(Stopper(), Callback)
    assert not isinstance(Stopper(), StatefulCallback)
    assert isinstance(Counter(), StatefulCallback)
    assert Stopper().on_iteration(IterationView(1, {"kl/reference": 11.0})).kind == "stop"
    assert Stopper().on_iteration(IterationView(1, {"kl/reference": None})) is None
