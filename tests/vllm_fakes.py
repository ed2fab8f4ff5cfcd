"""Stand-ins for vLLM, module and server, as far as our engines use them. They say nothing about the real one."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.nn import functional as F
from transformers import AutoModelForCausalLM


class Core:
    """A model loaded from a directory, which it samples from one token at a time; and what it was told."""

    def __init__(self) -> None:
        self.model: Any = None
        self.loaded: list[Path] = []
        self.asked: list[dict[str, Any]] = []
        self.resets = 0
        self.frees = True
        self.broken: tuple[int, str] | None = None

    def load(self, directory: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(directory).eval()
        self.loaded.append(Path(directory))

    @torch.no_grad()
    def respond(self, prompt: list[int], told: dict[str, Any], seed: int) -> tuple[list[int], list[float]]:
        generator = torch.Generator().manual_seed(seed)
        tokens: list[int] = []
        values: list[float] = []
        while len(tokens) < told["max_tokens"] and not set(tokens[-1:]) & set(told["stop_token_ids"]):
            logits = self.model(torch.tensor([prompt + tokens])).logits[0, -1].float() / told["temperature"]
            logprobs = F.log_softmax(logits, -1)
            tokens.append(int(torch.multinomial(logprobs.exp(), 1, generator=generator)))
            values.append(float(logprobs[tokens[-1]]))
        return tokens, values


@contextmanager
def module(core: Core) -> Iterator[None]:
    """`import vllm` gives the fake."""

    class LLM:
        def __init__(self, model: str, **options: Any) -> None:
            if "no_such_option" in options:
                raise TypeError("EngineArgs.__init__() got an unexpected keyword argument 'no_such_option'\nmore")
            core.asked.append(options)
            core.load(model)

        def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
            assert method == "reload_weights"
            core.load(kwargs["weights_path"])

        def reset_prefix_cache(self) -> bool:
            core.resets += 1
            return core.frees

        def generate(self, prompts: list[dict[str, Any]], params: list[Any], use_tqdm: bool) -> list[Any]:
            return [_answer(core, p["prompt_token_ids"], own.told) for p, own in zip(prompts, params, strict=True)]

    fake = ModuleType("vllm")
    fake.LLM = LLM  # type: ignore[attr-defined]
    fake.SamplingParams = lambda **told: SimpleNamespace(told=told)  # type: ignore[attr-defined]
    fake.__spec__ = SimpleNamespace(name="vllm")  # type: ignore[assignment]
    before = sys.modules.get("vllm")
    sys.modules["vllm"] = fake
    try:
        yield
    finally:
        del sys.modules["vllm"]
        if before is not None:
            sys.modules["vllm"] = before


def _answer(core: Core, prompt: list[int], told: dict[str, Any]) -> Any:
    core.asked.append(told)
    outputs = []
    for number in range(told["n"]):
        tokens, values = core.respond(prompt, told, told["seed"] + number)
        places = [{token: SimpleNamespace(logprob=value)} for token, value in zip(tokens, values, strict=True)]
        outputs.append(SimpleNamespace(token_ids=tokens, logprobs=places))
    return SimpleNamespace(outputs=outputs)


@contextmanager
def server(core: Core) -> Iterator[str]:
    """The URL of a server that answers as vLLM does."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say({"data": [{"id": "the-model"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
            core.asked.append(body | {"path": self.path, "key": self.headers.get("Authorization")})
            if core.broken is not None:
                self.send_error(*core.broken)
            elif self.path == "/collective_rpc":
                core.load(body["kwargs"]["weights_path"])
                self._say({"results": [None]})
            elif self.path == "/reset_prefix_cache":
                core.resets += 1
                self._say({"success": core.frees})
            else:
                found = [core.respond(body["prompt"], body, body["seed"] + n) for n in range(body["n"])]
                choices = [
                    {"index": n, "token_ids": tokens, "logprobs": {"token_logprobs": values}}
                    for n, (tokens, values) in enumerate(found)
                ]
                self._say({"choices": choices[::-1]})

        def _say(self, what: Any) -> None:
            data = json.dumps(what).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()
