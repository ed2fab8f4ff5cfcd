"""Kill -9 a client that labels 200 pairs, resume it, and look at what the server was asked.

    python -m llama_cpp.server --model SmolLM2-135M-Instruct.Q4_1.gguf --port 8901 --n_ctx 512 --logits_all true
    python -m bench.labeling.kills --work DIR [--to http://127.0.0.1:8901] [--times 20] [--seconds 280]

Kills at uniformly random times of a run, and once before and once after every kind of statement by which the store
writes: making its tables, claiming, recording, giving claims up. After each kill the client is run again to its end.
Checked: every pair labeled, one row a question, no question asked again whose verdict was recorded at the kill, and no
more asked again than calls were under way. Every answer comes from the model once; repeats come from a counting proxy's
cache. Trials that are done stand in DIR/trials.jsonl and are not run again.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench.labeling.material import CONSTITUTION, WORDING, pairs
from bench.labeling.proxy import Proxy
from trimtab.labeling.protocol import JudgeRequest, Order, pair_hash
from trimtab.labeling.store import LabelStore
from trimtab.runs.files import append_jsonl, read_jsonl

PAIRS, CALLS, DELAY_S = 200, 4, 0.03
# statement and how often it came: 1 and 2 make the tables, then claims and records alternate
POINTS = [
    *(f"BEGIN:{n}" for n in (1, 2, 3, 60)),
    *("CREATE:1", "ALTER:1", "CREATE:2"),
    *(f"INSERT:{n}" for n in (1, 2, 60)),
    *(f"DELETE:{n}" for n in (1, 30)),
    *(f"COMMIT:{n}" for n in (1, 2, 3, 60)),
]


def question_hashes() -> dict[tuple[str, str], str]:
    """What the proxy's log calls each question, by the key's parts that differ."""
    found = {}
    for pair in pairs(PAIRS):
        for order in Order:
            text = WORDING.messages(JudgeRequest(pair, CONSTITUTION, order))[1]
            found[pair_hash(pair), order.value] = hashlib.sha256(text.encode()).hexdigest()
    return found


def client(store: Path, url: str, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.labeling.client", str(store), "--url", url, "--calls", str(CALLS)]
    return subprocess.Popen([*command, "--pairs", str(PAIRS), *more], stdout=subprocess.PIPE)


def recorded(store: Path) -> list[tuple[str, str]]:
    if not store.exists():
        return []
    with LabelStore(store) as opened:
        return [(row[0], row[5]) for row in opened.rows()]


def trial(name: str, work: Path, url: str, log: Path, kill_after: float | None) -> dict[str, Any]:
    """One kill and what came of it."""
    store = work / "trial" / f"{name.replace(':', '-')}.sqlite"
    store.parent.mkdir(exist_ok=True)
    for file in store.parent.glob(store.name + "*"):
        file.unlink()
    before = len(read_jsonl(log).records)
    process = client(store, url, *(["--die", name] if kill_after is None else []))
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    killed = process.wait() == -9
    time.sleep(2 * DELAY_S)  # what the proxy has under way reaches its log
    at_kill = recorded(store)
    asked_first = [r["question"] for r in read_jsonl(log).records[before:]]
    resumed = client(store, url)
    result = json.loads(resumed.communicate()[0])
    asked = [r["question"] for r in read_jsonl(log).records[before:]]
    hashes = question_hashes()
    known = {hashes[key] for key in at_kill}
    rows = recorded(store)
    return {
        "trial": name,
        "killed": killed,
        "recorded_at_kill": len(at_kill),
        "labels": result["labels"],
        "usable": result["usable"],
        "rows": len(rows),
        "asked": len(asked),
        "asked_again": len(asked) - len(set(asked)),
        "recorded_and_asked_again": sum(question in known for question in asked[len(asked_first) :]),
        "ok": killed
        and result["usable"] == 1.0
        and len(rows) == len(set(rows)) == 2 * PAIRS
        and not any(question in known for question in asked[len(asked_first) :])
        and len(asked) - 2 * PAIRS <= CALLS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--to", default="http://127.0.0.1:8901")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=280.0, help="stop after so long; run again to go on")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    _only_one(options.work)
    log, trials = options.work / "log.jsonl", options.work / "trials.jsonl"
    proxy = Proxy(0, options.to, options.work / "cache.jsonl", log, DELAY_S)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    url, began = f"http://127.0.0.1:{proxy.server_address[1]}/v1", time.monotonic()
    done = {record["trial"]: record for record in read_jsonl(trials).records}
    draw = random.Random(options.seed)
    shares = {f"time:{i}": draw.random() for i in range(options.times)}
    for name in [*shares, *(f"{when}:{point}" for point in POINTS for when in ("before", "after"))]:
        if name in done or time.monotonic() - began > options.seconds:
            continue
        if "whole" not in done:
            done["whole"] = whole(options.work, url)
            append_jsonl(trials, [done["whole"]])
        after = shares[name] * done["whole"]["seconds"] if name in shares else None
        done[name] = trial(name, options.work, url, log, after)
        append_jsonl(trials, [done[name]])
        print(json.dumps(done[name]), flush=True)
    told = [record for name, record in done.items() if name != "whole"]
    print(
        json.dumps(
            {
                "trials": len(told),
                "of": len(shares) + 2 * len(POINTS),
                "killed": sum(r["killed"] for r in told),
                "ok": sum(r["ok"] for r in told),
                "recorded_and_asked_again": sum(r["recorded_and_asked_again"] for r in told),
                "most_asked_again": max((r["asked_again"] for r in told), default=0),
                "recorded_at_kill": sorted(r["recorded_at_kill"] for r in told if r["trial"].startswith("time")),
                "whole": done.get("whole"),
            },
            indent=2,
        )
    )


def _only_one(work: Path) -> None:
    """Two of these on one directory would count each other's questions."""
    lock = os.open(work / "lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{work}: another run of this is going on")


def whole(work: Path, url: str) -> dict[str, Any]:
    """A run that nobody kills: how long it takes, what the judge is like."""
    store = work / "whole.sqlite"
    for file in work.glob("whole.sqlite*"):
        file.unlink()
    client(store, url).communicate()  # the model's answers are in the cache from here on
    for file in work.glob("whole.sqlite*"):
        file.unlink()
    began = time.monotonic()
    result = json.loads(client(store, url).communicate()[0])
    return {"trial": "whole", "seconds": time.monotonic() - began, **result}


if __name__ == "__main__":
    main()
