"""Labels pairs through a server and a label store; can be told to kill itself at a write point.

    python -m bench.labeling.client STORE --url http://127.0.0.1:8902/v1 [--die before:BEGIN:3]

A write point is a statement of the store's transactions: `--die before:COMMIT:2` ends the process with SIGKILL before
its second COMMIT, `after:COMMIT:2` right after it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

from bench.labeling.material import CONSTITUTION, WORDING, pairs
from trimtab.labeling.labels import label_pairs, summarise
from trimtab.labeling.openai_judge import OpenAIJudge
from trimtab.labeling.server import Server
from trimtab.labeling.store import LabelStore


class Dying(sqlite3.Cursor):
    """A cursor that ends the process before or after its n-th statement of a kind."""

    when, kind, left = "", "", 0

    def execute(self, sql: str, *values: Any) -> Dying:
        return self._around(sql, lambda: super(Dying, self).execute(sql, *values))

    def executemany(self, sql: str, *values: Any) -> Dying:
        return self._around(sql, lambda: super(Dying, self).executemany(sql, *values))

    def _around(self, sql: str, run: Any) -> Dying:
        meant = sql.split()[0] == Dying.kind
        if meant:
            Dying.left -= 1
        if meant and Dying.left == 0 and Dying.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        run()
        if meant and Dying.left == 0 and Dying.when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return self


class DyingConnection(sqlite3.Connection):
    def cursor(self, *arguments: Any) -> Dying:  # type: ignore[override]
        return super().cursor(Dying)

    def execute(self, sql: str, *values: Any) -> Dying:  # type: ignore[override]
        return self.cursor().execute(sql, *values)


class DyingStore(LabelStore):
    """A label store with those cursors."""

    def _connect(self, synchronous: str) -> sqlite3.Connection:
        db = sqlite3.connect(
            self.path, timeout=30, isolation_level=None, check_same_thread=False, factory=DyingConnection
        )
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        return db


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--url", default="http://127.0.0.1:8902/v1")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--calls", type=int, default=4, help="at a time")
    parser.add_argument("--die", default="")
    options = parser.parse_args()
    if options.die:
        Dying.when, Dying.kind, number = options.die.split(":")
        Dying.left = int(number)
    server = Server(options.url, None, timeout_s=120)
    judge = OpenAIJudge(server, "smollm2-135m-instruct", WORDING, max_new_tokens=1)
    with (DyingStore if options.die else LabelStore)(options.store) as store:
        labels = label_pairs(pairs(options.pairs), judge, CONSTITUTION, store=store, batch_size=options.calls)
        summary = summarise(labels)
        print(
            json.dumps(
                {
                    "labels": summary.n,
                    "usable": summary.usable,
                    "recorded": len(store),
                    "how": judge.how,
                    "mean_mass": summary.mean_mass,
                    "first_share": summary.first_share,
                    "flipped": summary.flipped,
                    "counts": {str(k): v for k, v in summary.verdict_counts.items()},
                }
            )
        )


if __name__ == "__main__":
    main()
