"""How time and memory of a PPO iteration grow with its work, beside how the arithmetic of it grows.

    python -m bench.ppo.growth DIR [--axes response,batch,model] [--points 5] [--iterations 3] [--threads 2]

response  tokens of a response, 16 to 256: 4 million parameters, 16 responses to prompts of 16
batch     responses, 4 to 64: 4 million parameters, 16 + 32 tokens
model     1, 4, 16, 64 and 135 million parameters: 8 responses, 16 + 16 tokens

Random Llamas in float32, all weights of policy and value model trained, 4 epochs of 1 minibatch. Each point is a
process of its own: the median over iterations, the first left out, and the largest resident set less that after the
imports. Points go to DIR/growth.jsonl as they are measured, and what is there already is not measured again;
DIR/growth.md has the fits and DIR/growth.svg the plots.

slope      of the logarithm of seconds (bytes) over that of what grows: least squares, 95 % interval (Student's t)
arithmetic the same of the operations (bytes) that bench/ppo/arithmetic.py counts
excess     slope of measured over counted, with its interval: 0 where one grows as the other. At most 0.05: no faster;
           above that with the whole interval: faster; else undecided.
last step  growth between the two largest points, measured / counted
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.ppo.arithmetic import Shape, flops, memory_bytes
from bench.ppo.common import RANDOM, Case, Llama, figures, spawn, train
from bench.ppo.log_plots import Panel, figure
from bench.preference.vs_trl import Clock
from trimtab.stats.significance import student_quantile

MODELS = {
    1e6: Llama(2048, 128, 4, 4),
    4e6: RANDOM,
    16e6: Llama(4096, 384, 8, 6),
    64e6: Llama(8192, 576, 15, 9),
    135e6: Llama(49152, 576, 30, 9, 3, 1536),
}
TOLERANCE = 0.05


@dataclass(frozen=True)
class Axis:
    """What grows, and the work at each of its points."""

    label: str
    points: dict[float, Case]


_BASE = Case(RANDOM, "float32", 16, 16, 32)
AXES = {
    "response": Axis("response tokens", {n: replace(_BASE, response=n) for n in (16, 32, 64, 128, 256)}),
    "batch": Axis("responses an iteration", {n: replace(_BASE, batch=n) for n in (4, 8, 16, 32, 64)}),
    "model": Axis(
        "parameters", {n: Case(llama, "float32", 8, 16, 16) for n, llama in MODELS.items()}
    ),
}  # fmt: skip


class Fit(NamedTuple):
    """A slope with its 95 % interval."""

    slope: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.slope:.2f} [{self.low:.2f}, {self.high:.2f}]"


def fit(x: Sequence[float], y: Sequence[float]) -> Fit:
    """Least squares of log y over log x, with Student's interval; at least three points."""
    if len(x) < 3:
        raise ValueError(f"{len(x)} points: a slope with an interval takes three")
    u, v = [math.log(a) for a in x], [math.log(b) for b in y]
    mean_u, mean_v = statistics.fmean(u), statistics.fmean(v)
    spread = sum((a - mean_u) ** 2 for a in u)
    slope = sum((a - mean_u) * (b - mean_v) for a, b in zip(u, v, strict=True)) / spread
    left = sum((b - mean_v - slope * (a - mean_u)) ** 2 for a, b in zip(u, v, strict=True))
    half = student_quantile(0.95, len(x) - 2) * math.sqrt(left / (len(x) - 2) / spread)
    return Fit(slope, slope - half, slope + half)


def verdict(excess: Fit) -> str:
    """Whether what was measured grows faster than the arithmetic, by the slope of their quotient."""
    if excess.high <= TOLERANCE:
        return "no faster"
    return "faster" if excess.low > TOLERANCE else "undecided"


def point(case: Case, iterations: int, threads: int) -> dict[str, Any]:
    """One point, in this process."""
    import torch

    import trimtab.ppo
    import trimtab.preference  # noqa: F401 - what is imported now is not counted as the training's memory

    torch.set_num_threads(threads)
    clock = Clock()
    clock.start()
    train(case, "full", iterations + 1, clock.tick)
    found = figures(case, clock)
    seconds = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)]
    assert isinstance(case.model, Llama)
    shape = Shape.of(case.model.config())
    return {
        "seconds": found["iteration_s"], "all_seconds": seconds, "bytes": found["gib"] * 2**30,
        "flops": sum(flops(shape, case).values()), "counted_bytes": memory_bytes(shape, case), "numbers": shape.numbers,
    }  # fmt: skip


def collect(options: argparse.Namespace) -> dict[str, dict[float, dict[str, Any]]]:
    """All points of the axes, those that are not in the file already by running them; short ones first."""
    path: Path = options.directory / "growth.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []
    found: dict[str, dict[float, dict[str, Any]]] = {}
    for name in options.axes.split(","):
        found[name] = {}
        for x, case in list(AXES[name].points.items())[: options.points]:
            key = {
                "axis": name, "x": x, "case": asdict(case), "iterations": options.iterations,
                "threads": options.threads,
            }  # fmt: skip
            known = [row for row in rows if {k: row.get(k) for k in key} == key]
            if not known:
                arguments = [
                    f"--worker={name}", f"--x={x}", f"--iterations={options.iterations}", str(options.directory),
                ]  # fmt: skip
                done = spawn("bench.ppo.growth", arguments, options.threads, f"{name} {x:g}")
                if done is None:
                    continue
                known = [key | done]
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(known[0]) + "\n")
            found[name][x] = known[-1]
            row = known[-1]
            print(f"  {name} {x:g}: {row['seconds']:.2f} s, {row['bytes'] / 2**30:.2f} GiB", file=sys.stderr)
    return found


def report(found: dict[str, dict[float, dict[str, Any]]]) -> str:
    """Two tables in Markdown: the points, and the fits."""
    points = [
        "| what grows | | s an iteration | GFLOP | GFLOP/s | memory, GiB | counted, GiB |",
        "|---|---|---|---|---|---|---|",
    ]
    fits = [
        "| what grows | of | slope | arithmetic | excess | last step | grows |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rows in found.items():
        for x, row in rows.items():
            points.append(
                f"| {AXES[name].label} | {_short(x)} | {row['seconds']:.2f} | {row['flops'] / 1e9:,.1f} | "
                f"{row['flops'] / row['seconds'] / 1e9:.1f} | {row['bytes'] / 2**30:.2f} | "
                f"{row['counted_bytes'] / 2**30:.2f} |"
            )
        if len(rows) < 3:
            continue
        at = [row["numbers"] if name == "model" else x for x, row in rows.items()]
        for what, key, counted in (("time", "seconds", "flops"), ("memory", "bytes", "counted_bytes")):
            real, said = [row[key] for row in rows.values()], [row[counted] for row in rows.values()]
            excess = fit(at, [a / b for a, b in zip(real, said, strict=True)])
            fits.append(
                f"| {AXES[name].label} | {what} | {fit(at, real)} | {fit(at, said).slope:.2f} | {excess} | "
                f"x{real[-1] / real[-2]:.2f} / x{said[-1] / said[-2]:.2f} | {verdict(excess)} |"
            )
    return "\n".join([*points, "", *fits]) + "\n"


def plots(found: dict[str, dict[float, dict[str, Any]]]) -> str:
    """Seconds above, memory below, an axis a column."""
    panels: list[list[Panel]] = [[], []]
    for name, rows in found.items():
        if len(rows) < 2:
            continue
        at = [row["numbers"] if name == "model" else x for x, row in rows.items()]
        seconds = [row["seconds"] for row in rows.values()]
        spread = [(min(row["all_seconds"]), max(row["all_seconds"])) for row in rows.values()]
        work = [row["flops"] for row in rows.values()]
        scale = seconds[-1] / work[-1]
        panels[0].append(
            Panel(AXES[name].label, "seconds an iteration", at, seconds, [w * scale for w in work], spread)
        )  # fmt: skip
        real, said = ([row[key] / 2**20 for row in rows.values()] for key in ("bytes", "counted_bytes"))
        panels[1].append(Panel(AXES[name].label, "peak memory, MiB", at, real, said))
    return figure(
        panels, measured="measured (bars: all iterations)",
        counted="arithmetic (time: at the rate of the largest point)",
    )  # fmt: skip


def _short(x: float) -> str:
    return f"{x / 1e6:g} M" if x >= 1e6 else f"{x:g}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--axes", default=",".join(AXES))
    parser.add_argument("--points", type=int, default=5, help="of each axis, the smallest first")
    parser.add_argument("--iterations", type=int, default=3, help="that are timed, beside the first")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--worker", choices=tuple(AXES), help=argparse.SUPPRESS)
    parser.add_argument("--x", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        with contextlib.redirect_stdout(sys.stderr):
            found = point(AXES[options.worker].points[options.x], options.iterations, options.threads)
        print(json.dumps(found))
        return 0
    if unknown := set(options.axes.split(",")) - AXES.keys():
        parser.error(f"--axes: {', '.join(sorted(unknown))}: there are {', '.join(AXES)}")
    options.directory.mkdir(parents=True, exist_ok=True)
    points = collect(options)
    text = report(points)
    (options.directory / "growth.md").write_text(text, "utf-8")
    (options.directory / "growth.svg").write_text(plots(points), "utf-8")
    print(text)
    wanted = {name: min(options.points, len(AXES[name].points)) for name in points}
    return 0 if all(len(points[name]) == count for name, count in wanted.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
