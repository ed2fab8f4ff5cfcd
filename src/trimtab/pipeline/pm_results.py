"""What is known of a run's preference model, kept in `artifacts/pm` for the report, the doctor and the model's card.

`calibration.json`: what calibrating brings, whether or not PPO uses it. `probe.json`: what buys score. `scores.jsonl`:
the scores of the held-out pairs. `model/README.md`: the card, made from these. The stage writes them, `trimtab pm
calibrate` and `trimtab pm probe` bring them up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab import preference
from trimtab.data.records import Pair
from trimtab.errors import TrimtabError
from trimtab.figures import finite
from trimtab.pipeline.build import Workshop
from trimtab.pipeline.model_card import model_card
from trimtab.pipeline.pm_doctor import seen_by_the_doctor, seen_in_training_pairs
from trimtab.runs.files import atomic_write_text, file_hash, read_json, write_json, write_jsonl
from trimtab.runs.run import Run

__all__ = [
    "CALIBRATION",
    "PROBE",
    "SCORES",
    "keep_calibration",
    "keep_probe",
    "study",
    "write_card",
]

CALIBRATION, PROBE, SCORES, HELD_OUT = "calibration.json", "probe.json", "scores.jsonl", "held_out.jsonl"
CARD = "README.md"


def study(
    shop: Workshop, model: preference.PreferenceModel, held_out: Sequence[Pair], training: Sequence[Pair] = ()
) -> None:
    """Calibrate and probe a model that was just trained and saved, on the pairs that it was not trained on.

    What it was trained on shows overfitting, wrong labels and repeats, which are among the faults.

    The calibration is kept beside the model where `preference.calibrated_score` asks for it; `preference.
    probe_responses` says how many responses are edited.
    """
    config, seed = shop.project.config.preference, shop.project.config.project.seed
    directory = shop.run.artifact("pm")
    prompts = [pair.prompt for pair in held_out]
    chosen = model.score(prompts, [pair.chosen for pair in held_out])
    rejected = model.score(prompts, [pair.rejected for pair in held_out])
    rows = zip(held_out, chosen.tolist(), rejected.tolist(), strict=True)
    write_jsonl(directory / SCORES, ({"id": p.id, "chosen_score": a, "rejected_score": b} for p, a, b in rows))
    if len({prompt.messages for prompt in prompts}) > 1:
        report = preference.calibrate(model, held_out, seed=seed)
        if config.calibrated_score:
            report.save(directory / "model", file_hash(directory / HELD_OUT))
        keep_calibration(shop.run, report, kept=config.calibrated_score)
    if config.probe_responses:
        probed = preference.probe(model, held_out, most=config.probe_responses, seed=seed)
        probed = probed.with_faults(seen_by_the_doctor(held_out, probed.pair_scores))
        probed = probed.with_faults(seen_in_training_pairs(model, training, held_out, probed.pair_scores))
        keep_probe(shop.run, probed, directory / HELD_OUT, model.combination)


def keep_calibration(run: Run, report: preference.CalibrationReport, *, kept: bool) -> None:
    """Write the figures of a calibration; `kept`: whether it lies beside the model, where PPO may use it."""
    own = report.calibration
    write_json(run.artifact("pm") / CALIBRATION, {"kept": kept, "scores": own.scores, **finite(report.as_dict())})


def keep_probe(run: Run, report: preference.ProbeReport, data: Path, combination: str) -> None:
    """Write what a probe of the run's preference model found.

    Args:
        run: whose preference model was probed.
        report: what the probe found.
        data: the file of the pairs.
        combination: what the score is made of, see `PreferenceModel.combination`.
    """
    held_out = run.artifact("pm") / HELD_OUT
    about = {
        "data": HELD_OUT if data.resolve() == held_out.resolve() else str(data), "sha256": file_hash(data),
        "scores": combination,
    }  # fmt: skip
    write_json(run.artifact("pm") / PROBE, {**about, **finite(report.as_dict())})


def write_card(run: Run, result: Mapping[str, Any] | None = None) -> None:
    """Write the model's card from what the run holds; `result`: of the stage that is about to end."""
    directory = run.artifact("pm")
    if not (directory / "model").is_dir():
        return
    parts = {
        "pm": result if result is not None else _read(directory / "result.json"),
        "label": _read(run.artifact("label") / "result.json"),
        "sample": _read(run.artifact("sample") / "result.json"),
        "calibration": _read(directory / CALIBRATION),
        "probe": _read(directory / PROBE),
        "model": _read(directory / "model" / "trimtab.json"),
    }
    pairs = run.artifact("label") / "pairs.jsonl"
    hashes = {"pairs": file_hash(pairs)} if pairs.is_file() else {}
    text = model_card(run.name, run.config, parts, hashes)
    atomic_write_text(directory / "model" / CARD, text)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except TrimtabError:  # a stage that was left out, or an older run: the card says less
        return {}
