from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli import output
from trimtab.cli.main import main
from trimtab.config.schema import Config
from trimtab.runs.files import write_json
from trimtab.runs.run import Run


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Trimtab = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TRIMTAB_DEBUG", "GITHUB_ACTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    yield
    output.set_quiet(False)


@pytest.fixture
def trimtab(capsys: pytest.CaptureFixture[str]) -> Trimtab:
    """Runs one command line in this process, as the entry point would."""

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with the tiny world's settings and files of a few lines."""
    directory = tmp_path / "boat"
    directory.mkdir()
    (directory / "trimtab.toml").write_text(
        '[project]\nseed = 3\n[model]\nname = "tiny-world"\n[sft]\ndata = "demonstrations.jsonl"\n'
        '[label]\njudge = "simulated"\n[ppo]\nbeta = 0.1\n[eval]\nmeasures = ["gold"]\n',
        encoding="utf-8",
    )
    line = json.dumps({"prompt": "a b c d e f g h", "response": "a b"}) + "\n"
    for name in ("prompts.jsonl", "prompts_held_out.jsonl", "demonstrations.jsonl"):
        (directory / name).write_text(line, encoding="utf-8")
    (directory / "constitution.toml").write_text(
        'name = "short"\n[[principles]]\nid = "polite"\ntext = "Prefer the polite response."\n', encoding="utf-8"
    )
    return directory


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """Makes a run as stages leave it, with two logged steps of the PPO stage that end at the given signals."""

    def make(
        root: Path,
        name: str,
        *,
        stages: dict[str, str] | None = None,
        config: dict[str, Any] | None = None,
        **signals: float,
    ) -> Run:
        run = Run.create(root, name, config=config or Config().model_dump(mode="json"), seed=0)
        for stage, status in (stages or {"ppo": "done"}).items():
            run.begin_stage(stage, "f" * 8)
            if stage == "ppo":
                for step in (1, 2):
                    run.log("ppo", step, {key.replace("_", "/", 1): value * step / 2 for key, value in signals.items()})
            write_json(run.artifact(stage) / "result.json", {"stage": stage})
            if status != "running":
                run.end_stage(stage, status)
        run.close()
        return run

    return make
