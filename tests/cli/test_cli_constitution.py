"""`trimtab constitution check` and `show`: what they print, and how they end. `diff` is tested with the pipeline."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from trimtab.cli import constitution
from trimtab.constitution import load_constitution
from trimtab.errors import TrimtabError

TOML = """
name = "kind"
[[principles]]
id = "warm"
text = "Prefer the warmer response."
weight = 3
reading = "You are warm."
opposite = "You are cold."
critique = "Where is it cold?"
revision = "Warm it."
[[principles]]
id = "apt"
text = "Prefer the response that answers the question."
reading = "Answer."
opposite = "Digress."
critique = "Does it answer?"
revision = "Answer."
[[principles]]
id = "off"
text = "Prefer rhyme."
weight = 0
[[chats]]
messages = [{ role = "user", content = "hi" }, { role = "assistant", content = "go" }]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "c.toml"
    path.write_text(TOML)
    return path


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    app = typer.Typer()
    constitution.register(app)
    app.command("other")(lambda: None)
    code = typer.main.get_command(app)(["constitution", *map(str, arguments)], standalone_mode=False)
    return code or 0, capsys.readouterr().out


def test_a_sound_file_ends_with_0_and_notes_do_not_count(file, capsys):
    code, out = call(capsys, "check", file)
    assert (code, out) == (0, "note: weight 0: off is never told, drawn or scored\n")


def test_a_warning_ends_with_3_and_json_says_the_same(file, capsys):
    file.write_text(TOML.replace("Prefer the response that answers the question.", "Prefer the colder response."))
    code, out = call(capsys, "check", file)
    assert code == 3
    assert out.startswith("warning: possible contradiction: warm says 'warmer', apt says 'colder'\n  ")
    code, out = call(capsys, "check", file, "--json")
    found = json.loads(out)
    assert (code, found["count"], found["truncated"], found["principles"]) == (3, 2, False, 3)
    assert found["hash"] == load_constitution(file).hash
    assert found["remarks"][0] | {"hint": ""} == {
        "level": "warning", "kind": "contradiction", "principles": ["warm", "apt"], "hint": "",
        "message": "possible contradiction: warm says 'warmer', apt says 'colder'",
    }  # fmt: skip


def test_a_broken_file_lists_every_problem_and_what_was_meant(file, capsys):
    file.write_text(TOML.replace("weight = 3", "wieght = 3").replace('id = "apt"', 'id = "a b"'))
    code, out = call(capsys, "check", file, "--json")
    found = json.loads(out)
    assert (code, found["hash"]) == (3, None)
    assert [r["level"] for r in found["remarks"]] == ["error", "error"]
    assert "did you mean 'weight'?" in found["remarks"][0]["message"]
    file.write_text("principles = 3 4")
    with pytest.raises(TrimtabError, match="is not valid TOML"):
        call(capsys, "check", file)


def test_show_prints_what_is_told_in_each_mode(file, capsys):
    code, out = call(capsys, "show", file)
    assert code == 0
    for line in (
        "1. Prefer the warmer response. (weight 3)", "warm (drawn 75%):", "  1. Prefer the warmer response.",
        "  reading: You are warm.", "  critique: Where is it cold?", "Never told (weight 0): off",
        "Before each critique: 1 example chats, 2 turns",
    ):  # fmt: skip
        assert line in out.splitlines()
    document = json.loads(call(capsys, "show", file, "--json")[1])
    whole = load_constitution(file)
    assert document["all"] == whole.render()
    assert [(p["told"], p["hash"]) for p in document["principles"]] == [
        (whole.only(name).render(), whole.only(name).hash) for name in ("warm", "apt")
    ]


def test_hostile_text_reaches_no_terminal(file, capsys):
    file.write_text(TOML.replace("Prefer rhyme.", "x").replace("Warm it.", "\\u001b[31mred"))
    assert "\x1b" not in call(capsys, "show", file)[1]
