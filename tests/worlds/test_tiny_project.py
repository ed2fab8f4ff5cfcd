"""The files of a tiny-world project."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from trimtab.constitution import load_constitution
from trimtab.worlds import project, tiny
from trimtab.worlds.gold import GoldTerms


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_four_files_hold_different_prompts(tmp_path: Path) -> None:
    written = project.write_project(tmp_path, seed=4)
    assert [p.name for p in written] == [
        "prompts.jsonl",
        "prompts_held_out.jsonl",
        "demonstrations.jsonl",
        "constitution.toml",
    ]
    train, held_out, shown = (lines(p) for p in written[:3])
    assert (len(train), len(held_out), len(shown)) == (2000, 256, 8000)
    everything = [str(x["prompt"]) for x in (*train, *held_out, *shown)]
    assert len(set(everything)) == len(everything)
    ids = [x["id"] for x in (*train, *held_out, *shown)]
    assert len(set(ids)) == len(ids)
    assert all(x["tags"] == [tiny.prompt_topic(str(x["prompt"]))] for x in (*train, *held_out))
    assert all(3 <= len(str(x["response"]).split()) <= 15 for x in shown)


def test_the_files_are_a_function_of_the_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "DEMONSTRATIONS", 20)
    monkeypatch.setattr(project, "TRAIN_PROMPTS", 20)
    a, b, c = (project.write_project(tmp_path / name, seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert [p.read_bytes() for p in a] == [p.read_bytes() for p in b]
    assert a[0].read_bytes() != c[0].read_bytes()


def test_the_constitution_has_a_principle_for_each_term_of_gold() -> None:
    constitution = load_constitution(Path(str(files("trimtab.worlds").joinpath("constitution.toml"))))
    assert {p.id for p in constitution.principles} == set(GoldTerms._fields)
    assert all(p.reading and p.opposite and p.reading != p.opposite for p in constitution.principles)
