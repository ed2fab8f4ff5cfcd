"""Web hooks and commands: they hear of alarms, and neither can stop or hold up anything."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from trimtab.doctor.hooks import Hooks
from trimtab.errors import ErrorKind, TrimtabError

PAYLOAD = {"run": "main", "step": 7, "text": "größe \ud800", "alarms": [{"id": "nan-inf"}]}


class Server:
    """A web server that keeps what it is sent and answers as told."""

    def __init__(self) -> None:
        self.got: list[tuple[str, str, dict[str, object]]] = []
        self.status, self.delay = 200, 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((self.path, self.headers["Content-Type"], json.loads(body)))
                time.sleep(outer.delay)
                if outer.status:
                    self.send_response(outer.status)
                    self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_a_web_hook_gets_the_json(server: Server):
    hooks = Hooks(server.address)
    hooks.send(PAYLOAD)
    hooks.wait()
    assert [(path, kind) for path, kind, _ in server.got] == [("/hook", "application/json")]
    assert server.got[0][2] == PAYLOAD


def test_a_command_gets_the_json_on_stdin(tmp_path):
    target = tmp_path / "got.json"
    script = "import sys, pathlib; print('noise'); pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"
    hooks = Hooks(command=[sys.executable, "-c", script, str(target)])
    hooks.send(PAYLOAD)
    hooks.wait()
    assert json.loads(target.read_bytes()) == PAYLOAD


@pytest.mark.parametrize("status", [404, 500, 0])
def test_a_web_hook_that_fails_is_told_once(server: Server, status: int):
    server.status = status
    said: list[str] = []
    hooks = Hooks(server.address, timeout=2, say=said.append)
    for _ in range(3):
        hooks.send(PAYLOAD)
        hooks.wait()
    assert len(server.got) == 3
    assert len(said) == 1
    assert said[0].startswith("doctor: the web hook failed (")
    assert said[0].endswith("the training goes on")


def test_an_address_where_nobody_listens_is_told(server: Server):
    server.close()
    said: list[str] = []
    hooks = Hooks(server.address, say=said.append)
    hooks.send(PAYLOAD)
    hooks.wait()
    assert len(said) == 1
    assert "refused" in said[0]


def test_a_slow_receiver_holds_nobody_up(server: Server):
    server.delay = 1.5
    said: list[str] = []
    hooks = Hooks(server.address, timeout=0.3, say=said.append)
    began = time.perf_counter()
    hooks.send(PAYLOAD)
    assert time.perf_counter() - began < 0.2
    hooks.wait()
    assert time.perf_counter() - began < 1.4
    assert "timed out" in said[0]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ([sys.executable, "-c", "raise SystemExit(3)"], "ended with 3"),
        ([sys.executable, "-c", "import time; time.sleep(20)"], "took longer than 0.5 s"),
        (["/nowhere/to/be/found"], "No such file"),
    ],
)
def test_a_command_that_fails_is_told(command: list[str], why: str):
    said: list[str] = []
    hooks = Hooks(command=command, timeout=0.5, say=said.append)
    hooks.send(PAYLOAD)
    hooks.wait()
    assert len(said) == 1
    assert why in said[0]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"webhook": "file:///etc/passwd"}, "no web address"),
        ({"webhook": "ftp://host/x"}, "no web address"),
        ({"webhook": "http://"}, "no web address"),
        ({"command": "notify-send hello"}, "no list of words"),
        ({"command": ["a", ""]}, "no list of words"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_training(settings: dict[str, object], what: str):
    with pytest.raises(TrimtabError, match=what) as caught:
        Hooks(**settings)
    assert caught.value.kind == ErrorKind.CONFIG


@pytest.mark.parametrize(
    "address", ["http://[::1/", "http://127.0.0.1:abc/", "http://127.0.0.1:99999/", "http:///x", "file:///x"]
)
def test_an_address_that_is_none_is_refused_at_once(address: str):
    with pytest.raises(TrimtabError) as caught:
        Hooks(address)
    assert caught.value.kind is ErrorKind.CONFIG


def test_waiting_for_many_hooks_takes_no_longer_than_for_one(server: Server):
    server.delay = 5.0
    hooks = Hooks(server.address, timeout=0.2, say=lambda _: None)
    for _ in range(5):
        hooks.send(PAYLOAD)
    began = time.perf_counter()
    hooks.wait()
    assert time.perf_counter() - began < 2.5


def test_a_hook_under_way_does_not_keep_the_process_from_ending():
    hooks = Hooks(command=[sys.executable, "-c", "import time; time.sleep(1)"], say=lambda _: None)
    hooks.send(PAYLOAD)
    assert all(t.daemon for t in threading.enumerate() if t.name == "trimtab-doctor-hook")
    hooks.wait()
