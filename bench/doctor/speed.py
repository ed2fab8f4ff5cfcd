"""How long the command takes: a million rows, and a log of 200 steps, from the shell."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trimtab.doctor.drawn import sound
from trimtab.doctor.drawn.dress import write

SIGNALS, BYTES = 20, 800


class Cost(NamedTuple):
    """Median over runs of the wall clock and of the processor's time, in seconds; largest memory in GB."""

    wall: float
    processor: float
    memory: float
    status: str


def _command(path: Path) -> list[str]:
    return [sys.executable, "-m", "trimtab.cli.main", "doctor", str(path), "--json"]


def measure(path: Path, times: int) -> Cost:
    """The command on a file, so many times; the processor's time is what an idle machine would need."""
    walls, processors = [], []
    status = ""
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        done = subprocess.run(_command(path), capture_output=True, text=True, check=False)
        walls.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        processors.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        status = str(json.loads(done.stdout).get("status"))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    return Cost(statistics.median(walls), statistics.median(processors), peak, status)


def million(place: Path, rows: int) -> Path:
    """JSON lines of a long run: 20 signals and about 800 bytes a row."""
    rng = np.random.default_rng(0)
    n = 1000
    run = sound("grpo", rng, "plain", n)
    names = list(run.curves)[:SIGNALS]
    target = place / "long.jsonl"
    with target.open("w", encoding="utf-8") as out:
        for block in range(rows // n):
            for i in range(n):
                values = {k: float(run.curves[k][i]) for k in names}
                line = json.dumps({"step": block * n + i + 1, **values, "note": ""})
                out.write(line[:-2] + "x" * max(0, BYTES - len(line) - 1) + '"}\n')
    return target


def costs(rows: int) -> dict[str, Cost]:
    """Of the short log first: memory is the largest of all children so far."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as place:
        short = write(sound("grpo", np.random.default_rng(1), "plain", 200), "trl-grpo", Path(place))
        measure(short, 1)  # byte code and disk cache
        found = {"200 steps, trainer_state.json": measure(short, 7)}
        console = write(sound("grpo", np.random.default_rng(1), "plain", 200), "verl-console", Path(place))
        found["200 steps, verl console"] = measure(console, 5)
        if rows:
            found[f"{rows:,} rows of JSON lines"] = measure(million(Path(place), rows), 1)
    return found
