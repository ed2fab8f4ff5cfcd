"""What `diagnose` does around the detectors: status, plugins, several materials, what it could not check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drawn_logs as drawn
from trimtab.doctor import plugins
from trimtab.doctor.diagnosis import Diagnosis, Status
from trimtab.doctor.driver import diagnose, diagnose_materials
from trimtab.doctor.finding import Finding, Message, NotDiagnosable, Severity
from trimtab.doctor.log import Log, Stage


class Odd:
    """A plugin's detector."""

    ids = ("odd-score",)

    def reads(self, material: Any) -> bool:
        return isinstance(material, Log)

    def look(self, material: Any) -> Iterator[Finding | NotDiagnosable]:
        yield Finding("odd-score", Severity.WARNING, 3, (), Message("The score is odd"))


class Broken(Odd):
    def look(self, material: Any) -> Iterator[Finding | NotDiagnosable]:
        raise KeyError("score")


class Entry:
    def __init__(self, name: str, detectors: Any) -> None:
        self.name, self.detectors = name, detectors

    def load(self) -> Any:
        if isinstance(self.detectors, Exception):
            raise self.detectors
        return self.detectors


def with_plugins(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> Diagnosis:
    monkeypatch.setattr(plugins, "entry_points", lambda group: entries)
    return diagnose_materials([drawn.log(drawn.grpo(0))])


def test_a_plugin_is_asked_as_the_built_in_detectors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis = with_plugins(monkeypatch, Entry("mine", [Odd()]))
    assert diagnosis.status is Status.SICK
    assert diagnosis.root_cause == "odd-score"


@pytest.mark.parametrize("entry", [Entry("mine", [Broken()]), Entry("mine", ImportError("no such module")),
                                   Entry("mine", ["not a detector"])])  # fmt: skip
def test_a_broken_plugin_is_a_note(monkeypatch: pytest.MonkeyPatch, entry: Entry) -> None:
    diagnosis = with_plugins(monkeypatch, entry)
    assert diagnosis.status is Status.HEALTHY
    assert [s.reason for s in diagnosis.skipped] == ["plugin"]


def test_extra_detectors_can_be_handed_in() -> None:
    assert diagnose_materials([drawn.log(drawn.grpo(0))], extra=[Odd()]).root_cause == "odd-score"


def test_too_little_is_inconclusive() -> None:
    for values in ({"score/mean": np.linspace(0, 1, 100)}, {"user/a": np.ones(100)}, {}):
        assert diagnose_materials([drawn.log(values)]).status is Status.INCONCLUSIVE
    assert diagnose_materials([drawn.log(drawn.stride(drawn.grpo(0), 20))]).status is Status.INCONCLUSIVE
    assert diagnose_materials([]).status is Status.INCONCLUSIVE


def test_a_log_of_losses_and_a_reward_alone_is_inconclusive() -> None:
    full = drawn.ppo(0)
    log = drawn.log({k: full[k] for k in ("score/mean", "policy/loss", "value/loss")}, algorithm="ppo")
    diagnosis = diagnose_materials([log])
    assert not [f for f in diagnosis.findings if f.severity.loud]
    assert diagnosis.status is Status.INCONCLUSIVE


def test_several_stages_are_told_as_one_chain() -> None:
    model = drawn.reward_model(0)
    model["margin/length_correlation"] = (np.arange(1, 9), np.full(8, 0.55))  # type: ignore[assignment]
    policy = drawn.grpo(0, kind="earned-length")
    policy["response/truncated_fraction"] = np.linspace(0, 0.5, 200)
    diagnosis = diagnose_materials([drawn.log(model, Stage.PREFERENCE_MODEL), drawn.log(policy)])
    assert diagnosis.root_cause == "pm-length-bias"
    by_id = {f.id: f for f in diagnosis.findings}
    assert by_id["length-exploitation"].because_of == "pm-length-bias"
    assert "pm" in by_id["pm-length-bias"].where
    assert "policy" in by_id["length-exploitation"].where


def test_one_sound_stage_does_not_make_an_unreadable_one_healthy() -> None:
    short = drawn.log({"score/mean": np.ones(2)})
    assert diagnose_materials([drawn.log(drawn.grpo(0)), short]).status is Status.INCONCLUSIVE


def test_a_check_is_made_or_not_made_or_has_found_something() -> None:
    diagnosis = diagnose_materials([drawn.log({"score/mean": np.linspace(0, 1, 100)})])
    assert not set(diagnosis.checked) & {n.id for n in diagnosis.not_diagnosable}
    assert "reward-decreasing" in diagnosis.checked
    assert "kl-explosion" not in diagnosis.checked


def test_findings_carry_prescriptions_and_curves() -> None:
    policy = drawn.grpo(0)
    policy["kl/reference_per_token"] = np.linspace(0, 4, 200)
    first = next(f for f in diagnose_materials([drawn.log(policy)]).findings if f.id == "kl-explosion")
    assert first.prescriptions
    assert 1 < len(first.evidence[0].curve) <= 60


def test_a_file_is_read(tmp_path: Path) -> None:
    lines = [f'{{"step": {i}, "reward": {0.2 + 0.003 * i}, "kl": {0.02 * i}, "loss": 0.0}}\n' for i in range(1, 151)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(lines))
    assert diagnose(path).logs[0].rows == 150
