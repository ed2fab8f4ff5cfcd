"""What a run keeps of its preference model, as the doctor reads it: scores, calibration, probe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import made_up_runs
from trimtab.doctor import diagnose, importers
from trimtab.doctor.judgments import JudgmentMaterial
from trimtab.runs.files import write_json, write_jsonl
from trimtab.runs.run import Run

QUIET = {
    "faults": [], "edits": [{"name": "praise"}], "flips": [{"edit": "all"}], "spread": {"top_variety": 0.9},
    "agreement": {"opinions": 30},
}  # fmt: skip


def run_with(
    tmp_path: Path, *, probe=None, scores=None, texts=None, config=None, calibration=None, accuracy=0.75, ece=0.05
) -> Run:
    """A run whose preference model is trained; `scores`: [n, 2] of the held-out pairs."""
    made = made_up_runs.config()
    for name, values in (config or {}).items():
        made[name] |= values
    run = Run.create(tmp_path / "runs", "main", config=made, seed=0)
    run.begin_stage("pm", "f" * 64)
    for step in range(0, 41, 5):
        t = step / 40
        run.log("pm", step, {
            "loss/train": 0.69 - 0.15 * t, "accuracy/train": 0.5 + 0.26 * t, "loss/validation": 0.69 - 0.12 * t,
            "accuracy/validation": 0.5 + (accuracy - 0.5) * t, "margin/mean": 1.2 * t + 0.1, "calibration/ece": ece,
            "calibration/brier": 0.2,
        })  # fmt: skip
    run.end_stage("pm", "done")
    directory = run.artifact("pm")
    if probe is not None:
        write_json(directory / "probe.json", probe)
    if scores is not None:
        pairs = texts or [("a good answer to it", "a poor answer to it")] * len(scores)
        write_jsonl(directory / "held_out.jsonl", [
            {"id": f"p{i}", "prompt": f"asked {i}", "chosen": f"{one} {i}", "rejected": f"{two} {i}", "p_chosen": 0.9}
            for i, (one, two) in enumerate(pairs)
        ])  # fmt: skip
        write_jsonl(directory / "scores.jsonl", [
            {"id": f"p{i}", "chosen_score": float(a), "rejected_score": float(b)} for i, (a, b) in enumerate(scores)
        ])  # fmt: skip
    if calibration is not None:
        write_json(directory / "model" / "calibration.json", calibration)
    return run


def drawn(n: int = 400, right: float = 0.75, size: float = 1.0, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    margin = np.abs(rng.normal(1, 0.4, n)) * size * np.where(rng.random(n) < right, 1, -1)
    middle = rng.normal(0, 1, n)
    return np.column_stack([middle + margin / 2, middle - margin / 2])


def found(run: Run) -> dict[str, str]:
    return {f.id: f.severity.value for f in diagnose(run).findings}


def material(run: Run) -> JudgmentMaterial:
    (only,) = [m for m in importers.read(run.path) if isinstance(m, JudgmentMaterial)]
    return only


def test_a_sound_model_has_no_finding_and_what_the_probe_looked_for_counts_as_checked(tmp_path):
    diagnosis = diagnose(run_with(tmp_path, probe=QUIET, scores=drawn()))
    assert [f.id for f in diagnosis.findings if f.severity.loud] == []
    assert {
        "style-exploitation", "sycophancy", "pm-length-bias", "pm-narrow", "pm-self-contradiction",
        "pm-score-collapse", "pm-low-accuracy", "pm-miscalibrated",
    } <= set(diagnosis.checked)  # fmt: skip
    assert not {"style-exploitation", "sycophancy", "pm-narrow"} & {n.id for n in diagnosis.not_diagnosable}


@pytest.mark.parametrize(
    "id",
    ["style-exploitation", "sycophancy", "pm-length-bias", "pm-narrow", "pm-self-contradiction", "pm-score-collapse",
     "pm-low-accuracy", "pm-overfit", "pm-miscalibrated", "noisy-labels"],
)  # fmt: skip
def test_each_fault_of_the_probe_is_a_finding_with_its_evidence_and_what_to_do(tmp_path, id):
    probe = {**QUIET, "faults": [{"id": id, "severity": "critical", "evidence": "so it is"}]}
    (finding,) = [f for f in diagnose(run_with(tmp_path, probe=probe)).findings if f.severity.loud]
    assert (finding.id, finding.severity.value) == (id, "critical")
    assert finding.evidence[0].text.values == {"what": "so it is"}
    assert finding.prescriptions


def test_a_probe_that_could_not_look_leaves_the_check_open(tmp_path):
    probe = {"faults": [], "edits": [], "flips": [], "spread": {"top_variety": None}, "agreement": None}
    assert material(run_with(tmp_path, probe=probe)).probed == ("pm-score-collapse",)


def test_low_accuracy_of_the_scores_and_of_the_log_is_one_finding(tmp_path):
    run = run_with(tmp_path, probe=QUIET, scores=drawn(right=0.52), accuracy=0.52)
    findings = [f for f in diagnose(run).findings if f.id == "pm-low-accuracy"]
    assert len(findings) == 1
    assert len(findings[0].evidence) >= 2


def test_collapse_and_length_bias_show_in_the_scores_without_a_probe(tmp_path):
    flat = np.full((200, 2), 0.3)
    assert found(run_with(tmp_path / "a", scores=flat)).get("pm-score-collapse") == "critical"
    rng = np.random.default_rng(0)
    texts, scores = [], []
    for _ in range(400):
        sizes = rng.integers(2, 40, 2)
        texts.append(tuple(" ".join(["word"] * size) for size in sizes))
        scores.append(sizes / 10)
    assert "pm-length-bias" in found(run_with(tmp_path / "b", scores=np.array(scores), texts=texts))


def test_overconfident_scores_are_miscalibrated_until_a_calibration_is_in_use(tmp_path):
    scores = drawn(right=0.75, size=6.0)
    kept = {
        "format": 1, "method": "temperature", "temperature": 5.5, "slope": 1 / 5.5,
        "report": {"after": {"ece": {"mean": 0.02}, "brier": {"mean": 0.18}}},
    }  # fmt: skip
    assert "pm-miscalibrated" in found(run_with(tmp_path / "raw", scores=scores, ece=0.2))
    # kept, but PPO sees the raw score
    assert "pm-miscalibrated" in found(run_with(tmp_path / "kept", scores=scores, ece=0.2, calibration=kept))
    for i, config in enumerate(
        ({"preference": {"calibrated_score": True}}, {"ppo": {"score_transform": "win_probability"}})
    ):
        run = run_with(tmp_path / str(i), scores=scores, ece=0.2, calibration=kept, config=config)
        assert "pm-miscalibrated" not in found(run)
    margins = material(run).scores[0].margin
    np.testing.assert_allclose(margins, (scores[:, 0] - scores[:, 1]) / 5.5)


def test_few_pairs_and_no_probe_are_no_material(tmp_path):
    run = run_with(tmp_path, scores=drawn(49))
    assert not any(isinstance(m, JudgmentMaterial) for m in importers.read(run.path))
    assert material(run_with(tmp_path / "b", scores=drawn(50))).stage == "pm"


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"faults": {"id": 1}}', '{"faults": [1, {"id": "x"}, {"severity": []}]}']
)
def test_broken_results_break_no_diagnosis(tmp_path, text):
    run = run_with(tmp_path, scores=drawn(100))
    for name in ("probe.json", "model/calibration.json"):
        (run.artifact("pm") / name).parent.mkdir(exist_ok=True)
        (run.artifact("pm") / name).write_text(text)
    (run.artifact("pm") / "scores.jsonl").write_text(text + "\n" + '{"id": "p1", "chosen_score": "x"}\n')
    assert diagnose(run).status is not None


def test_pairs_whose_label_names_nobody_are_not_scored(tmp_path):
    run = run_with(tmp_path, scores=drawn(60))
    held_out = run.artifact("pm") / "held_out.jsonl"
    held_out.write_text(held_out.read_text().replace('"p_chosen": 0.9', '"p_chosen": 0.5', 4))
    assert material(run).rows == 56
