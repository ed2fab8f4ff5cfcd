"""`runs`, `show`, `config` and `signals`: what they list, as text and as JSON, and from where they find it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimtab.config.schema import Config
from trimtab.runs.signals import SIGNALS


def test_runs_lists_status_stages_score_kl_and_age(trimtab, project, make_run):
    make_run(project / "runs", "first", stages={"sft": "done", "ppo": "interrupted"}, score_mean=0.5, kl_reference=4.0)
    make_run(project / "runs", "second", stages={"sft": "failed"})
    lines = [line.split() for line in trimtab("runs", project).out.splitlines()]
    assert lines[0] == ["run", "status", "stages", "done", "score", "kl", "(nats/sequence)", "age"]
    assert lines[1][:5] == ["first", "interrupted", "sft", "0.500", "4.00"]
    assert lines[2] == ["second", "failed", "-", "-", lines[2][4], "s"]


def test_runs_as_json(trimtab, project, make_run):
    make_run(project / "runs", "first", score_mean=0.5, kl_reference=4.0)
    broken = project / "runs" / "broken"
    broken.mkdir()
    (broken / "run.json").write_text('{"schema_version": 99}')
    done = trimtab("runs", project, "--json")
    found = done.json
    row = found["runs"][0]
    assert (found["count"], found["truncated"], found["path"]) == (1, False, str(project / "runs"))
    assert [entry["path"] for entry in found["unreadable"]] == [str(broken)]
    assert "99" in found["unreadable"][0]["message"]
    assert set(row) == {"name", "path", "status", "stages_done", "score", "kl", "created", "age_seconds"}
    assert (row["name"], row["status"], row["stages_done"], row["score"], row["kl"]) == (
        "first",
        "done",
        ["ppo"],
        0.5,
        4.0,
    )
    # The path is one that `show` takes.
    assert trimtab("show", row["path"], "--json").json["name"] == "first"
    assert "skipped" in trimtab("runs", project).err


def test_no_runs_is_an_empty_list(trimtab, project):
    done = trimtab("runs", project)
    assert (done.code, done.out, done.err) == (0, "", f"no runs in {project / 'runs'}\n")
    assert trimtab("runs", project, "--json").json["runs"] == []


def test_runs_are_found_without_settings_too(trimtab, tmp_path, make_run):
    make_run(tmp_path / "runs", "main")
    for directory in (tmp_path, tmp_path / "runs"):
        assert [row["name"] for row in trimtab("runs", directory, "--json").json["runs"]] == ["main"]


def test_runs_are_where_the_settings_say(trimtab, project, make_run):
    text = (project / "trimtab.toml").read_text()
    (project / "trimtab.toml").write_text(text.replace("seed = 3", 'seed = 3\nruns = "voyages"'))
    make_run(project / "voyages", "main")
    assert trimtab("runs", project, "--json").json["count"] == 1
    assert trimtab("show", "main", project, "--json").json["path"] == str(project / "voyages" / "main")


def test_a_directory_that_is_not_there(trimtab, tmp_path):
    assert trimtab("runs", tmp_path / "nowhere").code == 2


def test_show_tells_stages_settings_signals_and_artifacts(trimtab, project, make_run):
    config = Config().model_dump(mode="json")
    config["ppo"]["beta"] = 0.25
    make_run(project / "runs", "main", config=config, score_mean=0.5, kl_reference=4.0)
    done = trimtab("show", "main", project, "--json")
    found = done.json
    assert [(s["name"], s["status"], s["attempt"]) for s in found["stages"]] == [("ppo", "done", 1)]
    assert found["stages"][0]["seconds"] >= 0
    assert found["settings"] == [{"key": "ppo.beta", "value": 0.25, "default": 0.05}]
    kl = next(signal for signal in found["signals"] if signal["key"] == "kl/reference")
    assert kl == {
        "stage": "ppo",
        "key": "kl/reference",
        "step": 2,
        "value": 4.0,
        "nonfinite": None,
        "unit": "nats/sequence",
        "healthy": {"low": SIGNALS["kl/reference"].healthy.low, "high": SIGNALS["kl/reference"].healthy.high},
        "inside": True,
    }
    assert [artifact["path"] for artifact in found["artifacts"]] == ["artifacts/ppo/result.json"]
    assert found["artifacts"][0]["bytes"] == (project / "runs/main/artifacts/ppo/result.json").stat().st_size
    text = trimtab("show", "main", project).out
    words = [line.split() for line in text.splitlines()]
    assert ["ppo.beta", "0.25", "0.05"] in words
    assert ["ppo", "score/mean", "0.500", "score", "2", "-"] in words
    assert any(line[:3] == ["ppo", "done", "1"] for line in words)


def test_show_says_what_is_not_finite(trimtab, project, make_run):
    make_run(project / "runs", "main", score_mean=float("nan"))
    signal = trimtab("show", "main", project, "--json").json["signals"][0]
    assert (signal["value"], signal["nonfinite"]) == (None, "nan")
    assert "nan" in trimtab("show", "main", project).out


def test_show_takes_names_from_the_working_directory_and_paths(trimtab, project, make_run, monkeypatch):
    make_run(project / "runs", "main")
    monkeypatch.chdir(project)
    assert trimtab("show", "main").code == 0
    assert trimtab("show", "runs/main").code == 0


def test_show_of_a_run_that_is_not_there_names_those_that_are(trimtab, project, make_run):
    make_run(project / "runs", "main")
    done = trimtab("show", "mian", project)
    assert (done.code, done.err.splitlines()[-1]) == (1, "  there are: main")


def test_hostile_names_and_settings_reach_no_terminal(trimtab, project, make_run):
    config = Config().model_dump(mode="json")
    config["model"]["name"] = "evil\x1b[2J\x07"
    config["bo[bold]om"] = {"\x9bkey": "\u202e"}
    name = "[red]x \x1b[31m:boom:"
    make_run(project / "runs", "main", config=config).path.rename(project / "runs" / name)
    manifest = project / "runs" / name / "run.json"
    record = json.loads(manifest.read_text())
    record["parent"] = "\x1b]0;title\x07"
    manifest.write_text(json.dumps(record))
    for command in (["runs", project], ["show", name, project]):
        done = trimtab(*command)
        assert done.code == 0
        assert all(c.isprintable() or c == "\n" for c in done.out + done.err)
        assert "[red]x \\x1b[31m:boom:" in done.out
    assert "evil\\u001b[2J\\u0007" in done.out
    assert "bo[bold]om.\\x9bkey" in done.out
    assert "from \\x1b]0;title\\x07" in done.out


def test_columns_line_up_for_wide_characters(trimtab, project, make_run):
    from rich.cells import cell_len

    for name in ("船", "boat"):
        make_run(project / "runs", name)
    lines = trimtab("runs", project).out.splitlines()
    assert len({cell_len(line[: line.index("done")]) for line in lines[1:]}) == 1


def test_config_show_says_where_each_value_is_from(trimtab, project):
    done = trimtab("config", "show", project, "--set", "ppo.gamma=0.9", "--json")
    rows = {row["key"]: (row["value"], row["origin"]) for row in done.json["settings"]}
    assert len(rows) == done.json["count"] == sum(len(v) for v in Config().model_dump().values())
    assert rows["ppo.gamma"] == (0.9, "--set")
    assert rows["ppo.clip_range"] == (0.2, "default")
    assert rows["ppo.beta"][0] == 0.1
    assert rows["ppo.beta"][1].endswith("trimtab.toml:10")
    words = [line.split() for line in trimtab("config", "show", project).out.splitlines()]
    assert ["ppo.clip_range", "0.2", "default"] in words
    assert ["sft.data", '"demonstrations.jsonl"', f"{project}/trimtab.toml:6"] in words


def test_config_schema_is_a_json_schema_of_the_tree(trimtab):
    found = trimtab("config", "schema").json
    assert set(found["properties"]) == set(Config.model_fields)


def test_config_explain(trimtab):
    text = trimtab("config", "explain", "ppo.beta").out
    assert text.startswith("ppo.beta\n  KL coefficient at the start.\n")
    assert text.endswith("\n  default: 0.05\n")
    section = trimtab("config", "explain", "sample", "--json").json
    assert [row["key"] for row in section["settings"]] == [f"sample.{name}" for name in Config().sample.model_dump()]
    assert set(section["settings"][0]) == {"key", "default", "allowed", "meaning"}


@pytest.mark.parametrize(("key", "nearest"), [("ppo.betta", "ppo.beta"), ("beta", "ppo.beta")])
def test_config_explain_of_an_unknown_key_names_the_nearest(trimtab, key, nearest):
    done = trimtab("config", "explain", key)
    assert (done.code, done.err) == (2, f"error: there is no setting {key!r}\n  did you mean {nearest}?\n")


def test_signals_lists_the_table(trimtab):
    found = trimtab("signals", "--json").json
    assert [row["key"] for row in found["signals"]] == list(SIGNALS)
    kl = next(row for row in found["signals"] if row["key"] == "kl/reference")
    assert (kl["unit"], kl["stages"][0]) == ("nats/sequence", "ppo")
    assert set(kl) == {"key", "unit", "meaning", "stages", "healthy", "source", "rules"}
    text = trimtab("signals").out
    assert all(key in text for key in SIGNALS)
    assert max(map(len, text.splitlines())) > 100, "rows are cut at the width of the terminal"


def test_no_command_leaves_files_behind_by_looking(trimtab, project: Path, make_run):
    make_run(project / "runs", "main")
    before = sorted(project.rglob("*"))
    for command in (["runs", project], ["show", "main", project], ["config", "show", project]):
        trimtab(*command)
    assert sorted(project.rglob("*")) == before


def test_show_marks_what_lies_outside_its_healthy_band(trimtab, project, make_run):
    make_run(project / "runs", "main", kl_reference=99.0)
    kl = next(s for s in trimtab("show", "main", project, "--json").json["signals"] if s["key"] == "kl/reference")
    assert kl["inside"] is False
    lines = trimtab("show", "main", project).out.splitlines()
    assert [line.split()[1] for line in lines if line.endswith("outside")] == ["kl/reference"]
