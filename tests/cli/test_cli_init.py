"""`init`: complete projects that load, and never a file overwritten unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.pipeline.project import Project

TINY = {"trimtab.toml", "constitution.toml", "demonstrations.jsonl", "prompts.jsonl", "prompts_held_out.jsonl"}
ASSETS = Path(__file__).parents[2] / "src" / "trimtab" / "assets" / "demo"


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_tiny_project_loads_and_can_be_planned(trimtab, tmp_path):
    target = tmp_path / "fleet" / "boat"
    done = trimtab("init", target, "--preset", "tiny")
    assert (done.code, done.err) == (0, f"next: trimtab run {target}\n")
    assert set(contents(target)) == TINY
    assert {line.removeprefix(f"wrote {target}/") for line in done.out.splitlines()} == TINY
    project = Project.open(target)
    assert project.config.model.name == "tiny-world"
    assert (len(project.prompts), len(project.held_out_prompts), len(project.demonstrations)) == (2000, 256, 8000)
    assert project.constitution.principles
    assert trimtab("run", target, "--dry-run").code == 0


def test_a_demo_project_has_the_files_of_the_package(trimtab, tmp_path):
    done = trimtab("init", tmp_path / "boat", "--json")
    found = contents(tmp_path / "boat")
    assets = contents(ASSETS)
    assert set(found) == {"trimtab.toml", *assets}
    assert {name: found[name] for name in assets} == assets
    assert b"# " in found["trimtab.toml"]
    assert done.json["written"] == [str(tmp_path / "boat" / name) for name in ["trimtab.toml", *sorted(assets)]]
    assert (done.json["kept"], done.json["count"]) == ([], len(assets) + 1)
    project = Project.open(tmp_path / "boat")
    assert project.prompts
    assert project.held_out_prompts


def test_nothing_is_written_where_a_file_is_there(trimtab, tmp_path):
    (tmp_path / "prompts.jsonl").write_text("mine")
    done = trimtab("init", tmp_path)
    assert done.code == 2
    assert f"{tmp_path}: has prompts.jsonl already" in done.err
    assert contents(tmp_path) == {"prompts.jsonl": b"mine"}


def test_keep_writes_only_what_is_missing(trimtab, tmp_path):
    (tmp_path / "prompts.jsonl").write_text("mine")
    done = trimtab("init", tmp_path, "--existing", "keep", "--json")
    assert (tmp_path / "prompts.jsonl").read_text() == "mine"
    assert done.json["kept"] == [str(tmp_path / "prompts.jsonl")]
    written = {Path(path).name for path in done.json["written"]}
    assert written == {"trimtab.toml", *contents(ASSETS)} - {"prompts.jsonl"}
    assert set(contents(tmp_path)) == written | {"prompts.jsonl"}


def test_overwrite_replaces_the_projects_files_and_no_others(trimtab, tmp_path):
    (tmp_path / "prompts.jsonl").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    done = trimtab("init", tmp_path, "--existing", "overwrite")
    assert done.code == 0
    assert (tmp_path / "prompts.jsonl").read_text() != "mine"
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_the_same_preset_gives_the_same_files(trimtab, tmp_path):
    for name in ("one", "two"):
        trimtab("init", tmp_path / name, "--preset", "tiny")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_file_is_no_place_for_a_project(trimtab, tmp_path):
    (tmp_path / "boat").write_text("")
    assert trimtab("init", tmp_path / "boat").code == 2


@pytest.mark.skipif(not (ASSETS / "constitution.toml").exists(), reason="the package has no demo constitution yet")
def test_a_demo_project_can_be_planned(trimtab, tmp_path):
    trimtab("init", tmp_path)
    assert trimtab("run", tmp_path, "--dry-run").code == 0
