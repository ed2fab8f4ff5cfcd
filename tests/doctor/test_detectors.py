"""Planted faults are found with their onset, sound runs stay silent; unit and stride of a log change nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import drawn_logs as drawn
from planted_faults import FAULTS, Fault
from trimtab.doctor.detectors import LOG_DETECTORS
from trimtab.doctor.diagnosis import Diagnosis, Status
from trimtab.doctor.driver import diagnose_materials
from trimtab.doctor.finding import Finding, Severity
from trimtab.doctor.log import Log, Series, Stage

NAMES = [f"{i}-{fault.id}" for i, fault in enumerate(FAULTS)]


def look(log: Log) -> Diagnosis:
    return diagnose_materials([log])


def loud(log: Log) -> dict[str, Finding]:
    return {f.id: f for f in look(log).findings if f.severity.loud}


@pytest.mark.parametrize("fault", FAULTS, ids=NAMES)
def test_a_planted_fault_is_found_where_it_sets_in(fault: Fault) -> None:
    for seed in range(3):
        found = loud(fault.draw(seed))
        assert fault.id in found
        if fault.onset is not None:
            onset = found[fault.id].onset_step
            assert onset is not None
            assert abs(onset - fault.onset) <= fault.slack + 10
        assert found[fault.id].evidence


@pytest.mark.parametrize("fault", FAULTS, ids=NAMES)
def test_a_planted_fault_is_the_root_or_hangs_under_what_came_with_it(fault: Fault) -> None:
    rooted = 0
    for seed in range(3):
        diagnosis = look(fault.draw(seed))
        found = next(f for f in diagnosis.findings if f.id == fault.id)
        rooted += diagnosis.root_cause == fault.id or found.because_of is not None
    assert rooted >= 2


@pytest.mark.parametrize("kind", drawn.GRPO_KINDS)
def test_a_sound_grpo_run_raises_no_alarm(kind: str) -> None:
    for seed in range(3):
        diagnosis = look(drawn.log(drawn.half_precision(drawn.grpo(seed, kind=kind), seed)))
        assert not [f.id for f in diagnosis.findings if f.severity.loud]
        assert diagnosis.status is Status.HEALTHY
        assert diagnosis.root_cause is None


@pytest.mark.parametrize(
    ("make", "stage"),
    [(drawn.ppo, Stage.POLICY), (drawn.dpo, Stage.DIRECT), (drawn.reward_model, Stage.PREFERENCE_MODEL)],
)
def test_other_sound_runs_raise_no_alarm(make: object, stage: Stage) -> None:
    for seed in range(6):
        diagnosis = look(drawn.log(make(seed), stage, algorithm="ppo" if stage is Stage.POLICY else ""))  # type: ignore[operator]
        assert not [f.id for f in diagnosis.findings if f.severity.loud]
        assert diagnosis.status is Status.HEALTHY


def scaled(log: Log, scale: float, shift: float) -> Log:
    """The same run with its scores in another unit: spreads scale, levels scale and shift."""

    def change(key: str, s: Series) -> Series:
        if not key.startswith(("score/", "reward/")):
            return s
        return replace(s, values=s.values * scale + (0.0 if "std" in key else shift))

    return replace(log, series={k: change(k, s) for k, s in log.series.items()})


def verdict(log: Log) -> tuple[Status, str | None]:
    diagnosis = look(log)
    return diagnosis.status, diagnosis.root_cause


@pytest.mark.parametrize(("scale", "shift"), [(0.2, 0.0), (30.0, 0.0), (1.0, 5.0), (7.0, -40.0)])
def test_the_unit_of_the_scores_changes_no_verdict(scale: float, shift: float) -> None:
    for seed in range(9):
        log = drawn.log(drawn.grpo(seed))
        assert verdict(scaled(log, scale, shift)) == verdict(log)
    # a fault that is about a number of the score itself is about its unit as well, and is left out
    for fault in FAULTS:
        if fault.draw(0).stage is not Stage.POLICY or fault.id in ("reward-scale", "advantage-not-centred"):
            continue
        if fault.id == "over-constrained":  # beta times KL is in the unit of the score
            continue
        log = fault.draw(1)
        assert verdict(scaled(log, scale, shift)) == verdict(log), fault.id


@pytest.mark.parametrize("every", [2, 5])
def test_a_coarser_log_of_the_same_run_gets_the_same_status(every: int) -> None:
    def coarse(log: Log) -> Log:
        def change(s: Series) -> Series:
            return (
                s if len(s) < 60 else replace(s, steps=s.steps[every - 1 :: every], values=s.values[every - 1 :: every])
            )

        return replace(log, series={k: change(s) for k, s in log.series.items()})

    for seed in range(18):
        log = drawn.log(drawn.grpo(seed))
        assert look(coarse(log)).status is look(log).status
    for fault in FAULTS:
        if fault.draw(0).stage is not Stage.LABEL:
            assert look(coarse(fault.draw(2))).status is Status.SICK, fault.id


def test_columns_that_nobody_knows_change_nothing() -> None:
    for fault in FAULTS[:12]:
        log = fault.draw(0)
        more = replace(log, unmapped=("wall_clock", "gpu_temp"), series={
            **log.series, "user/odd": replace(log.get("score/mean") or next(iter(log.series.values())), key="user/odd"),
        })  # fmt: skip
        assert [f.id for f in look(more).findings] == [f.id for f in look(log).findings]


def test_a_million_rows_are_looked_at_in_seconds() -> None:
    import time

    rng = np.random.default_rng(0)
    keys = [*drawn.grpo(0), "eval/accuracy", "reward/mean", "kl/reference", "response/distinct_2"]
    log = drawn.log({key: 0.5 + 0.1 * rng.standard_normal(1_000_000) for key in keys})
    start = time.process_time()
    look(log)
    assert time.process_time() - start < 6


def test_every_id_of_a_detector_is_one_of_the_catalog() -> None:
    ids = {i for rule in LOG_DETECTORS for i in rule.ids}
    assert {fault.id for fault in FAULTS} <= ids
    assert ids - {fault.id for fault in FAULTS} <= {"unit-unknown", "log-truncated", "low-diversity"}


def test_info_makes_no_run_sick() -> None:
    diagnosis = look(drawn.log(drawn.grpo(1, kind="earned-length")))
    assert {f.severity for f in diagnosis.findings} == {Severity.INFO}
    assert diagnosis.status is Status.HEALTHY
