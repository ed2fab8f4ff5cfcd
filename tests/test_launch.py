"""What a launcher's variables say, and which of it is refused."""

from __future__ import annotations

import pytest

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.launch import Launch, launched, several

TWO = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def test_torchruns_variables_are_read():
    assert launched(None, TWO) == Launch(1, 2, 1)
    assert launched(2, TWO) == Launch(1, 2, 1)
    assert launched(None, {}) == launched(1, {}) == Launch(0, 1, 0)
    assert launched(None, {"WORLD_SIZE": "1"}) == Launch(0, 1, 0)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE = 2 in the environment, but no RANK"),
        ({"RANK": "0"}, "no WORLD_SIZE"),
        (TWO | {"RANK": "2"}, "RANK = 2 with WORLD_SIZE = 2"),
        (TWO | {"WORLD_SIZE": "0"}, "WORLD_SIZE = '0'"),
        (TWO | {"RANK": "-1"}, "RANK = '-1'"),
        (TWO | {"WORLD_SIZE": "two"}, "WORLD_SIZE = 'two'"),
        (TWO | {"MASTER_ADDR": ""}, "no MASTER_ADDR"),
        ({"OMPI_COMM_WORLD_SIZE": "4"}, "OMPI_COMM_WORLD_SIZE = 4"),
    ],
)
def test_contradictions_are_refused(variables, says):
    with pytest.raises(TrimtabError, match=says) as caught:
        launched(None, variables)
    assert caught.value.kind == ErrorKind.USAGE


@pytest.mark.parametrize(("expected", "variables"), [(2, {}), (3, TWO), (1, TWO)])
def test_another_number_than_was_asked_for_is_refused(expected, variables):
    with pytest.raises(TrimtabError, match=f"project.processes = {expected}") as caught:
        launched(expected, variables)
    assert caught.value.kind == ErrorKind.CONFIG


def test_commands_for_one_process_are_refused_in_several(monkeypatch, capsys):
    from trimtab.cli.main import main

    for name, value in TWO.items():
        monkeypatch.setenv(name, value)
    assert several()
    assert main(["sft", "."]) == 2
    assert "trimtab sft works in one process" in capsys.readouterr().err


def test_a_project_that_expects_processes_does_not_run_alone(tmp_path, capsys):
    from trimtab.cli.main import main

    (tmp_path / "trimtab.toml").write_text('[model]\nname = "tiny-world"\n[project]\nprocesses = 2\n')
    for command in ("ppo", "run"):
        assert main([command, str(tmp_path)]) == 2
        assert "project.processes = 2, but the launcher started 1: this process is alone" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
