"""The loop: invariants, learning, hostile inputs, actions, resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ppo_settings import small
from trimtab import ppo
from trimtab.config.schema import PPOConfig
from trimtab.data.records import Message, Prompt
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.roles import ScalarModel
from trimtab.runs.callbacks import Action
from trimtab.runs.run import Run
from trimtab.scoring import FunctionScorer

CALM = PPOConfig(max_new_tokens=6, checkpoint_every=60, probe_prompts=0)


def _run(tmp_path, name="r") -> Run:
    run = Run.create(tmp_path, name, config={}, seed=0)
    run.begin_stage("ppo", "f")
    return run


class _Say:
    """A callback that returns prepared actions by step."""

    def __init__(self, actions):
        self.actions, self.seen = actions, []

    def on_iteration(self, view):
        self.seen.append((view.step, dict(view.signals)))
        return self.actions.get(view.step)


def test_start_invariants_hold_and_are_reported(base, codec, few_prompts, scorer):
    first = ppo.train(small(), base.fork(True), codec, few_prompts, scorer).history[0]
    assert abs(first["check/kl_at_start"]) < 1e-5
    assert first["check/first_ratio_deviation"] < 1e-4
    assert first["check/padding_gap"] < 1e-4


def test_sampling_at_another_temperature_than_training_is_refused(base, codec, few_prompts, scorer, monkeypatch):
    from trimtab.models.engines.protocol import NativeEngine

    true = NativeEngine.generate
    doubled = staticmethod(lambda *a, temperature, **k: true(*a, temperature=2 * temperature, **k))
    monkeypatch.setattr(NativeEngine, "generate", doubled)
    with pytest.raises(TrimtabError, match=r"before the first update|off 1") as caught:
        ppo.train(small(), base.fork(True), codec, few_prompts, scorer)
    assert caught.value.kind == ErrorKind.CHECK
    with pytest.warns(RuntimeWarning, match="before the first update"):
        ppo.train(small(checks="warn"), base.fork(True), codec, few_prompts, scorer)


def test_a_model_that_ignores_the_padding_mask_is_refused(base, codec, few_prompts, scorer, monkeypatch):
    from trimtab.models.backbone import Backbone

    whole = Backbone.whole

    def blind(self, ids, mask, positions):
        return whole(self, ids, torch.ones_like(mask), positions)

    short = [Prompt("short", (Message("user", few_prompts[0].text.split()[0]),)), *few_prompts]
    monkeypatch.setattr(Backbone, "whole", blind)
    with pytest.raises(TrimtabError) as caught:
        ppo.train(small(batch_size=12), base.fork(True), codec, short, scorer)
    assert caught.value.kind == ErrorKind.CHECK


@pytest.mark.slow
@pytest.mark.parametrize("advantage", ["gae", "rloo", "grpo"])
def test_a_known_optimum_is_reached(base, codec, few_prompts, advantage):
    # One point a response for the share of the word "please" in it: the optimum is 1.
    def share(prompts, responses):
        return [sum(word == "please" for word in r.split()) / max(1, len(r.split())) for r in responses]

    scorer = FunctionScorer("please", share)
    # without a value model, a prompt whose responses have all become equal teaches nothing: a gentler rate avoids that
    of_kind = {"learning_rate": 3e-3, "value_learning_rate": 3e-3, "iterations": 60}
    if advantage != "gae":
        of_kind = {"learning_rate": 1.5e-3, "responses_per_prompt": 8, "iterations": 100}
    config = CALM.model_validate(CALM.model_dump() | {"batch_size": 64, "advantage": advantage, "beta": 0.0} | of_kind)
    history = ppo.train(config, base.fork(True), codec, few_prompts, scorer).history
    assert history[0]["score/mean"] < 0.1
    assert np.mean([row["score/mean"] for row in history[-5:]]) >= 0.95


@pytest.mark.parametrize(
    "settings",
    [
        {"kl_placement": "token"},
        {"kl_placement": "sequence_sum"},
        {"kl_placement": "loss", "kl_estimator": "k2"},
        {"kl_placement": "loss", "kl_estimator": "k3"},
        {"kl_placement": "loss", "kl_estimator": "full"},
    ],
)
def test_beta_brings_a_drifted_policy_back(base, codec, few_prompts, scorer, settings):
    # Free to drift for 8 iterations, then 16 under a beta that outweighs the scores (a KL loss has whitened
    # advantages against it, so it takes more): a penalty of the wrong sign, or one that is not applied,
    # leaves the KL where it was.
    beta = 30.0 if settings["kl_placement"] == "loss" else 2.0
    config = CALM.model_validate(
        CALM.model_dump()
        | {"iterations": 24, "batch_size": 128, "learning_rate": 1e-3, "value_learning_rate": 1e-3, "gae_lambda": 1.0}
        | {"kl_controller": "scheduled", "beta_schedule": [(0, 0.0), (8, 0.0), (9, beta)]}
        | settings
    )
    history = ppo.train(config, base.fork(True), codec, few_prompts, scorer).history
    drifted, back = history[8]["kl/reference"], np.mean([row["kl/reference"] for row in history[-3:]])
    assert drifted > 0.3
    assert back < 0.6 * drifted


@pytest.mark.parametrize("estimator", ["k2", "k3", "full"])
def test_a_penalty_without_the_gradient_of_kl_is_said(base, codec, few_prompts, scorer, estimator):
    with pytest.warns(RuntimeWarning, match="does not have the gradient of the KL"):
        ppo.train(small(kl_estimator=estimator, iterations=1), base.fork(True), codec, few_prompts, scorer)


def test_reference_normalisation_of_a_constant_score_is_refused(base, codec, few_prompts):
    scorer = FunctionScorer("constant", lambda prompts, responses: [2.0] * len(responses))
    with pytest.raises(TrimtabError, match="are all 2"):
        ppo.train(small(score_normalisation="reference"), base.fork(True), codec, few_prompts, scorer)


def test_shared_layers_stay_and_the_rest_moves(base, codec, few_prompts, scorer):
    from trimtab.models.roles import CausalModel
    from trimtab.worlds.model import build_model

    model = CausalModel(build_model(0), 1)
    model.requires_grad_(False)
    policy = model.fork(trainable=True)
    before = {k: v.clone() for k, v in policy.hf.state_dict().items()}
    result = ppo.train(small(), policy, codec, few_prompts, scorer)
    moved = {k for k, v in policy.hf.state_dict().items() if not torch.equal(v, before[k])}
    assert moved
    assert not any(".layers.0." in k or "embed" in k or "lm_head" in k for k in moved)
    assert result.value.boundary == 1
    assert abs(result.history[0]["check/kl_at_start"]) < 1e-5


def test_the_value_model_starts_from_the_preference_model(base, codec, few_prompts, scorer):
    start = ScalarModel.from_causal(base, generator=torch.Generator().manual_seed(1))
    frozen = {k: v.clone() for k, v in start.own_state().items()}
    result = ppo.train(
        small(iterations=1, value_learning_rate=1e-12), base.fork(True), codec, few_prompts, scorer, preference=start
    )
    for name, weight in result.value.own_state().items():
        torch.testing.assert_close(weight, frozen[name], rtol=0, atol=1e-9)
    assert all(
        torch.equal(v, frozen[k]) for k, v in start.own_state().items()
    )  # the preference model itself is not trained


def test_a_score_that_is_no_number_is_named(base, codec, few_prompts):
    scorer = FunctionScorer("broken", lambda prompts, responses: [1.0] * (len(responses) - 1) + [float("nan")])
    with pytest.raises(TrimtabError, match="broken") as caught:
        ppo.train(small(), base.fork(True), codec, few_prompts, scorer)
    assert caught.value.kind == ErrorKind.REWARD


def test_responses_of_nothing_but_eos_train(base, codec, few_prompts):
    # A huge weight on EOS in the tied head: every response is EOS alone, its text is empty.
    with torch.no_grad():
        base.hf.lm_head.weight[codec.eos_id] *= 0
        base.hf.model.norm.weight.zero_()
    scorer = FunctionScorer("words", lambda prompts, responses: [float(len(r)) for r in responses])
    config = small(max_new_tokens=1, missing_eos_penalty=1.0)
    history = ppo.train(config, base.fork(True), codec, few_prompts, scorer).history
    assert all(np.isfinite(v) for row in history for v in row.values() if v is not None)
    assert history[0]["response/length_max"] == 1


def test_a_prompt_longer_than_the_context_is_named(base, codec, few_prompts, scorer):
    long = Prompt("the-long-one", (Message("user", "please " * 60),))
    with pytest.raises(TrimtabError, match="the-long-one") as caught:
        ppo.train(small(), base.fork(True), codec, [*few_prompts, long], scorer)
    assert caught.value.kind == ErrorKind.DATA


def test_no_prompts_is_an_error(base, codec, scorer):
    with pytest.raises(TrimtabError, match="no prompts"):
        ppo.train(small(), base.fork(True), codec, [], scorer)


def test_actions_set_stop_and_are_recorded(base, codec, few_prompts, scorer, tmp_path):
    callback = _Say({1: Action("set", key="ppo.beta", value=0.9, reason="why not"), 2: Action("stop", reason="enough")})
    run = _run(tmp_path)
    result = ppo.train(small(iterations=5), base.fork(True), codec, few_prompts, scorer, run=run, callbacks=[callback])
    assert [row["kl/beta"] for row in result.history] == [0.05, 0.9]
    assert result.stopped == "enough"
    assert [step for step, _ in callback.seen] == [1, 2]
    # what was done survives: a resumed run stays stopped
    again = ppo.train(small(iterations=5), base.fork(True), codec, few_prompts, scorer, run=run, callbacks=[callback])
    assert again.stopped == "enough"
    assert len(again.history) == 2


def test_an_action_may_not_set_what_is_fixed(base, codec, few_prompts, scorer):
    with pytest.raises(TrimtabError, match="batch_size"):
        ppo.train(
            small(),
            base.fork(True),
            codec,
            few_prompts,
            scorer,
            callbacks=[_Say({1: Action("set", key="ppo.batch_size", value=4)})],
        )


def test_rollback_brings_the_weights_back(base, codec, few_prompts, scorer, tmp_path):
    weights = {}

    class Watch(_Say):
        def on_iteration(self, view):
            weights[view.step] = {k: v.clone() for k, v in policy.own_state().items()}
            return super().on_iteration(view)

    policy = base.fork(True)
    config = small(iterations=4, learning_rate=1e-3)
    run = _run(tmp_path)
    ppo.train(config, policy, codec, few_prompts, scorer, run=run, callbacks=[Watch({3: Action("rollback", step=1)})])
    from trimtab.training.checkpoint import load_checkpoint

    saved = load_checkpoint(run.checkpoint_dir("ppo") / "step-000003")["policy"]
    assert all(torch.equal(saved[k], weights[1][k]) for k in saved)
    assert any(not torch.equal(saved[k], weights[3][k]) for k in saved)


@pytest.mark.parametrize("settings", [
    {}, {"kl_controller": "adaptive", "kl_target_nats": 0.1, "kl_horizon_episodes": 40, "value_normalisation": True},
    {"score_normalisation": "running", "learning_rate_schedule": "linear", "warmup_fraction": 0.3},
    {"score_transform": "win_probability", "kl_controller": "scheduled", "beta_schedule": [(0, 0.1), (4, 0.5)]},
])  # fmt: skip
def test_a_killed_run_goes_on_as_if_undisturbed(base, codec, few_prompts, scorer, tmp_path, settings):
    config = small(iterations=4, checkpoint_every=2, **settings)
    straight = ppo.train(config, base.fork(True), codec, few_prompts, scorer, run=_run(tmp_path, "a"), seed=1)

    class KilledError(Exception):
        pass

    class Kill:
        def on_iteration(self, view):
            if view.step == 3:
                raise KilledError

    run = _run(tmp_path, "b")
    with pytest.raises(KilledError):
        ppo.train(config, base.fork(True), codec, few_prompts, scorer, run=run, seed=1, callbacks=[Kill()])
    resumed = ppo.train(config, base.fork(True), codec, few_prompts, scorer, run=run, seed=1)
    for name, weight in straight.policy.own_state().items():
        assert torch.equal(resumed.policy.own_state()[name], weight), name
    timing = ("time/", "rate/", "memory/")
    for a, b in zip(straight.history, run.metrics("ppo")[-4:], strict=True):
        assert {k: v for k, v in a.items() if not k.startswith(timing)} == {
            k: v for k, v in b.items() if not k.startswith(timing) and k not in ("stage", "attempt", "time")
        }
