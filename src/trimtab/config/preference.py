"""Settings of the preference model."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trimtab.config.fields import Count, Finite, Fraction, NonNegative, Positive, Section, Whole

__all__ = ["PreferenceConfig"]


class PreferenceConfig(Section):
    """Training of the preference model."""

    backbone: Annotated[str, Field(min_length=1)] | None = None
    """Model that it starts from: a local directory, a hub id or a packaged model such as `all-minilm-l6-v2`, causal or
    an encoder, with its own tokenizer; none: the SFT model."""
    layers: Count | None = None
    """Read only the first so many layers of the backbone: what a small model knows of a text is often clearest half way
    up, and what is left out costs no time; none: all."""
    data: Annotated[str, Field(min_length=1)] | None = None
    """Labeled pairs to train on instead of the judge's, in any form that `trimtab data convert` reads; nothing is then
    sampled or labeled."""
    epochs: Count = 1
    """Passes over the training pairs."""
    batch_size: Count = 16
    """Pairs an update."""
    micro_batch_size: Count | None = None
    """Pairs in memory at once; the gradient stays that of the whole update; none: all of the update."""
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
    principle_heads: bool = False
    """Train a head for each principle that pairs have labels by (label.principles = "each"), beside the overall one."""
    principle_coef: NonNegative = 1.0
    """Weight of the sum of the principles' losses, each the mean over the pairs labeled by it, against the overall
    loss."""
    head_weights: Literal["overall", "constitution"] | dict[str, Finite] = "overall"
    """What the score is: the overall head; constitution: the principles' heads by the constitution's weights; or a
    table of heads with weights. Weights are divided by the sum of their sizes; changing them trains no head again."""
    length_debias: Literal["none", "regress", "two-head"] = "none"
    """regress: the score's dependence on the log of the length, fitted within pairs, is taken out of every score;
    two-head: a second head learns what length explains of the labels and is thrown away (ODIN)."""
    length_coef: NonNegative = 0.1
    """two-head: weight of |correlation of the score with length| - correlation of the length head with it."""
    orthogonal_coef: NonNegative = 1.0
    """two-head: weight of |cosine| of the two heads' weights."""
    human: str | None = None
    """Pairs labeled by people, in any form that `trimtab data convert` reads, trained on beside the judge's; those of
    them that are held out are measured by themselves, too."""
    human_weight: Positive = 1.0
    """Weight of each human pair in training, against 1 for a pair that the judge labeled."""
    calibrated_score: bool = False
    """Divide every score by the temperature of the calibration, so that a difference is a log-odds that held-out pairs
    bear out; the stage then calibrates, and `trimtab pm calibrate` does so afterwards."""
    probe_responses: Whole = 30
    """Held-out responses that are edited after training, each about twenty times, to see what buys score (for the
    report and the card; `trimtab pm probe` does it again with more); 0: none."""
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
        if messages := [message for broken, message in self._broken_rules() if broken]:
            raise ValueError("\n".join(messages))
        return self

    def _broken_rules(self) -> list[tuple[bool, str]]:
        two_head = self.length_debias == "two-head"
        return [
            (self.layers is not None and self.backbone is None,
             "layers is about a backbone: name one, which may be the same model as model.name"),
            (self.head_weights != "overall" and not self.principle_heads,
             "head_weights weighs heads by principle: set principle_heads = true, or leave it at overall"),
            (isinstance(self.head_weights, dict) and not any(self.head_weights.values()),
             "head_weights gives no head a weight: give one, such as overall = 1"),
            (self.principle_heads and self.members > 1,
             "principle_heads and members > 1 do not go together: set members to 1"),
            (self.principle_heads and two_head,
             'length_debias = "two-head" takes length out of the overall score alone: with principle_heads set '
             'length_debias = "regress", which takes it out of every head'),
            (two_head and self.batch_size < 8,
             f'length_debias = "two-head" measures correlations within an update: batch_size = {self.batch_size} pairs '
             "are too few, set at least 8"),
            (two_head and self.micro_batch_size is not None,
             'length_debias = "two-head" measures correlations within an update, which must be in memory whole: leave '
             "micro_batch_size out and lower batch_size"),
        ]  # fmt: skip
