"""Settings of the preference model."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trimtab.config.fields import Count, Fraction, NonNegative, Positive, Section

__all__ = ["PreferenceConfig"]


class PreferenceConfig(Section):
    """Training of the preference model."""

    backbone: Annotated[str, Field(min_length=1)] | None = None
    """Model that it starts from: a local directory, a hub id or a packaged model such as `all-minilm-l6-v2`, causal or
    an encoder, with its own tokenizer; none: the SFT model."""
    data: Annotated[str, Field(min_length=1)] | None = None
    """Labeled pairs to train on instead of the judge's, in any form that `trimtab data convert` reads; nothing is then
    sampled or labeled."""
    epochs: Count = 1
    """Passes over the training pairs."""
    batch_size: Count = 16
    """Pairs an update."""
    learning_rate: Positive = 1e-5
    """Peak learning rate of AdamW."""
    warmup_fraction: Fraction = 0.05
    """Share of the updates over which the learning rate rises from 0; it then falls linearly to 0."""
    weight_decay: NonNegative = 0.0
    """AdamW's decoupled weight decay (matrices only)."""
    max_grad_norm: Positive = 1.0
    """The gradient is scaled down to this norm."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Moves every label this far toward the other response."""
    soft_labels: bool = True
    """Train on the judge's probabilities; false: on its decisions."""
    margin_coef: NonNegative = 1.0
    """A pair's own margin times this is how far its chosen score is to lead; 0: margins in the data are not used."""
    center_coef: NonNegative = 0.0
    """Weight of the mean of (chosen score + rejected score)^2 in the loss, which keeps scores around 0."""
    head_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the head's inputs that is dropped in each training pass; never when scores are used."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of what each trained layer adds that is dropped in each training pass; never when scores are used."""
    group_by_prompt: bool = False
    """Keep all pairs of a prompt in one update and read a response that stands in several of them once."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the prompts whose pairs are held out to measure accuracy and calibration."""
    patience: Count | None = None
    """Checkpoints without a lower loss/validation after which training stops and the best weights are taken; none:
    never."""
    members: Count = 1
    """Models trained, each with layers and a head of its own on the shared ones; their scores are combined."""
    bootstrap: bool = False
    """Every member but the first learns from the prompts drawn anew with replacement."""
    combine: Literal["mean", "min", "lower_bound"] = "mean"
    """Score of several members: their mean, the lowest, or the mean minus pessimism times their standard deviation."""
    pessimism: NonNegative = 1.0
    """lower_bound: how many standard deviations are subtracted."""
    human: str | None = None
    """Pairs labeled by people, in any form that `trimtab data convert` reads, trained on beside the judge's; those of
    them that are held out are measured by themselves, too."""
    human_weight: Positive = 1.0
    """Weight of each human pair in training, against 1 for a pair that the judge labeled."""
    calibrated_score: bool = False
    """Divide every score by the temperature of the calibration, so that a difference is a log-odds that held-out pairs
    bear out; the stage then calibrates, and `trimtab pm calibrate` does so afterwards."""
    max_tokens: Count = 512
    """Longest prompt with response in tokens, at most what the backbone reads; see too_long."""
    too_long: Literal["error", "drop"] = "error"
    """A pair with more tokens than max_tokens: an error that names it, or left out of training and measurement."""
    checkpoint_every: Count = 200
    """Updates between checkpoints."""

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if self.members == 1 and (self.bootstrap or self.combine != "mean"):
            what = "bootstrap" if self.bootstrap else f'combine = "{self.combine}"'
            raise ValueError(f"{what} is about several members: set members to 2 or more")
        return self
