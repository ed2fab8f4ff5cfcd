"""When "nothing found" means healthy: the checks that matter for each stage could be made.

A policy that looks fine in its reward alone may have drifted, collapsed or learned to write at length; none of that can
be seen from a reward and a loss. So a policy's log has to show its score and three of six more sides of the run. A log
that shows less is inconclusive, and the checks that could not be made say which key would change that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from trimtab.doctor.detectors.reading import TREND_POINTS, Reading, reading
from trimtab.doctor.finding import NotDiagnosable
from trimtab.doctor.log import Log, Stage

__all__ = ["conclusive"]

_SIDES = (
    ("kl/reference", "kl/reference_per_token", "kl/reference_k3_per_token"),
    ("kl/update", "policy/clip_fraction", "policy/ratio_mean", "policy/ratio_max"),
    ("policy/entropy",),
    ("policy/gradient_norm", "gradient_norm"),
    ("response/length_mean", "response/truncated_fraction", "response/eos_fraction", "response/eos_count"),
    ("group/zero_std_fraction", "score/std", "score/group_std", "reward/std", "value/explained_variance"),
)
_SIDES_NEEDED = 3


def conclusive(material: Any, looked: Collection[str], unmade: Sequence[NotDiagnosable]) -> bool:
    """Whether a material without a loud finding may be called healthy.

    Args:
        material: what was read.
        looked: ids that detectors looked for in it.
        unmade: those that they could not tell.
    """
    if not isinstance(material, Log):
        return bool(set(looked) - {n.id for n in unmade})
    r = reading(material)
    stage = material.stage
    if stage in (Stage.POLICY, Stage.UNKNOWN):
        return _has(r, "score/mean", "reward/mean") and sum(_has(r, *side) for side in _SIDES) >= _SIDES_NEEDED
    if stage is Stage.DIRECT:
        shown = _has(r, "dpo/margin", "dpo/accuracy", "dpo/chosen_reward")
        return shown and (_has(r, "loss/train") or _has(r, "dpo/accuracy"))
    if stage is Stage.PREFERENCE_MODEL:
        judged = r.track("accuracy/validation", "held_out/accuracy/train") is not None or _has(r, "accuracy/train")
        return judged and not _short_of(unmade, "pm-low-accuracy")
    if stage is Stage.SFT:
        return _has(r, "loss/train")
    return bool(set(looked) - {n.id for n in unmade} - {"invalid-metric", "unit-unknown", "log-truncated"})


def _has(r: Reading, *keys: str) -> bool:
    """Whether one of the series is long enough to tell a trend, and was seen beyond the warm-up."""
    return any((t := r.track(k)) is not None and t.rows >= TREND_POINTS and r.long(t) for k in keys)


def _short_of(unmade: Sequence[NotDiagnosable], id: str) -> bool:
    return any(n.id == id for n in unmade)
