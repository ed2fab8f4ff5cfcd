"""How long and how much memory the audit of 100,000 verdicts takes, file to JSON, in a process of its own.

    python -m bench.labeling.audit_speed [--verdicts 100000] [--texts]

Five judges of known accuracy judge pairs in both orders, some again; four pairs a prompt, three responses to each so
that triads exist, with lengths, slices, groups, generators and reference labels. `--texts` writes the texts too, so
that formats and identity terms are looked for.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

JUDGES = (
    ("judge-a", 0.9, 0.0),
    ("judge-b", 0.8, 0.1),
    ("judge-c", 0.75, 0.0),
    ("judge-d", 0.7, 0.3),
    ("judge-e", 0.6, 0.0),
)
TEXT = "the a of to plan answer because water bridge song he she report light code river small large night day"
WORDS = TEXT.split()


def draw(verdicts: int, texts: bool, seed: int = 0) -> list[dict[str, Any]]:
    """Verdict records: for each judge (name, accuracy, position bias) both orders of every pair."""
    rng = np.random.default_rng(seed)
    records: list[dict[str, Any]] = []
    pairs = verdicts // (2 * len(JUDGES))
    for pair in range(pairs):
        prompt, kind = divmod(pair, 3)
        first, second = ((0, 1), (1, 2), (0, 2))[kind]
        gold = int(rng.integers(1, 3))
        shared: dict[str, Any] = {
            "pair_id": f"p{pair}", "prompt_id": f"x{prompt}", "gold": gold, "slice": f"s{prompt % 5}/t{prompt % 20}",
            "group": f"g{prompt % 4}", "length_1": int(rng.integers(20, 300)), "length_2": int(rng.integers(20, 300)),
            "response_id_1": f"r{first}", "response_id_2": f"r{second}", "generator_1": f"judge-{'abcde'[first]}",
            "generator_2": f"judge-{'abcde'[second]}",
        }  # fmt: skip
        if texts:
            shared |= {name: _text(rng) for name in ("prompt", "response_1", "response_2")}
        for judge, accuracy, bias in JUDGES:
            for order in (1, 2):
                right = rng.random() < accuracy
                winner = order if rng.random() < bias else gold if right else 3 - gold
                p = 0.5 + (0.4 if winner == 1 else -0.4)
                records.append({**shared, "judge": judge, "order": ("12", "21")[order - 1], "winner": winner, "p_1": p})
    return records


def _text(rng: np.random.Generator) -> str:
    words = rng.choice(WORDS, size=60).tolist()
    return ("- " if rng.random() < 0.3 else "") + " ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verdicts", type=int, default=100_000)
    parser.add_argument("--texts", action="store_true")
    parser.add_argument("--file", type=Path, help="audit this file instead of drawing one")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = arguments.file
        if path is None:
            path = Path(directory) / "verdicts.jsonl"
            # drawn in a process of its own, so that only the audit's memory is measured
            _in_child(path, arguments.verdicts, arguments.texts)
        from trimtab.labeling.audit import audit
        from trimtab.labeling.verdicts import read_verdicts

        start = time.perf_counter()
        table = read_verdicts(str(path))
        read = time.perf_counter()
        found = audit(table)
        done = time.perf_counter()
        text = json.dumps(found.as_dict())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{len(table)} verdicts, {len(found.judges)} judges: read {read - start:.1f} s, audit {done - read:.1f} s, "
        f"{len(text)} bytes of JSON, peak memory {peak:.0f} MiB"
    )


def _in_child(path: Path, verdicts: int, texts: bool) -> None:
    import subprocess
    import sys

    code = (
        "import json, sys; from bench.labeling.audit_speed import draw\n"
        "with open(sys.argv[1], 'w') as f:\n"
        "    for r in draw(int(sys.argv[2]), sys.argv[3] == 'True'): f.write(json.dumps(r) + '\\n')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path), str(verdicts), str(texts)], check=True)


if __name__ == "__main__":
    main()
