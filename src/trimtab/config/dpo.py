"""Settings of direct preference optimisation."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trimtab.config.fields import Count, Fraction, NonNegative, Positive, Section, Temperature, Whole

__all__ = ["DPOConfig"]


class DPOConfig(Section):
    """Training of the policy on the labeled pairs themselves, without a preference model (project.algorithm)."""

    loss: Literal["sigmoid", "ipo"] = "sigmoid"
    """sigmoid: DPO; ipo: the lead of the chosen response is pulled to 1 / (2 beta) nats and no further."""
    beta: Positive = 0.1
    """Strength of the pull to the reference."""
    label_smoothing: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Moves every label this far toward the other response."""
    soft_labels: bool = True
    """Train on the judge's probabilities; false: on its decisions."""
    language_coef: NonNegative = 0.0
    """Weight of the chosen response's negative log-likelihood (nats a token) in the loss, against likelihoods that sink
    on both sides."""
    epochs: Count = 1
    """Passes over the training pairs."""
    batch_size: Count = 32
    """Pairs an update."""
    micro_batch_size: Count | None = None
    """Pairs in memory at once; the gradient stays that of the whole update; none: all of the update."""
    learning_rate: Positive = 5e-6
    """Peak learning rate of AdamW."""
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Shape after the warm-up, stepped by update; linear and cosine end at 0."""
    warmup_fraction: Fraction = 0.1
    """Share of the updates over which the learning rate rises from 0."""
    weight_decay: NonNegative = 0.0
    """AdamW's decoupled weight decay (matrices only)."""
    max_grad_norm: Positive = 1.0
    """The gradient is scaled down to this norm."""
    max_tokens: Count = 512
    """Longest prompt with response in tokens, at most what the model reads; see too_long."""
    too_long: Literal["error", "drop"] = "error"
    """A pair with more tokens than max_tokens: an error that names it, or left out of training and measurement."""
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.15
    """Share of the prompts whose pairs are held out to measure loss and accuracy; with the same share the preference
    model holds out the same prompts."""
    patience: Count | None = None
    """Checkpoints without a lower loss/validation after which training stops and the best weights are taken; none:
    never."""
    checkpoint_every: Count = 200
    """Updates between checkpoints."""
    keep_checkpoints: Count = 1
    """Checkpoints kept, the newest ones; each holds the trained weights three times (with AdamW's moments)."""
    probe_prompts: Whole = 32
    """Held-out prompts that are sampled at every checkpoint, for the KL to the reference and samples.jsonl."""
    temperature: Temperature = 1.0
    """Sampling temperature of those responses; log-probabilities of pairs are the model's own, at 1."""
    max_new_tokens: Count = 64
    """Longest such response in tokens, EOS included."""

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if self.patience is not None and self.validation_fraction == 0:
            raise ValueError("patience watches loss/validation: set validation_fraction above 0")
        return self
