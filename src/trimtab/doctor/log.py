"""What the doctor reads: the series of one training log, each with its unit, estimator and aggregation.

An importer makes a `Log` from whatever a framework left behind; detectors read nothing else. Keys are canonical
(`quantities.py`); the name under which the log had a series travels with it, for evidence in the reader's own words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Aggregation", "Estimator", "Floats", "Log", "Series", "Skipped", "Stage", "Unit"]

Floats = NDArray[np.float64]


class Unit(StrEnum):
    """What one number of a series counts."""

    NATS_PER_SEQUENCE = "nats/sequence"
    NATS_PER_TOKEN = "nats/token"
    NATS = "nats"
    SCORE = "score"
    REWARD = "reward"
    FRACTION = "fraction"
    TOKENS = "tokens"
    LOSS = "loss"
    ONE = "1"
    COUNT = "count"
    SECONDS = "s"
    UNKNOWN = "unknown"


class Estimator(StrEnum):
    """How a KL was estimated; for a clip fraction, what was counted."""

    K1 = "k1"
    ABS_K1 = "|k1|"
    CLAMPED_K1 = "max(k1, 0)"
    K2 = "k2"
    K3 = "k3"
    FULL = "full"
    PESSIMISTIC = "clipped term chosen"
    OUTSIDE = "|ratio - 1| > clip"
    NONE = ""
    UNKNOWN = "unknown"


class Aggregation(StrEnum):
    """How one number of a series was made from the batch (or from the updates of an iteration)."""

    MEAN = "mean"
    MEDIAN = "median"
    MIN = "min"
    MAX = "max"
    STD = "std"
    SUM = "sum"
    LAST = "last"
    UNKNOWN = "unknown"


class Stage(StrEnum):
    """What was being trained (or done)."""

    POLICY = "policy"
    DIRECT = "direct"
    PREFERENCE_MODEL = "pm"
    SFT = "sft"
    LABEL = "label"
    SAMPLE = "sample"
    EVALUATION = "eval"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One logged quantity over the steps at which it was logged.

    Args:
        key: canonical key (`kl/reference_per_token`).
        name: the key under which the log had it.
        steps: [N], rising strictly.
        values: [N]; NaN and infinities are kept as the log had them.
        unit: of the values, after any conversion.
        estimator: for KLs and clip fractions.
        aggregation: over the batch.
        masked: False where padding is known to be averaged in; None unknown.
        derived: a converted or computed series; says from what.
    """

    key: str
    name: str
    steps: NDArray[np.int64]
    values: Floats
    unit: Unit
    estimator: Estimator = Estimator.NONE
    aggregation: Aggregation = Aggregation.MEAN
    masked: bool | None = None
    derived: str = ""

    def __post_init__(self) -> None:
        if self.steps.shape != self.values.shape or self.steps.ndim != 1:
            raise ValueError(f"{self.key}: steps {self.steps.shape} and values {self.values.shape} do not match")
        if len(self.steps) > 1 and bool((np.diff(self.steps) <= 0).any()):
            raise ValueError(f"{self.key}: steps must rise strictly")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def finite(self) -> tuple[NDArray[np.int64], Floats]:
        """Steps and values where the value is finite."""
        good = np.isfinite(self.values)
        return self.steps[good], self.values[good]


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something in a file that could not be read: how often, why, and where first (1-based line or row)."""

    reason: str
    count: int
    first_line: int | None = None
    example: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """One training log.

    Args:
        path: the file or directory.
        format: what it was recognised as (`hf-log-history`, `verl-console`, `trimtab`, ...).
        framework: whose key names prescriptions should use (`trimtab`, `trl`, `verl`, `openrlhf`, `deepspeed-chat`,
            `llama-factory`, `trlx`, `nemo-rl`, `ms-swift`, `sb3` and others of `importers/dialects`, else `unknown`).
        stage: what was trained.
        algorithm: `ppo`, `grpo`, `rloo`, `reinforce`, `dpo`, `kto`, `reward-model`, ...; empty where unknown.
        rows: log rows read.
        steps: first and last step; None for an empty log.
        planned_steps: steps that the run was to take, where the log says so.
        series: by canonical key.
        config: settings of the run that the log or files beside it state, by the framework's own names; our runs:
            the resolved config by dotted keys.
        skipped: what could not be read.
        unmapped: keys of the log that no quantity is known for.
        unit_unknown: canonical keys whose series is left out of `series` because its unit cannot be told, with the
            log's own name.
        truncated: the file ends in the middle of a record.
    """

    path: str
    format: str
    framework: str
    stage: Stage
    algorithm: str
    rows: int
    steps: tuple[int, int] | None
    planned_steps: int | None
    series: Mapping[str, Series]
    config: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()
    unmapped: tuple[str, ...] = ()
    unit_unknown: Mapping[str, str] = field(default_factory=dict)
    truncated: bool = False

    def get(self, *keys: str) -> Series | None:
        """The first of `keys` that the log has with at least one value."""
        return next((s for k in keys if (s := self.series.get(k)) is not None and len(s)), None)

    def family(self, prefix: str) -> dict[str, Series]:
        """All series whose key starts with `prefix`."""
        return {key: s for key, s in self.series.items() if key.startswith(prefix)}
