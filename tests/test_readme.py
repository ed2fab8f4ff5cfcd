"""README: its Python blocks run, its command lines parse, its make targets, settings and links exist."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from trimtab.cli.main import app
from trimtab.config.describe import fields
from trimtab.config.load import load_config
from trimtab.constitution import load_constitution
from trimtab.data.records import CandidatePair, Message, Prompt, Response
from trimtab.labeling.judges import JudgeContext
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import Judge
from trimtab.scoring import FunctionScorer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROSE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


LOOP, REWARD, JUDGE = blocks("python")
CONSTITUTION, MIXTURE = blocks("toml")
LINES = [line.split(" #")[0].strip() for block in blocks("sh") for line in block.splitlines() if line.strip()]
USAGE_ERROR = typer.BadParameter.__mro__[1]
COMMANDS = [line for line in LINES if line.startswith("trimtab ")]


def parse(line: str) -> dict[str, Any]:
    """What the command line would hand to its command; an error where it would be refused."""
    command, name, rest = typer.main.get_command(app), "trimtab", shlex.split(line)[1:]
    context = None
    while subcommands := getattr(command, "commands", {}):
        context = typer.Context(command, info_name=name, parent=context)
        name = rest.pop(0)
        command = subcommands[name]
    parameters: dict[str, Any] = command.make_context(name, rest, parent=context).params
    return parameters


@pytest.mark.slow
def test_the_loop_in_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    exec(compile(LOOP, "README.md", "exec"), namespace)
    assert {m.name for m in namespace["result"].measures} == {"gold", "preference"}
    # "the preference score rises": the policy was trained on it
    assert namespace["result"].measures[1].difference.low > 0
    assert capsys.readouterr().out == namespace["result"].table() + "\n"


def test_the_reward_is_found_as_a_project_would_name_it(tmp_path: Path):
    (tmp_path / "rewards.py").write_text(REWARD, encoding="utf-8")
    scorer = FunctionScorer.load("rewards:asks_back", tmp_path)
    prompt = Prompt("p", (Message("user", "Hello"),))
    assert scorer.score([prompt] * 2, [Response("Why? "), Response("Why? No.")]).tolist() == [1.0, 0.0]


def test_the_judge_is_one_and_decides(tmp_path: Path):
    path = tmp_path / "constitution.toml"
    path.write_text(CONSTITUTION, encoding="utf-8")
    namespace: dict[str, Any] = {}
    exec(compile(JUDGE, "README.md", "exec"), namespace)
    judge = namespace["make"](JudgeContext(load_config().config.label))
    assert isinstance(judge, Judge)
    pair = CandidatePair("a", Prompt("p", (Message("user", "Hello"),)), Response("a long answer"), Response("short"))
    (label,) = label_pairs([pair], judge, load_constitution(path))
    assert label.p_first == pytest.approx(0.2)


def test_the_mixture_is_a_setting(tmp_path: Path):
    path = tmp_path / "trimtab.toml"
    path.write_text(MIXTURE, encoding="utf-8")
    assert load_config(path).config.ppo.reward == tomllib.loads(MIXTURE)["ppo"]["reward"]


@pytest.mark.parametrize("line", COMMANDS)
def test_command_line_parses(line: str):
    settings = parse(line).get("settings") or []
    if not line.startswith("trimtab pm compare"):  # there a list of values is an axis
        load_config(None, settings)


def test_a_command_line_that_would_be_refused_is_seen():
    for line in ("trimtab run --form ppo", "trimtab run p --until pmm", "trimtab pm evaluate p"):
        with pytest.raises((USAGE_ERROR, KeyError)):
            parse(line)


def test_every_command_is_toured():
    groups = {name for name, command in typer.main.get_command(app).commands.items() if hasattr(command, "commands")}
    shown = {" ".join(words[1:3]) if words[1] in groups else words[1] for words in map(str.split, COMMANDS)}
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert shown == set(re.findall(r"^### trimtab (.+)$", page, re.MULTILINE)) - groups


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_settings_and_links_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets
    sections = {key.split(".")[0] for key in fields()}
    named = re.findall(r"`([a-z]+\.[a-z_]+)(?: = [^`]*)?`", text)
    suffixes = (".toml", ".jsonl", ".json", ".sqlite", ".html", ".md", ".py", ".lock")
    assert {k for k in named if k.split(".")[0] in sections and not k.endswith(suffixes)} <= set(fields())
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert "://" in target or (page.parent / target).exists(), target


def test_the_extras_exist_and_the_test_command_is_named():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall(r"'\.\[([a-z]+)\]'", README)) <= set(extras)
    assert "make test" in LINES
