"""The doctor's word in the report and at the end of `trimtab run`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from made_up_diagnoses import healthy, sick
from made_up_runs import build
from trimtab.doctor.diagnosis import Diagnosis
from trimtab.doctor.finding import Message
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.report import health as module
from trimtab.report import page
from trimtab.report.health import health
from trimtab.runs.run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return build(tmp_path_factory.mktemp("run"))


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch):
    def set_to(what: Diagnosis | Exception) -> None:
        def diagnose(_: Run) -> Diagnosis:
            if isinstance(what, Exception):
                raise what
            return what

        monkeypatch.setattr(module, "diagnose", diagnose)

    return set_to


def test_a_sick_run_has_its_root_cause_its_fix_and_the_command(run: Run, says):
    says(sick("trimtab"))
    html, told = page.render(run), page.summary(run).splitlines()
    assert '<div class="health sick">' in html
    assert "Sick: length-exploitation since step 64; 3 consequences." in html
    assert "Try first: <code>--set beta=0.08</code>" in html
    assert f"<code>trimtab doctor {run.path}</code>" in html
    line = f"Doctor: sick: length-exploitation since step 64; 3 consequences. More: trimtab doctor {run.path}"
    assert told.count(line) == 1


def test_a_healthy_run_says_so(run: Run, says):
    says(healthy())
    assert '<div class="health healthy">' in page.render(run)
    assert any(line.startswith("Doctor: healthy: no check raised an alarm") for line in page.summary(run).splitlines())


def test_more_than_a_few_findings_are_counted(run: Run, says):
    root = sick().findings[0]
    says(replace(sick(), findings=tuple(replace(root, id=f"f{i}") for i in range(7))))
    assert "and 3 more" in page.render(run)


def test_a_run_that_cannot_be_read_has_no_card(run: Run, says, tmp_path):
    says(TrimtabError(ErrorKind.DATA, "nothing known in it"))
    assert health(run) is None
    assert 'id="doctor"' not in page.render(run)
    assert health(Run.create(tmp_path, "empty", config={}, seed=0)) is None


def test_text_of_a_log_is_text(run: Run, says):
    evil = "<script>alert(1)</script>\u202e"
    says(replace(sick(), findings=(replace(sick().findings[0], id=evil, cause=Message(evil)),), root_cause=evil))
    html = page.render(run)
    assert "<script>" not in html
    assert "\u202e" not in html
    assert "\u202e" not in page.summary(run)


def test_the_real_doctor_reads_a_run(run: Run):
    found = health(run)
    assert found is not None
    assert found.status in ("healthy", "sick", "inconclusive")
