"""How the run came about: constitution, pairs, labels, preference model, training, each with its status and figures."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.figures import figure, share, with_interval
from trimtab.report.facts import Facts, algorithm, figure_of, number, reward_names
from trimtab.runs.files import read_json
from trimtab.runs.manifest import StageStatus
from trimtab.runs.progress import duration

__all__ = ["Step", "chain", "constitution"]

_LONGEST_FILE = 1 << 20

_SOURCES = {
    "samples": "both responses sampled from the reference",
    "contrast": "one response each under a principle's reading and under its opposite",
}


_CHOSEN = {"random": "by chance", "active": "by what they were expected to tell"}


@dataclass(frozen=True, slots=True)
class Step:
    """One stage: `status` in a word, what it did, and its figures as (name, value)."""

    title: str
    status: str
    done: bool
    took: str
    text: str
    figures: Sequence[tuple[str, str]]


def chain(facts: Facts) -> list[Step]:
    """The stages in order, those that are missing included."""
    return [
        _step(facts, "sft", "Reference policy", *_sft(facts)),
        _step(facts, "sample", "Pairs", *_sample(facts)),
        _step(facts, "label", "Labels", *_label(facts)),
        _step(facts, "pm", "Preference model", *_pm(facts)),
        _step(facts, "dpo", "DPO", *_dpo(facts))
        if algorithm(facts.run) == "dpo"
        else _step(facts, "ppo", "PPO", *_ppo(facts)),
        _step(facts, "eval", "Evaluation", *_eval(facts)),
    ]


def constitution(facts: Facts) -> dict[str, Any]:
    """Name, hash and principles of the constitution, where the run or its project tells them.

    The text is taken from the label stage's result; else from the project's file as it is now, which `source` says.
    """
    label = facts.result("label")
    principles = label.get("principles")
    source = ""
    if not isinstance(principles, list):
        path = _project_file(facts)
        principles = _principles_in(path) if path is not None else []
        source = f"as {path.name} stands now" if path is not None and principles else ""
    listed = [p for p in principles if isinstance(p, Mapping) and p.get("text")]
    return {
        "name": str(label.get("constitution") or ""),
        "hash": str(label.get("constitution_hash") or "")[:12],
        "source": source,
        "principles": [
            {"id": str(p.get("id", "")), "text": str(p["text"]), "weight": number(p.get("weight"))} for p in listed
        ],
    }


def _step(facts: Facts, stage: str, title: str, text: str, figures: Sequence[tuple[str, str | None]]) -> Step:
    record = facts.stages.get(stage)
    if record is None:
        status = "done" if stage in facts.results else "missing"
    elif record.status is StageStatus.RUNNING and not facts.run.locked:
        status = "interrupted"
    else:
        status = str(record.status)
    took = ""
    if record is not None and record.started is not None and record.ended is not None:
        took = duration(max(record.ended - record.started, 0))
    known = [(name, value) for name, value in figures if value is not None]
    return Step(title, status, status == "done", took, text, known)


def _sft(facts: Facts) -> tuple[str, list[tuple[str, str | None]]]:
    result = facts.result("sft")
    model = str(result.get("model") or _setting(facts, "model", "name") or "the model")
    text = f"Starts from {model}."
    if result.get("trained") is True:
        if result.get("source") == "constitution":
            mixed = " and demonstrations" if result.get("demonstrations") else ""
            text = f"{model}, fine-tuned on its own responses, revised by the constitution{mixed}."
        else:
            text = f"{model}, fine-tuned on demonstrations."
    elif result.get("trained") is False:
        text = f"{model} as it is, without fine-tuning."
    revisions = result.get("revisions")
    revised = revisions if isinstance(revisions, Mapping) else {}
    return text, [
        ("demonstrations", _count(result.get("demonstrations") or None)),
        ("drafts revised", _count(revised.get("prompts"))),
        ("revisions kept", _count(revised.get("kept"))),
        ("validation loss", _figure(result.get("validation_loss"))),
    ]


def _sample(facts: Facts) -> tuple[str, list[tuple[str, str | None]]]:
    result = facts.result("sample")
    source = str(result.get("source") or _setting(facts, "sample", "source") or "")
    text = f"Made by {source}: {_SOURCES[source]}." if source in _SOURCES else ""
    return text, [
        ("prompts", _count(result.get("prompts"))),
        ("pairs", _count(result.get("pairs"))),
        ("dropped, same text twice", _count(result.get("dropped"))),
        ("finished responses", _share(result.get("finished"))),
    ]


def _label(facts: Facts) -> tuple[str, list[tuple[str, str | None]]]:
    result = facts.result("label")
    judge = str(result.get("judge") or _setting(facts, "label", "judge") or "")
    outcomes = result.get("outcomes")
    counts = outcomes.items() if isinstance(outcomes, Mapping) else []
    return _about_judge(judge, result), [
        *((f"outcome {name}", _count(count)) for name, count in counts if count),
        ("pairs in all", _count(result.get("candidates")) if result.get("choose") in _CHOSEN else None),
        ("chosen for a label", _CHOSEN.get(str(result.get("choose")))),
        ("pairs to learn from", _count(result.get("pairs"))),
        ("mean strength |P − ½|", _figure(result.get("mean_strength"))),
        ("mean order gap", _figure(result.get("mean_order_gap"))),
        ("flips with the order", _share(result.get("flipped"))),
        ("names the response shown first", _share(result.get("first_share"))),
        ("probability of readable answers", _share(result.get("mean_mass"))),
        *_verdicts(result),
        ("calls of the judge", _count(result.get("calls"))),
        ("tokens of the judge", _count(result.get("tokens"))),
        ("cost of the judge", _figure(result.get("cost"))),
    ]


def _about_judge(judge: str, result: Mapping[str, Any]) -> str:
    """Who labeled, and what the run itself knows of how good the labels are."""
    text = f"Judge: {judge}." if judge else ""
    if judge == "construction":
        text += (
            " No judge was asked: the response sampled under a principle's reading counts as the better one, whatever "
            "it says and whatever people would prefer."
        )
    opinion = result.get("second_opinion")
    seen = opinion if isinstance(opinion, Mapping) else {}
    agreement = figure_of(seen.get("agreement"))
    if agreement is None:
        return text
    known = with_interval(agreement.value, agreement.low, agreement.high, percent=True)
    of = f" {agreement.n}" if agreement.n is not None else ""
    text += f" The {seen.get('judge') or 'second'} judge, asked about{of} of the labels, agrees with {known}."
    if agreement.known and not agreement.above(0.5):
        text += " That cannot be told from guessing." if not agreement.below(0.5) else " That is less than guessing."
    return text.strip()


def _verdicts(result: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Shares of verdicts that are no preference, where there are any."""
    counts, total = result.get("verdict_outcomes"), number(result.get("verdicts"))
    if not isinstance(counts, Mapping) or not total:
        return []
    shares = ((name, number(counts.get(name))) for name in ("tie", "unparsed", "refused", "error"))
    return [(f"verdicts {name}", _share(count / total)) for name, count in shares if count]


def _pm(facts: Facts) -> tuple[str, list[tuple[str, str | None]]]:
    result = facts.result("pm")
    accuracy = figure_of(result.get("accuracy"))
    text = ""
    if accuracy is not None:
        known = with_interval(accuracy.value, accuracy.low, accuracy.high, percent=True)
        on = f" {accuracy.n}" if accuracy.n is not None else ""
        text = f"Orders {known} of{on} held-out pairs as labeled."
        if accuracy.known and not accuracy.above(0.5):
            text += " That cannot be told from guessing."
    people = figure_of((result.get("human_held_out") or {}).get("accuracy"))
    if people is not None:
        known = with_interval(people.value, people.low, people.high, percent=True)
        text += f" Of {people.n} that people labeled: {known}."
    return text, [
        ("calibration", _calibration(facts)),
        ("calibration error (ECE)", _figure(result.get("ece"))),
        ("Brier score (guessing: .25 on hard labels, less on soft ones)", _figure(result.get("brier"))),
        ("log loss (guessing: .693)", _figure(result.get("log_loss"))),
        ("“the longer wins” would get", _share(result.get("length_accuracy"))),
        ("pairs trained on", _count(result.get("training_pairs"))),
        ("pairs of people, held-out ones included", _count(result.get("human_pairs"))),
    ]


def _calibration(facts: Facts) -> str | None:
    """The calibration that lies beside the model; what it brought stands in the section on the preference model."""
    path = facts.run.artifact("pm") / "model" / "calibration.json"
    if not path.is_file():
        return None
    try:
        kept = read_json(path)
    except TrimtabError:
        return "cannot be read"
    temperature = number(kept.get("temperature"))
    return str(kept.get("method")) + ("" if temperature is None else f", T {figure(temperature)}")


def _dpo(facts: Facts) -> tuple[str, list[tuple[str, str | None]]]:
    result = facts.result("dpo")
    beta, kl = number(_setting(facts, "dpo", "beta")), facts.series("kl/reference")
    text = f"On the labeled pairs themselves, beta {figure(beta)}." if beta is not None else ""
    return text, [
        ("pairs trained on", _count(result.get("training_pairs"))),
        ("updates", _count(result.get("updates"))),
        ("held-out pairs ordered as labeled", _share(result.get("accuracy"))),
        ("log-probability of chosen responses, change in nats", _figure(result.get("chosen_change"))),
        ("KL at the end, nats/sequence", figure(kl[-1][1]) if kl else None),
    ]


def _ppo(facts: Facts) -> tuple[str, list[tuple[str, str | None]]]:
    steps = facts.series("score/mean")
    wanted = number(_setting(facts, "ppo", "iterations"))
    advantage = _setting(facts, "ppo", "advantage")
    text = f"Reward: {', '.join(reward_names(facts.run))}; advantages: {advantage}." if advantage else ""
    text += _how_scored(facts.result("ppo").get("preference_score"))
    if not steps:
        return text, []
    count = str(len(steps)) if wanted is None else f"{len(steps)} of {wanted:.0f}"
    kl = facts.series("kl/reference")
    return text, [
        ("iterations", count),
        ("score, first", figure(steps[0][1])),
        ("score, last", figure(steps[-1][1])),
        ("KL at the end, nats/sequence", figure(kl[-1][1]) if kl else None),
    ]


def _how_scored(said: object) -> str:
    """What became of the preference model's score on its way into the reward."""
    known = said if isinstance(said, Mapping) else {}
    scale, wins, weight = number(known.get("divided_by")), known.get("win_probability"), number(known.get("weight"))
    if scale is None:
        return ""
    part = " The preference score" if weight is None else f" The preference score, of weight {weight:g} in the mixture,"
    text = (
        f"{part} is divided by the calibration's temperature {figure(scale)}."
        if scale != 1
        else f"{part} is taken as it is, not calibrated."
    )
    if wins == "calibrated":
        text = " Win probabilities go by the preference model's calibration."
    elif wins == "logistic" and weight is not None:
        text += " Win probabilities of a mixture are the logistic of its own difference."
    return text


def _eval(facts: Facts) -> tuple[str, list[tuple[str, str | None]]]:
    names = [m.name for m in facts.measures if not m.trained_on]
    text = f"Independent measures: {', '.join(names)}." if names else ""
    if facts.measures and not names:
        text = "No independent measure was taken."
    result = facts.result("eval")
    return text, [
        ("held-out prompts", _count(result.get("prompts"))),
        ("pairs", _count(result.get("pairs"))),
        ("left out, one side only", _count(result.get("incomplete_prompts") or None)),
    ]


def _count(value: object) -> str | None:
    x = number(value)
    return None if x is None else f"{x:,.0f}"


def _figure(value: object) -> str | None:
    x = number(value)
    return None if x is None else figure(x)


def _share(value: object) -> str | None:
    x = number(value)
    return None if x is None else share(x)


def _setting(facts: Facts, section: str, key: str) -> object:
    found = facts.run.config.get(section)
    return found.get(key) if isinstance(found, Mapping) else None


def _project_file(facts: Facts) -> Path | None:
    """The constitution's file: the run lies in the project's directory of runs."""
    runs, path = _setting(facts, "project", "runs"), _setting(facts, "constitution", "path")
    if not isinstance(path, str) or not isinstance(runs, str) or Path(runs).is_absolute() or ".." in Path(runs).parts:
        return None
    directory = facts.run.path.resolve().parent
    parts = Path(runs).parts
    if directory.parts[len(directory.parts) - len(parts) :] != parts:
        return None
    file = Path(*directory.parts[: len(directory.parts) - len(parts)]) / path
    return file if file.is_file() and file.stat().st_size <= _LONGEST_FILE else None


def _principles_in(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
        value = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError):
        return []
    found = value.get("principles", value.get("principle")) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []
