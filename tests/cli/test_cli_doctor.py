"""`trimtab doctor` and `trimtab explain`: outputs and exit codes."""

from __future__ import annotations

import json
import os
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from made_up_diagnoses import healthy, inconclusive, sick
from trimtab.doctor import driver
from trimtab.doctor.diagnosis import Diagnosis, Status
from trimtab.doctor.finding import Severity
from trimtab.errors import ErrorKind, TrimtabError


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch):
    """Sets what the doctor says; returns the calls that it got."""
    calls: list[tuple[str, dict[str, str]]] = []

    def set_to(diagnosis: Diagnosis | Exception) -> list[tuple[str, dict[str, str]]]:
        def diagnose(path: Path, *, mapping: dict[str, str] | None = None) -> Diagnosis:
            calls.append((str(path), dict(mapping or {})))
            if isinstance(diagnosis, Exception):
                raise diagnosis
            return diagnosis

        monkeypatch.setattr(driver, "diagnose", diagnose)
        return calls

    return set_to


def warned() -> Diagnosis:
    return replace(sick(), findings=tuple(f.at_most(Severity.WARNING) for f in sick().findings))


def noted() -> Diagnosis:
    return replace(healthy(), findings=(replace(sick().findings[0], severity=Severity.INFO),))


@pytest.mark.parametrize(
    ("diagnosis", "options", "code"),
    [
        (healthy(), [], 0),
        (noted(), [], 0),
        (sick(), [], 3),
        (sick(), ["--fail-on", "critical"], 3),
        (warned(), [], 3),
        (warned(), ["--fail-on", "warning"], 3),
        (warned(), ["--fail-on", "critical"], 0),
        (inconclusive(), [], 5),
        (inconclusive(), ["--fail-on", "critical"], 5),
        (replace(noted(), status=Status.INCONCLUSIVE), [], 5),
    ],
)
def test_exit_codes(trimtab, says, diagnosis: Diagnosis, options: list[str], code: int):
    says(diagnosis)
    plain = trimtab("doctor", "x.jsonl", *options)
    as_json = trimtab("doctor", "x.jsonl", "--json", *options)
    assert (plain.code, plain.err) == (code, "")
    assert (as_json.code, as_json.err) == (code, "")
    assert as_json.json["status"] == str(diagnosis.status)


def test_fail_on_changes_nothing_but_the_exit_code(trimtab, says):
    says(warned())
    assert trimtab("doctor", "x").out == trimtab("doctor", "x", "--fail-on", "critical").out


def test_the_report_and_its_language(trimtab, says):
    says(sick())
    assert trimtab("doctor", "x").out.startswith("Sick: length-exploitation since step 64; 3 consequences.\n")
    assert trimtab("doctor", "x", "--lang", "zh").out.startswith("异常：length-exploitation")
    assert trimtab("doctor", "x", "--lang", "xx").code == 2


def test_json_has_the_promised_keys(trimtab, says):
    says(sick())
    record = trimtab("doctor", "x", "--json").json
    assert {"status", "root_cause", "findings", "not_diagnosable", "log"} <= record.keys()
    assert {"id", "severity", "onset_step", "evidence", "cause", "prescriptions"} <= record["findings"][0].keys()
    assert {"format", "steps", "skipped", "unmapped_keys"} <= record["log"].keys()
    assert "around" not in record


def test_the_map_is_handed_on(trimtab, says):
    calls = says(healthy())
    trimtab("doctor", "x", "--map", "score/mean=my reward", "--map", "kl/reference=kl=2")
    assert calls == [("x", {"score/mean": "my reward", "kl/reference": "kl=2"})]


@pytest.mark.parametrize("bad", ["no-sign", "=theirs", "ours="])
def test_a_map_that_is_none_is_a_usage_error(trimtab, says, bad: str):
    says(healthy())
    done = trimtab("doctor", "x", "--map", bad)
    assert done.code == 2
    assert "is not of the form OURS=THEIRS" in done.err


def test_around_prints_every_signal_near_a_step(trimtab, says):
    says(sick())
    table = trimtab("doctor", "x", "--around", "100").out.splitlines()[-5:]
    assert table[0].split()[:5] == ["signal", "in", "the", "log", "step"]
    assert {line.split()[0] for line in table[1:]} == {
        "response/length_mean",
        "kl/reference_per_token",
        "policy/entropy",
        "score/mean",
    }
    near = trimtab("doctor", "x", "--around", "100", "--json").json["around"]
    assert near["step"] == 100
    assert {"key", "name", "unit", "step", "value", "before", "after", "shift"} == near["signals"][0].keys()
    outside = trimtab("doctor", "x", "--around", "999")
    assert (outside.code, outside.out) == (2, "")
    assert "steps 1 to 200" in outside.err


def test_html_writes_a_page_beside_the_output(trimtab, says, tmp_path):
    says(sick())
    done = trimtab("doctor", "x", "--html", tmp_path / "page.html", "--json")
    assert done.code == 3
    assert done.err == f"wrote {tmp_path / 'page.html'}\n"
    assert done.json["status"] == "sick"
    assert "<h1>Sick: length-exploitation" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert trimtab("doctor", "x", "--html", tmp_path / "page.html", "--quiet").err == ""
    assert trimtab("doctor", "x", "--html", tmp_path).code == 1


def test_an_error_is_told_like_any_other(trimtab, says):
    says(TrimtabError(ErrorKind.DATA, "x.bin: no log", "tried json, csv"))
    plain, as_json = trimtab("doctor", "x.bin"), trimtab("doctor", "x.bin", "--json")
    assert (plain.code, plain.out, plain.err) == (1, "", "error: x.bin: no log\n  tried json, csv\n")
    assert as_json.json == {"error": {"kind": "data", "message": "x.bin: no log", "hint": "tried json, csv"}}


def test_a_path_is_needed_and_only_one_thing_is_looked_at(trimtab, says, demos):
    says(healthy())
    assert trimtab("doctor").code == 2
    assert trimtab("doctor", "x", "--demo", "kl-explosion").code == 2


@pytest.fixture
def demos(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = types.ModuleType("trimtab.doctor.drawn")
    drawn.NAMES = ("healthy", "kl-explosion")

    def demo(name: str, directory: Path) -> Path:
        path = directory / f"{name}.jsonl"
        path.write_text("{}\n", encoding="utf-8")
        return path

    drawn.demo = demo
    monkeypatch.setitem(sys.modules, "trimtab.doctor.drawn", drawn)


def test_a_demo_is_drawn_looked_at_and_thrown_away(trimtab, says, demos):
    calls = says(sick())
    assert trimtab("doctor", "--demo", "kl-explosion").code == 3
    assert Path(calls[0][0]).name == "kl-explosion.jsonl"
    assert not Path(calls[0][0]).exists()


def test_demos_are_listed_and_a_typo_names_the_nearest(trimtab, says, demos):
    says(sick())
    assert trimtab("doctor", "--demo", "list").out == "healthy\nkl-explosion\n"
    assert trimtab("doctor", "--demo", "list", "--json").json == {
        "demos": ["healthy", "kl-explosion"],
        "count": 2,
        "truncated": False,
    }
    typo = trimtab("doctor", "--demo", "kl-explosoin")
    assert typo.code == 2
    assert "did you mean kl-explosion?" in typo.err


def test_a_log_that_a_terminal_would_obey_does_not_reach_it(trimtab, says, monkeypatch):
    evil = replace(sick().logs[0], unmapped=("\x1b[31mred\u202e",))
    says(replace(sick(), logs=(evil,)))
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = trimtab("doctor", "x").out
    assert "\x1b[31mred" not in out
    assert "\u202e" not in out
    assert "\\x1b[31mred\\u202e" in out


def test_explain_lists_tells_and_guesses(trimtab):
    listed = trimtab("explain", "--json").json
    ids = [row["id"] for row in listed["findings"]]
    assert listed["count"] == len(ids) > 40
    assert "kl-explosion" in ids
    one = trimtab("explain", "kl-explosion")
    assert one.code == 0
    assert one.out.startswith("kl-explosion  ")
    told = json.loads(trimtab("explain", "kl-explosion", "--json").out)
    assert {"id", "title", "what", "signals", "confusers", "fixes", "docs"} == told.keys()
    typo = trimtab("explain", "kl-explotion")
    assert typo.code == 2
    assert "did you mean kl-explosion?" in typo.err
    assert trimtab("explain", "kl-explosion", "--lang", "zh").out != one.out


def test_config_explain_is_another_command(trimtab):
    assert "ppo.beta" in trimtab("config", "explain", "ppo.beta").out


def test_the_page_never_replaces_the_log_nor_lands_nowhere(trimtab, tmp_path: Path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"step": 1, "loss": 1.0}\n{"step": 2, "loss": 0.5}\n')
    before = log.read_bytes()
    for target in (log, tmp_path / "." / "log.jsonl", Path("/"), Path("")):
        ended = trimtab("doctor", log, "--html", target)
        assert (ended.code, ended.out) == (2, "")
        assert "--html" in ended.err
    assert log.read_bytes() == before


def test_settings_without_measure_do_not_stop_the_diagnosis_of_a_run(trimtab, make_run, tmp_path: Path):
    run = make_run(tmp_path, "main", score_mean=1.0)
    manifest = json.loads((run.path / "run.json").read_text())
    manifest["config"] = {"ppo": dict.fromkeys(("iterations", "epochs", "minibatches", "kl_beta", "beta"), 10**400)}
    (run.path / "run.json").write_text(json.dumps(manifest))
    ended = trimtab("doctor", run.path, "--json")
    assert ended.code == 5
    assert ended.json["logs"][0]["planned_steps"] is None


def test_a_run_whose_metrics_are_a_pipe_is_refused_and_not_waited_for(trimtab, make_run, tmp_path: Path):
    run = make_run(tmp_path, "main", score_mean=1.0)
    (run.path / "metrics.jsonl").unlink()
    os.mkfifo(run.path / "metrics.jsonl")
    ended = trimtab("doctor", run.path)
    assert ended.code == 1
    assert "is a pipe" in ended.err
