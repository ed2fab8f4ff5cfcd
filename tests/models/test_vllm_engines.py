"""Our side of the vLLM engines, against stand-ins: what is asked, how weights travel, what comes back."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

import vllm_fakes
from trimtab.config.layout import Layout
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.models.engines import answers
from trimtab.models.engines.answers import Server
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
    with pytest.raises(TrimtabError, match=r"no vLLM server answers at .*:9/v1/models") as caught:
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


# A server that is no vLLM, or a broken one.


@contextmanager
def answering(
    what: Any = None, *, raw: bytes | None = None, code: int = 200, **headers: str
) -> Iterator[tuple[str, list[tuple[str, str, str | None]]]]:
    """A server that answers everything alike, and what it was asked: method, path and key."""
    data = json.dumps(what).encode() if raw is None else raw
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            asked.append((self.command, self.path, self.headers["Authorization"]))
            self.send_response(code)
            for name, value in ({"Content_Length": str(len(data))} | headers).items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *args: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}", asked
    finally:
        running.shutdown()
        running.server_close()


BODY = {"n": 2, "max_tokens": 3, "prompt": [5]}
ASKED = {
    "/v1/models": lambda server: server.model(),
    "/collective_rpc": lambda server: server.load(Path("weights")),
    "/reset_prefix_cache": lambda server: server.forget(),
    "/v1/completions": lambda server: server.complete(BODY, 104),
}


def told(path: str, what: Any = None, **how: Any) -> TrimtabError:
    """The error that an answer to a request ends with; it names the URL."""
    with answering(what, **how) as (url, _), pytest.raises(TrimtabError) as caught:
        ASKED[path](Server(url))
    assert url + path in caught.value.message
    assert "\n" not in caught.value.message
    return caught.value


def choice(index: Any = 0, tokens: Any = (5, 2), values: Any = (-0.5, -1)) -> dict[str, Any]:
    return {"index": index, "token_ids": tokens, "logprobs": {"token_logprobs": values}}


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_error_and_its_target_is_never_asked(path, code, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    with answering({}) as (target, leaked), answering(code=code, Location=target + "/x") as (url, asked):
        with pytest.raises(TrimtabError, match=f"{code} to {path}: a redirect to '{target}/x'"):
            ASKED[path](Server(url))
        assert len(asked) == 1
        assert leaked == []


@pytest.mark.parametrize("target", ["http://[::1", "file:///etc/passwd", ""])
def test_a_redirect_to_nowhere_is_told_as_one(target):
    with answering(code=302, Location=target) as (url, _), pytest.raises(TrimtabError, match="a redirect to"):
        Server(url).model()


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("raw", [b"<html>hello", b"\xff\xfe", b"1" * 6000, b"{"])
def test_what_is_no_json_is_told_with_its_start(path, raw):
    assert (
        "answered with something that is no JSON: '" + raw[:7].decode(errors="replace") in told(path, raw=raw).message
    )


@pytest.mark.parametrize("path", ASKED)
def test_json_of_another_kind_is_refused(path):
    assert "nested" in told(path, raw=b"[" * 200_000).message
    for other in ([1], None, "hi", 7):
        assert "the answer is" in told(path, other).message
    assert "answered with an error: 'no such rpc'" in told(path, {"error": "no such rpc"}).message


@pytest.mark.parametrize("path", ["/v1/models", "/v1/completions"])
def test_an_empty_answer_is_none_where_one_is_needed(path):
    assert "no JSON: ''" in told(path, raw=b"").message


@pytest.mark.parametrize(("answer", "key"), [
    ({}, "data is null"), ({"data": []}, r"data is []"), ({"data": {}}, "data is {}"), ({"data": [1]}, "data[0] is 1"),
    ({"data": [{}]}, "data[0].id is null"), ({"data": [{"id": 3}]}, "data[0].id is 3"),
])  # fmt: skip
def test_a_list_of_models_without_a_model_is_refused(answer, key):
    assert key in told("/v1/models", answer).message


@pytest.mark.parametrize(("answer", "key"), [
    ({}, "results is null"), ({"results": []}, "results is []"), ({"results": "ok"}, "results is 'ok'"),
    ({"results": [None, {"error": "no such rpc"}]}, "results[1] is {'error': 'no such rpc'}"),
    ({"results": ["RuntimeError"]}, "results[0] is 'RuntimeError'"),
])  # fmt: skip
def test_weights_count_as_loaded_only_where_every_worker_says_so(answer, key):
    assert key in told("/collective_rpc", answer).message


def test_what_vllm_answers_to_a_load_and_a_reset_is_taken():
    for loaded in ({"raw": b""}, {"what": {"results": [None, None]}}):
        with answering(**loaded) as (url, _):
            Server(url).load(Path("weights"))
    for reset, wanted in (
        ({"raw": b""}, True),
        ({"what": {"success": True}}, True),
        ({"what": {"success": False}}, False),
    ):
        with answering(**reset) as (url, _):
            assert Server(url).forget() is wanted
    assert "success is 'no'" in told("/reset_prefix_cache", {"success": "no"}).message


@pytest.mark.parametrize(("choices", "key"), [
    (None, "choices is null"), ({}, "choices is {}"), ([1, 2], "choices[0] is 1"),
    ([choice()], "n = 2 choices, not 1"), ([choice(i) for i in range(3)], "n = 2 choices, not 3"),
    ([choice(), choice()], "choices[1].index is 0"), ([choice(), choice(2)], "choices[1].index is 2"),
    ([choice(-1), choice()], "choices[0].index is -1"), ([choice(None), choice()], "choices[0].index is null"),
    ([choice(True), choice()], "choices[0].index is True"), ([choice([]), choice()], "choices[0].index is []"),
])  # fmt: skip
def test_a_prompt_gets_n_responses_with_numbers_of_their_own(choices, key):
    assert key in told("/v1/completions", {"choices": choices}).message


@pytest.mark.parametrize("token", [104, 1_000_000, -3, 10**30, 5.7, 5.0, "5", None, True, [5]])
def test_a_token_that_the_policy_does_not_have_is_refused(token):
    error = told("/v1/completions", {"choices": [choice(), choice(1, (5, token))]})
    assert "choices[1].token_ids[1] is " in error.message
    assert "from 0 to 103" in error.message


@pytest.mark.parametrize("value", [
    None, float("nan"), float("inf"), -float("inf"), 1.1e-3, 5, "x", True, [0.1], 10**400, -(10**400),
])  # fmt: skip
def test_what_is_no_log_probability_is_refused(value):
    error = told("/v1/completions", {"choices": [choice(), choice(1, (5, 2), (-0.5, value))]})
    assert "choices[1].logprobs.token_logprobs[1] is " in error.message


@pytest.mark.parametrize(("wrong", "key"), [
    (choice(1, 7), "choices[1].token_ids is 7"), (choice(1, (5, 2), None), "token_logprobs is null"),
    (choice(1, (5, 2), (-1.0,)), "one for each of the 2 token_ids, not 1"),
    (choice(1, (5,) * 4, (-1.0,) * 4), "at most max_tokens = 3 tokens, not 4"),
    (choice(1) | {"logprobs": []}, "choices[1].logprobs is []"),
    (choice(1) | {"token_ids": None}, "choices[1].token_ids is null or missing"),
])  # fmt: skip
def test_tokens_and_log_probabilities_are_lists_of_one_length(wrong, key):
    assert key in told("/v1/completions", {"choices": [choice(), wrong]}).message


def test_responses_come_in_order_and_rounding_above_zero_is_let_pass():
    with answering({"choices": [choice(1, [103, 0], [1e-3, 0]), choice(0, [], [])]}) as (url, _):
        assert Server(url).complete(BODY, 104) == [([], []), ([103, 0], [1e-3, 0.0])]


@pytest.mark.parametrize("how", [{}, {"Content_Length": "5000"}, {"Content_Length": "5000", "Connection": "close"}])
def test_an_answer_has_a_largest_size(how, monkeypatch):
    monkeypatch.setattr(answers, "_LARGEST", 4000)
    assert "more than 4000 bytes" in told("/v1/models", raw=b"[" * 5000, **how).message


def test_an_answer_without_a_length_is_bounded_too(monkeypatch):
    monkeypatch.setattr(answers, "_LARGEST", 4000)
    monkeypatch.setattr(answers, "_PIECE", 100)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def pour() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 5000)

        threading.Thread(target=pour, daemon=True).start()
        with pytest.raises(TrimtabError, match="more than 4000 bytes"):
            Server(url).model()


def test_an_answer_that_is_cut_off_is_no_empty_one():
    assert "IncompleteRead" in told("/collective_rpc", raw=b"", Content_Length="20").message


@pytest.mark.parametrize("drip", [False, True])
def test_a_server_that_does_not_come_to_an_end_is_left(drip, monkeypatch):
    monkeypatch.setattr(answers, "_SOON", 0.3)
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                if drip:
                    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                while not stop.wait(0.05) and drip:
                    connection.sendall(b" ")
                stop.wait(5)

        threading.Thread(target=answer, daemon=True).start()
        try:
            with pytest.raises(TrimtabError, match=r"/v1/models within 0\.3 s"):
                Server(f"http://127.0.0.1:{listening.getsockname()[1]}").model()
        finally:
            stop.set()


@pytest.mark.parametrize("key", ["secret\nmore", "s\u00e9cret"])
def test_a_key_that_cannot_be_sent_is_refused_and_not_told(key, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", key)
    with pytest.raises(TrimtabError, match="VLLM_API_KEY") as caught:
        Server("http://127.0.0.1:9").model()
    assert "cret" not in str(caught.value)
