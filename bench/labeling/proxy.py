"""A reverse proxy that counts what a judge asks: it keeps every answer, and answers a repeated question from there.

    python -m bench.labeling.proxy --to http://127.0.0.1:8901 --port 8902 --cache cache.jsonl --log log.jsonl

A repeated question costs the server nothing and is counted all the same: the log has one line a request, with the hash
of what the user message said. `--delay` makes an answer from the cache take as long as one from a server.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from trimtab.runs.files import append_jsonl, read_jsonl


class Proxy(ThreadingHTTPServer):
    """Answers from its cache, else from the server behind it; one question at a time goes there."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, to: str, cache: Path, log: Path, delay: float = 0.0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.to, self.cache_path, self.log_path, self.delay = to.rstrip("/"), cache, log, delay
        self.answers = {r["hash"]: r["answer"] for r in read_jsonl(cache).records}
        self.behind, self.writing = threading.Lock(), threading.Lock()

    def handle_error(self, *_: Any) -> None:
        """A client that was killed is no error."""

    def answer(self, path: str, body: bytes) -> str:
        digest = hashlib.sha256(body).hexdigest()
        with self.writing:
            known = self.answers.get(digest)
            question = json.loads(body)["messages"][1]["content"]
            told = {"question": hashlib.sha256(question.encode()).hexdigest(), "known": known is not None}
            append_jsonl(self.log_path, [told])
        if known is not None:
            time.sleep(self.delay)
            return known
        with self.behind:
            if digest not in self.answers:
                request = urllib.request.Request(self.to + path, body, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=300) as reply:
                    text = reply.read().decode("utf-8")
                with self.writing:
                    append_jsonl(self.cache_path, [{"hash": digest, "answer": text}])
                    self.answers[digest] = text
        return self.answers[digest]


class Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        text = self.server.answer(self.path, body).encode("utf-8")
        try:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
        except OSError:
            pass  # the client was killed

    def log_message(self, format: str, *args: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", default="http://127.0.0.1:8901")
    parser.add_argument("--port", type=int, default=8902)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--delay", type=float, default=0.0)
    options = parser.parse_args()
    print(json.dumps({"port": options.port}), flush=True)
    Proxy(options.port, options.to, options.cache, options.log, options.delay).serve_forever()


if __name__ == "__main__":
    main()
