"""Errors: one line and a hint on stderr, or an object on stdout; exit codes; tracebacks only when asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.main import app
from trimtab.errors import ErrorKind, TrimtabError

RUN_PROJECT = "trimtab.pipeline.runner.run_project"


def failing(error: BaseException):
    def run_project(*args: object, **kwargs: object) -> None:
        raise error

    return run_project


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (ErrorKind.USAGE, 2),
        (ErrorKind.CONFIG, 2),
        (ErrorKind.DATA, 1),
        (ErrorKind.MISSING, 4),
        (ErrorKind.INTERRUPTED, 130),
    ],
)
def test_an_error_for_the_user_has_its_exit_code_message_and_hint(trimtab, project, monkeypatch, kind, code):
    monkeypatch.setattr(RUN_PROJECT, failing(TrimtabError(kind, "the boat\nsinks", "bail")))
    plain = trimtab("run", project)
    assert (plain.code, plain.out, plain.err) == (code, "", "error: the boat\n  sinks\n  bail\n")
    as_json = trimtab("run", project, "--json")
    assert (as_json.code, as_json.err) == (code, "")
    assert as_json.json == {"error": {"kind": str(kind), "message": "the boat\nsinks", "hint": "bail"}}


def test_quiet_does_not_silence_errors(trimtab, tmp_path):
    done = trimtab("run", tmp_path, "--quiet")
    assert done.code == 2
    assert done.err.startswith(f"error: {tmp_path}: no trimtab.toml here\n")


def test_a_bug_is_one_line_that_asks_for_a_report(trimtab, project, monkeypatch):
    monkeypatch.setattr(RUN_PROJECT, failing(RuntimeError("mast broken")))
    done = trimtab("run", project)
    assert done.code == 1
    assert done.err.splitlines()[0] == "error: unexpected RuntimeError: mast broken"
    assert "report it" in done.err
    assert "Traceback" not in done.err


def test_a_bug_shows_its_traceback_when_asked(trimtab, project, monkeypatch):
    monkeypatch.setattr(RUN_PROJECT, failing(RuntimeError("mast broken")))
    assert "Traceback" in trimtab("--debug", "run", project).err
    assert "Traceback" not in trimtab("run", project).err
    monkeypatch.setenv("TRIMTAB_DEBUG", "1")
    done = trimtab("run", project, "--json")
    assert "Traceback" in done.err
    assert done.json["error"]["kind"] == "failed"


def test_an_error_of_the_system_is_told_as_it_is(trimtab, project, monkeypatch):
    monkeypatch.setattr(RUN_PROJECT, failing(OSError(28, "No space left on device", "runs/main")))
    done = trimtab("run", project)
    assert (done.code, done.err) == (1, "error: [Errno 28] No space left on device: 'runs/main'\n")


def test_an_import_that_no_extra_installs_is_a_bug(trimtab, project, monkeypatch):
    monkeypatch.setattr(RUN_PROJECT, failing(ModuleNotFoundError("no anchor", name="anchor")))
    assert trimtab("run", project).code == 1


@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_interruption_outside_a_stage(trimtab, project, monkeypatch, flag):
    monkeypatch.setattr(RUN_PROJECT, failing(KeyboardInterrupt()))
    done = trimtab("run", project, *flag)
    assert done.code == 130
    assert done.json["error"]["kind"] == "interrupted" if flag else done.err == "error: interrupted\n"


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["run", "--sail"], "No such option: --sail", "trimtab run --help"),
        (["jibe"], "No such command 'jibe'", "trimtab --help"),
        (["init"], "Missing argument", "trimtab init --help"),
        (["run", "--until", "jibe"], "jibe", "trimtab run --help"),
        (["pm"], "Missing command", "trimtab pm --help"),
        ([], "no command given", "trimtab --help lists the commands"),
    ],
)
def test_a_command_line_that_makes_no_sense(trimtab, arguments, message, hint):
    done = trimtab(*arguments)
    assert done.code == 2
    first, second = done.err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second == f"  {hint}"
    if arguments:
        as_json = trimtab(*arguments, "--json")
        assert as_json.code == 2
        assert as_json.json["error"]["kind"] == "usage"


def test_a_bad_setting_names_key_and_nearest(trimtab, project: Path):
    done = trimtab("run", project, "--dry-run", "--set", "ppo.betta=1")
    assert done.code == 2
    assert "ppo.betta" in done.err
    assert "'ppo.beta'" in done.err


def test_control_characters_of_an_error_are_shown_not_sent(trimtab, project, monkeypatch):
    monkeypatch.setattr(RUN_PROJECT, failing(TrimtabError(ErrorKind.DATA, "a\x1b[2Jb\x07\u202e[red]c")))
    assert trimtab("run", project).err == "error: a\\x1b[2Jb\\x07\\u202e[red]c\n"


def test_the_app_works_under_typers_own_runner():
    done = CliRunner().invoke(app, ["signals", "--json"])
    assert done.exit_code == 0
    assert '"score/mean"' in done.stdout
