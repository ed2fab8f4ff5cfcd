"""Detectors of other packages, found through the entry point `trimtab.detectors`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from made_up_diagnoses import log
from trimtab.doctor.diagnosis import Status
from trimtab.doctor.driver import diagnose_materials
from trimtab.doctor.record import as_dict
from trimtab.doctor.render import report

GOOD = """
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable, Prescription, Severity
from trimtab.doctor.log import Log


class Weekend:
    ids = ("trained-on-a-weekend", "moon")

    def reads(self, material):
        return isinstance(material, Log)

    def look(self, material):
        yield Finding(
            id="trained-on-a-weekend", severity=Severity.CRITICAL, onset_step=7,
            evidence=(Evidence(Message("{n} rows were logged on a Sunday.", {"n": material.rows})),),
            cause=Message("Nobody was there."),
            prescriptions=(Prescription({"calendar": "monday"}, Message("Wait a day.")),),
        )
        yield NotDiagnosable("moon", ("moon/phase",))


DETECTORS = [Weekend()]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Installs a distribution that offers `DETECTORS` of a module with the given text."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(text: str, attribute: str = "DETECTORS") -> None:
        (tmp_path / "of_another_package.py").write_text(text, encoding="utf-8")
        info = tmp_path / "of_another_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: of-another-package\nVersion: 1.0\n")
        entry = f"[trimtab.detectors]\nmine = of_another_package:{attribute}\n"
        (info / "entry_points.txt").write_text(entry)
        importlib.invalidate_caches()

    yield make
    sys.modules.pop("of_another_package", None)


def test_a_plugins_findings_are_told_like_any_other(install):
    install(GOOD)
    diagnosis = diagnose_materials([log()])
    found = {f.id: f for f in diagnosis.findings}["trained-on-a-weekend"]
    assert diagnosis.status is Status.SICK
    assert "moon" in {item.id for item in diagnosis.not_diagnosable}
    text = "\n".join("".join(part.text for part in line) for line in report(diagnosis, "en", 100))
    assert "critical  trained-on-a-weekend  since step 7" in text
    assert "200 rows were logged on a Sunday." in text
    assert "calendar=monday" in text
    told = next(f for f in as_dict(diagnosis)["findings"] if f["id"] == found.id)
    assert told["cause"] == "Nobody was there."


@pytest.mark.parametrize(
    ("text", "attribute", "note"),
    [
        ("raise RuntimeError('broken on import')", "DETECTORS", "RuntimeError: broken on import"),
        ("DETECTORS = [object()]", "DETECTORS", "not a detector"),
        ("", "NOTHING", "AttributeError"),
        (GOOD.replace("material.rows", "material.no_such"), "DETECTORS", "Weekend: AttributeError"),
    ],
)
def test_a_plugin_that_does_not_work_is_a_note_and_hides_nothing(install, text: str, attribute: str, note: str):
    without = {f.id for f in diagnose_materials([log()]).findings}
    install(text, attribute)
    diagnosis = diagnose_materials([log()])
    assert {f.id for f in diagnosis.findings} == without
    shown = "\n".join("".join(part.text for part in line) for line in report(diagnosis, "en", 200))
    assert note in " ".join([shown, *(s.example for s in diagnosis.skipped)])


_VERDICT = """
import numpy as np
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable, Prescription, Severity


class Odd:
    ids = ("odd",)

    def reads(self, material):
        return True

    def look(self, material):
        return [VERDICT]

    def finding(**other):
        usual = {"id": "odd", "severity": "warning", "onset_step": 3, "evidence": (), "cause": "It is odd."}
        return Finding(**{**usual, **other})


DETECTORS = [Odd()]
"""


@pytest.mark.parametrize(
    "verdict",
    [
        "5", "None", "Odd.finding(id=5)", "Odd.finding(severity='loud')", "Odd.finding(onset_step='three')",
        "Odd.finding(onset_step=10**400)", "Odd.finding(cause=None)", "Odd.finding(evidence=('proof',))",
        "Odd.finding(prescriptions=('wait',))", "Odd.finding(prescriptions=(Prescription({1: 2}, Message('w')),))",
        "NotDiagnosable(5, None)", "exit(7)",
    ],
)  # fmt: skip
def test_a_verdict_of_the_wrong_form_is_a_note(install, verdict: str):
    without = {f.id for f in diagnose_materials([log()]).findings}
    install(_VERDICT.replace("VERDICT", verdict))
    diagnosis = diagnose_materials([log()])
    assert {f.id for f in diagnosis.findings} == without
    assert any(s.reason == "plugin" and "Odd" in s.example for s in diagnosis.skipped)


def test_numbers_of_numpy_and_plain_texts_in_a_verdict_are_taken(install):
    proof = "Evidence(Message('m'), 'kl/reference', np.int64(3), np.float32(2), (np.float64(1),))"
    fix = "Prescription({'lr': np.float32(0.5), 'n': np.int64(2)}, 'w')"
    install(
        _VERDICT.replace("VERDICT", f"Odd.finding(onset_step=np.int64(3), evidence=({proof},), prescriptions=[{fix}])")
    )
    told = next(f for f in as_dict(diagnose_materials([log()]))["findings"] if f["id"] == "odd")
    assert json.loads(json.dumps(told)) == told
    assert (told["severity"], told["onset_step"], told["cause"]) == ("warning", 3, "It is odd.")
    assert told["prescriptions"][0]["set"] == {"lr": 0.5, "n": 2}


@pytest.mark.parametrize("broken", ["reads", "ids"])
def test_a_plugin_that_cannot_even_be_asked_is_a_note(install, broken: str):
    text = _VERDICT.replace("VERDICT", "Odd.finding()")
    text = text.replace('ids = ("odd",)', "ids = None") if broken == "ids" else text.replace("return True", "1 / 0")
    install(text)
    diagnosis = diagnose_materials([log()])
    assert "odd" not in {f.id for f in diagnosis.findings}
    assert [s.example.partition(":")[0] for s in diagnosis.skipped if s.reason == "plugin"] == ["Odd"]
