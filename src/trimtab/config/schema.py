"""The one tree of settings. Each field is one knob with one owner; units stand in the names.

`trimtab init` writes this tree as a commented file, `trimtab config schema` as JSON schema, the docs page is made from
it. Cross-field rules live in the validators at the end of each section, so that a bad combination is refused before any
model is loaded.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

__all__ = [
    "Config",
    "ConstitutionConfig",
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


def _fits_64_bits(value: int) -> int:
    if value > LARGEST_WHOLE:
        raise ValueError(f"above {LARGEST_WHOLE}")
    return value


LARGEST_WHOLE = 2**63 - 1
"""Of every whole number: generators, arrays and files take no larger ones."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1), AfterValidator(_fits_64_bits)]
Whole = Annotated[int, Field(ge=0), AfterValidator(_fits_64_bits)]
# Logits divided by less leave nothing to sample from, and overflow.
Temperature = Annotated[float, Field(ge=1e-3, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# TOML and JSON have no tuples: a point comes as a list.
Point = Annotated[tuple[Whole, NonNegative], Field(strict=False)]
_ADDRESSES: dict[str, JsonValue] = {"x-allowed": "http://... or https://..., or empty"}
_DEVICES: dict[str, JsonValue] = {"x-allowed": "auto, cpu, cuda, cuda:N or mps"}


class Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, use_attribute_docstrings=True
    )


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


class JudgeTable(Section):
    """One judge of several; what it leaves out is as in the `label` section."""

    judge: Annotated[str, Field(min_length=1)] | None = None
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    input_price: NonNegative | None = None
    output_price: NonNegative | None = None

    @model_serializer(mode="wrap")
    def _given(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if value is not None}


class LabelConfig(Section):
    """The judges and how their verdicts become labels."""

    # who is asked
    judge: Annotated[str, Field(min_length=1)] = "likelihood"
    """local (A/B letters), openai (any OpenAI-compatible server), likelihood, construction (contrast pairs: the reading
    wins), simulated (tiny world), or a plugin's name."""
    model: str | None = None
    """The judge's model: a local directory or hub id, for openai the server's name of it; none: the reference
    policy."""
    simulated: Literal["faithful", "blind"] = "faithful"
    """Which of the two simulated judges (tiny world)."""
    base_url: str | None = None
    """openai: address of the server, as in http://localhost:8000/v1; none: OpenAI's own."""
    api_key_env: str | None = None
    """openai: name of the environment variable that holds the key; none: no key is sent."""
    judges: dict[str, JudgeTable] = {}
    """Several judges, by name: tables with judge, model, base_url, api_key_env, input_price, output_price; what a table
    leaves out is as in this section."""
    # what is asked
    choose: Literal["all", "random", "active"] = "all"
    """Which pairs get a label: all; random: budget_pairs of them, spread over the prompts; active: in rounds, those of
    which a bag of words that learns from the labels so far is least sure."""
    budget_pairs: Count | None = None
    """How many pairs get a label with choose = "random" or "active"; the others are not trained on."""
    both_orders: bool = True
    """Ask with either response first and average the two verdicts."""
    samples: Count = 1
    """Votes in each order."""
    templates: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] = ["plain"]
    """Wordings of the question, each asked: plain, direct, careful, or a .toml file of one's own (local, openai)."""
    principles: Literal["all", "sampled", "each"] = "all"
    """all: by the whole constitution at once; sampled: by one principle a vote, drawn by weight; each: by every
    principle in turn, kept as scores of their own and averaged by weight."""
    rationale: bool = False
    """openai, local: the judge reasons first, then gives its verdict."""
    temperature: NonNegative = 0.0
    """openai, local with rationale: sampling temperature of the judge."""
    max_new_tokens: Count | None = None
    """openai, local with rationale: longest answer in tokens; none: 16, with a rationale 512 (local: 128)."""
    # how verdicts become labels
    aggregation: Literal["mean", "dawid-skene"] = "mean"
    """How votes become a label: their mean, or weighed by how well the judges agree (at least three votes)."""
    abstain: Annotated[float, Field(ge=0, lt=0.5)] = 0.0
    """Pairs with |P(first) - .5| below this are not used for training."""
    audit_sample: Annotated[int, Field(ge=0)] = 0
    """So many labels, drawn by chance, are put before the likelihood judge of the reference too; how often it agrees
    stands in the report. Changes no label; needs a chat model and readings in the constitution."""
    # how fast, and for how much
    batch_size: Count = 16
    """Judge calls at a time."""
    timeout_s: Positive = 120.0
    """openai: longest time for one answer, all retries included, in seconds."""
    requests_per_minute: Count | None = None
    """openai: calls started a minute, retries included; none: no limit."""
    tokens_per_minute: Count | None = None
    """openai: tokens asked for a minute; none: no limit."""
    input_price: NonNegative | None = None
    """openai: price of a million prompt tokens, in any currency."""
    output_price: NonNegative | None = None
    """openai: price of a million completion tokens."""
    max_cost: NonNegative | None = None
    """Most that one command may spend on judges, in the currency of the prices."""
    max_calls: Count | None = None
    """Most calls to judges that one command may make, retries included."""

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if messages := [message for broken, message in self._broken_rules() if broken]:
            raise ValueError("\n".join(messages))
        return self

    def members(self) -> dict[str, LabelConfig]:
        """The judges by name, each as the section that it would have alone."""
        if not self.judges:
            return {self.judge: self}
        # the whole has been checked, and a part of it breaks no rule
        return {
            name: self.model_copy(update={"judges": {}, **table.model_dump()}) for name, table in self.judges.items()
        }

    def _broken_rules(self) -> list[tuple[bool, str]]:
        members = self.members().values()
        asked = {member.judge for member in members}
        named = len({(m.judge, m.model, m.base_url, m.simulated) for m in members})
        unpriced = [m for m in members if m.judge == "openai" and m.input_price is None and m.output_price is None]
        return [
            (named < len(self.judges), "two of label.judges are the same judge: they would give the same verdicts"),
            ("openai" in asked and any(m.judge == "openai" and not m.model for m in members),
             'judge = "openai" needs model: the name that the server knows it by'),
            ((self.choose == "all") != (self.budget_pairs is None),
             'choose = "random" and "active" need budget_pairs, the number of pairs that get a label; "all" has none'),
            (self.audit_sample > 0 and asked == {"likelihood"} and all(m.model is None for m in members),
             'audit_sample asks the likelihood judge, which is here the judge itself: set it to 0'),
            (self.max_cost is not None and bool(unpriced),
             'max_cost needs input_price or output_price of every judge = "openai"'),
            (self.samples > 1 and self.temperature == 0 and bool(asked & {"openai", "local"}),
             f"samples = {self.samples} at temperature = 0 would ask the same question {self.samples} times for the "
             "same answer: raise temperature, or take several templates instead"),
            (self.samples > 1 and not self.rationale and "local" in asked,
             'samples > 1: judge = "local" without rationale reads probabilities and has nothing to repeat: take '
             "several templates instead"),
            (self.samples > 1 and bool(asked & {"likelihood", "construction"}),
             "samples > 1: the judges likelihood and construction have nothing to repeat"),
            (self.principles != "all" and "construction" in asked,
             'judge = "construction" knows only the principle that a pair was sampled under: principles must be "all"'),
        ]  # fmt: skip


class PreferenceConfig(Section):
    """Training of the preference model."""

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
    """Longest prompt with response in tokens; a longer pair is an error that names it."""
    checkpoint_every: Count = 200
    """Updates between checkpoints."""

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if self.members == 1 and (self.bootstrap or self.combine != "mean"):
            what = "bootstrap" if self.bootstrap else f'combine = "{self.combine}"'
            raise ValueError(f"{what} is about several members: set members to 2 or more")
        return self


class PPOConfig(Section):
    """Reinforcement learning from the preference model's score."""

    # what is sampled
    iterations: Count = 20
    """Rollouts, each followed by its updates."""
    batch_size: Count = 32
    """Responses an iteration."""
    responses_per_prompt: Count = 1
    """K responses for each prompt of an iteration; divides batch_size; rloo and grpo need at least 2."""
    temperature: Temperature = 1.0
    """One temperature for sampling and for every log-probability."""
    max_new_tokens: Count = 64
    """Longest response in tokens, EOS included."""
    # what is rewarded
    reward: Annotated[str, Field(min_length=1)] | dict[str, Finite] = "preference"
    """preference, module:function, rule:name, or a table of such names with weights."""
    length_penalty: NonNegative = 0.0
    """Subtracted from the score for every response token."""
    missing_eos_penalty: NonNegative = 0.0
    """Subtracted from the score of a response that was cut off before its EOS token."""
    score_normalisation: Literal["none", "reference", "running", "batch"] = "none"
    """What centres and scales scores before the KL: fixed statistics of the reference's responses, running ones, the
    batch's."""
    score_transform: Literal["none", "tanh", "sigmoid", "log", "win_probability"] = "none"
    """Bounded or compressing shape of the score, after normalisation; win_probability: against the reference's own
    responses."""
    score_clip: Positive | None = None
    """Scores are clipped to +- this, after normalisation and transform."""
    reward_whitening: bool = False
    """Token rewards (after KL) are scaled to unit variance over the batch, mean kept."""
    # KL
    kl_placement: Literal["token", "sequence_sum", "sequence_mean", "loss"] = "token"
    """Where KL enters: every token's reward, the score (summed or averaged over tokens), or the loss."""
    kl_estimator: Literal["k1", "k2", "k3", "full"] = "k1"
    """Estimator of KL(policy || reference) that is penalised; as a loss k2, k3 or full."""
    kl_controller: Literal["fixed", "adaptive", "scheduled"] = "fixed"
    """How beta moves."""
    beta: NonNegative = 0.05
    """KL coefficient at the start."""
    kl_target_nats: Positive | None = None
    """adaptive: KL to the reference to steer to, in nats per sequence."""
    kl_horizon_episodes: Count | None = None
    """adaptive: responses over which beta may change by the whole (clipped) error."""
    beta_schedule: list[Point] | None = None
    """scheduled: [iteration, beta] points, linear between them."""
    # advantages
    advantage: Literal["gae", "rloo", "grpo"] = "gae"
    """gae: with a value model; rloo, grpo: against the other responses to the prompt."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount a token."""
    gae_lambda: Fraction = 0.95
    """GAE's lambda: 0 = one-step, 1 = Monte Carlo."""
    advantage_whitening: bool = True
    """Advantages to mean 0, variance 1 over the batch's tokens."""
    # value model
    value: Literal["token", "prompt"] = "token"
    """token: a value at every token; prompt: V(prompt) only, the advantage of every token is R - V."""
    value_init: Literal["preference", "reference"] = "preference"
    """Weights that the value model starts from; without a preference model it is the reference."""
    value_normalisation: bool = False
    """Train the value model on returns scaled by their running mean and deviation."""
    value_clip_range: Positive | None = None
    """Clip of the value around the rollout's value, in units of the returns (normalised: of their deviation)."""
    value_learning_rate: Positive = 1e-5
    """Peak learning rate of the value model."""
    value_coef: Positive | None = None
    """Weight of the value loss; only where gradient_clip is joint (elsewhere Adam undoes it: use
    value_learning_rate)."""
    # updates
    epochs: Count = 2
    """Passes over each rollout."""
    minibatches: Count = 2
    """Updates an epoch; the batch is cut into this many shuffled parts."""
    micro_batch_size: Count | None = None
    """Responses in memory at once; gradients accumulate to exactly the minibatch's; none = the whole minibatch."""
    learning_rate: Positive = 1e-5
    """Peak learning rate of the policy."""
    learning_rate_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape after the warm-up, stepped by update; linear and cosine end at 0."""
    warmup_fraction: Fraction = 0.0
    """Share of the updates over which both learning rates rise from 0."""
    weight_decay: NonNegative = 0.0
    """AdamW's decoupled weight decay (matrices only)."""
    adam_epsilon: Positive = 1e-5
    """AdamW's epsilon."""
    gradient_clip: Literal["separate", "joint"] = "separate"
    """One norm for the policy and one for the value model, or one over both."""
    max_grad_norm: Positive = 1.0
    """The gradient (joint: of both models) is scaled down to this norm."""
    value_max_grad_norm: Positive | None = None
    """separate: norm for the value model; none = max_grad_norm."""
    clip_range: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Epsilon of the clipped surrogate."""
    dual_clip: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = None
    """Bound c > 1 on the loss of a negative advantage; none = off."""
    # safety and records
    checks: Literal["error", "warn"] = "error"
    """What a broken invariant (ratio 1, KL 0 at step 0, padding) does."""
    checkpoint_every: Count = 5
    """Iterations between checkpoints."""
    keep_checkpoints: Count = 3
    """Checkpoints kept, the newest ones; each holds the trained weights three times (with AdamW's moments)."""
    probe_prompts: Whole = 8
    """Held-out prompts whose responses are written to samples.jsonl at every checkpoint."""

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if messages := [message for broken, message in self._broken_rules() if broken]:
            raise ValueError("\n".join(messages))
        return self

    def _broken_rules(self) -> list[tuple[bool, str]]:
        critic_free = self.advantage != "gae"
        adaptive = self.kl_controller == "adaptive"
        default = type(self).model_fields
        value_knobs = [
            k
            for k in ("value", "value_init", "value_normalisation", "value_clip_range", "value_learning_rate",
                      "value_coef", "value_max_grad_norm", "gae_lambda", "gamma", "gradient_clip", "reward_whitening")
            if getattr(self, k) != default[k].default
        ]  # fmt: skip
        return [
            (self.batch_size % self.responses_per_prompt != 0,
             f"responses_per_prompt = {self.responses_per_prompt} does not divide batch_size = {self.batch_size}"),
            (critic_free and self.responses_per_prompt < 2,
             f'advantage = "{self.advantage}" compares responses to one prompt: '
             f"responses_per_prompt must be at least 2, not {self.responses_per_prompt}"),
            (critic_free and bool(value_knobs),
             f'{", ".join(value_knobs)} would have no effect: advantage = "{self.advantage}" has no value model '
             "and one advantage a response; leave them at their defaults (remove the lines)"),
            (self.batch_size % self.minibatches != 0,
             f"minibatches = {self.minibatches} does not divide batch_size = {self.batch_size}"),
            (self.kl_placement == "loss" and self.kl_estimator == "k1",
             'kl_estimator = "k1" as a loss has zero expected gradient on on-policy samples: use "k2", "k3" or "full"'),
            (adaptive and (self.kl_target_nats is None or self.kl_horizon_episodes is None),
             'kl_controller = "adaptive" needs kl_target_nats and kl_horizon_episodes'),
            (adaptive and self.kl_horizon_episodes is not None and self.kl_horizon_episodes <= 0.2 * self.batch_size,
             f"kl_horizon_episodes = {self.kl_horizon_episodes} is too short for batch_size = {self.batch_size}: beta "
             "could turn negative; several iterations' worth of responses is usual"),
            (adaptive and self.beta == 0, "beta = 0 can never adapt (it is multiplied): start above 0"),
            (not adaptive and (self.kl_target_nats is not None or self.kl_horizon_episodes is not None),
             f'kl_target_nats and kl_horizon_episodes have no effect with kl_controller = "{self.kl_controller}"'),
            ((self.kl_controller == "scheduled") != bool(self.beta_schedule),
             'beta_schedule and kl_controller = "scheduled" go together'),
            (any(later <= earlier for (earlier, _), (later, _) in pairwise(self.beta_schedule or ())),
             "the iterations of beta_schedule must rise"),
            (self.gradient_clip == "separate" and self.value_coef is not None,
             "value_coef has no effect where policy and value model share neither weights nor the gradient clip (Adam "
             'undoes a scaled loss): set value_learning_rate instead, or gradient_clip = "joint"'),
            (self.gradient_clip == "joint" and self.value_max_grad_norm is not None,
             'value_max_grad_norm has no effect with gradient_clip = "joint"'),
            (self.value == "prompt" and self.gae_lambda != default["gae_lambda"].default,
             'gae_lambda has no effect with value = "prompt"'),
            (isinstance(self.reward, dict) and not self.reward, "reward is an empty table: name at least one scorer"),
            (self.score_transform == "win_probability" and self.score_normalisation != "none",
             'score_transform = "win_probability" compares raw scores: score_normalisation must be "none"'),
        ]  # fmt: skip


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
