"""One story: consequences under the cause that came first, broken machinery above what it starves."""

from __future__ import annotations

import numpy as np
import pytest

import drawn_logs as drawn
from trimtab.doctor.driver import diagnose_materials
from trimtab.doctor.finding import Finding, Message, Severity
from trimtab.doctor.log import Stage
from trimtab.doctor.story import LEADS_TO, tell

INFO, WARNING, CRITICAL = Severity.INFO, Severity.WARNING, Severity.CRITICAL


def found(id: str, onset: int | None = 1, severity: Severity = WARNING) -> Finding:
    return Finding(id, severity, onset, (), Message(f"{id}.cause"))


def told(*findings: Finding, stage: str = "policy", span: int = 200) -> tuple[dict[str, str | None], str | None]:
    story, root = tell([(f, stage) for f in findings], span)
    return {f.id: f.because_of for f in story}, root


def test_a_run_that_games_length_is_one_chain_from_its_first_step() -> None:
    because, root = told(
        found("entropy-collapse", 120, CRITICAL),
        found("kl-explosion", 88),
        found("no-reward-signal", 82, CRITICAL),
        found("truncated-responses", 100, CRITICAL),
        found("length-exploitation", 64),
    )
    assert root == "length-exploitation"
    assert because["length-exploitation"] is None
    assert because["kl-explosion"] == "length-exploitation"
    assert because["no-reward-signal"] == "length-exploitation"
    assert because["entropy-collapse"] in ("kl-explosion", "length-exploitation")


def test_such_a_run_drawn_from_its_curves() -> None:
    n = 200
    rng = np.random.default_rng(3)
    t = np.arange(1, n + 1)

    def ramp(at: int, over: int) -> np.ndarray:
        return np.clip((t - at) / over, 0, 1)

    log = drawn.log({
        "response/length_mean": 200 * (1 + 3.5 * ramp(60, 90)) * np.exp(0.04 * rng.standard_normal(n)),
        "score/mean": 0.26 + 0.1 * t / n + 1.3 * ramp(64, 100) + 0.03 * rng.standard_normal(n),
        "score/std": 0.3 + 0.02 * rng.standard_normal(n),
        "group/zero_std_fraction": np.clip(0.2 + 0.7 * ramp(70, 30) + 0.03 * rng.standard_normal(n), 0, 1),
        "kl/reference_per_token": np.abs(0.03 + 13 * ramp(80, 120) ** 2 + 0.005 * rng.standard_normal(n)),
        "policy/entropy": 1.1 * np.exp(-3 * ramp(100, 60)) * np.exp(0.05 * rng.standard_normal(n)),
        "response/truncated_fraction": np.clip(0.02 + 0.85 * ramp(90, 80) + 0.01 * rng.standard_normal(n), 0, 1),
        "policy/gradient_norm": drawn.positive(1.0, rng, n, 0.3),
    })  # fmt: skip
    diagnosis = diagnose_materials([log])
    assert diagnosis.root_cause == "length-exploitation"
    first = diagnosis.findings[0]
    assert first.id == "length-exploitation"
    assert first.onset_step is not None
    assert 55 <= first.onset_step <= 80
    hanging = {f.id: f.because_of for f in diagnosis.findings[1:] if f.severity.loud}
    assert {"kl-explosion", "truncated-responses"} <= set(hanging)
    assert None not in hanging.values()


@pytest.mark.parametrize(
    ("cause", "effects"),
    [
        ("no-gradient", ("policy-not-moving", "reward-not-improving")),
        ("missing-eos", ("truncated-responses", "reward-not-improving", "value-not-learning")),
        ("logprob-mismatch", ("value-not-learning", "reward-not-improving", "kl-explosion")),
        ("no-reward-signal", ("policy-not-moving", "reward-not-improving")),
        ("advantage-not-centred", ("reward-not-improving",)),
        ("negative-kl", ("reward-not-improving",)),
        ("truncated-responses", ("no-reward-signal",)),
    ],
)
def test_broken_machinery_stands_above_what_it_starves(cause: str, effects: tuple[str, ...]) -> None:
    because, root = told(*(found(e) for e in effects), found(cause, severity=CRITICAL))
    assert root == cause
    assert because[cause] is None
    assert all(because[e] is not None for e in effects)


def test_what_came_later_is_no_cause() -> None:
    because, root = told(found("entropy-collapse", 20), found("kl-explosion", 150))
    assert because["entropy-collapse"] is None
    assert root in ("entropy-collapse", "kl-explosion")


def test_of_two_that_can_cause_each_other_the_earlier_did() -> None:
    because, _ = told(found("kl-explosion", 100), found("clip-fraction-high", 90))
    assert because == {"clip-fraction-high": None, "kl-explosion": "clip-fraction-high"}
    because, _ = told(found("kl-explosion", 90), found("clip-fraction-high", 100))
    assert because == {"kl-explosion": None, "clip-fraction-high": "kl-explosion"}


def test_an_earlier_stage_explains_a_later_one_whatever_their_steps() -> None:
    staged = [
        (found("length-exploitation", 10), "policy"),
        (found("pm-length-bias", 300), "pm"),
        (found("judge-length-bias", None), "label"),
    ]
    story, root = tell(staged, 300)
    assert root == "judge-length-bias"
    assert [(f.id, f.because_of) for f in story] == [
        ("judge-length-bias", None),
        ("pm-length-bias", "judge-length-bias"),
        ("length-exploitation", "pm-length-bias"),
    ]


def test_judgments_without_a_stage_come_before_the_training_that_uses_them() -> None:
    staged = [(found("reward-hacking", 50), "policy"), (found("pm-low-accuracy", None), "")]
    assert tell(staged, 100)[1] == "pm-low-accuracy"


def test_a_fault_of_the_log_is_no_root_beside_one_of_the_run() -> None:
    assert told(found("invalid-metric", 1), found("value-not-learning", 20))[1] == "value-not-learning"
    assert told(found("invalid-metric", 1))[1] == "invalid-metric"


def test_what_is_only_noted_is_no_root() -> None:
    assert told(found("length-explosion", 5, INFO))[1] is None
    assert told(found("length-explosion", 5, INFO), found("oscillating", 50))[1] == "oscillating"


def test_nothing_hangs_under_itself() -> None:
    """All that the graph knows at once, in either order of onset."""
    ids = sorted(set(LEADS_TO) | {e for effects in LEADS_TO.values() for e in effects})
    for onsets in (range(len(ids)), range(len(ids), 0, -1)):
        story, _ = tell([(found(i, o), "policy") for i, o in zip(ids, onsets, strict=True)], len(ids))
        assert len(story) == len(ids)
        parent = {f.id: f.because_of for f in story}
        for id in ids:
            seen = set()
            here: str | None = id
            while here is not None:
                assert here not in seen
                seen.add(here)
                here = parent[here]


def test_what_was_there_before_the_first_update_is_no_work_of_the_preference_model() -> None:
    def chain(onset: int) -> str | None:
        staged = [(found("pm-overfit", 50), "pm"), (found("kl-explosion", onset, CRITICAL), "policy")]
        return {f.id: f.because_of for f in tell(staged, 200)[0]}["kl-explosion"]

    assert chain(1) is None
    assert chain(40) == "pm-overfit"


def test_an_interval_that_holds_the_training_accuracy_shows_no_overfitting() -> None:
    def overfits(high: float) -> bool:
        log = drawn.log({
            "accuracy/train": np.full(60, 0.74) + 0.01 * np.sin(np.arange(60)),
            "accuracy/validation": (np.array([10, 20, 30]), [0.60, 0.62, 0.62]),
            "accuracy/validation_high": (np.array([10, 20, 30]), [high] * 3),
        }, Stage.PREFERENCE_MODEL)  # fmt: skip
        return any(f.id == "pm-overfit" for f in diagnose_materials([log]).findings)

    assert overfits(0.65)
    assert not overfits(0.75)


def test_an_evaluation_before_the_training_is_no_part_of_its_end() -> None:
    def overfits(last: float) -> bool:
        log = drawn.log({
            "accuracy/train": (np.arange(5, 165, 5), np.linspace(0.55, 0.79, 32)),
            "accuracy/validation": (np.array([0, 162]), [0.5, last]),
        }, Stage.PREFERENCE_MODEL)  # fmt: skip
        return any(f.id == "pm-overfit" for f in diagnose_materials([log]).findings)

    assert not overfits(0.79)
    assert overfits(0.55)
