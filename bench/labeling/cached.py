"""What a label costs that the store has already: time from pairs in memory to labels in memory.

    python -m bench.labeling.cached [--labels 20000]

Prints microseconds of processor time a label (both orders), the least of three passes, and what its parts take.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.labeling.material import CONSTITUTION
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import Judge, JudgeIdentity, JudgeRequest, Outcome, Verdict, pair_hash
from trimtab.labeling.questions import questions_about
from trimtab.labeling.store import LabelStore

TEXT = "A response of the length that small models write, which is two or three sentences. It goes on a little. " * 3


class Instant:
    """Answers at once."""

    identity = JudgeIdentity("instant", "m" * 40, "t" * 64)
    sees_order = True

    def judge(self, requests: list[JudgeRequest]) -> list[Verdict]:
        found = Verdict(Outcome.OK, 0.75, 0.9, "", (-0.1, -2.0), "logprobs", "A", "", 300, 1, 1e-5, 0.2)
        return [found] * len(requests)


def least(run: Callable[[], object], n: int) -> float:
    """Microseconds of processor time for one of `n`, the least of three passes."""
    times = []
    for _ in range(3):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times) / n * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=20_000)
    n = parser.parse_args().labels
    prompts = [Prompt(f"x{i}", (Message("user", f"{i}: {TEXT[:200]}"),)) for i in range(n)]
    pairs = [CandidatePair(f"p{i}", p, Response(TEXT + str(i)), Response(str(i) + TEXT)) for i, p in enumerate(prompts)]
    judge: Judge = Instant()
    with tempfile.TemporaryDirectory() as directory, LabelStore(Path(directory) / "labels.sqlite") as store:
        label_pairs(pairs, judge, CONSTITUTION, store=store, batch_size=2048)
        keys = [q.key for mine in questions_about(pairs, [judge], CONSTITUTION) for q in mine]
        figures = {
            "labels": n,
            "microseconds_a_label": least(lambda: label_pairs(pairs, judge, CONSTITUTION, store=store), n),
            "of_these_hashing": least(lambda: [pair_hash(p) for p in pairs], n),
            "of_these_questions": least(lambda: questions_about(pairs, [judge], CONSTITUTION), n),
            "of_these_finding": least(lambda: store.find(keys), n),
        }
    print(json.dumps({k: round(v, 1) for k, v in figures.items()}, indent=2))


if __name__ == "__main__":
    main()
