"""What keeps updates from doing harm, each against the run that goes without it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ppo_settings import small
from trimtab import ppo
from trimtab.data.demonstrations import Demonstration
from trimtab.errors import TrimtabError
from trimtab.models.language import encode_demonstrations, negative_log_likelihood
from trimtab.models.logprobs import hidden_logprobs
from trimtab.ppo.stability import KEPT_BATCHES
from trimtab.runs.run import Run


def _train(base, codec, prompts, scorer, policy=None, run=None, demonstrations=(), **changes):
    policy = policy or base.fork(trainable=True)
    return ppo.train(small(**changes), policy, codec, prompts, scorer, seed=5, run=run, demonstrations=demonstrations)


def _run(tmp_path) -> Run:
    return Run.create(tmp_path, "main", config={}, seed=5)


def _equal(left, right) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


# ---- the rest of an iteration left out


def test_an_update_that_moves_too_far_ends_its_iteration(base, codec, few_prompts, scorer):
    free = _train(base, codec, few_prompts, scorer)
    held = _train(base, codec, few_prompts, scorer, max_update_kl=1e-12)
    wide = _train(base, codec, few_prompts, scorer, max_update_kl=1e9)
    assert [row["policy/updates"] for row in free.history] == [4.0, 4.0]
    # at the first update nothing has moved yet and its KL is 0: the second one is the first to exceed the bound
    assert [row["policy/updates"] for row in held.history] == [2.0, 2.0]
    assert _equal(wide.policy.own_state(), free.policy.own_state())
    assert not _equal(held.policy.own_state(), free.policy.own_state())


# ---- gradients that are not finite


def _spike(policy, at: set[int]):
    """Make the gradient of these backward passes (numbered from 0) NaN."""
    count = iter(range(10**9))
    _, weight = next(policy.own_parameters())
    weight.register_hook(lambda g: torch.full_like(g, math.nan) if next(count) in at else g)


def test_a_spike_is_skipped_counted_and_kept(base, codec, few_prompts, scorer, tmp_path):
    policy, run = base.fork(trainable=True), _run(tmp_path)
    _spike(policy, {0})
    result = _train(base, codec, few_prompts, scorer, policy, run, max_skipped_updates=1)
    assert [row["policy/updates"] for row in result.history] == [3.0, 4.0]
    assert [row["precision/skipped_updates"] for row in result.history] == [1.0, 1.0]
    assert all(math.isfinite(v) for row in result.history for v in row.values())
    assert all(bool(w.isfinite().all()) for w in result.policy.own_state().values())
    (file,) = (run.path / "nonfinite").iterdir()
    kept = load_file(file)
    assert file.name == "iteration-000000-skip-0.safetensors"
    assert kept["ids"].shape[0] == 4
    assert kept["advantages"].shape == kept["response_mask"].shape
    first, _ = next(policy.own_parameters())
    assert math.isnan(float(kept[f"gradient/policy/{first}"]))
    assert any(k.startswith("gradient/value/") for k in kept)


def test_without_leave_the_first_spike_stops_the_run(base, codec, few_prompts, scorer, tmp_path):
    policy, run = base.fork(trainable=True), _run(tmp_path)
    _spike(policy, {0})
    with pytest.raises(TrimtabError, match="not finite; no weight was changed"):
        _train(base, codec, few_prompts, scorer, policy, run)
    assert len(list((run.path / "nonfinite").iterdir())) == 1


def test_too_many_spikes_in_a_row_stop_the_run_and_few_apart_do_not(base, codec, few_prompts, scorer):
    policy = base.fork(trainable=True)
    _spike(policy, {0, 1, 2})
    with pytest.raises(TrimtabError, match="as in the 2 updates before"):
        _train(base, codec, few_prompts, scorer, policy, max_skipped_updates=2)
    policy = base.fork(trainable=True)
    _spike(policy, {0, 1, 3, 4})
    result = _train(base, codec, few_prompts, scorer, policy, max_skipped_updates=2)
    assert result.history[-1]["precision/skipped_updates"] == 4.0


def test_kept_batches_do_not_fill_the_disk(base, codec, few_prompts, scorer, tmp_path):
    policy, run = base.fork(trainable=True), _run(tmp_path)
    _spike(policy, set(range(1000)))
    with pytest.raises(TrimtabError, match="not finite"):
        _train(base, codec, few_prompts, scorer, policy, run, max_skipped_updates=11, iterations=9)
    assert len(list((run.path / "nonfinite").iterdir())) == KEPT_BATCHES


# ---- the value model alone


def test_value_warm_up_trains_the_value_model_and_leaves_policy_and_beta(base, codec, few_prompts, scorer):
    adaptive = {"kl_controller": "adaptive", "kl_target_nats": 6.0, "kl_horizon_episodes": 40}
    result = _train(base, codec, few_prompts, scorer, iterations=3, value_warmup_iterations=2, **adaptive)
    first, second, third = result.history
    assert max(abs(row["kl/reference"]) for row in (first, second)) < 1e-6
    assert "policy/gradient_norm" not in second
    assert first["kl/beta"] == second["kl/beta"] == third["kl/beta"]
    assert second["value/loss"] != first["value/loss"]
    assert third["policy/gradient_norm"] > 0
    assert third["check/first_ratio_deviation"] < 1e-3
    assert not _equal(result.policy.own_state(), base.own_state())


def test_warm_up_does_not_use_up_the_policys_schedule(base, codec, few_prompts, scorer):
    settings = {"iterations": 3, "learning_rate_schedule": "linear"}
    result = _train(base, codec, few_prompts, scorer, value_warmup_iterations=2, **settings)
    alone = _train(base, codec, few_prompts, scorer, iterations=1, learning_rate_schedule="linear")
    assert result.history[-1]["policy/learning_rate"] == alone.history[0]["policy/learning_rate"]


# ---- the entropy bonus


def test_entropy_has_its_gradient(base):
    hidden = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    targets = torch.zeros(2, 3, dtype=torch.long)
    found = hidden_logprobs(base, hidden, targets, 0.7, want_entropy="gradient").entropy
    (gradient,) = torch.autograd.grad(found.sum(), hidden)
    head = base.hf.lm_head.weight.detach().double()
    slow = hidden.detach().double().requires_grad_()
    p = torch.softmax(slow @ head.T / 0.7, -1)
    entropy = -(p * p.log()).sum(-1)
    (expected,) = torch.autograd.grad(entropy.sum(), slow)
    torch.testing.assert_close(found.double(), entropy, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=1e-7)
    assert not hidden_logprobs(base, hidden, targets, 0.7, want_entropy=True).entropy.requires_grad


def test_the_bonus_raises_entropy(base, codec, few_prompts, scorer):
    plain, paid = (
        _train(base, codec, few_prompts, scorer, iterations=6, entropy_coef=c).history[-1]["policy/entropy"]
        for c in (0.0, 10.0)
    )
    assert paid > plain


# ---- demonstrations mixed in


@pytest.fixture
def demonstrations(few_prompts):
    words = ["the", "quick", "red", "fox"]
    return [Demonstration(p, " ".join(words[: 1 + i % 4])) for i, p in enumerate(few_prompts)]


def test_the_language_loss_is_that_of_sft_and_falls(base, codec, few_prompts, scorer, demonstrations):
    settings = {"language_data": "file", "language_batch_size": len(demonstrations), "learning_rate": 1e-3}
    one = {"epochs": 1, "minibatches": 1}
    first = _train(base, codec, few_prompts, scorer, demonstrations=demonstrations, **settings, **one).history[0]
    examples = encode_demonstrations(base, codec, demonstrations, "ppo.language_data")
    expected, _ = negative_log_likelihood(base, codec.pad_id, examples)
    assert first["policy/language_loss"] == pytest.approx(float(expected), rel=1e-5)
    losses = {
        coef: _train(
            base,
            codec,
            few_prompts,
            scorer,
            demonstrations=demonstrations,
            iterations=8,
            language_coef=coef,
            **settings,
        ).history[-1]["policy/language_loss"]
        for coef in (1e-6, 5.0)
    }
    assert losses[5.0] < 0.8 * losses[1e-6]


def test_small_batches_of_demonstrations_go_round_and_resume_alike(
    base, codec, few_prompts, scorer, demonstrations, tmp_path
):
    settings = {"language_data": "file", "language_batch_size": 5, "iterations": 3}
    whole = _train(base, codec, few_prompts, scorer, demonstrations=demonstrations, **settings)
    run = _run(tmp_path)

    class Stop:
        def on_iteration(self, view):
            if view.step == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ppo.train(
            small(**settings), base.fork(trainable=True), codec, few_prompts, scorer, seed=5, run=run,
            demonstrations=demonstrations, callbacks=[Stop()],
        )  # fmt: skip
    again = _train(base, codec, few_prompts, scorer, run=run, demonstrations=demonstrations, **settings)
    assert _equal(again.policy.own_state(), whole.policy.own_state())


# ---- averaged with the reference


def test_the_share_of_the_reference_in_the_end(base, codec, few_prompts, scorer):
    plain = _train(base, codec, few_prompts, scorer).policy.own_state()
    half = _train(base, codec, few_prompts, scorer, reference_share=0.5).policy.own_state()
    whole = _train(base, codec, few_prompts, scorer, reference_share=1.0).policy.own_state()
    start = base.own_state()
    assert not _equal(plain, start)
    for name, weight in start.items():
        torch.testing.assert_close(whole[name], weight, rtol=0, atol=1e-7)
        torch.testing.assert_close(half[name], (plain[name] + weight) / 2, rtol=0, atol=1e-6)


# ---- the gradient's noise


def test_the_noise_scale_is_logged_where_there_are_micro_batches(base, codec, few_prompts, scorer, tmp_path):
    without = _train(base, codec, few_prompts, scorer).history
    assert not any("policy/gradient_noise_scale" in row for row in without)
    rows = _train(base, codec, few_prompts, scorer, micro_batch_size=1, iterations=6).history
    scales = [row["policy/gradient_noise_scale"] for row in rows if "policy/gradient_noise_scale" in row]
    assert scales
    assert all(s >= 0 for s in scales)


def test_the_first_micro_batchs_norm_is_that_of_its_own_mean_gradient(base, codec, few_prompts, scorer, monkeypatch):
    from trimtab.ppo.stability import NoiseScale

    seen = []
    monkeypatch.setattr(NoiseScale, "add", lambda self, *norms: seen.append(norms))
    one = {"iterations": 1, "epochs": 1, "minibatches": 1}
    _train(base, codec, few_prompts, scorer, micro_batch_size=4, **one)
    ((small_norm, large_norm, small_size, large_size),) = seen
    assert (small_size, large_size) == (4, 8)
    whole = _train(base, codec, few_prompts, scorer, **one).history[0]["policy/gradient_norm"]
    assert large_norm == pytest.approx(whole, rel=1e-4)
    assert small_norm > large_norm / 2  # as a mean over its own tokens, not over the minibatch's


def test_a_score_far_out_is_moved_in(base, codec, few_prompts):
    class Outlier:
        name = "outlier"

        def score(self, prompts, responses):
            scores = np.array([0.1 * len(r.text.split()) + 0.01 * (sum(map(ord, r.text)) % 7) for r in responses])
            scores[0] = 1e6
            return scores

    rows = _train(base, codec, few_prompts, Outlier(), score_outlier_sds=5.0).history
    assert all(row["score/max"] == 1e6 for row in rows)
    assert all(row["score/shaped_std"] < 10 for row in rows)
    assert all(row["score/outlier_fraction"] >= 1 / 8 for row in rows)
