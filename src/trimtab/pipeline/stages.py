"""What the stages are: their order, what each depends on, and whether its result is up to date.

A stage's fingerprint is a hash of the settings it reads, of the files it reads, and of the fingerprints and attempts of
the stages before it. A stage that is done under the same fingerprint, with its artifacts in place, is up to date;
change a setting, or run a stage again, and what follows from it runs again, as a new attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from trimtab.config.fields import Section
from trimtab.pipeline.project import Project
from trimtab.runs.files import file_hash, stable_hash
from trimtab.runs.manifest import StageStatus
from trimtab.runs.run import Run

__all__ = [
    "STAGES",
    "Plan",
    "StageName",
    "StageState",
    "after",
    "plan",
    "reads_calibration",
    "reward_specs",
    "wants_preference_model",
]

StageName = Literal["sft", "sample", "label", "pm", "ppo", "dpo", "eval", "report"]

_FORMAT = 1
"""Raised when a change of the code makes old artifacts unusable."""


@dataclass(frozen=True)
class Stage:
    """A stage: what it does in a few words, the stages before it, and its own inputs as a JSON-able value."""

    name: StageName
    purpose: str
    after: tuple[StageName, ...]
    inputs: Callable[[Project], Any]


@dataclass(frozen=True)
class StageState:
    """Where a stage stands in a run.

    `needed` is False where the settings leave the stage out; `after`: the stages whose results it reads.
    """

    name: StageName
    purpose: str
    after: tuple[StageName, ...]
    fingerprint: str
    needed: bool
    status: StageStatus
    up_to_date: bool
    why: str


Plan = list[StageState]


def reward_specs(project: Project) -> list[str]:
    """Names of the scorers that make up the reward."""
    reward = project.config.ppo.reward
    return [reward] if isinstance(reward, str) else list(reward)


def wants_preference_model(project: Project) -> bool:
    """Whether the reward has the preference model in it; else no pairs are sampled, labeled or learned from."""
    return "preference" in reward_specs(project)


def _needs(project: Project, name: StageName) -> bool:
    algorithm, has_data = project.config.project.algorithm, project.config.preference.data is not None
    if name in ("ppo", "dpo"):
        return name == algorithm
    if name in ("sample", "label"):
        return not has_data and (wants_preference_model(project) or algorithm == "dpo")
    return name != "pm" or wants_preference_model(project) or (has_data and algorithm == "ppo")


def after(project: Project, name: StageName) -> tuple[StageName, ...]:
    """The stages whose results a stage reads; what is trained on a file of pairs reads no labels."""
    config = project.config.preference
    if name == "eval" and project.config.project.algorithm == "dpo":
        return ("dpo", "pm")  # the preference model is a measure there
    if name == "dpo" and config.data is not None:
        return ("sft",)
    if name != "pm" or config.data is None:
        return STAGES[name].after
    return ("sft",) if project.fine_tunes and config.backbone is None else ()


def reads_calibration(project: Project) -> bool:
    """Whether PPO reads the calibration of the preference model."""
    config = project.config
    reads = config.preference.calibrated_score or config.ppo.score_transform == "win_probability"
    return reads and wants_preference_model(project)


def _base(project: Project) -> dict[str, Any]:
    """The model before any training."""
    config = project.config
    unread = {"parallel"} | _off(config.model, {"train_head"})  # the first changes no result
    return {
        "model": config.model.model_dump(exclude=unread),
        "files": project.model_stamp(config.model.name),
        "seed": config.project.seed,
    }


def _sft(project: Project) -> Any:
    config = project.config
    inputs = _base(project)
    revises = config.sft.source == "constitution"
    if project.fine_tunes:
        # what only the constitution's phase reads changes nothing where there is none
        unread = set() if revises else {"rounds", "temperature", "max_new_tokens"}
        inputs["sft"] = config.sft.model_dump(exclude=unread)
    if config.sft.data:
        inputs["data"] = project.input_hash(config.sft.data)
    if revises:
        inputs |= {
            "prompts": project.input_hash(config.prompts.train),
            "constitution": project.constitution.revision_hash,
            "batch_size": config.sample.batch_size,
        }
    return inputs


def _sample(project: Project) -> Any:
    config = project.config
    contrast = config.sample.source == "contrast"
    return {
        "sample": config.sample.model_dump(),
        "prompts": project.input_hash(config.prompts.train),
        "max_tokens": config.prompts.max_tokens,
        "constitution": project.constitution.hash if contrast else None,
    }


_HOW_FAST = {
    "batch_size", "timeout_s", "requests_per_minute", "tokens_per_minute", "input_price", "output_price", "max_cost",
    "max_calls", "api_key_env", "audit_sample",
}  # fmt: skip
"""Settings of the label section that change no label."""


def _label(project: Project) -> Any:
    label = project.config.label
    models = [member.model for member in label.members().values() if member.model]
    wordings = [name for name in label.templates if name.endswith(".toml")]
    return {
        "label": label.model_dump(exclude=_HOW_FAST),
        "files": [project.model_stamp(model) for model in models],
        "wordings": [project.input_hash(name) for name in wordings],
        "constitution": project.constitution.hash,
    }


def _off(section: Section, options: set[str]) -> set[str]:
    """Those of the options that are off: they change nothing, and a run from before them keeps its fingerprint."""
    default = type(section)()
    return {name for name in options if getattr(section, name) == getattr(default, name)}


_COMBINATION = {"combine", "pessimism"}
"""Settings of the preference section that say how members' scores become one."""
_OPTIONS = {
    "backbone", "data", "too_long", "margin_coef", "center_coef", "head_dropout", "dropout", "group_by_prompt",
    "patience", "members", "bootstrap",
    "principle_heads", "principle_coef", "length_debias", "length_coef", "orthogonal_coef",
}  # fmt: skip
"""Options of preference training that can be left off."""


def _pm(project: Project) -> Any:
    config = project.config.preference
    # by PPO: see `_calibration`, `_ppo`; by `trimtab pm probe`
    read_later = {"calibrated_score", "head_weights", "probe_responses", *_COMBINATION}
    unread = read_later | _off(config, _OPTIONS)
    if config.human is None:
        unread |= {"human", "human_weight"}
    named = {"data": config.data, "human": config.human}
    files: dict[str, Any] = {name: project.input_hash(path) for name, path in named.items() if path is not None}
    if config.backbone is not None:
        files["backbone"] = project.model_stamp(config.backbone)
    if not after(project, "pm"):
        files["base"] = _base(project)
    return {"preference": config.model_dump(exclude=unread), **files} if files else config.model_dump(exclude=unread)


_STABILITY = {
    "score_outlier_sds", "value_warmup_iterations", "entropy_coef", "max_update_kl", "max_skipped_updates",
    "language_data", "language_coef", "language_batch_size", "reference_share", "engine", "engine_options",
    "importance_cap",
}  # fmt: skip
"""Options of PPO that can be left off."""
_HOW_MUCH_MEMORY = {"activation_gib", "trunk_gib", "recompute"}
"""Settings of PPO that change results by rounding at most."""


def _ppo(project: Project) -> Any:
    config = project.config
    # What is only recorded beside the training does not change it: no reason to train again.
    unread = {"checks", "checkpoint_every", "keep_checkpoints", "probe_prompts", *_HOW_MUCH_MEMORY}
    if config.ppo.end_with == "last":
        unread |= {"keep_best", "end_with"}
    settings = config.ppo.model_dump(exclude=unread | _off(config.ppo, _STABILITY))
    if config.ppo.micro_batch_size == "auto":
        settings["micro_batch_size"] = None  # as it was written before sizes were found
    inputs: dict[str, Any] = {
        "ppo": settings,
        "prompts": project.input_hash(config.prompts.train),
        "max_tokens": config.prompts.max_tokens,
        "code": project.code_hashes(reward_specs(project)),
    }
    if config.ppo.language_data is not None:
        inputs["language"] = project.input_hash(config.ppo.language_data)
    return inputs | _score(project)


def _score(project: Project) -> dict[str, Any]:
    """The settings that say what the preference model's score is, where they are not as ever."""
    config = project.config
    inputs: dict[str, Any] = {}
    if config.preference.members > 1 and wants_preference_model(project):
        inputs["members"] = config.preference.model_dump(include=_COMBINATION)
    if config.preference.head_weights != "overall" and wants_preference_model(project):
        inputs["heads"] = config.preference.head_weights
    return inputs


def _dpo(project: Project) -> Any:
    config = project.config
    unread = {"keep_checkpoints", "probe_prompts", "temperature", "max_new_tokens"}
    if config.dpo.patience is None:  # else it says when training may stop
        unread.add("checkpoint_every")
    named = {"data": config.preference.data, "human": config.preference.human}
    files = {name: project.input_hash(path) for name, path in named.items() if path is not None}
    weight = {"human_weight": config.preference.human_weight} if config.preference.human is not None else {}
    return {"dpo": config.dpo.model_dump(exclude=unread), **files, **weight}


def _eval(project: Project) -> Any:
    config = project.config
    inputs = {
        "eval": config.eval.model_dump(),
        "prompts": project.input_hash(config.prompts.held_out),
        "code": project.code_hashes(config.eval.measures),
    }
    if config.project.algorithm == "dpo":  # what PPO would have been trained on is one of the measures
        code = project.code_hashes(reward_specs(project))
        inputs["measured"] = {"reward": config.ppo.reward, "code": code, **_score(project)}
    return inputs


STAGES: dict[StageName, Stage] = {
    stage.name: stage
    for stage in (
        Stage("sft", "supervised fine-tuning; makes the reference policy", (), _sft),
        Stage("sample", "sample pairs of responses", ("sft",), _sample),
        Stage("label", "label the pairs by the constitution", ("sample",), _label),
        Stage("pm", "train and measure the preference model", ("label",), _pm),
        Stage("ppo", "train the policy", ("sft", "pm"), _ppo),
        Stage("dpo", "train the policy on the pairs themselves", ("sft", "label"), _dpo),
        Stage("eval", "compare policy and reference on held-out prompts", ("ppo",), _eval),
        Stage("report", "write report.html", ("eval",), lambda project: None),
    )
}


def plan(project: Project, run: Run | None, until: StageName = "report") -> Plan:
    """Every stage up to `until` with its fingerprint and state in `run` (None: a run that does not exist yet)."""
    fingerprints: dict[StageName, str] = {}
    stale: set[StageName] = set()
    states = []
    for stage in list(STAGES.values())[: list(STAGES).index(until) + 1]:
        needed, follows = _needs(project, stage.name), after(project, stage.name)
        before = [name for name in follows if name in fingerprints]
        attempts = [run.stage(b).attempt if run is not None else 0 for b in before]
        above = [[fingerprints[b], attempt] for b, attempt in zip(before, attempts, strict=True)]
        mine = [_FORMAT, stage.name, stage.inputs(project) if needed else None, above]
        if stage.name == "ppo" or (stage.name == "eval" and project.config.project.algorithm == "dpo"):
            mine += _calibration(project, run)
        fingerprint = stable_hash(mine)
        if needed:
            fingerprints[stage.name] = fingerprint
        states.append(_state(project, stage, fingerprint, needed, run, [b for b in before if b in stale]))
        if needed and not states[-1].up_to_date:
            stale.add(stage.name)
    return states


def _calibration(project: Project, run: Run | None) -> list[Any]:
    """What is read of the preference model's calibration; nothing where none is read."""
    scaled = project.config.preference.calibrated_score
    if not reads_calibration(project):
        return []
    path = None if run is None else run.artifact("pm") / "model" / "calibration.json"
    there = path is not None and path.is_file()
    # a run of before calibrations, or one without, keeps its fingerprint
    return ([["scaled"]] if scaled else []) + ([file_hash(path)] if there and path is not None else [])


def _state(
    project: Project, stage: Stage, fingerprint: str, needed: bool, run: Run | None, stale_before: list[StageName]
) -> StageState:
    record = run.stage(stage.name) if run is not None else None
    status = record.status if record is not None else StageStatus.PENDING
    same = record is not None and record.fingerprint == fingerprint
    there = run is not None and (run.artifact(stage.name) / "result.json").is_file()
    current = same and status == StageStatus.DONE and there and not stale_before
    if not needed:
        why = f"not needed: {_why_not(project, stage.name)}"
    elif current:
        why = "up to date"
    elif status == StageStatus.PENDING:
        why = "not run yet"
    elif stale_before:
        why = f"{', '.join(stale_before)} runs before it"
    elif not same:
        why = "its settings or inputs changed"
    elif not there:
        why = "its artifacts are missing"
    else:
        why = f"{status}; goes on from its last checkpoint"
    follows = after(project, stage.name)
    return StageState(stage.name, stage.purpose, follows, fingerprint, needed, status, current, why)


def _why_not(project: Project, name: StageName) -> str:
    if name in ("ppo", "dpo"):
        return f'project.algorithm = "{project.config.project.algorithm}"'
    labeled = name != "pm" and project.config.preference.data is not None
    return "preference.data is labeled" if labeled else "the reward has no preference model in it"
