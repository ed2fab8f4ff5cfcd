"""What a run of ours keeps of its preference model beside its log: scores of held-out pairs, calibration, probe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab.doctor.judgments import JudgmentMaterial, ProbedFault, from_records
from trimtab.errors import TrimtabError
from trimtab.runs.files import read_json, read_jsonl
from trimtab.runs.run import Run

__all__ = ["calibrated_rows", "preference_results"]

_FEWEST_PAIRS = 50
"""Fewer scored pairs say too little about a model, and nothing that the log does not say."""
_LARGEST = 64 << 20


def preference_results(run: Run, log: str) -> list[JudgmentMaterial]:
    """One material of what is kept; none where there is nothing, or nothing that can be read.

    Args:
        run: the run.
        log: path of the preference model's log, which the material stands beside.
    """
    directory = run.artifact("pm")
    probe, rows = _object(directory / "probe.json"), _scored(directory, _divisor(run))
    faults = _faults(probe)
    scored = from_records(rows, str(directory)) if len(rows) >= _FEWEST_PAIRS else None
    if scored is None and faults is None:
        return []
    empty = JudgmentMaterial(str(directory), "preference-model", 0)
    # the texts are here for the scores' sake; the data have their own checks
    found = replace(scored or empty, format="preference-model", pairs=None, stage="pm", beside=log)
    return [found if faults is None else replace(found, faults=faults, probed=_looked_for(probe))]


def calibrated_rows(run: Run, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The preference model's lines, with the calibration that PPO goes by in place of that of the bare scores."""
    report = _object(run.artifact("pm") / "model" / "calibration.json").get("report")
    after = report.get("after") if isinstance(report, Mapping) else None
    if not rows or not _is_used(run) or not isinstance(after, Mapping):
        return rows
    kept = [{key: value for key, value in row.items() if not key.startswith("calibration/")} for row in rows]
    figures = {f"calibration/{name}": _mean(after.get(name)) for name in ("ece", "brier")}
    return [*kept[:-1], {**kept[-1], **{key: value for key, value in figures.items() if value is not None}}]


def _is_used(run: Run) -> bool:
    own, of_ppo = (run.config.get(section) for section in ("preference", "ppo"))
    scaled = isinstance(own, Mapping) and own.get("calibrated_score") is True
    return scaled or (isinstance(of_ppo, Mapping) and of_ppo.get("score_transform") == "win_probability")


def _divisor(run: Run) -> float:
    """What scores are to be divided by to be those that PPO goes by."""
    if not _is_used(run):
        return 1.0
    temperature = _number(_object(run.artifact("pm") / "model" / "calibration.json").get("temperature"))
    return temperature if temperature is not None and temperature > 0 else 1.0


def _scored(directory: Path, divisor: float) -> list[dict[str, Any]]:
    """Held-out pairs whose label names the chosen response, with their scores."""
    files = [directory / name for name in ("scores.jsonl", "held_out.jsonl")]
    if not all(file.is_file() and file.stat().st_size <= _LARGEST for file in files):
        return []
    scores = {row.get("id"): row for row in read_jsonl(files[0]).records}
    found = []
    for pair in read_jsonl(files[1]).records:
        row, label = scores.get(pair.get("id"), {}), _number(pair.get("p_chosen"))
        one, two = _number(row.get("chosen_score")), _number(row.get("rejected_score"))
        if one is None or two is None or (label is not None and label <= 0.5):
            continue
        texts = {name: pair.get(name) for name in ("id", "prompt", "chosen", "rejected")}
        found.append({**texts, "chosen_score": one / divisor, "rejected_score": two / divisor})
    return found


def _faults(probe: Mapping[str, Any]) -> tuple[ProbedFault, ...] | None:
    """The faults of a probe, worst first; None where there was none."""
    listed = probe.get("faults")
    return tuple(_read(listed)) if isinstance(listed, list) else None


def _looked_for(probe: Mapping[str, Any]) -> tuple[str, ...]:
    """Ids of the findings that a probe could have named."""
    edits, flips = (probe.get(name) for name in ("edits", "flips"))
    spread = probe.get("spread")
    made = {
        "style-exploitation": bool(edits),
        "sycophancy": bool(edits) or isinstance(probe.get("agreement"), Mapping),
        "pm-length-bias": bool(edits),
        "pm-self-contradiction": bool(flips),
        "pm-narrow": isinstance(spread, Mapping) and _number(spread.get("top_variety")) is not None,
        "pm-score-collapse": isinstance(spread, Mapping),
    }
    return tuple(id for id, there in made.items() if there)


def _read(listed: Sequence[Any]) -> Iterator[ProbedFault]:
    for fault in listed:
        if isinstance(fault, Mapping) and fault.get("severity") in ("info", "warning", "critical"):
            yield ProbedFault(str(fault.get("id")), str(fault["severity"]), str(fault.get("evidence", "")))


def _object(path: Path) -> Mapping[str, Any]:
    try:
        return read_json(path) if path.is_file() and path.stat().st_size < _LARGEST else {}
    except TrimtabError:
        return {}


def _mean(value: object) -> float | None:
    return _number(value.get("mean")) if isinstance(value, Mapping) else None


def _number(value: object) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if good and isinstance(value, int | float) else None
