"""pm shift and pm shaping of a whole small project: where responses come from, what is kept, what is refused."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from trimtab.config.schema import PPOConfig
from trimtab.data.pairs import read_pairs
from trimtab.errors import TrimtabError
from trimtab.pipeline.project import Project
from trimtab.pipeline.runner import run_project
from trimtab.pipeline.scaffold import init_project
from trimtab.pipeline.shaping import preview
from trimtab.pipeline.shift import Subject, open_subject, responses_of, shift_of
from trimtab.preference.calibration import Calibration
from trimtab.preference.shift_reference import REFERENCE_FILE, Reference

SMALL = [
    "project.threads=1", "sft.epochs=1", "sample.pairs_per_prompt=2", "preference.epochs=1", "ppo.iterations=2",
    "ppo.batch_size=16", "ppo.checkpoint_every=2", "ppo.probe_prompts=24", "eval.responses_per_prompt=2",
    "eval.bootstrap=50", "preference.validation_fraction=0.4",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("shift")
    init_project(directory, "tiny", "fail")
    for name, lines in (("prompts", 100), ("prompts_held_out", 24), ("demonstrations", 320)):
        path = directory / f"{name}.jsonl"
        path.write_text("\n".join(path.read_text().splitlines()[:lines]) + "\n")
    run_project(Project.open(directory, SMALL))
    return directory


@pytest.fixture(scope="module")
def subject(finished: Path) -> Subject:
    return open_subject(finished, "main", SMALL)


def test_a_run_keeps_a_reference_and_ppo_logs_by_it(finished, subject):
    assert subject.run is not None
    reference = Reference.load(subject.directory)
    assert reference is not None
    held_out = read_pairs(subject.run.artifact("pm") / "held_out.jsonl")
    assert reference.unseen.sum() == min(len(held_out), 256)
    rows = [row for row in subject.run.metrics("ppo") if row["step"] > 0]
    assert all({"shift/distance", "shift/outside_fraction", "shift/score_psi"} <= row.keys() for row in rows)


def test_by_default_each_probe_step_and_both_sides_of_the_evaluation_are_compared(subject):
    sets = responses_of(subject, None)
    assert [s.label for s in sets] == ["step 0", "step 2", "eval reference", "eval policy"]
    assert [s.step for s in sets] == [0, 2, 0, 2]
    assert [len(s.responses) for s in sets] == [24, 24, 48, 48]
    found = shift_of(subject, sets, keep=True)
    assert found.deciding.label == "eval policy"
    kept = json.loads((subject.run.artifact("pm") / "shift.json").read_text())
    assert kept["verdict"] == found.deciding.verdict
    assert [s["label"] for s in kept["sets"]] == [s.label for s in sets]


def test_the_reference_model_itself_is_not_shifted(subject):
    sets = [s for s in responses_of(subject, None) if s.label == "eval reference"]
    found = shift_of(subject, sets).deciding
    assert found.verdict in ("same", "moved")
    assert 0.3 < found.distance.mean < 0.7


def test_a_step_a_file_and_samples_are_the_same_responses(subject, finished, tmp_path):
    (by_step,) = responses_of(subject, "main@2")
    both = responses_of(subject, str(finished / "runs" / "main"))
    assert [s.label for s in both] == ["step 0", "step 2"]
    assert both[1].responses == by_step.responses
    path = tmp_path / "own.jsonl"
    lines = [
        json.dumps({"prompt": p.text, "response": r.text})
        for p, r in zip(by_step.prompts, by_step.responses, strict=True)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    (own,) = responses_of(subject, str(path))
    assert own.label == "own.jsonl"
    one, other = shift_of(subject, [by_step]).deciding, shift_of(subject, [own]).deciding
    assert one.distance.mean == pytest.approx(other.distance.mean)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no responses"),
        ("{", "line 1"),
        ('{"prompt": "a"}', "response"),
        ('{"prompt": "", "response": "b"}', "prompt"),
        ('{"response": "b"}', "prompt"),
        ('{"prompt": "a", "response": 3}', "response"),
    ],
)
def test_a_broken_file_is_named_with_its_line(subject, tmp_path, text, said):
    path = tmp_path / "bad.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TrimtabError, match=said):
        responses_of(subject, str(path))


def test_what_is_not_there_is_told_with_what_is(subject, finished, tmp_path):
    with pytest.raises(TrimtabError, match="no responses were kept") as raised:
        responses_of(subject, "main@7")
    assert "0, 2" in raised.value.hint
    with pytest.raises(TrimtabError):
        responses_of(subject, "nosuch@2")
    with pytest.raises(TrimtabError, match=r"nosuch\.jsonl"):
        responses_of(subject, "nosuch.jsonl")
    with pytest.raises(TrimtabError, match="neither a project"):
        open_subject(tmp_path, "main")
    alone = open_subject(subject.directory, "main")
    for ask in (None, "main@2"):
        with pytest.raises(TrimtabError, match="by itself"):
            responses_of(alone, ask)
    with pytest.raises(TrimtabError, match="by itself"):
        preview(alone)


def test_without_a_reference_a_run_makes_it_from_its_pairs_and_a_model_asks_for_some(finished, tmp_path):
    copy = tmp_path / "p"
    shutil.copytree(finished, copy)
    own = open_subject(copy, "main", SMALL)
    before = Reference.load(own.directory)
    (own.directory / REFERENCE_FILE).unlink()
    sets = responses_of(own, "main@2")
    found = shift_of(own, sets)
    again = Reference.load(own.directory)
    assert found.reference.endswith("pairs.jsonl")
    assert again is not None
    assert again.states == pytest.approx(before.states, abs=1e-3)
    (own.directory / REFERENCE_FILE).unlink()
    alone = replace(own, project=None, run=None)
    with pytest.raises(TrimtabError, match=r"no reference\.safetensors") as raised:
        shift_of(alone, sets)
    assert "--reference" in raised.value.hint
    pairs = own.run.artifact("pm") / "held_out.jsonl"
    named = shift_of(alone, sets, pairs)
    assert (named.reference, named.rows, named.held_out) == (
        str(pairs),
        2 * len(read_pairs(pairs)),
        2 * len(read_pairs(pairs)),
    )
    assert (own.directory / REFERENCE_FILE).is_file()


# shaping


def test_the_preview_is_what_ppo_does(subject):
    found = {way.name: way for way in preview(subject).ways}
    raw = subject.model.score(*_held_out(subject))
    usual = Reference.load(subject.directory).scores
    assert found["raw"].sd == pytest.approx(raw.std(), rel=1e-5)
    normal = (raw - usual.mean()) / math.sqrt(usual.var() + 1e-8)
    assert found["reference"].mean == pytest.approx(normal.mean(), abs=1e-4)
    assert found["reference, tanh"].high == pytest.approx(math.tanh(normal.max()), abs=1e-4)
    clipped = np.clip(normal, -3, 3)
    assert found["reference, clip 3"].low == pytest.approx(clipped.min(), abs=1e-4)
    assert found["log"].high == pytest.approx((np.sign(raw) * np.log1p(np.abs(raw))).max(), abs=1e-4)
    assert found["batch (whitened)"].kept == 1
    assert 0 <= found["win probability"].low < 0.5 < found["win probability"].high <= 1
    assert found["win probability"].mean == pytest.approx(0.5, abs=1e-6)
    # the preset takes scores as they are
    assert found["as configured"].sd == pytest.approx(found["raw"].sd)


def _held_out(subject: Subject):
    pairs = read_pairs(subject.run.artifact("pm") / "held_out.jsonl")
    rows = {(p.prompt.messages, r.text): (p.prompt, r) for p in pairs for r in (p.chosen, p.rejected)}
    return [p for p, _ in rows.values()], [r for _, r in rows.values()]


def test_settings_in_force_are_shown_and_a_calibration_divides(finished):
    own = open_subject(finished, "main", [*SMALL, "ppo.score_transform=sigmoid"])
    assert "calibrated" in dict(preview(own).missing)
    own.model.calibration = Calibration("temperature", 2.0, 0.5)
    found = {way.name: way for way in preview(own).ways}
    assert 0 < found["as configured"].low < found["as configured"].high < 1
    assert found["calibrated"].sd == pytest.approx(found["raw"].sd / 2)


def test_advice_can_be_set_as_it_stands(subject):
    for way in preview(subject).ways:
        if way.settings is not None and "calibrated_score" not in way.settings:
            PPOConfig(**way.settings)


def test_few_responses_are_refused(subject, tmp_path):
    path = tmp_path / "few.jsonl"
    path.write_text('{"prompt": "a", "response": "b"}\n', encoding="utf-8")
    with pytest.raises(TrimtabError, match="too few"):
        preview(subject, str(path))
