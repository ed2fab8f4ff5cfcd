"""Which curves the report shows, and what it says beside each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trimtab.chart import Line, Point, line_chart
from trimtab.figures import figure
from trimtab.report.facts import Facts, algorithm
from trimtab.runs.signals import Band, lookup

__all__ = ["Curve", "curves", "number_table"]

_MOST_ROWS = 40


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A curve to show where it was logged. `must`: its absence is told."""

    key: str
    title: str
    spread: str | None = None
    dots: str | None = None
    note: str = ""
    must: bool = True


@dataclass(frozen=True, slots=True)
class Curve:
    """A chart with its words. `state`: "inside" or "outside" the healthy band, or "" without one."""

    key: str
    title: str
    unit: str
    last: str
    svg: Markup
    band: str
    source: str
    state: str
    note: str
    meaning: str


_SCORE = _Wanted(
    "score/mean", "Score, trained on", "score/std", "eval/score", "Line: rollouts, ± one standard deviation."
)
_OTHERS = (
    _Wanted("kl/reference", "KL to the reference"),
    _Wanted(
        "response/length_mean", "Response length", "response/length_std", note="Shading: ± one standard deviation."
    ),
    _Wanted("policy/entropy", "Entropy"),
    _Wanted("policy/clip_fraction", "Clip fraction"),
    _Wanted("value/explained_variance", "Explained variance", note="Of the returns, by the value model."),
    _Wanted("policy/gradient_norm", "Gradient norm", note="Of the policy, before clipping."),
    _Wanted("response/finished_fraction", "Finished responses", must=False),
)


_DIRECT = (
    _Wanted("kl/reference", "KL to the reference", note="Of responses to held-out prompts."),
    _Wanted("loss/train", "Loss", dots="loss/validation"),
    _Wanted("dpo/accuracy", "Pairs ordered as labeled", dots="accuracy/validation"),
    _Wanted("dpo/chosen_change", "Log-probability of chosen responses", dots="held_out/dpo/chosen_change",
            note="Less the reference's."),
    _Wanted("gradient_norm", "Gradient norm", note="Before clipping."),
    _Wanted("response/length_mean", "Response length", note="Of responses to held-out prompts."),
    _Wanted("response/finished_fraction", "Finished responses", must=False),
)  # fmt: skip


def curves(facts: Facts) -> tuple[list[Curve], list[str]]:
    """The curves of the policy's training in reading order, and the keys that were expected but not logged."""
    logged = {key for line in facts.lines for key, value in line.items() if value is not None}
    held_out = [_Wanted(key, f"Held out: {key.removeprefix('eval/')}") for key in _held_out_keys(facts, logged)]
    if algorithm(facts.run) == "dpo":
        wanted = [_Wanted("eval/score", "Score, not trained on", must=False), *held_out, *_DIRECT]
    else:
        wanted = _of_ppo(facts, held_out)
    shown = [curve for w in wanted if w.key in logged and (curve := _curve(facts, w)) is not None]
    missing = [w.key for w in wanted if w.must and w.key not in logged] if logged else []
    return shown, missing


def _of_ppo(facts: Facts, held_out: list[_Wanted]) -> list[_Wanted]:
    critic_free = _ppo_setting(facts, "advantage") in ("rloo", "grpo")
    wanted = [_SCORE, *held_out, *(w for w in _OTHERS if not (critic_free and w.key.startswith("value/")))]
    if len({value for _, value in facts.series("kl/beta")}) > 1:
        wanted.insert(2 + len(held_out), _Wanted("kl/beta", "KL coefficient"))
    return wanted


def number_table(facts: Facts, keys: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The numbers behind the curves: header and rows, at most about forty of the steps, first and last among them."""
    lines = facts.lines
    every = max(math.ceil(len(lines) / _MOST_ROWS), 1)
    chosen = [line for i, line in enumerate(lines) if i % every == 0 or i == len(lines) - 1]
    series = {key: dict(facts.series(key)) for key in keys}
    rows = [
        [str(line["step"]), *(figure(series[k][line["step"]]) if line["step"] in series[k] else "" for k in keys)]
        for line in chosen
    ]
    return [_step_name(facts), *keys], rows


def _held_out_keys(facts: Facts, logged: set[str]) -> list[str]:
    found = sorted(k for k in logged if k == "gold/mean" or (k.startswith("eval/") and k != "eval/score"))
    order = {f"eval/{m.name}" if m.name != "gold" else "gold/mean": i for i, m in enumerate(facts.measures)}
    return sorted(found, key=lambda key: order.get(key, len(order)))[:6]


def _step_name(facts: Facts) -> str:
    return "iteration" if algorithm(facts.run) == "ppo" else "update"


def _ppo_setting(facts: Facts, key: str) -> object:
    section = facts.run.config.get("ppo")
    return section.get(key) if isinstance(section, dict) else None


def _curve(facts: Facts, wanted: _Wanted) -> Curve | None:
    points: list[Point] = list(facts.series(wanted.key))
    finite = [value for _, value in points if math.isfinite(value)]
    signal = lookup(wanted.key)
    if not finite or signal is None:
        return None
    spread: list[Point] = list(facts.series(wanted.spread)) if wanted.spread else []
    dots: list[Point] = list(facts.series(wanted.dots)) if wanted.dots else []
    band = signal.healthy
    title = wanted.title.replace("gold/mean", "gold score")
    unit = "" if signal.unit in ("1", "measure", "fraction", "score", "gold score") else signal.unit
    label = (
        f"{title} by {_step_name(facts)}: {figure(points[0][1])} at {points[0][0]}, "
        f"{figure(points[-1][1])} at {points[-1][0]}, "
        f"from {figure(min(finite))} to {figure(max(finite))} {unit}".rstrip()
    )
    lost = len(points) - len(finite)
    notes = [
        wanted.note,
        "Dots: held-out prompts." if dots else "",
        f"{lost} value{'s' * (lost > 1)} not finite." if lost else "",
    ]
    return Curve(
        key=wanted.key,
        title=title,
        unit=unit,
        last=figure(points[-1][1]),
        svg=line_chart(Line(points, label, spread, dots, None if band is None else (band.low, band.high))),
        band="" if band is None else _band(band),
        source=signal.source or "",
        state="" if band is None else "inside" if band.holds(points[-1][1]) else "outside",
        note=" ".join(note for note in notes if note),
        meaning=signal.meaning,
    )


def _band(band: Band) -> str:
    if band.low is None:
        return f"up to {band.high:g}"
    return f"from {band.low:g}" if band.high is None else f"{band.low:g} to {band.high:g}"
