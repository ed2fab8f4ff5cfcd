"""The report's sections below the verdict, as plain values for the template."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from trimtab.chart import Forest, forest_chart
from trimtab.config.schema import Config
from trimtab.figures import figure, with_interval
from trimtab.hostile import Cut, cut
from trimtab.report.facts import Facts, Figure, Measure, figure_of, number
from trimtab.runs.manifest import StageStatus
from trimtab.runs.run import Run

__all__ = ["changed_settings", "evaluation", "files", "samples", "status_text", "tiles", "versions"]

_LONGEST_RESPONSE = 1600
_LONGEST_PROMPT = 800
_MOST_SAMPLES = 8

_FILES = {
    "run.json": "manifest: settings, seed, versions, stages",
    "metrics.jsonl": "every signal, one line a step",
    "samples.jsonl": "responses to the probe prompts at the checkpoints",
    "artifacts/sft/model": "the reference policy, where it was fine-tuned",
    "artifacts/sample/pairs.jsonl": "sampled pairs",
    "artifacts/label/labels.jsonl": "labels, failures included",
    "artifacts/label/pairs.jsonl": "labeled pairs",
    "artifacts/pm/model": "the preference model; loads in plain transformers",
    "artifacts/pm/held_out.jsonl": "pairs that it was measured on",
    "artifacts/pm/calibration.json": "what calibrating it brings",
    "artifacts/pm/probe.json": "what buys its score",
    "artifacts/ppo/model": "the trained policy; loads in plain transformers",
    "artifacts/dpo/model": "the policy that DPO trained; loads in plain transformers",
    "artifacts/reference_logprobs": "log-probabilities of the pairs under the reference",
    "artifacts/eval/result.json": "the evaluation's figures",
    "artifacts/eval/samples.jsonl": "the evaluation's responses and scores",
    "checkpoints": "checkpoints of the stages",
    "attempts": "what earlier attempts of a stage left",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A response with its figures; `stopped`: cut off before its end."""

    title: str
    text: Cut
    figures: Sequence[tuple[str, str]]
    stopped: bool


def status_text(facts: Facts) -> str:
    """Where the run stands, in a sentence if it is not simply done."""
    # the report is itself a stage, and under way while it is written
    stages = {name: stage.status for name, stage in facts.stages.items() if name != "report"}
    if not stages:
        return "Nothing has been run yet."
    shown = "the page shows what there was when it was written."
    for status, words in (
        (StageStatus.RUNNING, "is under way" if facts.run.locked else "was interrupted"),
        (StageStatus.FAILED, "failed"),
        (StageStatus.INTERRUPTED, "was interrupted"),
    ):
        names = [name for name, found in stages.items() if found is status]
        if names:
            return f"Stage {' and '.join(names)} {words}; {shown}"
    return ""


def tiles(facts: Facts) -> list[dict[str, str]]:
    """The few figures that one looks for first."""
    found = []
    if facts.measures:
        first = facts.measures[0]
        found.append(_tile(f"difference on {first.name}", first.difference, sign=True))
        found.append(_tile("win rate", first.win_rate, percent=True))
    if facts.length is not None:
        found.append(_tile("change of length, tokens", facts.length[2], sign=True))
    kl = facts.series("kl/reference")
    if kl:
        found.append({"value": figure(kl[-1][1]), "interval": "", "label": "KL at the end, nats a sequence"})
    accuracy = figure_of(facts.result("pm").get("accuracy"))
    if accuracy is not None:
        found.append(_tile("preference model's accuracy", accuracy, percent=True))
    return found


def _tile(label: str, value: Figure, *, sign: bool = False, percent: bool = False) -> dict[str, str]:
    text = with_interval(value.value, value.low, value.high, sign=sign, percent=percent)
    head, _, interval = text.partition(" [")
    return {"value": head, "interval": f"[{interval}" if interval else "", "label": label}


def evaluation(facts: Facts) -> dict[str, Any] | None:
    """The evaluation table; None without one."""
    if not facts.measures:
        return None
    result = facts.result("eval")
    sides = {
        name: [number(side.get(key)) if isinstance(side := result.get(which), Mapping) else None
               for which in ("policy", "reference")]
        for name, key in (("finished", "finished"), ("distinct_2", "distinct_2"))
    }  # fmt: skip
    return {
        "rows": [{"measure": m, "svg": _forest(m), "matched": m.length_matched} for m in facts.measures],
        "length": facts.length,
        "sides": sides,
        "prompts": number(result.get("prompts")),
        "pairs": number(result.get("pairs")),
        "resamples": number(result.get("resamples")),
        "level": number(result.get("level")) or 0.95,
        "tolerance": number(result.get("length_tolerance")) or 0.1,
        "incomplete": number(result.get("incomplete_prompts")) or 0,
    }


def _forest(measure: Measure) -> Markup:
    w = measure.win_rate
    label = (
        f"win rate on {measure.name}: {with_interval(w.value, w.low, w.high, percent=True)}; one half is no difference"
    )
    row = Forest(w.value, w.low, w.high, w.above(0.5) or w.below(0.5))
    return forest_chart(row, axis=(0.0, 1.0), mark=0.5, label=label)


def samples(facts: Facts) -> dict[str, Any]:
    """Responses before and after, side by side: of the probes where there are some, else of the evaluation."""
    steps = sorted({s["step"] for s in facts.samples})
    if steps:
        columns = [
            _by_prompt(s for s in facts.samples if s["step"] == step) for step in dict.fromkeys((steps[0], steps[-1]))
        ]
        titles = [f"Iteration {step}" for step in dict.fromkeys((steps[0], steps[-1]))]
        origin = "samples.jsonl"
    else:
        rows = [r for r in facts.eval_rows if r.get("index", 0) == 0]
        columns = [_by_prompt(r for r in rows if r.get("side") == side) for side in ("reference", "policy")]
        titles, origin = ["Reference", "Trained policy"], "artifacts/eval/samples.jsonl"
    ids = list(dict.fromkeys(key for column in columns for key in column))
    return {
        "origin": origin,
        "total": len(ids),
        "titles": titles,
        "prompts": [
            {
                "prompt": cut(next(c[i] for c in columns if i in c).get("prompt"), _LONGEST_PROMPT),
                "responses": [_shown(c.get(i), t) for c, t in zip(columns, titles, strict=True)],
            }
            for i in ids[:_MOST_SAMPLES]
        ],
    }


def _by_prompt(records: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {str(r.get("prompt_id")): r for r in records}


def _shown(record: Mapping[str, Any] | None, title: str) -> Shown | None:
    if record is None:
        return None
    measures = record.get("measures", record.get("scores"))
    listed = measures.items() if isinstance(measures, Mapping) else []
    values = [
        ("score", record.get("score")),
        *((str(name), value) for name, value in listed),
        ("KL", record.get("kl")),
        ("tokens", record.get("length", record.get("tokens"))),
    ]
    figures = [(name, _short(x)) for name, value in values if (x := number(value)) is not None]
    stopped = record.get("stop_reason") == "length" or record.get("finished") is False
    return Shown(title, cut(record.get("response"), _LONGEST_RESPONSE), figures, stopped)


def _short(x: float) -> str:
    if x == round(x) and abs(x) < 1e6:
        return f"{x:.0f}"
    return f"{x:.2f}" if 0.05 <= abs(x) < 1e5 or abs(x) < 1e-6 else figure(x)


def changed_settings(config: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(key, value, default) of every setting that differs from its default, as JSON text."""
    defaults = dict(_flat(Config().model_dump(mode="json")))
    given = dict(_flat(config))
    return [
        (key, _json(value), _json(defaults[key]) if key in defaults else "not a setting of this version")
        for key, value in given.items()
        if key not in defaults or defaults[key] != value
    ]


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in config.items():
        # ppo.reward may be a table of weights: that is one setting, not a section
        if isinstance(value, Mapping) and not prefix:
            yield from _flat(value, f"{key}.")
        else:
            yield f"{prefix}{key}", value


def _json(value: object) -> str:
    text = cut(json.dumps(value, ensure_ascii=False, default=str), 300)
    return f"{text}…" if text.is_cut else str(text)


def versions(facts: Facts) -> dict[str, list[tuple[str, str]]]:
    """Versions, seeds and hashes, for whoever wants to do the run again."""
    manifest = facts.run.manifest

    def table(name: str, longest: int = 80) -> list[tuple[str, str]]:
        found = manifest.get(name)
        return [(str(k), str(cut(v, longest))) for k, v in found.items()] if isinstance(found, Mapping) else []

    attempts = [
        (f"{name}, attempt {s.attempt}", s.fingerprint[:12]) for name, s in facts.stages.items() if s.fingerprint
    ]
    parent = manifest.get("parent")
    return {
        "versions": table("versions"),
        "seed": [("seed", str(cut(manifest.get("seed"), 40))), *([("made from", str(parent))] if parent else [])],
        "hashes": table("hashes", 16),
        "stages": attempts,
    }


def files(run: Run) -> list[tuple[str, str]]:
    """(path below the run directory, what it is) of the files that are there."""
    return [(name, meaning) for name, meaning in _FILES.items() if (run.path / Path(name)).exists()]
