"""Settings of what is learnt before there are preferences, and of what preferences are asked about."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trimtab.config.fields import Count, Fraction, NonNegative, Positive, Section, Temperature

__all__ = ["SFTConfig", "SampleConfig"]


class SFTConfig(Section):
    """Supervised fine-tuning; its product is the reference policy."""

    source: Literal["demonstrations", "constitution"] = "demonstrations"
    """demonstrations: those of sft.data; constitution: the model's own responses to the training prompts, criticised
    and revised under the principles' requests."""
    data: str | None = None
    """JSONL of demonstrations (`prompt`, `response`), mixed in with revisions; none and no constitution: the model as
    it is becomes the reference."""
    demonstration_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of demonstrations in what is trained on beside revisions; none: every demonstration once."""
    rounds: Count = 1
    """Constitution: rounds of critique and revision, a principle drawn for each."""
    temperature: Temperature = 1.0
    """Constitution: sampling temperature of drafts, critiques and revisions."""
    max_new_tokens: Count = 128
    """Constitution: longest draft, critique or revision in tokens, EOS included; a revision that is cut off is
    dropped."""
    epochs: Count = 1
    """Passes over the examples."""
    batch_size: Count = 32
    """Examples an update."""
    learning_rate: Positive = 2e-5
    """Peak learning rate of AdamW."""
    warmup_fraction: Fraction = 0.05
    """Share of the updates over which the learning rate rises from 0; it then falls linearly to 0."""
    weight_decay: NonNegative = 0.0
    """AdamW's decoupled weight decay (matrices only)."""
    max_grad_norm: Positive = 1.0
    """The gradient is scaled down to this norm."""
    checkpoint_every: Count = 200
    """Updates between checkpoints."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the prompts whose examples are held out to measure loss/validation at every checkpoint."""
    patience: Count | None = None
    """Checkpoints without a lower loss/validation after which training stops and the best weights are taken; none:
    never."""

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if self.patience is not None and self.validation_fraction == 0:
            raise ValueError("patience watches loss/validation: set validation_fraction above 0")
        if self.demonstration_share is not None and (self.source != "constitution" or self.data is None):
            raise ValueError('demonstration_share mixes sft.data with revisions: set data, and source = "constitution"')
        return self


class SampleConfig(Section):
    """Pairs of responses to be labeled."""

    source: Literal["samples", "contrast"] = "samples"
    """samples: both from the reference; contrast: one each under a principle's reading and its opposite."""
    pairs_per_prompt: Count = 1
    """Pairs sampled for each training prompt."""
    temperature: Temperature = 1.0
    """Sampling temperature."""
    max_new_tokens: Count = 64
    """Longest response in tokens, EOS included."""
    batch_size: Count = 32
    """Responses sampled at a time."""
