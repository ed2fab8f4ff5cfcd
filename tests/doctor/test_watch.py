"""Live watching: alarms once, within a share of the time, and without ever stopping the training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from made_up_diagnoses import healthy, log, sick
from trimtab.doctor import driver
from trimtab.doctor import watch as module
from trimtab.doctor.diagnosis import Diagnosis
from trimtab.doctor.finding import Severity
from trimtab.doctor.monitor import DoctorMonitor
from trimtab.doctor.watch import Alarms, Watch
from trimtab.runs.callbacks import IterationView, StatefulCallback
from trimtab.runs.run import Run


class Clock:
    """A clock that stands still until it is moved; a look may move it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[[Diagnosis | Exception], list[int]]:
    """Sets what a look says; returns a list that grows by one with every look."""
    looks: list[int] = []

    def set_to(what: Diagnosis | Exception) -> list[int]:
        def diagnose(materials, **_: object) -> Diagnosis:
            looks.append(len(materials))
            if isinstance(what, Exception):
                raise what
            return what

        monkeypatch.setattr(driver, "diagnose_materials", diagnose)
        return looks

    return set_to


def watch(
    said: list[str], kept: list[tuple[int, str]] | None = None, clock: Clock | None = None, every: int = 5
) -> Watch:
    return Watch(
        lambda rows: log(), name="main", every=every, say=said.append, clock=clock or Clock(),
        keep=None if kept is None else lambda step, found: kept.append((step, found["id"])),
    )  # fmt: skip


def test_each_alarm_is_given_once_and_again_when_it_gets_worse():
    alarms = Alarms()
    warned = replace(sick(), findings=(replace(sick().findings[0], severity=Severity.WARNING),))
    assert [f.severity for f in alarms.new(warned)] == [Severity.WARNING]
    assert alarms.new(warned) == []
    assert [f.severity for f in alarms.new(sick()) if f.id == "length-exploitation"] == [Severity.CRITICAL]
    assert alarms.new(sick()) == []
    assert alarms.new(warned) == []


def test_notes_are_no_alarms():
    assert "reward-hacking" not in {f.id for f in Alarms().new(sick())}


def test_raised_alarms_survive_a_checkpoint():
    first, second = Alarms(), Alarms()
    first.new(sick())
    second.load_state_dict(first.state_dict() | {"odd": "nonsense"})
    assert second.new(sick()) == []


def test_an_alarm_is_told_kept_and_sent(says):
    says(sick())
    said: list[str] = []
    kept: list[tuple[int, str]] = []
    new = watch(said, kept).look([{}] * 7, 70)
    names = ["length-exploitation", "kl-explosion", "entropy-collapse", "truncated-responses"]
    assert [f.id for f in new] == names
    assert kept == [(70, name) for name in names]
    assert said[0].startswith("doctor: critical: length-exploitation since step 64: The score pays for length")
    assert len(said) == 4


def test_a_look_is_due_every_so_many_rows(says):
    says(healthy())
    clock = Clock()
    made = watch([], clock=clock)
    due = []
    for count in range(1, 16):
        clock.now += 1
        due.append(made.due(count))
        if due[-1]:
            made.look([{}] * count, count)
    assert [i for i, now in enumerate(due, 1) if now] == [5, 10, 15]


def test_looks_take_no_more_than_their_share_of_the_time(says, monkeypatch):
    clock = Clock()
    made = watch([], clock=clock, every=1)

    def slow(materials, **_: object) -> Diagnosis:
        clock.now += 1.0
        return healthy()

    monkeypatch.setattr(driver, "diagnose_materials", slow)
    looks = 0
    for count in range(1, 1001):
        clock.now += 1.0
        if made.due(count):
            made.look([{}] * count, count)
            looks += 1
    assert made.spent == looks
    assert 15 <= looks <= 1 + 0.02 * (clock.now - 100)


def test_a_fault_of_the_doctor_does_not_reach_the_training(says):
    looks = says(RuntimeError("broken detector"))
    said: list[str] = []
    made = watch(said)
    assert made.look([{}] * 5, 5) == []
    assert said == ["doctor: stopped watching after a fault of its own: RuntimeError: broken detector"]
    assert not made.due(1000)
    assert looks == [1]


def iterate(monitor: DoctorMonitor, run: Run | None, first: int, last: int) -> None:
    for step in range(first, last + 1):
        signals = {"score/mean": 1.0 / step, "kl/reference": 0.1 * step}
        if run is not None:
            run.log("ppo", step, signals)
        assert monitor.on_iteration(IterationView(step, signals, run)) is None


@pytest.fixture
def no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit on time, which a test's instant iterations would reach at once."""
    monkeypatch.setattr(module, "SHARE", math.inf)


def test_the_monitor_is_a_stateful_callback():
    assert isinstance(DoctorMonitor(), StatefulCallback)


def test_the_monitor_writes_alarms_into_the_run(tmp_path, says, no_limit):
    looks = says(sick())
    run = Run.create(tmp_path, "main", config={"ppo": {"iterations": 24}}, seed=0)
    run.begin_stage("ppo", "a")
    said: list[str] = []
    iterate(DoctorMonitor(10, say=said.append), run, 1, 24)
    assert looks == [1, 1, 1]  # at 10, at 20, and at the last iteration
    told = [(line["step"], line["finding"]["id"], line["finding"]["severity"]) for line in run.findings("ppo")]
    assert told[0] == (10, "length-exploitation", "critical")
    assert len(told) == len(said) == 4


def test_a_resumed_monitor_sees_the_whole_run_and_repeats_no_alarm(tmp_path, says, no_limit, monkeypatch):
    says(sick())
    run = Run.create(tmp_path, "main", config={"ppo": {"iterations": 40}}, seed=0)
    run.begin_stage("ppo", "a")
    first = DoctorMonitor(10, say=lambda text: None)
    iterate(first, run, 1, 12)
    run.close()

    said: list[str] = []
    again = DoctorMonitor(10, say=said.append)
    again.load_state_dict(first.state_dict())
    rows: list[int] = []
    original = driver.diagnose_materials
    monkeypatch.setattr(driver, "diagnose_materials", lambda m, **_: rows.append(m[0].rows) or original(m))
    iterate(again, Run.open(tmp_path / "main"), 13, 20)
    assert said == []
    assert rows == [13]  # the first look of a new process comes with the first iteration
    assert again.state_dict() == first.state_dict()


def test_without_a_run_the_monitor_keeps_the_rows_itself(says, no_limit):
    looks = says(sick())
    said: list[str] = []
    iterate(DoctorMonitor(3, say=said.append), None, 1, 7)
    assert len(looks) == 2
    assert len(said) == 4
