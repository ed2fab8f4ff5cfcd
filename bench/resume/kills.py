"""Kill -9 a whole project at a hundred random times and at every write point, run it again, and compare.

    python -m bench.resume.kills [--work DIR] [--times 100] [--minutes 30] [--only-tables]

The project is a small one of the tiny world with every stage. Each trial is a fresh copy that is killed once and then
run again to its end. It must end like the project that nobody killed: the same metrics (but for times, and what the
last command asked), the same bytes in every model, the same labels, samples and evaluated rows; and no question whose
verdict was recorded at the kill is asked again. Trials that are done stand in DIR/trials.jsonl and are not run again;
the last that failed is kept in DIR/failed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any

from trimtab.labeling.store import LabelStore
from trimtab.pipeline.scaffold import init_project
from trimtab.runs.files import append_jsonl, read_jsonl
from trimtab.runs.run import Run

WORK = Path(__file__).parent.parent / "results" / "resume"
_LINES = {"prompts": 80, "prompts_held_out": 24, "demonstrations": 320}
_OF_THE_COMMAND = ("time", "time/", "rate/", "memory/", "label/calls", "label/from_store_fraction")
"""Metrics that tell what the last command did, not what came of it: a resumed one finds verdicts in the store."""
_STARTING_S = 1.0
"""Random kills begin once Python has started and imported something."""


def project(directory: Path) -> Path:
    """A project that has not been run."""
    shutil.rmtree(directory, ignore_errors=True)
    init_project(directory, "tiny", "fail")
    for name, lines in _LINES.items():
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text("utf-8").splitlines()[:lines]) + "\n", "utf-8")
    return directory


def start(directory: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.resume.client", str(directory), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def outcome(directory: Path) -> dict[str, str]:
    """A digest of everything that a killed run must have in common with one that was left alone."""
    run = directory / "runs" / "main"
    found = {"metrics": _digest(metrics(directory))}
    # as every reader of a run has them: what an interrupted attempt went back on is left out
    found["samples"] = _digest([_untimed(row) for row in Run.open(run).samples()])
    for name in ("sample/pairs.jsonl", "label/pairs.jsonl", "eval/samples.jsonl", "pm/held_out.jsonl"):
        found[name] = hashlib.sha256((run / "artifacts" / name).read_bytes()).hexdigest()
    for path in sorted((run / "artifacts").rglob("*.safetensors")):
        found[path.relative_to(run).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    with LabelStore(directory / "labels.sqlite") as store:
        found["labels"] = _digest(sorted(_answer(row) for row in store.rows()))
    return found


def first_difference(work: Path) -> str:
    """The first record of the metrics in which the project that was killed differs, and how."""
    left, right = metrics(work / "whole"), metrics(work / "failed")
    nothing: dict[str, Any] = {}
    for number, (a, b) in enumerate(zip_longest(left, right, fillvalue=nothing)):
        if a != b:
            keys = sorted(key for key in a.keys() | b.keys() if a.get(key) != b.get(key))
            told = {key: [a.get(key), b.get(key)] for key in ["stage", "step", *keys[:4]]}
            return f"record {number} of {len(left)} and {len(right)}: {json.dumps(told)}"
    return ""


def metrics(directory: Path) -> list[dict[str, Any]]:
    """One record a stage and step, as every reader of a run has them."""
    return [_untimed(row) for row in Run.open(directory / "runs" / "main").metrics()]


def _untimed(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if not key.startswith(_OF_THE_COMMAND)}


def _answer(row: Any) -> list[str]:
    return [str(row[0]), str(row[5])]


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def recorded(directory: Path) -> set[tuple[str, str]]:
    """(pair, order) of the verdicts in the label store."""
    path = directory / "labels.sqlite"
    if not path.exists():
        return set()
    with LabelStore(path) as store:
        return {(str(row[0]), str(row[5])) for row in store.rows()}


def trial(name: str, work: Path, expected: dict[str, str], kill_after: float | None) -> dict[str, Any]:
    """One kill and what came of it."""
    directory = work / "trial"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(work / "blank", directory)
    asked = work / "asked.jsonl"
    asked.unlink(missing_ok=True)
    process = start(directory, *(["--die", name] if kill_after is None else []))
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    process.communicate()
    killed = process.returncode == -9
    known = recorded(directory)
    again = start(directory, "--asked", str(asked))
    said = again.communicate()[1].decode("utf-8", "replace")
    repeated = [tuple(key) for key in read_jsonl(asked).records if tuple(key) in known] if asked.exists() else []
    found = outcome(directory) if again.returncode == 0 else {}
    differs = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
    if differs:
        shutil.rmtree(work / "failed", ignore_errors=True)
        directory.rename(work / "failed")
    return {
        "trial": name,
        "killed": killed,
        "asked_again": len(repeated),
        "differs": differs,
        "first": first_difference(work) if "metrics" in differs else "",
        "error": said[-500:] if again.returncode else "",
        "ok": killed and not repeated and not differs,
    }


def whole(work: Path) -> dict[str, Any]:
    """The project that nobody kills: its outcome, its write points, its time; made twice, to see that it repeats."""
    project(work / "blank")
    outcomes, seconds, points = [], 0.0, {}
    for _ in range(2):
        directory = work / "whole"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(work / "blank", directory)
        file = work / "points.json"
        began = time.monotonic()
        process = start(directory, "--points", str(file))
        said = process.communicate()[1].decode("utf-8", "replace")
        if process.returncode:
            sys.exit(f"the project does not run:\n{said}")
        seconds, points = time.monotonic() - began, json.loads(file.read_text("utf-8"))
        outcomes.append(outcome(directory))
    if outcomes[0] != outcomes[1]:
        sys.exit("two undisturbed runs differ: there is nothing to compare with")
    return {"trial": "whole", "seconds": seconds, "points": points, "outcome": outcomes[0]}


def _names(base: dict[str, Any], times: int, seed: int) -> dict[str, float | None]:
    """Every trial by name; the value is the time of the kill, None for a kill at a write point."""
    draw = random.Random(seed)
    named: dict[str, float | None] = {f"time:{i}": draw.uniform(_STARTING_S, base["seconds"]) for i in range(times)}
    for point, count in sorted(base["points"].items()):
        named[f"{point}:{draw.randint(1, count)}"] = None
    return named


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long; run again to go on")
    parser.add_argument("--only-tables", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    trials, began = options.work / "trials.jsonl", time.monotonic()
    done = {record["trial"]: record for record in read_jsonl(trials).records} if trials.exists() else {}
    if "whole" not in done:
        if options.only_tables:
            sys.exit(f"{trials}: nothing has been measured yet")
        done["whole"] = whole(options.work)
        append_jsonl(trials, [done["whole"]])
    for name, after in _names(done["whole"], options.times, options.seed).items():
        if name in done or options.only_tables or time.monotonic() - began > 60 * options.minutes:
            continue
        done[name] = trial(name, options.work, done["whole"]["outcome"], after)
        append_jsonl(trials, [done[name]])
        if not done[name]["ok"]:
            print(json.dumps(done[name]), flush=True)
    _tell(done)


def _tell(done: dict[str, dict[str, Any]]) -> None:
    print(f"undisturbed: {done['whole']['seconds']:.1f} s, {len(done['whole']['points'])} write points")
    for kind, of_time in (("at a random time", True), ("at a write point", False)):
        rows = [r for name, r in done.items() if name != "whole" and name.startswith("time:") == of_time]
        late = sum(not r["killed"] for r in rows)
        print(
            f"killed {kind}: {sum(r['ok'] for r in rows)} of {len(rows) - late} end like the undisturbed run"
            + (f" ({late} had ended before the kill)" if late else "")
        )
        for what, count in Counter(key for r in rows for key in r["differs"]).items():
            print(f"  {what} differs in {count}")
    print(f"recorded verdicts asked for again: {sum(r.get('asked_again', 0) for r in done.values())}")


if __name__ == "__main__":
    main()
