"""Sixty inputs that are broken, empty or beside the point: what the command says of each.

Expected is one of: `refused` (exit 1 or 2 and a line on stderr that names the file), `inconclusive` (exit 5), `not
healthy` (3 or 5: what was salvaged decides; or refused).
"""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from trimtab.doctor.drawn import faulty, sound
from trimtab.doctor.drawn.dress import write

REFUSED, INCONCLUSIVE, NOT_HEALTHY = "refused", "inconclusive", "not healthy"


class Broken(NamedTuple):
    name: str
    make: Callable[[Path], Path]
    expected: str


class Answer(NamedTuple):
    name: str
    expected: str
    code: int
    status: str
    said: str
    fine: bool


def _bytes(data: bytes, name: str = "log.jsonl") -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        target = place / name
        target.write_bytes(data)
        return target

    return make


def _rows(rows: list[Any], name: str = "log.jsonl") -> Callable[[Path], Path]:
    return _bytes("".join(json.dumps(row) + "\n" for row in rows).encode(), name)


def _cut(dress: str, tenth: int, kind: str = "grpo") -> Callable[[Path], Path]:
    """A sick run's file of which so many tenths were written: never healthy."""

    def make(place: Path) -> Path:
        run, _ = faulty("no-gradient", np.random.default_rng(5), strength=1, onset=0, kind=kind, rows=120)
        target = write(run, dress, place)
        data = target.read_bytes()
        target.write_bytes(data[: len(data) * tenth // 10])
        return target

    return make


def _sound_rows(n: int) -> list[dict[str, Any]]:
    run = sound("grpo", np.random.default_rng(2), "plain", n)
    score, length = run.curves["score/mean"], run.curves["response/length_mean"]
    return [
        {
            "step": i + 1,
            "reward": float(score[i]),
            "loss": 0.01,
            "completion_length": float(length[i]),
            "reward_std": 0.3,
        }
        for i in range(n)
    ]


def _huge(rows: list[dict[str, Any]]) -> bytes:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return text.replace('"loss": 0.01', '"loss": 1e999').encode()


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def _directory(files: dict[str, bytes]) -> Callable[[Path], Path]:
    def make(place: Path) -> Path:
        inner = place / "run"
        inner.mkdir()
        for name, data in files.items():
            (inner / name).parent.mkdir(parents=True, exist_ok=True)
            (inner / name).write_bytes(data)
        return inner

    return make


def _loop(place: Path) -> Path:
    (place / "loop").symlink_to(place / "loop")
    return place / "loop"


def _unwritten(place: Path) -> Path:
    return place / "no-such-file.json"


def inputs() -> Iterator[Broken]:
    """All sixty."""
    png = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, 4000, dtype=np.uint8).tobytes()
    rows = _sound_rows(60)
    yield Broken("empty file", _bytes(b""), REFUSED)
    yield Broken("empty .json", _bytes(b"", "trainer_state.json"), REFUSED)
    yield Broken("empty .csv", _bytes(b"", "log.csv"), REFUSED)
    yield Broken("only spaces and newlines", _bytes(b"  \n\n \t\n"), REFUSED)
    yield Broken("only zero bytes", _bytes(bytes(3000)), REFUSED)
    yield Broken("a byte order mark alone", _bytes(b"\xef\xbb\xbf"), REFUSED)
    yield Broken("a PNG named .json", _bytes(png, "trainer_state.json"), REFUSED)
    yield Broken("random bytes", _bytes(noise), REFUSED)
    yield Broken(
        "a gzip that ends early", _bytes(gzip.compress(json.dumps(rows).encode())[:200], "log.json.gz"), NOT_HEALTHY
    )
    yield Broken("a gzip of nothing", _bytes(gzip.compress(b""), "log.gz"), REFUSED)
    yield Broken("a zip file", _bytes(b"PK\x03\x04" + noise), REFUSED)
    yield Broken(
        "a pickle", _bytes(b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x04loss\x94G?\xf0s."), REFUSED
    )
    yield Broken("no such file", _unwritten, REFUSED)
    yield Broken("a link to itself", _loop, REFUSED)
    yield Broken("an empty directory", _directory({}), REFUSED)
    yield Broken("a directory of pictures", _directory({"a.png": png, "b.png": png}), REFUSED)
    yield Broken(
        "a directory of configs",
        _directory({"config.json": b'{"model_type": "llama"}', "tokenizer.json": b"{}"}),
        REFUSED,
    )
    yield Broken("a directory of an empty log", _directory({"log.jsonl": b""}), REFUSED)
    yield Broken("a run of ours without a log", _directory({"run.json": b"{}"}), REFUSED)
    yield Broken(
        "prose", _bytes(b"Dear all,\nthe run of last night was fine, I think.\nBest, A.\n", "notes.txt"), REFUSED
    )
    yield Broken(
        "source code", _bytes(b"import os\nfor i in range(10):\n    print(i, os.getcwd())\n", "train.py"), REFUSED
    )
    yield Broken(
        "a web page", _bytes(b"<!doctype html><html><body><p>404 Not found</p></body></html>", "log.html"), REFUSED
    )
    yield Broken(
        "a stack trace",
        _bytes(b"Traceback (most recent call last):\n  File 'x.py', line 1\nRuntimeError: CUDA\n", "err.log"),
        REFUSED,
    )
    yield Broken(
        "progress bars alone",
        _bytes(b"".join(b"%d%%|##   | %d/100 [00:01<00:10,  9.9it/s]\r" % (i, i) for i in range(100)), "bars.log"),
        NOT_HEALTHY,
    )
    yield Broken("[]", _bytes(b"[]", "a.json"), REFUSED)
    yield Broken("{}", _bytes(b"{}", "a.json"), REFUSED)
    yield Broken("null", _bytes(b"null", "a.json"), REFUSED)
    yield Broken("a number", _bytes(b"42", "a.json"), REFUSED)
    yield Broken(
        "an empty log_history", _bytes(b'{"log_history": [], "global_step": 0}', "trainer_state.json"), INCONCLUSIVE
    )
    yield Broken("brackets 100,000 deep", _bytes(_nested(100_000), "a.json"), REFUSED)
    yield Broken("objects 20,000 deep", _bytes(b'{"a":' * 20_000 + b"1" + b"}" * 20_000, "a.json"), REFUSED)
    for tenth in (1, 2, 3, 4, 5, 6, 7, 8, 9):
        yield Broken(f"trainer_state.json, {tenth} tenths", _cut("trl-grpo", tenth), NOT_HEALTHY)
    for tenth in (1, 8):
        yield Broken(f"verl console, {tenth} tenths", _cut("verl-console", tenth), NOT_HEALTHY)
        yield Broken(f"W&B export, {tenth} tenths", _cut("openrlhf-wandb", tenth), NOT_HEALTHY)
    yield Broken("three rows", _rows(rows[:3]), INCONCLUSIVE)
    yield Broken("one row", _rows(rows[:1]), INCONCLUSIVE)
    yield Broken(
        "only unknown keys", _rows([{"step": i, "zorp": i * 0.1, "flim": 3} for i in range(100)]), INCONCLUSIVE
    )
    yield Broken(
        "only bookkeeping", _rows([{"step": i, "epoch": i / 100, "time": i * 3.0} for i in range(100)]), INCONCLUSIVE
    )
    yield Broken("reward alone", _rows([{"step": r["step"], "reward": r["reward"]} for r in rows]), INCONCLUSIVE)
    yield Broken("loss alone", _rows([{"step": r["step"], "loss": 0.5} for r in rows]), INCONCLUSIVE)
    yield Broken(
        "every value null", _rows([{"step": r["step"], "reward": None, "loss": None} for r in rows]), NOT_HEALTHY
    )
    yield Broken(
        "every value NaN", _rows([{"step": r["step"], "reward": math.nan, "loss": math.nan} for r in rows]), NOT_HEALTHY
    )
    yield Broken("the same step 60 times", _rows([{**r, "step": 7} for r in rows]), INCONCLUSIVE)
    yield Broken("numbers beyond a double", _bytes(_huge(rows)), NOT_HEALTHY)
    yield Broken("whole numbers of 5,000 digits", _bytes(_huge(rows).replace(b"1e999", b"9" * 5000)), NOT_HEALTHY)
    yield Broken(
        "values that are lists", _rows([{"step": i, "reward": [1, 2], "kl": {"a": 1}} for i in range(50)]), NOT_HEALTHY
    )
    yield Broken("UTF-16 cut in a character", _bytes(json.dumps(rows[:3]).encode("utf-16")[:-1], "a.json"), NOT_HEALTHY)
    yield Broken(
        "Latin-1 in a CSV of three rows",
        _bytes("step;récompense\n1;0,5\n2;0,6\n3;0,4\n".encode("latin-1"), "log.csv"),
        NOT_HEALTHY,
    )
    yield Broken("a CSV header alone", _bytes(b"step,reward,kl\n", "log.csv"), NOT_HEALTHY)
    yield Broken("a CSV of ragged rows", _bytes(b"step,reward,kl\n1\n2,,,,,\n,,\n3,x\n", "log.csv"), NOT_HEALTHY)


def look(broken: Broken, place: Path) -> Answer:
    """The command's answer, and whether it is as expected."""
    target = broken.make(place)
    command = [sys.executable, "-m", "trimtab.cli.main", "doctor", str(target), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    try:
        document = json.loads(done.stdout) if done.stdout.strip() else {}
    except ValueError:
        document = {"status": "no JSON"}
    status = str(document.get("status", ""))
    # refusals say why on stderr, or in the JSON error
    said = (done.stderr.strip() or str(document.get("error", ""))).replace("\n", " | ")
    codes = {REFUSED: (1, 2), INCONCLUSIVE: (5,), NOT_HEALTHY: (1, 2, 3, 5)}[broken.expected]
    fine = done.returncode in codes and "Traceback" not in done.stderr and status != "healthy" and status != "no JSON"
    fine = fine and (done.returncode not in (1, 2) or bool(said))
    return Answer(broken.name, broken.expected, done.returncode, status, said[:160], fine)
