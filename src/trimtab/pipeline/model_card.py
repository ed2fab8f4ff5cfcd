"""The card of a preference model: `README.md` in its directory, as model hubs show it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trimtab import __version__
from trimtab.config.schema import PreferenceConfig
from trimtab.figures import figure, share, with_interval
from trimtab.hostile import cut, visible
from trimtab.pipeline.names import TINY_WORLD

__all__ = ["model_card"]

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#])")
_FILES = ("data", "human", "backbone")
"""Settings of the preference section that name files."""
_MOST_EDITS, _MOST_PRINCIPLES = 8, 24
_FEWEST = 10
"""Responses that an edit has to have applied to, to be told of."""
_USE = """\
Higher is better; only differences mean something: for one prompt, `sigmoid(first - second)` is the probability that the
first response is preferred{calibrated}.{read}

```python
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

model = AutoModelForSequenceClassification.from_pretrained(PATH)  # this directory
tokenizer = AutoTokenizer.from_pretrained(PATH)
{lines}
```
"""
_AT_THE_END = " Prompt and response are tokenised apart, and the score is read at the end-of-text token, the last."
_OF_CAUSAL = """\
ids += tokenizer(response, add_special_tokens=False).input_ids + [{eos}]
score = model(torch.tensor([ids])).logits[0, 0].item()"""
_CHAT = """\
messages = [{"role": "user", "content": prompt}]
ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
"""
_TEXT = "ids = tokenizer(prompt).input_ids  # without an EOS token at the end, where the tokenizer puts one\n"
_ENCODER = 'score = model(**tokenizer(prompt, response, return_tensors="pt")).logits[0, 0].item()'
_LIMITS = (
    "It orders responses as the labels below do. It is no judge of "
    "facts, and its score is no measure of quality: a policy that is trained on it will find what it pays for, not "
    "what was meant.",
    "Figures hold for pairs like the held-out ones. A policy in training leaves them: measure it independently, and "
    "keep it near its reference.",
    "Not for decisions about people.",
)


def model_card(
    name: str, config: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]], hashes: Mapping[str, str]
) -> str:
    """The card as Markdown with a header of YAML.

    Args:
        name: of the run.
        config: its settings.
        parts: what the run knows: results of the stages `pm`, `label` and `sample`, `calibration`, `probe`, and
            `model`, the trimtab.json beside the weights; each may be empty.
        hashes: sha256 by what they are of.
    """
    model = _table(config, "model")
    base = str(_table(config, "preference").get("backbone") or model.get("name") or "")
    sections = [
        ("", [f"The preference model of the Trimtab run {_plain(name)}: one score for a prompt with a response."]),
        ("Use", [_use(parts)]),
        ("Intended use and limits", _listed(_LIMITS)),
        ("Accuracy", _accuracy(parts["pm"])),
        ("Calibration", _calibration(parts["calibration"])),
        ("Faults", _faults(parts["probe"])),
        ("What buys score", _buys(parts["probe"])),
        ("Training", _training(base, config, parts["pm"])),
        ("Labels", _labels(parts["label"], parts["sample"], hashes)),
    ]
    text = "\n\n".join(
        "\n".join([*([f"## {title}", ""] if title else []), *lines]) for title, lines in sections if lines
    )
    return f"{_header(base)}\n# Preference model\n\n{text}\n\nWritten by Trimtab {__version__}.\n"


def _header(base: str) -> str:
    known = base and base != TINY_WORLD and not base.startswith((".", "/"))
    lines = ["library_name: transformers", "pipeline_tag: text-classification"]
    lines += [f"base_model: {json.dumps(visible(base))}"] if known else []
    return "\n".join(["---", *lines, "tags:", "  - reward-model", "  - preference-model", "  - trimtab", "---", ""])


def _use(parts: Mapping[str, Mapping[str, Any]]) -> str:
    kept = parts["calibration"]
    temperature = kept.get("temperature")
    calibrated = ""
    if kept.get("kept") and isinstance(temperature, int | float):
        calibrated = f", once both are divided by the temperature {figure(temperature)} (`calibration.json`)"
    members = _table(parts["pm"], "members").get("count")
    several = ""
    if isinstance(members, int) and members > 1:
        several = f"\n\nThis directory is the first of {members} members; Trimtab combines them (`trimtab.json`)."
    if _table(parts["pm"], "length").get("debias") == "regress":
        several += (
            "\n\nThat is the score with length left in: Trimtab subtracts what length explains of it "
            "(`length_debias` in `trimtab.json`)."
        )
    if _table(parts["pm"], "principles"):
        several += "\n\nThe model has one label a head, the overall one first and then the principles (`id2label`)."
    kind = parts["model"]
    if kind.get("eos_id") is None:
        read, lines = "", _ENCODER
    else:
        read = _AT_THE_END
        lines = (_CHAT if kind.get("chat") else _TEXT) + _OF_CAUSAL.format(eos=kind["eos_id"])
    return _USE.format(calibrated=calibrated, read=read, lines=lines).rstrip() + several


def _accuracy(result: Mapping[str, Any]) -> list[str]:
    found = _interval(result.get("accuracy"), percent=True)
    if found is None:
        return []
    rows = [("held-out pairs, by prompt", f"{result.get('pairs', '?')} of {result.get('prompts', '?')} prompts"),
            ("ordered as labeled", found)]  # fmt: skip
    longer = result.get("length_accuracy")
    if isinstance(longer, int | float):
        rows.append(("“the longer one wins” gets", share(longer)))
    lead = _interval(result.get("over_length"), percent=True)
    rows += [("lead over it, on the same pairs", lead)] if lead else []
    people = _interval(_table(result, "human_held_out").get("accuracy"), percent=True)
    rows += [("ordered as people labeled", people)] if people else []
    members = _table(result, "members")
    if isinstance(members.get("accuracy"), list):
        rows.append(("members", ", ".join(share(x) for x in members["accuracy"])))
    return _rows(("figure", "value"), rows)


def _calibration(report: Mapping[str, Any]) -> list[str]:
    sides = [_table(report, side) for side in ("before", "after")]
    rows = [
        (title, *(_interval(side.get(key)) or "" for side in sides))
        for key, title in (("ece", "expected calibration error"), ("brier", "Brier score"), ("log_loss", "log loss"))
        if all(_interval(side.get(key)) for side in sides)
    ]
    if not rows:
        return []
    used = "kept in `calibration.json`" if report.get("kept") else "not applied: what calibrating would bring"
    head = f"By {report.get('method')}, cross-fitted by prompt; {used}."
    return [head, "", *_rows(("figure", "before", "after"), rows)]


def _faults(probe: Mapping[str, Any]) -> list[str]:
    if not probe:
        return []
    found = _list(probe, "faults")
    if not found:
        return [f"None found in {probe.get('responses', '?')} responses (`trimtab pm probe`); that is no proof."]
    return _listed(
        f"**{_plain(f.get('id'))}** ({_plain(f.get('severity'))}): {_plain(f.get('evidence'))}" for f in found
    )


def _buys(probe: Mapping[str, Any]) -> list[str]:
    edits = [e for e in _list(probe, "edits") if _count(e) >= _FEWEST]
    rows = [
        (_plain(e.get("name")), _interval(e.get("change"), sign=True) or "", str(_count(e)))
        for e in sorted(edits, key=lambda e: -abs(float(_table(e, "change")["mean"])))[:_MOST_EDITS]
    ]
    within = _interval(_table(probe, "length").get("within"))
    side = _interval(_table(probe, "agreement").get("change"), sign=True)
    told = [
        *([f"Score and log length correlate {within} within prompts."] if within else []),
        *([f"Taking the user's side is worth {side} standard deviations of the score."] if side else []),
    ]
    if rows:
        told += ["", "Change of the score in standard deviations, where one thing is edited in real responses:", ""]
        told += _rows(("edit", "change", "responses"), rows)
    return told


def _count(effect: Mapping[str, Any]) -> int:
    """How many responses an edit's effect was measured on; 0 where that is not known."""
    change = _table(effect, "change")
    n = change.get("n")
    return n if isinstance(n, int) and isinstance(change.get("mean"), int | float) else 0


def _training(base: str, config: Mapping[str, Any], result: Mapping[str, Any]) -> list[str]:
    own = _table(config, "preference")
    default = PreferenceConfig().model_dump(mode="json")
    changed = [
        (f"`preference.{key}`", f"`{json.dumps(_base_name(own[key]) if key in _FILES else own[key])}`")
        for key in own
        if own[key] != default.get(key)
    ]
    pairs = [str(result["training_pairs"])] if "training_pairs" in result else []
    rows = [
        ("starts from", _plain(base)),
        *(("pairs trained on", n) for n in pairs),
        *changed,
    ]
    return [*_rows(("setting", "value"), rows), "", "Every other setting has its default."]


def _base_name(value: object) -> object:
    """Of a file its name alone: where it lay on someone's disk is nobody's business."""
    return re.split(r"[\\/]", value)[-1] if isinstance(value, str) else value


def _labels(label: Mapping[str, Any], sample: Mapping[str, Any], hashes: Mapping[str, str]) -> list[str]:
    rows = [
        ("judge", _plain(label.get("judge", ""))),
        ("constitution", _constitution(label)),
        ("pairs sampled", _plain(sample.get("source", ""))),
        *((f"{_plain(what)}, sha256", f"`{value}`") for what, value in hashes.items()),
    ]
    rows = [row for row in rows if row[1]]
    principles = [p for p in _list(label, "principles") if p.get("text")]
    lines = _rows(("labels", ""), rows) if rows else []
    if principles:
        lines += ["", "The principles:", ""]
        lines += _listed(f"{_plain(p.get('id', ''))}: {_plain(p['text'])}" for p in principles[:_MOST_PRINCIPLES])
    return lines


def _constitution(label: Mapping[str, Any]) -> str:
    if not label.get("constitution_hash"):
        return ""
    return f"{_plain(label.get('constitution', ''))} `{_plain(label['constitution_hash'])[:12]}`"


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    table = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(row)} |" for row in table]


def _listed(items: Iterable[str]) -> list[str]:
    return [f"- {item}" for item in items]


def _plain(text: object) -> str:
    """Text of unknown origin on one line, with nothing in it that Markdown or HTML would read."""
    return _SPECIAL.sub(r"\\\1", visible(" ".join(cut(text, 600).split())))


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = value.get(key)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _interval(value: object, *, percent: bool = False, sign: bool = False) -> str | None:
    if not isinstance(value, Mapping) or not isinstance(value.get("mean"), int | float):
        return None
    low, high = value.get("low"), value.get("high")
    known = isinstance(low, int | float) and isinstance(high, int | float)
    return with_interval(value["mean"], low if known else None, high if known else None, percent=percent, sign=sign)
