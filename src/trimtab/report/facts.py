"""What a run directory holds, read once and tolerantly: what is missing, half-written or broken is told.

Files of a run may come from elsewhere. Whatever has not the expected form counts as absent, and `notes` says what.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.runs.files import read_jsonl
from trimtab.runs.manifest import StageRecord
from trimtab.runs.run import Run

__all__ = ["Facts", "Figure", "Measure", "algorithm", "figure_of", "number", "read_facts", "reward_names", "trained"]

RESULTS = ("sft", "sample", "label", "pm", "ppo", "dpo", "eval")
_LARGEST_RESULT = 4 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    """A value, its interval where known, and what it rests on where known."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return self.low is not None and self.high is not None

    def above(self, x: float) -> bool:
        """Whether the whole interval lies above `x`."""
        return self.known and self.low is not None and self.low > x

    def below(self, x: float) -> bool:
        """Whether the whole interval lies below `x`."""
        return self.known and self.high is not None and self.high < x


@dataclass(frozen=True, slots=True)
class Measure:
    """One measure of the evaluation. `trained_on`: the policy was trained to raise it, so it proves nothing."""

    name: str
    policy: float
    reference: float
    difference: Figure
    win_rate: Figure
    ties: float | None
    length_matched: Figure | None
    trained_on: bool


@dataclass(frozen=True)
class Facts:
    """Everything that the report is made from.

    `results`: the JSON result of each stage that has one. `measures`: of the evaluation, the independent ones first.
    `length`: the policy's mean, the reference's, and the difference, in tokens. `lines`: metrics of the
    stage that trained the policy (`algorithm`).
    `notes`: files that could not be read, for the reader of the report.
    """

    run: Run
    stages: Mapping[str, StageRecord]
    results: Mapping[str, Mapping[str, Any]]
    measures: Sequence[Measure]
    length: tuple[float, float, Figure] | None
    lines: Sequence[Mapping[str, Any]]
    samples: Sequence[Mapping[str, Any]]
    eval_rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = field(default_factory=list)

    def result(self, stage: str) -> Mapping[str, Any]:
        """The result of a stage; empty where there is none."""
        return self.results.get(stage, {})

    def series(self, key: str) -> list[tuple[int, float]]:
        """(step, value) of a signal of the policy's training; NaN and infinities are values, steps without one are not
        there."""
        points = ((int(line["step"]), number(line.get(key), finite=False)) for line in self.lines)
        return [(step, value) for step, value in points if value is not None]


def read_facts(run: Run) -> Facts:
    """Read the run."""
    notes: list[str] = []
    results = {stage: found for stage in RESULTS if (found := _read_result(run, stage, notes)) is not None}
    for name, broken in run.broken_lines().items():
        shown = ", ".join(map(str, broken[:5])) + (", …" if len(broken) > 5 else "")
        notes.append(f"{name}: {len(broken)} line{'s' * (len(broken) > 1)} could not be read (line {shown}).")
    rows = read_jsonl(run.artifact("eval/samples.jsonl"))
    evaluation = results.get("eval", {})
    length = _length(evaluation)
    measures = _measures(evaluation, reward_names(run))
    if "eval" in results and not measures:
        notes.append("artifacts/eval/result.json holds no measure that can be read.")
    stage = algorithm(run)
    lines, samples = run.metrics(stage), run.samples(stage=stage)
    return Facts(run, run.stages(), results, measures, length, lines, samples, rows.records, notes)


def algorithm(run: Run) -> Literal["ppo", "dpo"]:
    """The stage that trained the run's policy: the setting project.algorithm."""
    return "dpo" if _section(run.config, "project").get("algorithm") == "dpo" else "ppo"


def trained(facts: Facts) -> str:
    """How long the policy was trained, in a sentence; empty: it was not."""
    by = algorithm(facts.run)
    key, unit = ("loss/train", "update") if by == "dpo" else ("score/mean", "iteration")
    count = len(facts.series(key))
    return f"{by.upper()}: {count} {unit}{'s' * (count > 1)}." if count else ""


def reward_names(run: Run) -> list[str]:
    """Names in the setting ppo.reward."""
    reward = _section(run.config, "ppo").get("reward", "preference")
    return [str(name) for name in reward] if isinstance(reward, Mapping) else [str(reward)]


def number(value: object, *, finite: bool = True) -> float | None:
    """`value` as a float; None where it is none (or, with `finite`, not finite)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) > 1 << 1000:
        return None
    return float(value) if math.isfinite(value) or not finite else None


def figure_of(value: object) -> Figure | None:
    """A figure from JSON: `{"value", "low", "high", "n"}` (or "mean"), `[mean, low, high, n]`, or a bare number."""
    if isinstance(value, Mapping):
        value = [value.get("value", value.get("mean")), *(value.get(key) for key in ("low", "high", "n"))]
    if isinstance(value, list | tuple):
        mean, low, high, n = (number(x) for x in (*value, None, None, None, None)[:4])
        return None if mean is None else Figure(mean, low, high, None if n is None else int(n))
    mean = number(value)
    return None if mean is None else Figure(mean)


def _read_result(run: Run, stage: str, notes: list[str]) -> Mapping[str, Any] | None:
    name = f"{stage}/result.json"
    path = run.artifact(name)
    try:
        if path.stat().st_size > _LARGEST_RESULT:
            notes.append(f"artifacts/{name} is too large to be a result and was not read.")
            return None
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        notes.append(f"artifacts/{name} cannot be read: {error.strerror}.")
        return None
    except (ValueError, RecursionError):
        notes.append(f"artifacts/{name} is not valid JSON (half-written?).")
        return None
    if isinstance(value, dict):
        return value
    notes.append(f"artifacts/{name} holds no JSON object.")
    return None


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


def _measures(result: Mapping[str, Any], reward_names: Sequence[str]) -> list[Measure]:
    listed = result.get("measures")
    entries = [m for m in listed if isinstance(m, Mapping)] if isinstance(listed, list) else []
    trained_on = {*reward_names, "preference", "mixture", str(result.get("trained_on"))}
    if result.get("independent") is False:
        trained_on |= {str(entry.get("name")) for entry in entries}
    found = [measure for entry in entries if (measure := _measure(entry, trained_on)) is not None]
    return sorted(found, key=lambda measure: measure.trained_on)


def _measure(entry: Mapping[str, Any], trained_on: set[str]) -> Measure | None:
    name = str(entry.get("name"))
    difference, win_rate = figure_of(entry.get("difference")), figure_of(entry.get("win_rate"))
    policy, reference = number(entry.get("policy")), number(entry.get("reference"))
    if difference is None or win_rate is None or policy is None or reference is None:
        return None
    matched = figure_of(entry.get("length_matched"))
    return Measure(
        name, policy, reference, difference, win_rate, number(entry.get("ties")), matched, name in trained_on
    )


def _length(result: Mapping[str, Any]) -> tuple[float, float, Figure] | None:
    entry = _section(result, "length")
    policy, reference = number(entry.get("policy")), number(entry.get("reference"))
    difference = figure_of(entry.get("difference"))
    if policy is None or reference is None or difference is None:
        return None
    return policy, reference, difference
