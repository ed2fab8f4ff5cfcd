"""How well a model of 135 million parameters judges, by recipe: HHH (221 pairs) and LLMBar Natural (100).

    python -m bench.judges.recipes                    measures what is missing, then prints the tables
    python -m bench.judges.recipes --minutes 5        stops measuring after five minutes; the next call goes on
    python -m bench.judges.recipes --only-tables

Measurements are kept in bench/results/judges, one line a pair: an interrupted run goes on where it stopped. Pairs come
in random order, and every measurement is made of the first thirty before any is made of more: whatever has been
measured is a random sample, and the tables say of how many. The data are read from ../shared/data; a set that is absent
is left out, with a message.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch

from bench.judges.material import SETS, load
from bench.judges.measure import MEASUREMENTS
from bench.judges.model import SmallModel
from bench.judges.tables import tables
from trimtab.data.records import Pair
from trimtab.runs.files import append_jsonl, read_jsonl

RESULTS = Path(__file__).parent.parent / "results" / "judges"
MODEL = "smollm2-135m-instruct"
_PARTS = (30, 60, 120, None)
"""Pairs of each set after which the next measurement has its turn."""


def measured(name: str, of: str) -> dict[str, dict[str, object]]:
    """What is kept of a measurement on a set: pair id -> figures."""
    return {r["id"]: r["figures"] for r in read_jsonl(_file(name, of)).records}


def _file(name: str, of: str) -> Path:
    return RESULTS / f"{of.split()[0].lower()}-{name}.jsonl"


def _measure(sets: dict[str, list[Pair]], names: list[str], until: float) -> None:
    model: SmallModel | None = None
    for most in _PARTS:
        for name in names:
            for of, pairs in sets.items():
                done = measured(name, of)
                order = np.random.default_rng(0).permutation(len(pairs))[:most]
                for pair in (pairs[i] for i in order if pairs[i].id not in done):
                    if time.monotonic() > until:
                        return
                    model = model or SmallModel(MODEL)
                    append_jsonl(_file(name, of), [{"id": pair.id, "figures": MEASUREMENTS[name](model, pair)}])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="longest time for measuring")
    parser.add_argument("--only", choices=list(MEASUREMENTS), action="append", help="only this measurement")
    parser.add_argument("--only-tables", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    RESULTS.mkdir(parents=True, exist_ok=True)
    sets: dict[str, list[Pair]] = {}
    for of in SETS:
        pairs = load(of)
        if pairs is None:
            print(f"{of}: {SETS[of]} is not there (../shared/data); left out", file=sys.stderr)
        else:
            sets[of] = pairs
    if not arguments.only_tables:
        _measure(sets, arguments.only or list(MEASUREMENTS), time.monotonic() + 60 * arguments.minutes)
    for of, pairs in sets.items():
        print(tables(of, pairs, {name: measured(name, of) for name in MEASUREMENTS}))


if __name__ == "__main__":
    main()
