"""`labels export` and `labels import`: a project's verdicts leave and come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labeling_fakes import candidate, two_principles
from trimtab.cli import labels_io
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Outcome, Verdict
from trimtab.labeling.store import LabelStore
from trimtab.pipeline.scaffold import init_project


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init_project(tmp_path / "p", "tiny", "fail")
    return tmp_path / "p"


def fill(project: Path, p: float = 0.75) -> None:
    requests = [JudgeRequest(candidate(i), two_principles(project.parent)) for i in range(3)]
    with LabelStore(project / "labels.sqlite") as store:
        store.put(JudgeIdentity("j"), requests, [Verdict(Outcome.OK, p, text="\x1b[31m \u3000 red")] * 3)


def test_out_and_in(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(project)
    file = tmp_path / "labels.jsonl"
    labels_io.export(project, file, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"path": str(file), "verdicts": 3}
    (project / "labels.sqlite").unlink()
    labels_io.import_(project, file, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["read"], told["added"]) == (3, 3)
    labels_io.import_(project, file)
    assert "same" in capsys.readouterr().out


def test_stdout_is_json_lines_that_no_terminal_obeys(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(project)
    labels_io.export(project, Path("-"))
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["\x1b[31m \u3000 red"] * 3


def test_nothing_to_export_and_conflicts_are_told(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    with pytest.raises(TrimtabError, match="nothing has been labeled") as caught:
        labels_io.export(project, file)
    assert caught.value.kind is ErrorKind.DATA
    assert not (project / "labels.sqlite").exists()
    fill(project)
    labels_io.export(project, file)
    (project / "labels.sqlite").unlink()
    fill(project, 0.25)
    with pytest.raises(TrimtabError, match="3 verdicts say something else"):
        labels_io.import_(project, file)
    labels_io.import_(project, file, labels_io.Conflict.REPLACE)
    with LabelStore(project / "labels.sqlite") as store:
        assert {row["p_1"] for row in store.verdict_records()} == {0.75}
