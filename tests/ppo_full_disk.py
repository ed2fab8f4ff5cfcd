"""A training whose disk fills up after the third iteration, and that goes on once there is room again.

    python ppo_full_disk.py DIRECTORY fill BYTES EVERY    # a small file system, of which all but BYTES is taken
    python ppo_full_disk.py DIRECTORY limit BYTES EVERY   # no file may grow beyond BYTES

A checkpoint is written every EVERY iterations. Prints what happened as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trimtab import ppo
from trimtab.config.schema import PPOConfig
from trimtab.errors import TrimtabError
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.runs.run import Run
from trimtab.scoring import FunctionScorer
from trimtab.training.checkpoint import checkpoints, load_checkpoint
from trimtab.worlds.model import build_model, build_tokenizer
from trimtab.worlds.tiny import prompts


def train(run: Run | None, callback: Callable[[int], None], every: int) -> ppo.PPOResult:
    class Watch:
        def on_iteration(self, view: Any) -> None:
            callback(view.step)

    base = CausalModel(build_model(0))
    base.requires_grad_(False)
    scorer = FunctionScorer("length", lambda p, r: np.array([0.1 * len(x.split()) for x in r]))
    config = PPOConfig(
        iterations=6, batch_size=8, max_new_tokens=6, learning_rate=1e-3, value_learning_rate=1e-3,
        checkpoint_every=every, keep_checkpoints=2,
    )  # fmt: skip
    return ppo.train(
        config, base.fork(trainable=True), TextCodec(build_tokenizer()), prompts(12, 3), scorer, run=run, seed=5,
        callbacks=[Watch()],
    )  # fmt: skip


def fill(directory: Path, left: int) -> Callable[[], None]:
    """Take all room but `left` bytes; returns what frees it."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            file.truncate(max(0, os.fstat(file.fileno()).st_size - left))
    return filler.unlink


def limit(size: int) -> Callable[[], None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)


def main(directory: Path, how: str, size: int, every: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    undisturbed = train(None, lambda step: None, every)
    free: list[Callable[[], None]] = []

    def full(step: int) -> None:
        if step == 3:
            free.append(fill(directory, size) if how == "fill" else limit(size))

    run = Run.create(directory, "r", config={}, seed=5)
    run.begin_stage("ppo", "f")
    found: dict[str, Any] = {}
    try:
        train(run, full, every)
    except TrimtabError as error:
        found |= {"kind": str(error.kind), "message": error.message, "hint": error.hint}
    there = checkpoints(run.checkpoint_dir("ppo"))
    found["kept"] = [step for step, path in there if load_checkpoint(path)["iteration"] == step]
    found["rest"] = sorted(p.name for p in run.checkpoint_dir("ppo").iterdir() if p not in [q for _, q in there])
    for release in free:
        release()
    result = train(run, lambda step: None, every)
    found["steps"] = [row["step"] for row in run.metrics("ppo")]
    found["same"] = all(
        torch.equal(weight, result.policy.own_state()[name]) for name, weight in undisturbed.policy.own_state().items()
    ) and [row["kl/reference"] for row in undisturbed.history] == [row["kl/reference"] for row in result.history]
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
