"""The log itself: values that cannot be, units that cannot be told, an end in the middle of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from trimtab.doctor.detectors.reading import Reading
from trimtab.doctor.detectors.rule import INFO, WARNING, Rule, figure, finding, ruled_out
from trimtab.doctor.finding import Evidence, Finding, Message, NotDiagnosable
from trimtab.doctor.log import Estimator, Floats, Series, Stage, Unit

__all__ = ["RULES", "idle"]

_ALL = frozenset(Stage)
_NEVER_NEGATIVE = frozenset({Estimator.K2, Estimator.K3, Estimator.FULL, Estimator.ABS_K1, Estimator.CLAMPED_K1})
_SLACK = 1e-6
_FRACTIONS_OF_OURS = (
    "response/",
    "group/",
    "batch/duplicate",
    "policy/clip",
    "value/clip",
    "accuracy/",
    "label/",
    "dpo/accuracy",
)


def _impossible(series: Series) -> tuple[str, Callable[[Floats], np.ndarray]] | None:
    """Why a value of this series cannot be, and where that is so; None where nothing is impossible."""
    key = series.key
    if key in ("policy/entropy", "policy/entropy_sequence"):
        return "entropy", lambda v: v < -1e-3
    if key == "value/explained_variance":
        return "explained", lambda v: v > 1 + 1e-3
    if series.unit is Unit.FRACTION and key.startswith(_FRACTIONS_OF_OURS):
        return "fraction", lambda v: (v < -_SLACK) | (v > 1 + 1e-3)
    if key.endswith(("/std", "_std", "gradient_norm")):
        return "spread", lambda v: v < -_SLACK
    if key.startswith("kl/") and series.estimator in _NEVER_NEGATIVE:
        return "kl", lambda v: v < -1e-4
    return None


def _invalid(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    id = "invalid-metric"
    told: list[Evidence] = []
    first: int | None = None
    what = ""
    for key, series in sorted(r.log.series.items()):
        rule = _impossible(series)
        if rule is None:
            continue
        steps, values = series.finite
        bad = rule[1](values)
        rows = int(bad.sum())
        track = r.track(key)
        if not rows or track is None or (len(values) >= 20 and rows < 0.02 * len(values)):
            continue
        at = int(steps[int(np.argmax(bad))])
        told.append(
            figure(f"impossible-{rule[0]}", track, step=at, value=float(values[bad][0]), rows=rows, of=len(values))
        )
        first = at if first is None else min(first, at)
        what = what or rule[0]
    clipped = _all_clipped(r)
    if clipped is not None:
        told.append(clipped[1])
        first = clipped[0] if first is None else min(first, clipped[0])
        what = what or "clip"
    if told:
        yield finding(id, WARNING, first, told, ruled_out=[ruled_out(id, "rounding")], source="trl#2022")


def _all_clipped(r: Reading) -> tuple[int, Evidence] | None:
    """Every token clipped while the policy has not moved."""
    clip = r.track("policy/clip_fraction")
    kl = r.track("kl/update", "kl/reference_per_token", "kl/reference")
    if clip is None or clip.late < 0.99:
        return None
    if kl is None:
        if not idle(r):
            return None
        return clip.step(0), figure("impossible-clip-dead", clip, step=clip.step(0), value=clip.late)
    if float(np.median(np.abs(kl.values))) > 1e-5:
        return None
    return clip.step(0), figure("impossible-clip", clip, step=clip.step(0), value=clip.late, kl=kl.name)


def idle(r: Reading) -> bool:
    """Whether no advantage or score ever differs from the others: nothing can push a ratio out of its band."""
    spread = r.track("advantage/std", "score/std")
    return spread is not None and float(np.abs(spread.values).max()) == 0


def _units(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    unclear = r.log.unit_unknown
    if unclear:
        names = ", ".join(dict.fromkeys(unclear.values()))
        told = (Evidence(Message("figure.unit-unknown", {"names": names})),)
        yield finding("unit-unknown", INFO, None, told, source="units by framework: docs/doctor.md")


def _truncated(r: Reading) -> Iterator[Finding | NotDiagnosable]:
    if r.log.truncated:
        at = r.log.steps[1] if r.log.steps else None
        told = (Evidence(Message("figure.log-truncated", {"rows": r.log.rows}), step=at),)
        yield finding("log-truncated", INFO, at, told, source="the file's end")


RULES = (
    Rule(("invalid-metric",), _ALL, _invalid),
    Rule(("unit-unknown",), _ALL, _units),
    Rule(("log-truncated",), _ALL, _truncated),
)
