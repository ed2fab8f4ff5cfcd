"""The plan for a finding (`plan.py`) told in the keys (`knobs.py`) and the values of the run at hand.

A step with a knob becomes a setting: a value where the log states the old one, a rule such as `x0.5` where it does not.
A step without one is something to check or to do, in code or data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any, Final

from trimtab.doctor.finding import Finding, Message, Prescription
from trimtab.doctor.knobs import KEYS, KNOBS, dialect_of, key_of
from trimtab.doctor.log import Estimator, Log
from trimtab.doctor.plan import PLAN, Step

__all__ = ["prescribe", "reconcile"]


_WHOLE: Final = frozenset(
    {"epochs", "minibatches", "minibatch_size", "batch_size", "group_size", "max_new_tokens", "iterations", "pm_epochs",
     "dpo_epochs", "value_warmup", "top_k", "votes"}
)  # fmt: skip
_LOGGED: Final = {
    "learning_rate": ("policy/learning_rate", "learning_rate"),
    "dpo_learning_rate": ("learning_rate", "policy/learning_rate"),
    "pm_learning_rate": ("learning_rate",),
    "beta": ("kl/beta",),
}
"""Series that say what a knob is set to."""
_SECTIONS: Final = {"pm": "pm_", "direct": "dpo_"}
_AS_SAID: Final[Mapping[str, Mapping[str, Any]]] = {
    "score_normalisation": {
        "trl-ppo-legacy": True, "trl-grpo": "batch", "openrlhf": True, "llama-factory": True, "trlx": "running",
        "nemo-rl": True, "ms-swift": True, "sb3": True,
    },
    "learning_rate_schedule": {"trlx": "cosine_annealing"},
    "score_clip": {"openrlhf": "-5 5"},
    "clip_range_high": {"openrlhf": "0.2 0.28"},
    "dtype": {"trl-ppo": True, "trl-grpo": True, "trl-dpo": True, "trl-reward": True, "openrlhf": True,
              "deepspeed-chat": "bf16", "llama-factory": True, "ms-swift": True},
    "kl_target": {"verl": 0.1},
    "importance_cap": {"nemo-rl": True},
    "value_init": {"trl-ppo": "the reward model", "verl": "the reward model", "openrlhf": "the reward model",
                   "deepspeed-chat": "the reward model"},
    "kl_estimator": {"trl-ppo": "k3", "trl-ppo-legacy": "abs", "verl": "mse"},
    "top_k": {"verl": -1, "nemo-rl": None},
}  # fmt: skip
"""Values that a dialect spells in its own way (or in another unit: verl's target is per token)."""


def prescribe(finding: Finding, log: Log | None) -> tuple[Prescription, ...]:
    """The changes to try for a finding, first thing first; none for an id that the table does not know.

    Args:
        finding: what is wrong.
        log: where it was found; None for judgments and data. Its framework decides the names of the keys, its config
            (or its series of learning rate and beta) the new values.
    """
    dialect = dialect_of(log)
    told: list[Prescription] = []
    without: list[Prescription] = []
    for step in PLAN.get(finding.id, ()):
        why = Message(f"prescribe.{step.why}")
        if not step.knob:
            told.append(Prescription({}, why))
            continue
        knob = _of_stage(step.knob, log)
        if (knob in _CRITIC or knob.startswith("value")) and _critic_free(log):
            continue
        key = key_of(knob, dialect, log)
        if dialect == "unknown":
            told.append(Prescription({knob: _rule(step)}, why))
        elif key is None and _of_the_labels(knob):
            told.append(Prescription({}, why))  # something to do where the labels are made
        elif key is None:
            without += _without_key(knob, dialect, step, why, log)
        elif (value := _value(step, knob, key, dialect, log)) is not None:
            told += _setting(knob, key, value, dialect, log, why)
    return (*told, *without)


def reconcile(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The same findings without prescriptions that undo an earlier one: one knob is not turned both ways.

    A prescription that would move a setting against an earlier finding's is left out; its finding says so in its place.
    """
    turned: dict[str, tuple[str, str]] = {}
    told = []
    for finding in findings:
        kept = []
        for each in finding.prescriptions:
            ways = {key: way for key in each.set if (way := _way(finding.id, key))}
            against = next((turned[k][1] for k, way in ways.items() if k in turned and turned[k][0] != way), None)
            if against is not None:
                names = ", ".join(map(str, each.set))
                kept.append(Prescription({}, Message("prescribe.contradicts", {"key": names, "other": against})))
                continue
            for key, way in ways.items():
                turned.setdefault(key, (way, finding.id))
            kept.append(each)
        told.append(replace(finding, prescriptions=tuple(kept)))
    return tuple(told)


# the parts


def _of_stage(knob: str, log: Log | None) -> str:
    """A knob of the policy that the preference model and DPO have under a name of their own."""
    prefix = _SECTIONS.get(log.stage.value, "") if log is not None else ""
    return f"{prefix}{knob}" if f"{prefix}{knob}" in KEYS else knob


def _rule(step: Step) -> str:
    if step.rule == "=":
        return _spell(step.amount)
    return f"x{step.amount:g}" if step.rule == "x" else f"{step.rule} {_spell(step.amount)}"


def _value(step: Step, knob: str, key: str, dialect: str, log: Log | None) -> Any:
    """The new value, or the rule in words where the old one is not known; None where nothing is left to change."""
    amount = _AS_SAID.get(knob, {}).get(dialect, step.amount)
    old = _old(knob, key, log)
    number = isinstance(old, int | float) and not isinstance(old, bool)
    if not _applies(step, knob, key, old, log):
        return None
    if step.rule == "=":
        return None if amount is None or old == amount else amount
    if step.rule == ">":
        return _length_penalty(log) if log is not None and dialect == "trimtab" and old in (None, 0, 0.0) else "> 0"
    if step.rule in (">=", "<="):
        enough = number and (old >= amount if step.rule == ">=" else old <= amount)
        return None if enough else amount
    if not number:
        return _rule(step)
    if old == 0:
        return 0.05 if knob == "beta" and step.amount > 1 else None
    new = float(f"{old * step.amount:.3g}")
    if knob in _WHOLE:
        new = max(1, round(new))
        return None if new == old else new
    return new


def _applies(step: Step, knob: str, key: str, old: Any, log: Log | None) -> bool:
    """Whether a step can help this run at all."""
    if knob == "kl_estimator":  # only k3 has the tail that k2 lacks
        return bool(old == "k3") or (old is None and _has_k3(log))
    if knob == "dtype":  # float32 loses nothing that bfloat16 would bring back
        return bool(old != "float32")
    unset = log is not None and old is None and key in _flat(log.config)
    return not (step.rule == "x" and unset)


def _has_k3(log: Log | None) -> bool:
    series = None if log is None else log.get("kl/reference_per_token", "kl/reference")
    return series is not None and series.estimator is Estimator.K3


def _old(knob: str, key: str, log: Log | None) -> Any:
    """What the log says the setting is now."""
    if log is None:
        return None
    bare = key.lstrip("-")
    for name in (key, bare):
        if name in log.config:
            return log.config[name]
    parts: Any = log.config
    for part in bare.split("."):
        parts = parts.get(part) if isinstance(parts, Mapping) else None
    if parts is not None:
        return parts
    series = log.get(*_LOGGED.get(knob, ()))
    if series is None or not len(series.finite[1]):
        return None
    values = series.finite[1]
    # a schedule's peak is what is set; a controller's last value is what it has come to
    return float(values.max() if "learning_rate" in knob else values[-1])


def _length_penalty(log: Log | None) -> Any:
    """A tenth of the scores' deviation over a response of mean length, a token."""
    std = log.get("score/std") if log is not None else None
    length = log.get("response/length_mean") if log is not None else None
    if std is None or length is None:
        return 0.001
    a, b = float(std.finite[1].mean()), float(length.finite[1].mean())
    return float(f"{0.1 * a / b:.1g}") if math.isfinite(a / max(b, 1e-9)) and a > 0 and b > 0 else 0.001


def _setting(
    knob: str, key: str, value: Any, dialect: str, log: Log | None, why: Message
) -> list[Prescription]:  # fmt: skip
    rule = isinstance(value, str) and value.startswith(("x", ">"))
    settings = {key: value}
    if dialect == "trimtab" and log is not None and not rule:
        settings = {**_companions(knob, value, log), **settings}
        if not _accepted(settings, log):
            return []
    return [Prescription(settings, why, "" if rule else _command(settings, dialect))]


def _companions(knob: str, value: Any, log: Log) -> dict[str, Any]:
    """Settings that have to go along in our config."""
    if knob == "kl_target":
        batch = log.config.get("ppo.batch_size", 32)
        return {"ppo.kl_controller": "adaptive", "ppo.kl_horizon_episodes": 20 * int(batch)}
    if knob == "value_coef":
        return {"ppo.gradient_clip": "joint"} if log.config.get("ppo.gradient_clip") != "joint" else {}
    return {}


def _accepted(settings: Mapping[str, Any], log: Log) -> bool:
    """Whether our config takes these settings beside those of the run; a finding never prescribes an error."""
    from pydantic import ValidationError

    from trimtab.config.schema import Config

    tree: dict[str, dict[str, Any]] = {}
    for key, value in {**_flat(log.config), **settings}.items():
        section, _, name = key.partition(".")
        known = getattr(getattr(Config.model_fields.get(section), "annotation", None), "model_fields", {})
        if name in known:  # a run of another version may have settings that this one lacks
            tree.setdefault(section, {})[name] = value
    try:
        Config.model_validate(tree)
    except ValidationError:
        return False
    return True


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys of a config that may be nested."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and "." not in key:
            flat.update({f"{key}.{k}": v for k, v in value.items()})
        else:
            flat[key] = value
    return flat


def _command(settings: Mapping[str, Any], dialect: str) -> str:
    """A line to copy, where the framework is driven from the command line."""
    if dialect == "trimtab":
        return "trimtab run " + " ".join(f"--set {quote(f'{k}={_spell(v)}')}" for k, v in settings.items())
    if dialect in ("verl", "nemo-rl"):
        return " ".join(f"{k}={_spell(v)}" for k, v in settings.items() if v != "the reward model")
    if dialect in ("openrlhf", "deepspeed-chat"):
        flags = [(k, v) for k, v in settings.items() if k.startswith("--") and v != "the reward model"]
        return " ".join(k if v is True else f"{k} {_spell(v)}" for k, v in flags)
    return ""


def _spell(value: Any) -> str:
    if isinstance(value, bool | list):
        return json.dumps(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _of_the_labels(knob: str) -> bool:
    return set(KEYS[knob]) == {"trimtab"}


def _critic_free(log: Log | None) -> bool:
    """Whether no value model is trained: by the algorithm, or because none is logged where one always would be."""
    if log is None or log.algorithm:
        return log is not None and log.algorithm in ("grpo", "rloo", "reinforce")
    valued = any(k.startswith("value/") and not k.startswith("value/return") for k in log.series)
    return log.framework in ("verl", "openrlhf") and len(log.series) > 5 and not valued


def _without_key(knob: str, dialect: str, step: Step, why: Message, log: Log | None) -> list[Prescription]:
    """A knob that the framework does not have: what it would do is said, and that it has no key here."""
    if knob in _STANDS_IN or (knob == "kl_estimator" and not _has_k3(log)):
        return []
    values = {"knob": Message(f"knob.{knob}"), "framework": _NAMES.get(dialect, dialect), "change": _rule(step)}
    return [Prescription({}, Message("prescribe.no-key", {**values, "why": why}))]


_NAMES: Final = {
    "trimtab": "Trimtab", "trl-ppo": "TRL PPO", "trl-ppo-legacy": "TRL PPO", "trl-grpo": "TRL GRPO",
    "trl-dpo": "TRL DPO", "trl-reward": "TRL RewardTrainer", "openrlhf": "OpenRLHF",
    "deepspeed-chat": "DeepSpeed-Chat", "llama-factory": "LLaMA-Factory", "trlx": "trlX", "nemo-rl": "NeMo-RL",
    "sb3": "Stable-Baselines3",
}  # fmt: skip
_CRITIC: Final = frozenset({"gamma", "lambda"})
_STANDS_IN: Final = frozenset(
    {"minibatches", "minibatch_size", "update_kl_stop", "value_warmup", "value_coef",
                              "pm_centring",
                              "clip_range_high", "drop_flat_groups", "importance_cap"})  # fmt: skip
"""Knobs that only some frameworks have, next to a sibling; their absence is nothing to report."""


def _way(id: str, key: str) -> str:
    """Which way a finding's prescription turns a key: `up`, `down`, or the value that it is set to; empty: no step."""
    for step in PLAN.get(id, ()):
        if {step.knob, f"pm_{step.knob}", f"dpo_{step.knob}"} & KNOBS.get(key, frozenset()):
            return _DIRECTION.get(step.rule) or _turn(step)
    return ""


_DIRECTION: Final = {">=": "up", ">": "up", "<=": "down"}


def _turn(step: Step) -> str:
    if step.rule == "x":
        return "up" if step.amount > 1 else "down"
    # a value to set is no direction, but two different values are a contradiction
    return f"={step.amount}"
