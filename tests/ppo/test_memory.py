"""As many responses in memory as fit: found, agreed on, remembered; and nothing learned differently for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ppo_settings import small
from trimtab import ppo
from trimtab.config.schema import PPOConfig
from trimtab.errors import TrimtabError
from trimtab.models.engines import protocol
from trimtab.models.generation import Generated, generate
from trimtab.models.roles import CausalModel
from trimtab.ppo import experience, memory, parts, update
from trimtab.runs.run import Run
from trimtab.training.memory import RowLimit, kept_for_backward
from trimtab.training.precision import Precision
from trimtab.worlds.model import build_model


def _weights(result: ppo.PPOResult) -> dict[str, torch.Tensor]:
    found = {f"policy.{k}": v.clone() for k, v in result.policy.own_state().items()}
    assert result.value is not None
    return found | {f"value.{k}": v.clone() for k, v in result.value.own_state().items()}


def _train(base: CausalModel, codec: Any, prompts: Any, scorer: Any, run: Run | None = None, **changes: Any):
    return ppo.train(small(**changes), base.fork(trainable=True), codec, prompts, scorer, seed=5, run=run)


def _same(a: ppo.PPOResult, b: ppo.PPOResult) -> None:
    left, right = _weights(a), _weights(b)
    for name, weight in left.items():
        assert torch.equal(weight, right[name]), name
    timing = ("time/", "rate/", "memory/")
    for x, y in zip(a.history, b.history, strict=True):
        learned = [{k: v for k, v in row.items() if not k.startswith(timing)} for row in (x, y)]
        assert learned[0] == {k: v for k, v in learned[1].items() if k not in ("stage", "attempt", "time")}


def _full(rows: int) -> RuntimeError:
    return RuntimeError(f"DefaultCPUAllocator: can't allocate memory: {rows} rows")


@pytest.fixture
def value_fits(monkeypatch):
    """The value part of an update, after the policy's backward pass, holds so many rows."""
    value_part = update._value_part

    def limit(rows: int) -> None:
        def limited(learner, value, batch, *rest):
            if len(batch) > rows:
                raise _full(len(batch))
            return value_part(learner, value, batch, *rest)

        monkeypatch.setattr(update, "_value_part", limited)

    return limit


def test_an_update_that_does_not_fit_is_repeated_exactly(base, codec, few_prompts, scorer, value_fits):
    # 4 responses a minibatch: the first attempt leaves the policy's gradient, the first ratio and a maximum behind
    told = _train(base, codec, few_prompts, scorer, micro_batch_size=2)
    value_fits(3)
    found = _train(base, codec, few_prompts, scorer)
    _same(told, found)
    assert [row["memory/micro_batch_size"] for row in found.history] == [2.0, 2.0]
    assert found.history[-1]["policy/updates"] == 4


def test_scoring_that_does_not_fit_is_repeated_with_fewer(base, codec, few_prompts, scorer, monkeypatch):
    response_logprobs, sizes = experience.response_logprobs, []

    def limited(model, ids, *rest, **options):
        if len(ids) > 5:
            raise _full(len(ids))
        sizes.append(len(ids))
        return response_logprobs(model, ids, *rest, **options)

    told = _train(base, codec, few_prompts, scorer)
    monkeypatch.setattr(experience, "response_logprobs", limited)
    found = _train(base, codec, few_prompts, scorer)
    assert set(sizes) == {4}
    assert [row.get("memory/scoring_rows") for row in found.history] == [4.0, 4.0]
    for name, weight in _weights(told).items():
        torch.testing.assert_close(_weights(found)[name], weight, rtol=0, atol=1e-5)


def test_not_even_one_response_fits(base, codec, few_prompts, scorer, value_fits):
    value_fits(0)
    with pytest.raises(TrimtabError, match=r"memory ran out in an update with 1 response at once: .* 1 rows"):
        _train(base, codec, few_prompts, scorer)


def test_a_number_that_was_asked_for_is_not_changed_in_silence(base, codec, few_prompts, scorer, value_fits):
    value_fits(3)
    with pytest.raises(TrimtabError, match="with 4 responses at once") as error:
        _train(base, codec, few_prompts, scorer, micro_batch_size=4)
    assert 'micro_batch_size = "auto"' in error.value.hint


def test_a_resumed_run_goes_on_with_the_size_that_was_found(
    base, codec, few_prompts, scorer, value_fits, monkeypatch, tmp_path
):
    sizes: list[int] = []
    policy_part = update._policy_part
    monkeypatch.setattr(update, "_policy_part", lambda at, b, *rest: sizes.append(len(b)) or policy_part(at, b, *rest))
    undisturbed = Run.create(tmp_path, "a", config={}, seed=5)
    undisturbed.begin_stage("ppo", "f")
    value_fits(3)
    whole = _train(base, codec, few_prompts, scorer, undisturbed, iterations=3)
    run = Run.create(tmp_path, "b", config={}, seed=5)
    run.begin_stage("ppo", "f")
    calls = []

    def killed(prompts, responses):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return scorer.score(prompts, responses)

    class Killed:
        name = "length"
        score = staticmethod(killed)

    with pytest.raises(KeyboardInterrupt):
        _train(base, codec, few_prompts, Killed(), run, iterations=3)
    value_fits(1000)  # there is room again: all the same, the sums stay those of the undisturbed run
    sizes.clear()
    _same(whole, _train(base, codec, few_prompts, scorer, run, iterations=3))
    assert set(sizes) == {2}


def test_a_budget_decides_beforehand(base, codec, few_prompts, scorer):
    of_one = memory.update_memory(small(), base.fork(trainable=True), Precision(), 20)
    assert of_one.per_row > 1000
    # the prompts of the fixture set the width: at least one response, fewer than all four
    rows = [
        _train(base, codec, few_prompts, scorer, iterations=1, activation_gib=gib).history[0]["memory/micro_batch_size"]
        for gib in (1e-9, 1.0)
    ]
    assert rows == [1.0, 4.0]


def test_what_an_update_keeps_grows_with_its_responses_as_counted(base):
    policy, config = base.fork(trainable=True), small(max_new_tokens=8)
    counted = memory.update_memory(config, policy, Precision(), 12)
    ids = torch.zeros(7, 20, dtype=torch.int64)

    def seven(rows: int) -> Any:
        some = ids[: 7 if rows == 1 else 1]
        return experience.response_logprobs(policy, some, torch.ones_like(some, dtype=torch.bool), 12, 1.0)

    # what `kept_for_backward` saw at "1 row" is fixed + per_row of its own count: 7 rows against 1
    found = kept_for_backward(seven, policy.parameters())
    total = found.fixed + found.per_row
    assert total == pytest.approx(counted.fixed + 7 * counted.per_row, rel=0.02)


def test_long_rows_are_counted_by_shorter_ones(base, monkeypatch):
    policy, config = base.fork(trainable=True), small(max_new_tokens=60)
    short = memory.update_memory(config, policy, Precision(), 180)
    monkeypatch.setattr(memory, "_COUNTED_TOKENS", 10_000)
    whole = memory.update_memory(config, policy, Precision(), 180)
    assert short != whole
    assert short.per_row == pytest.approx(whole.per_row, rel=0.02)


def test_recomputing_needs_less_by_the_count(base):
    policy = base.fork(trainable=True)
    kept = memory.update_memory(small(), policy, Precision(), 20)
    policy.backbone.recompute = True
    less = memory.update_memory(small(), policy, Precision(), 20)
    assert policy.backbone.recompute
    # what one layer keeps, and what each of them reads: 26 tokens in float32
    layers, width = base.hf.config.num_hidden_layers, base.hf.config.hidden_size
    assert less.per_row == kept.per_row // layers + layers * 26 * width * 4
    assert less.per_row < kept.per_row


@pytest.mark.parametrize("boundary", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recomputed_layers_learn_the_same(codec, few_prompts, scorer, boundary, dtype):
    start = CausalModel(build_model(0).to(getattr(torch, dtype)), boundary)
    start.requires_grad_(False)
    kept, again = (
        ppo.train(
            small(recompute=on), start.fork(trainable=True), codec, few_prompts, scorer, seed=5,
            precision=Precision(dtype),
        )
        for on in (False, True)
    )  # fmt: skip
    _same(kept, again)


def test_recomputing_keeps_less(base):
    policy = base.fork(trainable=True)
    ids = torch.zeros(2, 30, dtype=torch.int64)

    def held() -> int:
        total = 0

        def pack(x: torch.Tensor) -> torch.Tensor:
            nonlocal total
            total += x.nbytes
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            policy.hidden(ids, torch.ones_like(ids, dtype=torch.bool))
        return total

    before = held()
    policy.backbone.recompute = True
    assert held() < before / 4


def test_a_model_that_is_no_list_of_layers_cannot_recompute(base):
    policy = base.fork(trainable=True)
    policy.backbone.splittable = "its body has no `layers`"
    with pytest.raises(TrimtabError, match=r"ppo\.recompute: .*has no `layers`"):
        memory.recompute(small(recompute=True), policy)
    memory.recompute(small(), policy)


def test_keys_and_values_of_a_response_are_counted(base):
    config = base.hf.config
    heads = config.num_key_value_heads * getattr(config, "head_dim", config.hidden_size // config.num_attention_heads)
    expected = 2 * config.num_hidden_layers * heads * (9 + 6) * 4 + config.vocab_size * 20
    assert memory.decoding_bytes(small(), base, Precision(), 9) == expected


def test_a_budget_with_a_size_is_refused():
    with pytest.raises(ValueError, match="activation_gib has no effect with micro_batch_size = 4"):
        PPOConfig(micro_batch_size=4, activation_gib=1.0)


@given(prompts=st.integers(1, 12), k=st.integers(1, 12), rows=st.integers(1, 200))
def test_parts_are_equal_and_no_larger_than_allowed(prompts, k, rows):
    some, each = parts.size_of_parts(prompts, k, rows)
    assert prompts % some == 0
    assert k % each == 0
    assert some * each <= rows
    assert each == k or some == 1  # a prompt's responses are parted only where they do not fit together
    if each == k:  # and no larger part of whole prompts would fit
        assert not any(prompts % n == 0 and n * k <= rows for n in range(some + 1, prompts + 1))


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 11])
@pytest.mark.parametrize("part", [(0, 1), (1, 2)])
def test_responses_sampled_in_parts_are_the_same(base, codec, rows, part):
    ids = torch.arange(18).view(3, 6) + 4
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[1, :3] = False

    def sampled(limit: RowLimit) -> tuple[Generated, torch.Tensor, list[int]]:
        generator, sizes = torch.Generator().manual_seed(3), []

        def sample(ids, mask, k, part):
            sizes.append(len(ids) * k)
            return generate(
                base, ids, mask, max_new_tokens=7, temperature=1.0, eos_ids=range(60, 104), pad_id=0,
                generator=generator, responses_per_prompt=k, part=part,
            )  # fmt: skip

        return parts.sample_in_parts(sample, ids, mask, 4, part, generator, 0, limit), generator.get_state(), sizes

    whole, after, sizes = sampled(RowLimit("sampling", None, adapts=True))
    assert sizes == [12]
    assert len(set(whole.mask.sum(1).tolist())) > 1
    cut, after_parts, sizes = sampled(RowLimit("sampling", rows, adapts=True))
    assert len(sizes) > 1
    assert max(sizes) <= rows
    assert torch.equal(after, after_parts)
    for name in ("tokens", "mask", "finished"):
        assert torch.equal(getattr(whole, name), getattr(cut, name)), name
    torch.testing.assert_close(cut.logprobs, whole.logprobs, rtol=0, atol=1e-5)


def test_sampling_that_does_not_fit_is_repeated_with_the_same_numbers(base, codec, few_prompts, scorer, monkeypatch):
    told = _train(base, codec, few_prompts, scorer)
    whole = protocol.generate

    def limited(model, ids, *rest, responses_per_prompt=1, generator, **options):
        found = whole(model, ids, *rest, responses_per_prompt=responses_per_prompt, generator=generator, **options)
        if len(ids) * responses_per_prompt > 5:
            raise _full(len(ids))  # after the random numbers were drawn
        return found

    monkeypatch.setattr(protocol.NativeEngine, "generate", staticmethod(limited))
    found = _train(base, codec, few_prompts, scorer)
    assert [row["memory/rollout_rows"] for row in found.history] == [4.0, 4.0]
    for name, weight in _weights(told).items():
        torch.testing.assert_close(_weights(found)[name], weight, rtol=0, atol=1e-5)


def test_all_sizes_are_part_of_the_checkpoint():
    one = memory.Memory(small())
    one.update.rows, one.scoring.rows, one.rollout.rows = 1, 2, 3
    other = memory.Memory(small())
    other.load_state_dict(one.state_dict())
    assert (other.update.rows, other.scoring.rows, other.rollout.rows) == (1, 2, 3)
    assert other.signals(small()) == {
        "memory/micro_batch_size": 1.0, "memory/scoring_rows": 2.0, "memory/rollout_rows": 3.0,
    }  # fmt: skip
    told = memory.Memory(small(micro_batch_size=4))
    told.load_state_dict(one.state_dict())
    assert (told.update.rows, told.scoring.rows, told.rollout.rows) == (4, 4, 3)
