"""Our side of the vLLM engines, against stand-ins: what is asked, how weights travel, what comes back."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest
import torch

import vllm_fakes
from trimtab.config.layout import Layout
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.engines.vllm import VllmEngine, VllmServerEngine
from trimtab.models.logprobs import response_logprobs
from trimtab.models.roles import CausalModel

PAD, ENDS = 0, (2, 3, 4, 5, 6, 7, 8)


@pytest.fixture
def core():
    return vllm_fakes.Core()


@pytest.fixture(params=["in process", "server"])
def engine(request, core, tmp_path):
    with ExitStack() as stack:
        if request.param == "server":
            yield VllmServerEngine(stack.enter_context(vllm_fakes.server(core)) + "/v1/", tmp_path, PAD)
        else:
            stack.enter_context(vllm_fakes.module(core))
            yield VllmEngine(tmp_path, PAD)


def sample(engine, model, batch, *, seed=0, **changes):
    settings = {"max_new_tokens": 6, "temperature": 0.7, "eos_ids": ENDS, "pad_id": PAD} | changes
    return engine.generate(model, *batch, generator=torch.Generator().manual_seed(seed), **settings)


def gap(model, batch, out, temperature=0.7, k=1):
    ids, mask = (x.repeat_interleave(k, 0) for x in batch)
    with torch.no_grad():
        known = response_logprobs(
            model, torch.cat([ids, out.tokens], 1), torch.cat([mask, out.mask], 1), ids.shape[1], temperature
        ).logprobs
    return float((known - out.logprobs)[out.mask].abs().max())


def policy_of(causal):
    return causal.fork(trainable=True)


def test_the_weights_at_hand_are_sampled_from_after_every_sync(engine, core, build, batch):
    policy = policy_of(CausalModel(build()))
    for turn in range(3):
        engine.sync(policy)
        found = sample(engine, policy, batch, responses_per_prompt=2)
        assert gap(policy, batch, found, k=2) < 1e-5
        assert len(found.tokens) == 10
        assert core.resets >= turn  # one that has just been started has no prefixes
        with torch.no_grad():
            for weight in policy.trainable_parameters():
                weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(turn)))
        assert gap(policy, batch, found, k=2) > 1e-2


def test_adapters_are_merged_into_what_is_handed_over(engine, build, batch):
    policy = policy_of(CausalModel(build(), lora=Layout.parse("lora").lora))
    with torch.no_grad():
        for name, weight in policy.own_parameters():
            if ".lora_B." in name:
                weight.normal_(generator=torch.Generator().manual_seed(1))
    engine.sync(policy)
    assert gap(policy, batch, sample(engine, policy, batch)) < 1e-4


def test_one_copy_of_the_weights_stays_until_the_end(engine, core, build, tmp_path):
    policy = policy_of(CausalModel(build()))
    for _ in range(2):
        engine.sync(policy)
    assert list(tmp_path.iterdir()) == [core.loaded[-1]]
    assert core.loaded[-1].is_absolute()
    assert core.loaded[0] != core.loaded[1]
    engine.close()
    assert not list(tmp_path.iterdir())


def test_the_whole_softmax_and_our_own_ends_are_asked_for(engine, core, build, batch):
    policy = policy_of(CausalModel(build()))
    engine.sync(policy)
    core.asked.clear()
    sample(engine, policy, batch, responses_per_prompt=3, eos_ids=(2, 7, 4000))
    assert len(core.asked) == 5
    for told in core.asked:
        wanted = {
            "n": 3, "max_tokens": 6, "temperature": 0.7, "top_p": 1.0, "top_k": -1, "min_p": 0.0,
            "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "ignore_eos": True,
            "stop_token_ids": [2, 7], "logprobs": 0,
        }  # fmt: skip
        assert wanted.items() <= told.items()
    assert len({told["seed"] for told in core.asked}) == 5


def test_seeds_are_of_the_stream_and_parts_get_those_of_the_whole(engine, build, batch):
    policy = policy_of(CausalModel(build()))
    engine.sync(policy)
    ids, mask = batch[0][:4], batch[1][:4]
    whole = sample(engine, policy, (ids, mask), eos_ids=())
    assert torch.equal(sample(engine, policy, (ids, mask), eos_ids=()).tokens, whole.tokens)
    assert not torch.equal(sample(engine, policy, (ids, mask), eos_ids=(), seed=1).tokens, whole.tokens)
    for number in range(2):
        rows = slice(2 * number, 2 * number + 2)
        own = sample(engine, policy, (ids[rows], mask[rows]), eos_ids=(), part=(number, 2))
        assert torch.equal(own.tokens, whole.tokens[rows])


def test_responses_to_a_prompt_stand_in_the_order_of_their_numbers(engine, core, build, batch):
    policy = policy_of(CausalModel(build()))
    engine.sync(policy)
    core.asked.clear()
    found = sample(engine, policy, batch, responses_per_prompt=3, eos_ids=())
    seeds = {tuple(core.respond(batch[0][0].tolist(), told, told["seed"])[0]): told["seed"] for told in core.asked}
    first = tuple(found.tokens[0].tolist())
    told = next(told for told in core.asked if told["seed"] == seeds[first])
    for number in range(3):
        wanted, _ = core.respond(batch[0][0].tolist(), told, told["seed"] + number)
        assert found.tokens[number].tolist() == wanted


def test_prefixes_of_older_weights_are_not_put_up_with(engine, core, build):
    policy = policy_of(CausalModel(build()))
    engine.sync(policy)
    core.frees = False
    with pytest.raises(TrimtabError, match="kept prefixes"):
        engine.sync(policy)


def test_vllm_is_started_as_the_trainer_computes(core, build, tmp_path):
    model = CausalModel(build().to(torch.bfloat16))
    with vllm_fakes.module(core):
        VllmEngine(tmp_path, PAD, {"tensor_parallel_size": 2, "gpu_memory_utilization": 0.3}).sync(policy_of(model))
    told = core.asked[0]
    assert told["dtype"] == "bfloat16"
    assert core.model.dtype == torch.bfloat16
    assert told["logprobs_mode"] == "processed_logprobs"
    assert told["generation_config"] == "vllm"
    assert (told["tensor_parallel_size"], told["gpu_memory_utilization"]) == (2, 0.3)


@pytest.mark.parametrize("option", ["dtype", "model", "logprobs_mode"])
def test_an_option_that_is_not_the_users_is_refused(core, tmp_path, option):
    with vllm_fakes.module(core), pytest.raises(TrimtabError, match=f"engine_options.{option}"):
        VllmEngine(tmp_path, PAD, {option: "x"})


def test_an_unknown_option_is_an_error_in_one_line(core, build, tmp_path):
    with vllm_fakes.module(core), pytest.raises(TrimtabError, match="unexpected keyword argument") as caught:
        VllmEngine(tmp_path, PAD, {"no_such_option": 1}).sync(policy_of(CausalModel(build())))
    assert "\n" not in caught.value.message


def test_without_vllm_the_command_that_installs_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(TrimtabError) as caught:
        VllmEngine(tmp_path, PAD)
    assert caught.value.kind == ErrorKind.MISSING
    assert "trimtab[vllm]" in caught.value.hint


def test_no_server_a_closed_one_and_one_that_fails_are_told_apart(core, build, tmp_path):
    policy = policy_of(CausalModel(build()))
    with pytest.raises(TrimtabError, match=r"no vLLM server answers at .*:9/collective_rpc") as caught:
        VllmServerEngine("http://127.0.0.1:9", tmp_path, PAD).sync(policy)
    assert caught.value.kind == ErrorKind.MISSING
    with vllm_fakes.server(core) as url:
        engine = VllmServerEngine(url, tmp_path, PAD)
        core.broken = (404, "Not Found")
        with pytest.raises(TrimtabError, match="404 to /collective_rpc") as caught:
            engine.sync(policy)
        assert "VLLM_SERVER_DEV_MODE=1" in caught.value.hint
        core.broken = (500, "worker failed")
        with pytest.raises(TrimtabError, match="500 to /collective_rpc"):
            engine.sync(policy)


def test_a_server_that_gives_no_tokens_is_too_old(core, build, batch, tmp_path, monkeypatch):
    policy = policy_of(CausalModel(build()))
    monkeypatch.setattr(core, "respond", lambda *a: (None, [-1.0]))
    with vllm_fakes.server(core) as url:
        engine = VllmServerEngine(url, tmp_path, PAD)
        engine.sync(policy)
        with pytest.raises(TrimtabError, match="no token ids"):
            sample(engine, policy, batch)


def test_the_key_of_the_server_is_sent(core, build, tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    with vllm_fakes.server(core) as url:
        VllmServerEngine(url, tmp_path, PAD).sync(policy_of(CausalModel(build())))
    assert {told["key"] for told in core.asked} == {"Bearer secret"}


def test_a_context_that_is_too_small_for_the_response_is_refused(engine, core, build, batch, monkeypatch):
    policy = policy_of(CausalModel(build()))
    engine.sync(policy)
    monkeypatch.setattr(core, "respond", lambda *a: ([9, 9], [-1.0, -1.0]))
    with pytest.raises(TrimtabError, match="no end: 6"):
        sample(engine, policy, batch)
