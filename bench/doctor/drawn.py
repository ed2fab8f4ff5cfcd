"""The doctor on drawn logs: false alarms, recall, invariance, broken inputs, cost; the peer rldoctor on the same files.

    python -m bench.doctor.drawn [--seeds 20] [--rows 1000000] [--json FILE] [--only PARTS]

Parts: healthy, faults, invariance, broken, speed.

What is drawn, and how: `trimtab.doctor.drawn`. Nothing of it looks at the detectors or their thresholds. Alarmed: at
least one finding from warning on. Rates come with Wilson's 95 % interval. The peer's columns are empty where it is not
installed (`pip install rldoctor`); it is credited with a finding when a detector of it that speaks of that finding at
all is loud, which favours it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.doctor import broken, peer, runs, speed
from trimtab.doctor.finding import Severity
from trimtab.stats.intervals import wilson

PARTS = ("healthy", "faults", "invariance", "broken", "speed")


def _rate(k: int, n: int) -> str:
    interval = wilson(k, n)
    return f"{k}/{n} ({interval.low:.3f}-{interval.high:.3f})"


def healthy() -> dict[str, Any]:
    cases = list(runs.healthy(peer.installed()))
    judged = list(runs.healthy_judged())
    for case in (c for c in [*cases, *judged] if c.loud):
        print(f"  alarm  {case.name}: {', '.join(f'{i} {s}' for i, s in case.loud.items())}")
    critical = sum(Severity.CRITICAL in c.loud.values() for c in [*cases, *judged])
    print(f"  runs alarmed {_rate(sum(bool(c.loud) for c in cases), len(cases))}, critical anywhere {critical}, "
          f"called healthy {sum(runs.is_healthy(c) for c in cases)}")  # fmt: skip
    print(f"  judgments alarmed {_rate(sum(bool(c.loud) for c in judged), len(judged))}")
    by_kind: dict[str, list[runs.Case]] = defaultdict(list)
    for case in cases:
        by_kind[case.name.split("/")[0]].append(case)
    for kind, of in by_kind.items():
        read = [c.peer for c in of if c.peer is not None and c.peer.readable]
        theirs = f"rldoctor {sum(bool(p.loud) for p in read):3d}/{len(read)} read" if kind in ("grpo", "ppo") else ""
        print(f"  {kind:18s} alarmed {sum(bool(c.loud) for c in of):3d}/{len(of):<3d}   {theirs}")
    return {
        "runs": len(cases), "alarmed": sum(bool(c.loud) for c in cases), "critical": critical,
        "judgments": len(judged), "judgments_alarmed": sum(bool(c.loud) for c in judged),
    }  # fmt: skip


def faults(seeds: int) -> dict[str, Any]:
    by_id: dict[str, list[runs.Case]] = defaultdict(list)
    for case in runs.faults(seeds, peer.installed()):
        by_id[f"{case.expected}"].append(case)
    for case in runs.judged_faults(seeds):
        by_id[f"{case.expected} (file of judgments)"].append(case)
    print(f"  {'finding':46s} {'found':>7s} {'root':>7s}  {'onset error, % of run: median, worst':>37s}  rldoctor")
    out = {}
    for id, cases in by_id.items():
        found = sum(c.expected in c.loud for c in cases)
        root = sum(c.expected == c.diagnosis.root_cause for c in cases)
        errors = runs.onset_errors(cases)
        onset = f"{100 * np.median(errors):+.0f}, {100 * max(errors, key=abs):+.0f}" if errors else "there all along"
        rival = [c.peer for c in cases if c.peer is not None]
        theirs = f"{sum(p.names(str(cases[0].expected)) for p in rival)}/{len(rival)}" if rival else ""
        theirs = "no detector" if rival and cases[0].expected not in peer.KNOWS else theirs
        print(f"  {id:46s} {found:3d}/{len(cases):<3d} {root:3d}/{len(cases):<3d}  {onset:>37s}  {theirs}")
        out[id] = {"found": found, "root": root, "of": len(cases)}
    weak = [id for id, o in out.items() if o["found"] < 0.9 * o["of"]]
    total, hits = sum(o["of"] for o in out.values()), sum(o["found"] for o in out.values())
    print(f"  all: found {_rate(hits, total)}, root cause {_rate(sum(o['root'] for o in out.values()), total)}; "
          f"below 90 %: {', '.join(weak) or 'none'}")  # fmt: skip
    return out


def invariance() -> dict[str, Any]:
    same: dict[str, list[bool]] = defaultdict(list)
    for what, name, before, after in runs.invariance(1):
        kind = "keys of another framework" if " as " in what else what
        same[kind].append(before == after)
        if before != after:
            print(f"  differs  {what}: {name}: {before} -> {after}")
    for kind, agreed in same.items():
        print(f"  {kind:28s} {sum(agreed)}/{len(agreed)}")
    return {kind: [sum(agreed), len(agreed)] for kind, agreed in same.items()}


def broken_inputs() -> dict[str, Any]:
    answers = []
    for one in broken.inputs():
        with tempfile.TemporaryDirectory() as place:
            answers.append(broken.look(one, Path(place)))
    for answer in (a for a in answers if not a.fine):
        print(f"  wrong  {answer.name}: {answer.expected} expected; exit {answer.code} {answer.status} {answer.said}")
    print(f"  as expected {sum(a.fine for a in answers)}/{len(answers)}, "
          f"tracebacks {sum('Traceback' in a.said for a in answers)}, "
          f"healthy {sum(a.status == 'healthy' for a in answers)}")  # fmt: skip
    return {"fine": sum(a.fine for a in answers), "of": len(answers)}


def cost(rows: int) -> dict[str, Any]:
    found = speed.costs(rows)
    for what, c in found.items():
        print(f"  {what:32s} {c.wall:6.2f} s on the clock, {c.processor:6.2f} s of the processor, {c.memory:.2f} GB")
    return {what: c._asdict() for what, c in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="faults of each kind")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the long log; 0 leaves it out")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    wanted = args.only.split(",")
    out: dict[str, Any] = {}
    for part in PARTS:
        if part not in wanted:
            continue
        print(part, flush=True)
        start = time.perf_counter()
        made = {
            "healthy": healthy, "faults": lambda: faults(args.seeds), "invariance": invariance,
            "broken": broken_inputs, "speed": lambda: cost(args.rows),
        }  # fmt: skip
        out[part] = made[part]()
        print(f"  ({time.perf_counter() - start:.0f} s)", flush=True)
    if args.json:
        args.json.write_text(json.dumps(out, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
