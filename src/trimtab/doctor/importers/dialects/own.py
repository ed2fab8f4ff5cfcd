"""Our own runs: names are canonical already; all their signals are masked means over the batch."""

from __future__ import annotations

from trimtab.doctor.importers.dialects.base import Dialect, Meaning, ignore, to
from trimtab.doctor.log import Estimator, Stage
from trimtab.doctor.quantities import QUANTITIES

__all__ = ["DIALECTS"]

_ESTIMATORS = {
    "kl/reference": Estimator.K1, "kl/reference_per_token": Estimator.K1, "kl/reference_k3_per_token": Estimator.K3,
    "kl/update": Estimator.K3, "policy/clip_fraction": Estimator.PESSIMISTIC, "check/kl_at_start": Estimator.K1,
}  # fmt: skip
_NAMES: dict[str, Meaning] = {key: to(key, _ESTIMATORS.get(key, Estimator.NONE), masked=True) for key in QUANTITIES}
_PATTERNS = (
    (r"(?:time|rate|memory)/.+", ignore()),
    (r"((?:score|eval|user|label|sample|held_out)/.+)", to("{0}")),
)
_STAGES = {
    "ppo": (Stage.POLICY, "ppo"), "pm": (Stage.PREFERENCE_MODEL, "reward-model"), "sft": (Stage.SFT, "sft"),
    "dpo": (Stage.DIRECT, "dpo"), "label": (Stage.LABEL, ""), "sample": (Stage.SAMPLE, ""),
    "eval": (Stage.EVALUATION, ""),
}  # fmt: skip

DIALECTS = tuple(
    Dialect(f"trimtab-{name}", "trimtab", stage, algorithm, (), _NAMES, _PATTERNS)
    for name, (stage, algorithm) in _STAGES.items()
)
