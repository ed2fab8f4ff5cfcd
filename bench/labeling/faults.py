"""A judge behind a server that fails in every way, for 2,000 questions: nothing lost, nothing doubled, in bounded time.

    python -m bench.labeling.faults [--questions 2000] [--seed 0] [--rate 0.3]

The server fails by a seeded draw for every request: 429 with and without Retry-After, 500, a hang beyond the time-out,
a connection cut in the middle of the answer or before it, garbage bytes, JSON of another form, no choices, no content.
Every good answer carries the number of its pair, so that a verdict that landed on another question would show.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import socket
import tempfile
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.labeling.material import CONSTITUTION, pairs
from trimtab.labeling.budget import Budget
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.openai_judge import OpenAIJudge
from trimtab.labeling.protocol import Order, Outcome
from trimtab.labeling.server import Server
from trimtab.labeling.store import LabelStore

FAULTS = ("429", "429 retry-after", "500", "hang", "cut", "closed", "garbage", "schema", "no choices", "no content")
TIMEOUT_S = 1.0


def p_of(text: str) -> float:
    """The preference that the server has on a question: a function of its text."""
    return 0.05 + 0.9 * int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32


class Faulty(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, seed: int, rate: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.draw, self.rate, self.lock = random.Random(seed), rate, threading.Lock()
        self.faults: Counter[str] = Counter()
        self.good: Counter[str] = Counter()

    def fault(self) -> str:
        with self.lock:
            name = self.draw.choice(FAULTS) if self.draw.random() < self.rate else ""
            self.faults[name or "none"] += 1
            return name

    def handle_error(self, *_: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    server: Faulty
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.server.fault()
        if fault == "closed":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        elif fault.startswith("429"):
            headers = {"Retry-After": "0.2"} if "retry" in fault else {}
            self.send(429, b'{"error": {"message": "too many"}}', headers)
        elif fault == "500":
            self.send(500, b"<html>Internal Server Error</html>")
        elif fault == "garbage":
            self.send(200, bytes(range(256)))
        elif fault == "schema":
            self.send(200, b'{"choices": "many", "object": ["list"]}')
        elif fault == "no choices":
            self.send(200, b'{"choices": [], "usage": null}')
        elif fault == "no content":
            self.send(200, b'{"choices": [{"message": {"role": "assistant", "content": null}}]}')
        else:
            if fault == "hang":
                time.sleep(2 * TIMEOUT_S)
            self.answer(body, cut=fault == "cut")

    def answer(self, body: dict[str, Any], *, cut: bool) -> None:
        text = body["messages"][1]["content"]
        digest = hashlib.sha256(text.encode()).hexdigest()
        p = p_of(text)
        from math import log

        top = [{"token": "A", "logprob": log(p)}, {"token": "B", "logprob": log(1 - p)}]
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": "A"},
            "logprobs": {"content": [{"token": "A", "logprob": log(p), "top_logprobs": top}]},
        }
        value = {"choices": [choice], "usage": {"prompt_tokens": 90, "completion_tokens": 1}}
        data = json.dumps(value).encode()
        if cut:
            self.send(200, data, length=len(data) * 2)
            self.close_connection = True
            return
        self.send(200, data)
        with self.server.lock:
            self.server.good[digest] += 1

    def send(self, status: int, data: bytes, headers: dict[str, str] | None = None, length: int | None = None) -> None:
        try:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data) if length is None else length))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.3)
    options = parser.parse_args()
    server = Faulty(options.seed, options.rate)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    asked = pairs(options.questions // 2)
    budget = Budget()
    judge = OpenAIJudge(
        Server(f"http://127.0.0.1:{server.server_address[1]}/v1", None, timeout_s=TIMEOUT_S, budget=budget), "faulty"
    )
    began, passes = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as directory, LabelStore(Path(directory) / "labels.sqlite") as store:
        while passes < 5:
            passes += 1
            labels = label_pairs(asked, judge, CONSTITUTION, store=store, batch_size=32, budget=budget)
            if all(label.usable for label in labels):
                break
        seconds = time.monotonic() - began
        recorded = {str(k): v for k, v in store.counts().items() if v}
        rows = list(store.rows())
    wrong = [label.pair_id for label in labels for vote in label.votes if not right(judge, vote, asked, label.pair_id)]
    calls = sum(server.faults.values())
    print(
        json.dumps(
            {
                "questions": options.questions,
                "recorded": recorded,
                "rows": len(rows),
                "labels_usable": sum(label.usable for label in labels),
                "verdicts_on_the_wrong_question": len(wrong),
                "calls_at_the_server": calls,
                "calls_counted": budget.calls,
                "faults": dict(sorted(server.faults.items())),
                "good_answers_too_late_or_lost": sum(n - 1 for n in server.good.values()),
                "hangs": server.faults["hang"],
                "commands": passes,
                "seconds": round(seconds, 1),
                "most_seconds_for_one_question": round(max(row[-3] for row in rows), 2),
                "bound_for_one_question": judge.server.total_s,
            },
            indent=2,
        )
    )


def right(judge: OpenAIJudge, vote: Any, asked: list[Any], pair_id: str) -> bool:
    """Whether a verdict is what the server says on just this question."""
    from trimtab.labeling.protocol import JudgeRequest

    if vote.verdict.outcome is not Outcome.OK:
        return True
    request = JudgeRequest(asked[int(re.sub(r"\D", "", pair_id))], CONSTITUTION, vote.order)
    shown = p_of(judge.template.messages(request)[1])
    return abs(vote.verdict.p_first - (shown if vote.order is Order.FORWARD else 1 - shown)) < 1e-9


if __name__ == "__main__":
    main()
