"""Settings of the project, its model, its prompts and its constitution."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from trimtab.config.fields import Count, Positive, Section, Whole
from trimtab.config.layout import LAYOUTS, Layout, Lora

__all__ = ["ConstitutionConfig", "ModelConfig", "Parallel", "ProjectConfig", "PromptsConfig"]

Parallel = Literal["ddp", "fsdp", "zero1", "zero2", "zero3"]
"""How several processes share out what is trained."""


_DEVICES: dict[str, JsonValue] = {"x-allowed": "auto, cpu, cuda, cuda:N or mps"}
_TRAINABLE: dict[str, JsonValue] = {
    "x-allowed": '"full", "lora", "top:<layers>" or "lora-top:<layers>", from 1 layer on'
}


class ProjectConfig(Section):
    """The project as a whole."""

    seed: Whole = 0
    """Every random stream of a run is derived from this number."""
    threads: Whole = 0
    """CPU threads of torch; 0 = as many as there are cores."""
    processes: Count | None = None
    """Processes that PPO has to find (see distributed.md); another number is refused; none: as many as the launcher
    started."""
    algorithm: Literal["ppo", "dpo"] = "ppo"
    """What trains the policy that a run evaluates: ppo: reinforcement learning from a score (PPO, RLOO or GRPO:
    ppo.advantage); dpo: the labeled pairs themselves."""
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
    trainable: Annotated[str, Field(pattern=LAYOUTS, json_schema_extra=_TRAINABLE)] = "full"
    """What is trained. full: all weights, a whole model a role; top:n: the n top layers; lora: adapters in all layers;
    lora-top:n: adapters in the n top layers. What is not trained is frozen and in memory once for all roles."""
    train_head: bool = False
    """Where not all weights are trained: train the language-model head too, apart from the embedding that it may be
    tied to (V · D numbers more a policy)."""
    lora_rank: Count = 16
    """Rank of the adapters."""
    lora_alpha: Positive = 32.0
    """What adapters add is multiplied by lora_alpha / lora_rank."""
    lora_targets: list[Annotated[str, Field(min_length=1)]] = []
    """Linear layers that get adapters, by name, as `q_proj`; empty = all of attention and MLP."""
    parallel: Parallel = "ddp"
    """Where PPO runs in several processes: ddp: each has all weights; fsdp: the trained layers, their gradients and
    their optimiser state are split over them (FSDP2); zero1, zero2, zero3: the optimiser state, its gradients too, its
    weights too are split by DeepSpeed."""
    chat_template: Literal["auto", "off"] = "auto"
    """auto: prompts go through the tokenizer's chat template where it has one; off: prompts are plain text."""

    @property
    def layout(self) -> Layout:
        """What `trainable` and the settings of the adapters say."""
        lora = Lora(self.lora_rank, self.lora_alpha, tuple(self.lora_targets))
        return Layout.parse(self.trainable, lora, self.train_head)

    @model_validator(mode="after")
    def _adapters(self) -> Self:
        fields = type(self).model_fields
        changed = [n for n in fields if n.startswith("lora_") and getattr(self, n) != fields[n].default]
        if changed and self.layout.lora is None:
            raise ValueError(
                f"{changed[0]} = {getattr(self, changed[0])} speaks of adapters, "
                f'and trainable = "{self.trainable}" has none: '
                'set trainable = "lora" or "lora-top:<layers>", or leave it out'
            )
        if self.train_head and not self.layout.shares:
            raise ValueError('train_head = true: trainable = "full" trains the head in any case; leave train_head out')
        if len(set(self.lora_targets)) < len(self.lora_targets):
            raise ValueError(f"lora_targets = {self.lora_targets} names a layer twice")
        if self.parallel != "ddp" and self.layout.lora is not None:
            raise ValueError(
                f'parallel = "{self.parallel}" splits what is trained, and adapters (trainable = "{self.trainable}") '
                'are too small to be worth it: use parallel = "ddp"'
            )
        return self


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
