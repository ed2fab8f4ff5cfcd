"""Settings of PPO."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from trimtab.config.address import check_address
from trimtab.config.fields import Count, Finite, Fraction, NonNegative, Point, Positive, Section, Temperature, Whole

__all__ = ["PPOConfig"]

_AUTO: dict[str, JsonValue] = {"x-allowed": 'a whole number from 1 on, or "auto"'}
_ENGINES: dict[str, JsonValue] = {"x-allowed": '"native", "transformers", "vllm" or the URL of a vLLM server'}


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
    engine: Annotated[
        str,
        Field(pattern=r"^(native|transformers|vllm|https?://\S+)$", json_schema_extra=_ENGINES),
        AfterValidator(check_address),
    ] = "native"
    """What samples them: our own loop, transformers' generate, vLLM in this process, or a vLLM server (see
    engines.md)."""
    engine_options: dict[str, bool | int | float | str] = {}
    """vllm: arguments of `vllm.LLM`, as gpu_memory_utilization."""
    importance_cap: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = None
    """Each token's policy loss is multiplied by its probability under the trainer over that under the engine, at most
    this; none: off."""
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
    score_outlier_sds: Positive | None = None
    """Raw scores further than this from the batch's median, in standard deviations estimated from the median absolute
    deviation, are moved there before anything else; none: never."""
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
    value_warmup_iterations: Whole = 0
    """Iterations at the start that train the value model alone, so that the first advantages mean something."""
    value_coef: Positive | None = None
    """Weight of the value loss; only where gradient_clip is joint (elsewhere Adam undoes it: use
    value_learning_rate)."""
    # updates
    epochs: Count = 2
    """Passes over each rollout."""
    minibatches: Count = 2
    """Updates an epoch; the batch is cut into this many shuffled parts."""
    micro_batch_size: Annotated[Count | Literal["auto"], Field(json_schema_extra=_AUTO)] = "auto"
    """Responses in memory at once; gradients accumulate to exactly the minibatch's. auto: the whole minibatch, or what
    activation_gib holds, halved whenever memory runs out."""
    activation_gib: Positive | None = None
    """micro_batch_size auto: memory of a process for the activations of an update; none: on a CPU half of the
    machine's, on a GPU what there is."""
    trunk_gib: NonNegative = 1.0
    """Memory for the output of the layers that all roles share (model.trainable), which then are run once an iteration;
    where it needs more every pass runs them anew."""
    recompute: bool = False
    """Keep of each trained layer what it reads alone, and compute the rest again in the backward pass: less memory,
    more time, the same gradients."""
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
    entropy_coef: NonNegative = 0.0
    """Weight of the policy's mean entropy (nats a token), which is subtracted from the loss."""
    max_update_kl: Positive | None = None
    """The rest of an iteration's updates is left out once kl/update of one of them (nats a token) exceeds this; none:
    never."""
    max_skipped_updates: Whole = 0
    """Updates in a row that may be skipped for a loss or gradient that is not finite, their batch kept in nonfinite/ of
    the run, before the run stops; 0: the first one stops it. float16 overflows are not among them: the loss scale sees
    to those."""
    language_data: str | None = None
    """JSONL of demonstrations (`prompt`, `response`) whose language-model loss is mixed into every update (PPO-ptx)."""
    language_coef: NonNegative = 1.0
    """Weight of that loss, nats a response token."""
    language_batch_size: Count = 8
    """Demonstrations an update."""
    reference_share: Fraction = 0.0
    """After the last iteration the policy's weights become (1 - share) policy + share reference."""
    # safety and records
    checks: Literal["error", "warn"] = "error"
    """What a broken invariant (ratio 1, KL 0 at step 0, padding) does."""
    checkpoint_every: Count = 5
    """Iterations between checkpoints."""
    keep_checkpoints: Count = 3
    """Checkpoints kept, the newest ones; each holds the trained weights three times (with AdamW's moments)."""
    keep_best: Annotated[str, Field(pattern=r"^-?[\w.-]+(/[\w.-]+)*$")] | None = None
    """A signal, as eval/helpfulness or -eval/refusals (minus: the lower the better): the checkpoint after the iteration
    at which it was best is kept as well, and written whether or not one was due."""
    end_with: Literal["last", "best"] = "last"
    """The policy that the stage ends with: that of the last iteration, or of the checkpoint that keep_best keeps."""
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
                      "value_coef", "value_max_grad_norm", "value_warmup_iterations", "gae_lambda", "gamma",
                      "gradient_clip", "reward_whitening")
            if not self._at_default(k)
        ]  # fmt: skip
        return [
            (self.batch_size % self.responses_per_prompt != 0,
             f"responses_per_prompt = {self.responses_per_prompt} does not divide batch_size = {self.batch_size}"),
            (bool(self.engine_options) and self.engine != "vllm",
             f'engine_options have no effect with engine = "{self.engine}"'),
            (critic_free and self.responses_per_prompt < 2,
             f'advantage = "{self.advantage}" compares responses to one prompt: '
             f"responses_per_prompt must be at least 2, not {self.responses_per_prompt}"),
            (critic_free and bool(value_knobs),
             f'{", ".join(value_knobs)} would have no effect: advantage = "{self.advantage}" has no value model '
             "and one advantage a response; leave them at their defaults (remove the lines)"),
            (self.batch_size % self.minibatches != 0,
             f"minibatches = {self.minibatches} does not divide batch_size = {self.batch_size}"),
            (self.advantage_whitening and self.batch_size * self.max_new_tokens == 1,
             "advantage_whitening would make the advantage of the only token (batch_size = 1, max_new_tokens = 1) 0, "
             "and nothing would be learnt: set it to false, or sample more"),
            (self.advantage_whitening and self.value == "prompt" and self.batch_size == 1,
             'advantage_whitening would make the only advantage (batch_size = 1, value = "prompt") 0, and nothing '
             "would be learnt: set it to false, or sample more"),
            (self.score_normalisation == "batch" and self.batch_size == 1,
             'score_normalisation = "batch" makes the score of a batch of one 0: set another, or a larger batch_size'),
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
            (self.value_warmup_iterations >= self.iterations,
             f"value_warmup_iterations = {self.value_warmup_iterations} leaves none of iterations = {self.iterations} "
             "to train the policy"),
            (self.language_data is None and not self._at_default("language_coef", "language_batch_size"),
             "language_coef and language_batch_size have no effect without language_data"),
            (self.end_with == "best" and self.keep_best is None, 'end_with = "best" needs keep_best: best by what?'),
            (self.micro_batch_size != "auto" and self.activation_gib is not None,
             f"activation_gib has no effect with micro_batch_size = {self.micro_batch_size}: leave one of them out"),
            (isinstance(self.reward, dict) and not self.reward, "reward is an empty table: name at least one scorer"),
            (self.score_transform == "win_probability" and self.score_normalisation != "none",
             'score_transform = "win_probability" compares raw scores: score_normalisation must be "none"'),
        ]  # fmt: skip

    def _at_default(self, *names: str) -> bool:
        return all(getattr(self, name) == type(self).model_fields[name].default for name in names)
