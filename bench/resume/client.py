"""Runs a project and can be told to kill itself at a write point.

    python -m bench.resume.client PROJECT [--points FILE] [--die POINT:N] [--asked FILE]

A write point is a place in the code that opens a file for writing, renames, removes or makes a directory; `--points`
notes how often each was reached, `--die POINT:N` ends the process with SIGKILL just before its N-th time. `--asked`
notes every question that the judge is asked, before it answers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab.labeling.protocol import JudgeRequest, pair_hash
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import run_project
from trimtab.worlds.judge import SimulatedJudge

SETTINGS = [
    "project.threads=1", "sft.epochs=1", "sft.checkpoint_every=3", "sample.pairs_per_prompt=1", "preference.epochs=2",
    "preference.batch_size=16", "preference.checkpoint_every=2", "label.batch_size=8", "ppo.iterations=6",
    "ppo.batch_size=16", "ppo.checkpoint_every=2", "ppo.probe_prompts=4", "eval.responses_per_prompt=1",
    "eval.bootstrap=50", "ppo.kl_controller='adaptive'", "ppo.kl_target_nats=1.0", "ppo.kl_horizon_episodes=200",
    "ppo.score_normalisation='running'", "ppo.value_normalisation=true",
]  # fmt: skip
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")


class Points:
    """Counts the write points of a directory; ends the process at one of them."""

    def __init__(self, root: Path, die: str | None) -> None:
        self._root = os.fspath(root)
        self._point, self._left = (die.rsplit(":", 1)[0], int(die.rsplit(":", 1)[1])) if die else ("", 0)
        self.seen: Counter[str] = Counter()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS or not self._writes(event, arguments):
            return
        point = self._place(event)
        self.seen[point] += 1
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def _writes(self, event: str, arguments: tuple[Any, ...]) -> bool:
        path = arguments[0]
        if not isinstance(path, str | os.PathLike) or not os.fspath(path).startswith(self._root):
            return False
        if event == "os.mkdir":
            return not os.path.isdir(path)
        if event != "open":
            return True
        mode, flags = arguments[1], arguments[2]
        if isinstance(mode, str):
            return any(letter in mode for letter in "wax+")
        return bool(flags & (os.O_WRONLY | os.O_RDWR))

    def _place(self, event: str) -> str:
        """The event with the functions of ours that led to it, innermost first."""
        frame, names = sys._getframe(2), []
        while frame is not None and len(names) < 3:
            module = str(frame.f_globals.get("__name__", ""))
            if module.startswith("trimtab."):
                names.append(f"{module.removeprefix('trimtab.')}.{frame.f_code.co_name}")
            frame = frame.f_back  # type: ignore[assignment]
        return " < ".join([event, *names])


def _noting(asked: Path) -> None:
    """Have the simulated judge note what it is asked."""
    plain = SimulatedJudge.judge

    def judge(self: SimulatedJudge, requests: Sequence[JudgeRequest]) -> Any:
        with asked.open("a") as file:
            file.writelines(json.dumps([pair_hash(r.pair), r.order.value]) + "\n" for r in requests)
        return plain(self, requests)

    SimulatedJudge.judge = judge  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path)
    parser.add_argument("--points", type=Path)
    parser.add_argument("--die")
    parser.add_argument("--asked", type=Path)
    options = parser.parse_args()
    points = Points(options.project.resolve(), options.die)
    if options.asked:
        _noting(options.asked)
    if options.points or options.die:
        sys.addaudithook(points)
    run_project(Project.open(options.project.resolve(), SETTINGS))
    if options.points:
        options.points.write_text(json.dumps(points.seen))


if __name__ == "__main__":
    main()
