"""The one tree of settings. Each field is one knob with one owner; units stand in the names.

`trimtab init` writes this tree as a commented file, `trimtab config schema` as JSON schema, the docs page is made from
it. Cross-field rules live in the validators at the end of each section, so that a bad combination is refused before any
model is loaded.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from trimtab.config.dpo import DPOConfig
from trimtab.config.fields import Count, Section, Temperature
from trimtab.config.label import JudgeTable, LabelConfig
from trimtab.config.ppo import PPOConfig
from trimtab.config.preference import PreferenceConfig
from trimtab.config.project import ConstitutionConfig, ModelConfig, ProjectConfig, PromptsConfig
from trimtab.config.sft import SampleConfig, SFTConfig

__all__ = [
    "Config",
    "ConstitutionConfig",
    "DPOConfig",
    "EvalConfig",
    "JudgeTable",
    "LabelConfig",
    "ModelConfig",
    "PPOConfig",
    "PreferenceConfig",
    "ProjectConfig",
    "PromptsConfig",
    "SFTConfig",
    "SampleConfig",
]


_ADDRESSES: dict[str, JsonValue] = {"x-allowed": "http://... or https://..., or empty"}


class EvalConfig(Section):
    """Comparison of the trained policy with the reference on held-out prompts."""

    responses_per_prompt: Count = 1
    """Responses of each model to each held-out prompt."""
    temperature: Temperature = 1.0
    """Sampling temperature, the same for both."""
    max_new_tokens: Count = 64
    """Longest response in tokens, EOS included."""
    measures: list[str] = []
    """Independent measures: module:function or rule:name (`gold` in the tiny world); the first decides the win rate."""
    bootstrap: Count = 2000
    """Resamples of the prompts for the intervals."""


class DoctorConfig(Section):
    """The doctor beside the training: alarms while it goes on. It changes nothing."""

    live: bool = True
    """Watch PPO while it runs; alarms go to the terminal and to findings.jsonl."""
    every: Count = 10
    """Iterations between two looks, at least; looks take at most a fiftieth of the time."""
    webhook: Annotated[str, Field(pattern=r"^(https?://\S+)?$", json_schema_extra=_ADDRESSES)] = ""
    """Web address that alarms are POSTed to as JSON; empty: none."""
    command: list[Annotated[str, Field(min_length=1)]] = []
    """Program and arguments that get alarms as JSON on stdin; empty: none."""


class Config(Section):
    """A project's settings: defaults, then trimtab.toml, then --set."""

    project: ProjectConfig = ProjectConfig()
    model: ModelConfig = ModelConfig()
    prompts: PromptsConfig = PromptsConfig()
    constitution: ConstitutionConfig = ConstitutionConfig()
    sft: SFTConfig = SFTConfig()
    sample: SampleConfig = SampleConfig()
    label: LabelConfig = LabelConfig()
    preference: PreferenceConfig = PreferenceConfig()
    ppo: PPOConfig = PPOConfig()
    dpo: DPOConfig = DPOConfig()
    eval: EvalConfig = EvalConfig()
    doctor: DoctorConfig = DoctorConfig()

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        judges = {member.judge for member in self.label.members().values()}
        if self.sample.source == "samples" and "construction" in judges:
            raise ValueError(
                'label.judge = "construction" labels by the reading that made a response: '
                'sample.source must be "contrast"'
            )
        if self.sft.source == "constitution" and self.model.name == "tiny-world":
            raise ValueError(
                'sft.source = "constitution" asks the model to criticise and revise its responses, and the tiny '
                "world's model takes no instructions: name a chat model in model.name, or use demonstrations"
            )
        if "simulated" in judges and self.model.name != "tiny-world":
            raise ValueError('label.judge = "simulated" only knows the tiny world: model.name must be "tiny-world"')
        return self
