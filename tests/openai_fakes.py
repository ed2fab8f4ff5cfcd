"""An OpenAI-compatible server in a thread of the test: answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Fake", "Reply", "chat", "letters", "serving"]

Body = dict[str, Any]


@dataclass
class Reply:
    """What goes back: a JSON object, or bytes as they are; `hang` seconds before it, `cut` in the middle."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang: float = 0.0
    cut: bool = False


@dataclass
class Fake:
    """A server that is up."""

    url: str
    asked: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0


def chat(content: str | None, *, tokens: list[Any] | None = None, finish: str = "stop", **message: Any) -> Body:
    """A chat completion. `tokens`: its logprobs, as (text, {token: logprob})."""
    choice: Body = {
        "index": 0,
        "finish_reason": finish,
        "message": {"role": "assistant", "content": content, **message},
        "logprobs": None,
    }
    if tokens is not None:
        choice["logprobs"] = {
            "content": [
                {
                    "token": text,
                    "logprob": top.get(text, -9.0),
                    "top_logprobs": [{"token": t, "logprob": p} for t, p in top.items()],
                }
                for text, top in tokens
            ]
        }
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "fake",
        "choices": [choice],
        "usage": {"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102},
    }


def letters(a: float, b: float) -> Body:
    """A one-letter answer with log-probabilities of A and B."""
    text = "A" if a >= b else "B"
    return chat(text, tokens=[(text, {"A": a, "B": b, "The": -20.0})])


@contextmanager
def serving(answer: Callable[[Body, int], Reply | Body]) -> Iterator[Fake]:
    """Serve `answer(request, number of it)` at `fake.url` for as long as the context lasts."""
    lock, stopped = threading.Lock(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(fake.asked)
                fake.asked.append(body)
                fake.headers.append({k.lower(): v for k, v in self.headers.items()})
                fake.times.append(time.monotonic())
                fake.at_once += 1
                fake.most_at_once = max(fake.most_at_once, fake.at_once)
            try:
                self._reply(answer(body, number))
            except OSError:
                self.close_connection = True
            finally:
                with lock:
                    fake.at_once -= 1

        def _reply(self, reply: Reply | Body) -> None:
            reply = reply if isinstance(reply, Reply) else Reply(reply)
            stopped.wait(reply.hang)
            content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if reply.cut else content)
            if reply.cut:
                self.wfile.flush()
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    server = Server(("127.0.0.1", 0), Handler)
    fake = Fake(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        stopped.set()
        server.shutdown()
        server.server_close()
        thread.join()
