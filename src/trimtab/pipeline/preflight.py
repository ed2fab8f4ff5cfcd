"""Before anything is run or moved: everything about a project that can be refused without loading a model.

Files are read, names of scorers, measures and judges are looked up, prompts are tokenised, lengths are held against the
model's configuration. A typo costs a second, not a stage.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from trimtab.data.records import Prompt, Response
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.judges import check_panel
from trimtab.models.loading import check_layout, load_codec, load_config, pick_device
from trimtab.models.starts import check_backbone
from trimtab.models.tokens import TextCodec
from trimtab.pipeline.names import TINY_WORLD, model_name
from trimtab.pipeline.project import Project
from trimtab.pipeline.scorers import measures, reward
from trimtab.pipeline.stages import StageName, reward_specs, wants_preference_model
from trimtab.ppo.engines import check_engine
from trimtab.sampling.critique import check_revisable

__all__ = ["check"]


class _Unread:
    """Stands for a preference model that is not there yet."""

    name = "preference"

    def score(self, prompts: Sequence[Prompt], responses: Sequence[Response]) -> np.ndarray:
        raise NotImplementedError


def check(project: Project, stages: Collection[StageName], say: Callable[[str], None] = lambda text: None) -> None:
    """Refuse what cannot work, for the stages that are about to run.

    Args:
        say: told what is allowed and still looks wrong.

    Raises:
        TrimtabError: naming the setting or file.
    """
    config = project.config
    if not set(stages) - {"report"}:
        return
    pick_device(config.model.device)
    _check_scorers(project)
    if "label" in stages:
        check_panel(config.label, project.directory)
    if "ppo" in stages:
        check_engine(config.ppo, config.model.dtype)
    if {"pm", "ppo", "dpo"} & set(stages):
        _check_preference(project, stages, say)
    by_itself = set(stages) <= {"pm", "report"} and config.preference.data is not None
    if by_itself and config.preference.backbone is not None:
        return
    codec, settings = _codec_and_settings(project)
    check_layout(settings, config.model.layout)
    if by_itself:
        return
    if "sample" in stages and config.sample.source == "contrast" and not codec.chat:
        raise TrimtabError(
            ErrorKind.CONFIG,
            'sample.source = "contrast" puts a reading into the system message, and this model has no chat template',
            'use sample.source = "samples", or a chat model with model.chat_template = "auto"',
        )
    if "label" in stages and config.label.audit_sample:
        _check_second_opinion(project, codec)
    if "sft" in stages and config.sft.source == "constitution":
        check_revisable(codec, project.constitution)
    _check_files(project, stages, codec, getattr(settings, "max_position_embeddings", None), say)


def _check_preference(project: Project, stages: Collection[StageName], say: Callable[[str], None]) -> None:
    """What the preference model, or the policy itself, is trained on, and on what the model stands."""
    config = project.config
    if "pm" in stages and config.preference.backbone is not None:
        check_backbone(
            model_name(project, config.preference.backbone), config.model.chat_template, config.preference.layers
        )
    if {"pm", "dpo"} & set(stages):
        _ = project.human_pairs
        same = sum(pair.chosen.text == pair.rejected.text for pair in project.preference_pairs)
        if same:
            say(
                f"warning: {same} of {len(project.preference_pairs)} pairs in {config.preference.data} have the same "
                "text as chosen and as rejected, and teach nothing: trimtab data filter --drop identical-responses"
            )
    starts = config.ppo.advantage == "gae" and config.ppo.value_init == "preference" and wants_preference_model(project)
    if "ppo" in stages and starts and config.preference.backbone is not None:
        say("the value model starts from the reference: the preference model stands on a backbone of its own")


def _check_second_opinion(project: Project, codec: TextCodec) -> None:
    """The likelihood judge puts readings into the system message."""
    lacking = project.constitution.lacking(("reading", "opposite"))
    if codec.chat and not lacking:
        return
    why = f"of {', '.join(lacking)} there is none" if lacking else "this model has no chat template"
    raise TrimtabError(
        ErrorKind.CONFIG,
        f"label.audit_sample = {project.config.label.audit_sample} asks the likelihood judge, which puts reading and "
        f"opposite of a principle into the system message: {why}",
        "set label.audit_sample = 0, or add what is missing",
    )


def _check_scorers(project: Project) -> None:
    reward(project, _Unread() if "preference" in reward_specs(project) else None)
    found = measures(project)
    names = [measure.name for measure in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TrimtabError(ErrorKind.CONFIG, f"eval.measures names {twice[0]!r} twice", "name each measure once")


def _codec_and_settings(project: Project) -> tuple[TextCodec, Any]:
    """The tokenizer, and the model's configuration; no weights are read."""
    config = project.config.model
    if config.name == TINY_WORLD:
        from trimtab.worlds.model import build_model, build_tokenizer

        return TextCodec(build_tokenizer(), config.chat_template), build_model(0).config
    name = model_name(project, config.name)
    return load_codec(name, config.chat_template), load_config(name).get_text_config()


def _check_files(
    project: Project,
    stages: Collection[StageName],
    codec: TextCodec,
    context: int | None,
    say: Callable[[str], None],
) -> None:
    config = project.config
    if "sft" in stages and config.sft.data:
        _ = project.demonstrations
    if {"sample", "label"} & set(stages):
        _ = project.constitution
    if "ppo" in stages:
        _ = project.language_demonstrations
    drafts = config.sft.max_new_tokens if "sft" in stages and config.sft.source == "constitution" else 0
    by_ppo = config.project.algorithm == "ppo"
    rollouts, probes = (config.ppo.max_new_tokens,) * 2 if by_ppo else (0, config.dpo.max_new_tokens)
    longest = {
        config.prompts.train: max(config.sample.max_new_tokens, rollouts, drafts),
        config.prompts.held_out: max(config.eval.max_new_tokens, probes),
    }
    files = {config.prompts.train: project.prompts, config.prompts.held_out: project.held_out_prompts}
    for name, prompts in files.items():
        for prompt in prompts:
            _check_length(project, name, prompt, len(codec.prompt_ids(prompt)), longest[name], context)
    shared = {p.messages for p in project.prompts} & {p.messages for p in project.held_out_prompts}
    if shared:
        say(
            f"warning: {len(shared)} prompts stand in both {config.prompts.train} and {config.prompts.held_out}: "
            "they were not held out"
        )


def _check_length(
    project: Project, name: str, prompt: Prompt, length: int, new_tokens: int, context: int | None
) -> None:
    limit = project.config.prompts.max_tokens
    if length > limit:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{name}: prompt {prompt.id!r} has {length} tokens, prompts.max_tokens allows {limit}",
            "shorten it, or raise prompts.max_tokens",
        )
    if context is not None and length + new_tokens > context:
        raise TrimtabError(
            ErrorKind.DATA,
            f"{name}: prompt {prompt.id!r} has {length} tokens; with {new_tokens} new ones it exceeds the model's "
            f"context of {context}",
            "shorten it, or lower max_new_tokens",
        )
