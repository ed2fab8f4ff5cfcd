"""PPO with engines: who samples, whose log-probabilities are the old ones, and what the correction does."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

import vllm_fakes
from ppo_processes import Case, finish, start, train, weights
from ppo_settings import small
from trimtab import ppo
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.launch import Launch
from trimtab.models.engines.hf import TransformersEngine
from trimtab.models.engines.protocol import NativeEngine
from trimtab.models.roles import CausalModel
from trimtab.ppo.engines import make_engine, samples_as_trainer
from trimtab.runs.run import Run
from trimtab.training.precision import Precision
from trimtab.training.world import World

TIMING = ("time/", "rate/", "memory/")


def _run(tmp_path, name="r") -> Run:
    run = Run.create(tmp_path, name, config={}, seed=0)
    run.begin_stage("ppo", "f")
    return run


def _train(base, codec, prompts, scorer, *, precision=None, run=None, callbacks=(), held_out=None, **changes):
    return ppo.train(
        small(**changes), base.fork(True), codec, prompts, scorer, seed=5, precision=precision, run=run,
        callbacks=callbacks, held_out=held_out,
    )  # fmt: skip


@pytest.mark.parametrize(("engine", "dtype", "same"), [
    ("native", "float32", True), ("native", "bfloat16", False), ("transformers", "float32", False),
    ("http://localhost:1", "float32", False),
])  # fmt: skip
def test_only_the_native_loop_in_float32_samples_as_the_trainer(engine, dtype, same):
    assert samples_as_trainer(small(engine=engine), dtype) is same


def test_transformers_trains_what_the_native_loop_trains_and_the_gap_is_told(base, codec, few_prompts, scorer):
    # One update an iteration: from different old log-probabilities rounding would grow
    settings = {"epochs": 1, "minibatches": 1, "responses_per_prompt": 2}
    native = _train(base, codec, few_prompts, scorer, **settings)
    other = _train(base, codec, few_prompts, scorer, engine="transformers", **settings)
    for name, weight in native.policy.own_state().items():
        torch.testing.assert_close(other.policy.own_state()[name], weight, rtol=0, atol=1e-5)
    for row, plain in zip(other.history, native.history, strict=True):
        assert 0 < row["rollout/logprob_gap_mean"] <= row["rollout/logprob_gap_max"] < 1e-5
        assert row["check/first_ratio_deviation"] == 0.0  # the trainer's own, computed twice
        assert "rollout/logprob_gap_mean" not in plain
        assert "rollout/is_weight_mean" not in row


def test_the_engine_samples_probes_and_reference_too(base, codec, few_prompts, scorer, monkeypatch, tmp_path):
    def refuse(*args, **kwargs):
        raise AssertionError("the native loop was asked")

    monkeypatch.setattr(NativeEngine, "generate", staticmethod(refuse))
    held_out = ppo.HeldOut(few_prompts[:3], {}, 1)
    settings = {"engine": "transformers", "score_normalisation": "reference"}
    found = _train(base, codec, few_prompts, scorer, held_out=held_out, run=_run(tmp_path), **settings)
    assert "eval/score" in found.history[0]


def test_log_probabilities_of_an_engine_are_never_the_old_ones(base, codec, few_prompts, scorer, monkeypatch):
    true = TransformersEngine.generate

    def skewed(self, *args, **kwargs):
        out = true(self, *args, **kwargs)
        return out._replace(logprobs=torch.where(out.mask, out.logprobs - 0.5, 0.0))

    monkeypatch.setattr(TransformersEngine, "generate", skewed)
    with pytest.raises(TrimtabError, match=r"sampler and of the trainer differ by 0\.5 nats") as caught:
        _train(base, codec, few_prompts, scorer, engine="transformers")
    assert caught.value.kind == ErrorKind.CHECK
    with pytest.warns(RuntimeWarning, match="differ by 0.5 nats"):
        found = _train(base, codec, few_prompts, scorer, engine="transformers", checks="warn")
    assert found.history[0]["rollout/logprob_gap_mean"] == pytest.approx(0.5, abs=1e-5)
    assert found.history[0]["check/first_ratio_deviation"] == 0.0
    assert abs(found.history[0]["check/kl_at_start"]) < 1e-6


@pytest.mark.parametrize(("cap", "mean", "truncated"), [(2.0, 1.648721, 0.0), (1.5, 1.5, 1.0)])
def test_the_correction_weighs_every_token(base, codec, few_prompts, scorer, monkeypatch, cap, mean, truncated):
    """The trainer finds every token e^.5 times as likely as the engine did: the policy's gradient is that much more."""
    true = TransformersEngine.generate

    def skewed(self, *args, **kwargs):
        out = true(self, *args, **kwargs)
        return out._replace(logprobs=torch.where(out.mask, out.logprobs - 0.5, 0.0))

    settings = {
        "engine": "transformers", "checks": "warn", "iterations": 1, "epochs": 1, "minibatches": 2, "beta": 0.0,
        "max_grad_norm": 1e9,
    }  # fmt: skip
    plain = _train(base, codec, few_prompts, scorer, **settings).history[0]
    monkeypatch.setattr(TransformersEngine, "generate", skewed)
    with pytest.warns(RuntimeWarning, match="differ by 0.5"):
        found = _train(base, codec, few_prompts, scorer, importance_cap=cap, micro_batch_size=3, **settings).history[0]
    assert found["rollout/is_weight_mean"] == pytest.approx(mean, rel=1e-5)
    assert found["rollout/is_truncated_fraction"] == truncated
    # of the first update alone both start from the same weights: Adam's step does not depend on the gradient's scale
    assert found["policy/gradient_norm"] == pytest.approx(mean * plain["policy/gradient_norm"], rel=2e-2)
    assert found["value/gradient_norm"] == pytest.approx(plain["value/gradient_norm"], rel=1e-5)


def test_the_correction_works_for_the_native_loop_in_bfloat16(base, codec, few_prompts, scorer, monkeypatch):
    """A model this small loses next to nothing in bfloat16: noise stands for what a large one loses."""
    true = NativeEngine.generate

    def noisy(*args, **kwargs):
        out = true(*args, **kwargs)
        noise = 0.1 * torch.rand(out.logprobs.shape, generator=torch.Generator().manual_seed(0)) - 0.05
        return out._replace(logprobs=torch.where(out.mask, out.logprobs + noise, 0.0))

    monkeypatch.setattr(NativeEngine, "generate", staticmethod(noisy))
    frozen = CausalModel(base.hf.to(torch.bfloat16))
    frozen.requires_grad_(False)
    runs = [
        _train(frozen, codec, few_prompts, scorer, precision=Precision("bfloat16"), importance_cap=cap)
        for cap in (None, 1.0, 2.0)
    ]
    rows = [run.history[0] for run in runs]
    assert "rollout/is_weight_mean" not in rows[0]
    assert rows[1]["rollout/logprob_gap_mean"] == pytest.approx(0.025, rel=0.3)
    assert 0.2 < rows[1]["rollout/is_truncated_fraction"] < 0.8
    assert rows[1]["rollout/is_weight_mean"] < 0.995
    assert abs(rows[2]["rollout/is_weight_mean"] - 1) < 0.02
    assert rows[2]["rollout/is_truncated_fraction"] == 0.0
    states = [run.policy.own_state() for run in runs]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert any(not torch.equal(states[one][k], states[other][k]) for k in states[0])


def test_a_correction_of_nothing_is_refused(base, codec, few_prompts, scorer):
    with pytest.raises(TrimtabError, match="importance_cap = 2 has no effect") as caught:
        _train(base, codec, few_prompts, scorer, importance_cap=2.0)
    assert caught.value.kind == ErrorKind.CONFIG


@pytest.mark.parametrize(
    "change", [{"engine": "vlm"}, {"engine": "ftp://x"}, {"engine_options": {"seed": 1}}, {"importance_cap": 0.5}]
)
def test_settings_that_make_no_sense_are_refused(change):
    with pytest.raises(ValueError, match=r"engine|importance_cap"):
        small(**change)


def test_vllm_in_several_processes_is_refused(tmp_path):
    two = World(Launch(0, 2, 0), torch.device("cpu"))
    with vllm_fakes.module(vllm_fakes.Core()), pytest.raises(TrimtabError, match="2 processes"):
        make_engine(small(engine="vllm"), "float32", two, 0, None)


@pytest.mark.parametrize("where", ["module", "server"])
def test_vllm_follows_the_policy_through_the_training(base, codec, few_prompts, scorer, tmp_path, where):
    core = vllm_fakes.Core()
    with getattr(vllm_fakes, where)(core) as url:
        settings = {"engine": url or "vllm", "iterations": 3, "learning_rate": 1e-2, "importance_cap": 2.0}
        run = _run(tmp_path)
        held_out = ppo.HeldOut(few_prompts[:3], {}, 1)
        found = _train(base, codec, few_prompts, scorer, run=run, held_out=held_out, **settings)
        assert len(core.loaded) == 3
        assert all(run.path / "engine" in path.parents for path in core.loaded)
        assert not list((run.path / "engine").iterdir())
    assert all(row["rollout/logprob_gap_max"] < 1e-5 for row in found.history)
    assert found.history[-1]["kl/reference"] > 0.01


def test_an_engine_that_missed_the_weights_is_noticed(base, codec, few_prompts, scorer, monkeypatch):
    core = vllm_fakes.Core()
    load = core.load
    monkeypatch.setattr(core, "load", lambda directory: None if core.loaded else load(directory))
    with vllm_fakes.module(core), pytest.raises(TrimtabError, match="sampler and of the trainer differ"):
        _train(base, codec, few_prompts, scorer, engine="vllm", iterations=3, learning_rate=1e-2)


@pytest.mark.parametrize("cap", [None, 1.0])
def test_a_killed_run_with_transformers_goes_on_as_if_undisturbed(base, codec, few_prompts, scorer, tmp_path, cap):
    class KilledError(Exception):
        pass

    class Kill:
        def on_iteration(self, view):
            if view.step == 3:
                raise KilledError

    settings = {"engine": "transformers", "iterations": 4, "checkpoint_every": 2, "importance_cap": cap}
    straight = _train(base, codec, few_prompts, scorer, run=_run(tmp_path, "a"), **settings)
    run = _run(tmp_path, "b")
    with pytest.raises(KilledError):
        _train(base, codec, few_prompts, scorer, run=run, callbacks=[Kill()], **settings)
    torch.manual_seed(99)  # what an engine must not depend on
    resumed = _train(base, codec, few_prompts, scorer, run=run, **settings)
    for name, weight in straight.policy.own_state().items():
        assert torch.equal(resumed.policy.own_state()[name], weight), name
    for a, b in zip(straight.history, run.metrics("ppo")[-4:], strict=True):
        assert {k: v for k, v in a.items() if not k.startswith(TIMING)} == {
            k: v for k, v in b.items() if not k.startswith(TIMING) and k not in ("stage", "attempt", "time")
        }


@pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this torch has no torch.distributed with gloo",
)
def test_two_processes_train_what_one_does(tmp_path):
    """transformers in both layouts; a server that process 0 alone brings up to date, from weights that are split."""
    common = small(iterations=3, minibatches=1, epochs=1, responses_per_prompt=2).model_dump(
        mode="json", exclude_defaults=True
    )
    core = vllm_fakes.Core()
    with vllm_fakes.server(core) as url:
        cases = [
            Case("ddp-transformers", common | {"engine": "transformers"}),
            Case("fsdp-transformers", common | {"engine": "transformers"}, "fsdp"),
            Case("ddp-server", common | {"engine": url, "importance_cap": 2.0}),
            Case("fsdp-server", common | {"engine": url, "importance_cap": 2.0}, "fsdp"),
        ]
        for code, output in finish(start(tmp_path, cases)):
            assert code == 0, output
        assert len(core.loaded) == 6
        torch.set_num_threads(1)
        for case in cases:
            found = load_file(tmp_path / f"{case.name}.safetensors")
            alone = train(case, World.single(), tmp_path)
            for name, weight in weights(alone).items():
                torch.testing.assert_close(found[name], weight, rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
