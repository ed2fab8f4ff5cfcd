"""One process of several that train the tiny world's policy: started by the tests, with a launcher's variables.

    python ppo_processes.py DIRECTORY

DIRECTORY/cases.json holds a list of cases (see `Case`); process 0 leaves `<name>.json` and `<name>.safetensors`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from trimtab import ppo
from trimtab.config.schema import PPOConfig
from trimtab.data.demonstrations import Demonstration
from trimtab.data.records import Prompt, Response
from trimtab.errors import TrimtabError
from trimtab.launch import launched
from trimtab.models.roles import CausalModel
from trimtab.models.tokens import TextCodec
from trimtab.ppo import update
from trimtab.runs.callbacks import Action
from trimtab.runs.run import Run
from trimtab.training.world import World
from trimtab.worlds.model import build_model, build_tokenizer
from trimtab.worlds.tiny import prompts


@dataclasses.dataclass
class Case:
    """A training: `settings` of [ppo]; `boundary`: shared layers; `dies`: the rank that is killed, and when.

    `run`: of the run directory that is written; `actions`: what a callback does after which iteration; `odd`: the rank
    whose settings differ; `full`: the rank whose memory holds so many responses in the value part of an update.
    """

    name: str
    settings: dict[str, Any]
    parallel: str = "ddp"
    boundary: int = 0
    prompts: int = 12
    run: str | None = None
    dies: tuple[int, int] | None = None
    actions: dict[int, dict[str, Any]] = dataclasses.field(default_factory=dict)
    odd: int | None = None
    full: tuple[int, int] | None = None


class LengthScorer:
    """A score that differs between responses; a process may be told to die when it scores for the nth time."""

    name = "length"

    def __init__(self, dies_at: int | None = None) -> None:
        self.left = dies_at

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return np.array([0.1 * len(r.text.split()) + 0.01 * (sum(map(ord, r.text[:9])) % 17) for r in responses])

    def signals(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> dict[str, float]:
        return {"score/length": float(self.score(prompts, responses).mean())} if self.left is None else {}


class Say:
    """A callback with prepared actions by step."""

    def __init__(self, actions: dict[int, dict[str, Any]]) -> None:
        self.actions = {int(step): Action.from_dict(action) for step, action in actions.items()}

    def on_iteration(self, view: Any) -> Action | None:
        return self.actions.get(view.step)


def train(case: Case, world: World, directory: Path) -> ppo.PPOResult:
    """The training of a case."""
    base = CausalModel(build_model(0), case.boundary)
    base.requires_grad_(False)
    settings = dict(case.settings)
    value_part = update._value_part
    if case.full is not None and case.full[0] == world.rank:

        def holds(learner: Any, value: Any, batch: Any, *rest: Any) -> Any:
            if len(batch) > case.full[1]:
                raise torch.OutOfMemoryError(f"{len(batch)} responses")
            return value_part(learner, value, batch, *rest)

        update._value_part = holds
    if case.odd == world.rank:
        settings["beta"] = 0.123
    config = PPOConfig.model_validate(settings)
    given = prompts(case.prompts, 3)
    tokenizer = build_tokenizer()
    # many tokens end a response, so that lengths differ
    codec = TextCodec(tokenizer, eos_ids=range(len(tokenizer) - 20, len(tokenizer)))
    run = None
    if case.run is not None:
        path = directory / case.run
        if world.first:
            run = Run.create(directory, case.run, config={}, seed=5, existing="resume")
            run.begin_stage("ppo", "f")
        world.tell(None)
        run = run or Run.open(path)
    demonstrations = [Demonstration(p, "please thanks") for p in given[:5]] if config.language_data else []
    result = ppo.train(
        config, base.fork(trainable=True), codec, given,
        LengthScorer(case.dies[1] if case.dies is not None and case.dies[0] == world.rank else None),
        run=run, seed=5, world=world, parallel=case.parallel, demonstrations=demonstrations,
        held_out=ppo.HeldOut(prompts(3, 9), {}, 2), callbacks=[Say(case.actions)] if world.first else [],
    )  # fmt: skip
    update._value_part = value_part
    if run is not None:
        run.close()
    return result


def weights(result: ppo.PPOResult) -> dict[str, torch.Tensor]:
    """Trained weights of both roles."""
    roles = {"policy": result.policy, "value": result.value}
    found = {role: model.own_state() for role, model in roles.items() if model is not None}
    return {f"{role}.{name}": weight.clone() for role, state in found.items() for name, weight in state.items()}


def start(directory: Path, cases: Sequence[Case], size: int = 2, **variables: str) -> list[subprocess.Popen[str]]:
    """Start `size` processes on the cases."""
    (directory / "cases.json").write_text(json.dumps([dataclasses.asdict(case) for case in cases]))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(size):
        launch = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = os.environ | {k: str(v) for k, v in launch.items()} | {"OMP_NUM_THREADS": "1"} | variables
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        command = [sys.executable, __file__, str(directory)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, env=environment, text=True, **pipes))
    return started


def finish(started: Sequence[subprocess.Popen[str]], timeout: float = 150) -> list[tuple[int, str]]:
    """Exit code and output of each process; none outlives the call."""
    try:
        return [(p.wait(timeout), p.stdout.read()) for p in started]
    finally:
        for p in started:
            p.kill()
            p.wait()


def main(directory: Path) -> int:
    torch.set_num_threads(1)
    world = World.join(launched(), torch.device("cpu"))
    for record in json.loads((directory / "cases.json").read_text()):
        case = Case(**record)
        try:
            result = train(case, world, directory)
        except TrimtabError as error:
            sys.stdout.write(f"{case.name}: {error.kind}: {error}\n")
            world.leave(failed=True)
            return 1
        if world.first:
            save_file(weights(result), directory / f"{case.name}.safetensors")
            (directory / f"{case.name}.json").write_text(json.dumps([result.history, result.stopped]))
    world.leave()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
