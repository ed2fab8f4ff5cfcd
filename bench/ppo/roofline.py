"""How near an iteration comes to what the machine can do, phase by phase, and what the rest of the time goes to.

    python -m bench.ppo.roofline [--case random,smollm2] [--layouts full,top:8,lora-top:8] [--threads 2] [--json FILE]

GFLOP          operations that the arithmetic needs (bench/ppo/arithmetic.py); `counted` where what was run, counted by
               operator, is another number.
of the ceiling GFLOP a second over the largest rate of square matrix products of the same dtype (512 to 2048) in this
               process. `at its shapes`: over the rate of the phase's own products alone, each at its best.
of the bound   the least time that operations at the ceiling and bytes at the copying speed of memory allow, whichever
               is longer, over the time taken. Bytes are known of decoding (all weights and the cache, each token) and
               of the optimiser's steps.
time           medians of iterations; then one more under torch's profiler says what the phase's time goes to: python is
               what is left of the profiled time, in which the profiler itself has a part.

Each case and layout is a process of its own. `random` has four layers: it is run with all of them trained. Run it on an
idle machine: a thread that waits for a core makes the others wait, too. On a busy one, `--threads 1 --cpu` takes the
process's own time, ceilings included.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.ppo.arithmetic import PHASES, Shape, decode_bytes, flops, optimiser_bytes
from bench.ppo.common import CASES, Case, spawn, train

SQUARES = (512, 1024, 2048)
COPIED = 2**26
"""Numbers copied to measure the memory: 256 MiB, beyond all caches."""


Clock = Callable[[], float]


def best(work: Callable[[], object], clock: Clock, seconds: float = 0.25) -> float:
    """Shortest time of one call, of as many as fit, at least three."""
    work()
    times: list[float] = []
    end = clock() + seconds
    while len(times) < 3 or clock() < end:
        start = clock()
        work()
        times.append(clock() - start)
    return min(times)


def rate(products: list[tuple[int, int, int]], dtype: str, clock: Clock) -> float:
    """FLOP/s of the products [m, k] x [k, n], as those of a linear layer, one after the other, each at its best."""
    import torch

    kind = getattr(torch, dtype)
    seconds = {}
    for m, k, n in set(products):
        x, w = torch.randn(m, k).to(kind), torch.randn(n, k).to(kind)
        seconds[m, k, n] = best(partial(torch.nn.functional.linear, x, w), clock)
    return sum(2 * m * k * n for m, k, n in products) / sum(seconds[size] for size in products)


def machine(shape: Shape, case: Case, clock: Clock) -> dict[str, float]:
    """The ceilings: FLOP/s of squares, of the model's own products by kind of phase, and bytes a second."""
    import torch

    sizes = list(shape.linears.values())
    tokens, answers = case.batch * (case.prompt + case.response), case.batch * case.response

    def forward(rows: int, read: int) -> list[tuple[int, int, int]]:
        return shape.layers * [(rows, a, b) for a, b in sizes] + [(read, shape.width, shape.vocabulary)] * (read > 0)

    # gradients of what a layer reads, [rows, out] x [out, in], and of its weights, [out, rows] x [rows, in]
    back = shape.layers * [p for a, b in sizes for p in ((tokens, b, a), (b, tokens, a))]
    back += [(answers, shape.vocabulary, shape.width), (shape.vocabulary, answers, shape.width)]
    source, target = torch.ones(COPIED), torch.empty(COPIED)
    return {
        "ceiling": max(rate([(n, n, n)], case.precision, clock) for n in SQUARES),
        "decode": rate(forward(case.batch, case.batch), case.precision, clock),
        "forward": rate(forward(tokens, answers), case.precision, clock),
        "backward": rate(back, case.precision, clock),
        "bytes": 8 * COPIED / best(lambda: target.copy_(source), clock),
        "bytes read": 8 * COPIED / best(lambda: torch.dot(source, target), clock),
    }


def measure(case: Case, layout: str, iterations: int, clock: Clock = time.perf_counter) -> dict[str, Any]:
    """An iteration to warm up, one that is counted, `iterations` that are timed, and one under the profiler."""
    import torch

    from bench.ppo.phases import Phases
    from trimtab.config.layout import Layout
    from trimtab.models.loading import load_config

    parsed = Layout.parse(layout)
    config = load_config(case.model) if isinstance(case.model, str) else case.model.config()
    first = parsed.boundary(int(config.num_hidden_layers))
    shape = Shape.of(config, first, 0 if parsed.lora is None else parsed.lora.rank)
    ceilings = machine(shape, case, clock)
    phases, ended = Phases(clock), 0
    counted: dict[str, int] = {}
    timed: list[dict[str, float]] = []
    groups: dict[str, dict[str, float]] = {}
    profiled: dict[str, float] = {}

    def after() -> None:
        nonlocal ended
        ended += 1
        seconds, operations = phases.close()
        if ended == 1:
            phases.count(on=True)
        elif ended == 2:
            phases.count(on=False)
            counted.update(operations)
        elif ended <= iterations + 2:
            timed.append(seconds)
        if ended == iterations + 2:
            phases.start_profile()
        elif ended == iterations + 3:
            profiled.update(seconds)
            groups.update(phases.end_profile())
        phases.close()  # what stands above is no iteration's time

    with phases:
        train(case, layout, iterations + 3, after)
    for phase, seconds in profiled.items():
        found = groups.setdefault(phase, {})
        found["python"] = max(0.0, seconds - sum(found.values()))
    names = [*PHASES, "rest"]
    return {
        "ceilings": ceilings,
        "seconds": {name: statistics.median(row.get(name, 0.0) for row in timed) for name in names},
        "flops": flops(shape, case),
        "counted": counted,
        "bytes": {"decode": decode_bytes(shape, case), "step": optimiser_bytes(shape)},
        "profiled_seconds": profiled,
        "groups": groups,
        "threads": torch.get_num_threads(),
    }


def table(found: dict[str, Any]) -> str:
    """The phases of `measure` as a Markdown table, and the machine in a line above it."""
    top, seconds, needed = found["ceilings"], found["seconds"], found["flops"]
    lines = [
        f"ceiling {top['ceiling'] / 1e9:.0f} GFLOP/s; at the model's shapes: decoding {top['decode'] / 1e9:.0f}, "
        f"forward {top['forward'] / 1e9:.0f}, backward {top['backward'] / 1e9:.0f}; memory "
        f"{top['bytes'] / 1e9:.1f} GB/s copying, {top['bytes read'] / 1e9:.1f} reading; {found['threads']} threads",
        "",
        "| phase | GFLOP | s | GFLOP/s | of the ceiling | at its shapes | GB/s | of the bound | the time goes to |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    total = {"flops": 0.0, "seconds": 0.0}
    for name in (*PHASES, "rest"):
        taken, work, moved = seconds[name], needed.get(name, 0), found["bytes"].get(name, 0)
        total["flops"] += work
        total["seconds"] += taken
        if taken < 1e-4:
            continue
        kind = "decode" if name == "decode" else "backward" if name.endswith("backward") else "forward"
        bound = max(work / top["ceiling"], moved / top["bytes"])
        cells = [
            name, f"{work / 1e9:.2f}" if work else "", f"{taken:.3f}", f"{work / taken / 1e9:.1f}" if work else "",
            _share(work / taken / top["ceiling"]) if work else "", _share(work / taken / top[kind]) if work else "",
            f"{moved / taken / 1e9:.1f}" if moved else "", _share(bound / taken) if bound else "",
            _spent(found["groups"].get(name, {})),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    speed = total["flops"] / total["seconds"]
    lines.append(
        f"| **iteration** | {total['flops'] / 1e9:.1f} | {total['seconds']:.3f} | {speed / 1e9:.1f} | "
        f"{_share(speed / top['ceiling'])} | | | | {_spent(_sum(found['groups']))} |"
    )
    other = {k: v for k, v in found["counted"].items() if v != needed.get(k, 0)}
    told = ", ".join(f"{k} {v / 1e9:.2f} GFLOP counted" for k, v in other.items())
    return "\n".join([*lines, "", f"Not what the arithmetic says: {told}" if other else "Counted: the same numbers."])


def _share(x: float) -> str:
    return f"{x:.2f}"


def _spent(groups: dict[str, float]) -> str:
    total = sum(groups.values())
    parts = sorted(((v / total, k) for k, v in groups.items() if v), reverse=True) if total else []
    return ", ".join(f"{name} {share:.0%}" for share, name in parts if share >= 0.02)


def _sum(groups: dict[str, dict[str, float]]) -> dict[str, float]:
    names = {name for found in groups.values() for name in found}
    return {name: sum(found.get(name, 0.0) for found in groups.values()) for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="random,smollm2", help=f"of {', '.join(CASES)}")
    parser.add_argument("--layouts", default="full,top:8,lora-top:8")
    parser.add_argument("--iterations", type=int, default=3, help="that are timed, beside three others")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="the process's own time, for --threads 1 on a busy machine")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        import torch

        torch.set_num_threads(options.threads)
        with contextlib.redirect_stdout(sys.stderr):
            clock = time.process_time if options.cpu else time.perf_counter
            found = measure(CASES[options.case], options.layouts, options.iterations, clock)
        print(json.dumps(found))
        return 0
    results: dict[str, Any] = {}
    wanted = [(case, layout) for case in options.case.split(",") for layout in options.layouts.split(",")]
    wanted = [(case, layout) for case, layout in wanted if case != "random" or layout in ("full", "lora")]
    for case, layout in wanted:
        arguments = ["--worker", f"--case={case}", f"--layouts={layout}", f"--iterations={options.iterations}"]
        arguments += ["--cpu"] if options.cpu else []
        if done := spawn("bench.ppo.roofline", arguments, options.threads, f"{case} {layout}"):
            results[f"{case} {layout}"] = done
            print(f"\n## {case}, {layout}\n\n{table(done)}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    return 0 if len(results) == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
