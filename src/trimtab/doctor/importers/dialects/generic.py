"""Names that mean the same wherever they stand, for logs of no known framework and for names a dialect lacks.

Nothing is assumed about a bare `kl`: nats a token and nats a sequence differ by the length of a response, and a
threshold that fits one makes nonsense of the other. Such a name is reported as of unknown unit.
"""

from __future__ import annotations

import re

from trimtab.doctor.importers.dialects.base import Dialect, Meaning, complement, ignore, to, unclear
from trimtab.doctor.log import Estimator, Stage

__all__ = [
    "PAIRS",
    "PLAIN",
    "PLAIN_DIRECT",
    "SUPERVISED",
    "held_out_name",
    "independent",
    "is_bookkeeping",
    "normal",
    "regrouped",
]

E = Estimator
_C = re.compile

_MEAN = r"(?:(?:mean|avg|average|batch)_?)?"
_TAIL = r"(?:[_/](?:mean|avg|average))?"


def _p(expression: str, meaning: Meaning) -> tuple[str, Meaning]:
    return expression, meaning


def _level(words: str, meaning: Meaning) -> tuple[str, Meaning]:
    """A mean, however its name says that it is one."""
    return _p(rf"{_MEAN}(?:{words}){_TAIL}", meaning)


_LENGTH = (
    r"(?:responses?|completions?|gen(?:eration|erated)?|outputs?|answers?|resp)_?(?:tokens?_)?(?:len(?:gths?)?|tokens)"
)
_OPTIMISATION = (
    _level(
        r"(?:policy_|actor_|pg_|total_)?(?:grad(?:ient)?_?norm)|grad_norm_(?:policy|actor)", to("policy/gradient_norm")
    ),
    _level(r"(?:value|critic|vf)_grad(?:ient)?_?norm", to("value/gradient_norm")),
    _p(r"(?:policy_|actor_)?(?:lr|learning_rate)", to("policy/learning_rate")),
    _p(r"(?:value_|critic_)(?:lr|learning_rate)", to("value/learning_rate")),
    _p(r"(?:loss_scale|grad_scale|scaler_scale)", to("precision/loss_scale")),
    _p(r"(?:overflow|overflows)", to("precision/overflow")),
    _p(r"(?:skipped_(?:steps|updates))", to("precision/skipped_updates")),
)
_POLICY = (
    _level(r"scores?|raw_(?:scores?|rewards?)|rm_scores?|reward_model_scores?", to("score/mean")),
    _p(r"(?:scores?|raw_rewards?|raw_scores?)[_/]std|std_scores?", to("score/std")),
    _p(r"(?:scores?|raw_rewards?)[_/]min|min_scores?", to("score/min")),
    _p(r"(?:scores?|raw_rewards?)[_/]max|max_scores?", to("score/max")),
    _level(r"rewards?|total_rewards?|(?:ep(?:isode|isodic)?_)?(?:rewards?|rew|returns?)|train_rewards?",
    to("score/mean")),
    _p(r"rewards?[_/]std|std_rewards?|rewards?_sd", to("score/std")),
    _p(r"rewards?[_/]min|min_rewards?", to("score/min")),
    _p(r"rewards?[_/]max|max_rewards?", to("score/max")),
    _p(r"group_(?:rewards?_)?std|rewards?_std_(?:in|within)_groups?|within_group_std", to("score/group_std")),
    _p(r"(?:frac(?:tion)?_)?(?:rewards?_)?zero_std(?:_(?:frac(?:tion)?|ratio|groups?))?|zero_(?:variance|advantage)_groups?",
       to("group/zero_std_fraction")),
    _level(r"(?:policy|actor|pg|surrogate|ppo)_loss|loss[_/](?:policy|actor|pg)", to("policy/loss")),
    _level(r"(?:value|critic|vf|baseline)_loss|loss[_/](?:value|critic|vf)", to("value/loss")),
    _level(r"(?:pg_|policy_|ppo_|actor_)?clip_?frac(?:tion)?|clip_(?:ratio|rate)|(?:frac(?:tion)?|ratio)_clipped",
           to("policy/clip_fraction", E.UNKNOWN)),
    _level(r"(?:value|critic|vf)_clip_?frac(?:tion)?", to("value/clip_fraction")),
    _level(r"(?:policy_|ppo_|importance_|prob_|is_)?ratios?", to("policy/ratio_mean")),
    _p(r"(?:policy_|ppo_)?ratio[_/]?max|max_ratio", to("policy/ratio_max")),
    _p(r"(?:policy_|ppo_)?ratio[_/]?min|min_ratio", to("policy/ratio_min")),
    _p(r"first_(?:minibatch_)?ratio|ratio_first", to("policy/ratio_first")),
    _level(r"(?:policy_|ppo_)?approx_?kl|kl_(?:old|update|step)|old_kl|ppo_kl|policy_kl_old", to("kl/update",
    E.UNKNOWN)),
    _p(r"(?:kl|ref_kl|kl_ref|reference_kl)[_/]per_token|(?:per_)?token_(?:mean_)?kl|kl_token_mean",
       to("kl/reference_per_token", E.UNKNOWN)),
    _p(r"(?:kl|ref_kl|kl_ref|reference_kl)[_/](?:per_)?(?:seq(?:uence)?|sum|response)|(?:per_)?seq(?:uence)?_kl|kl_sum",
       to("kl/reference", E.UNKNOWN)),
    _level(r"(?:objective[_/])?(?:ref(?:erence)?_?)?kl(?:_?(?:ref(?:erence)?|div(?:ergence)?|penalty|loss|to_ref|from_ref))?",
           unclear("kl/reference")),
    _p(r"kl_std|kl_(?:min|max)", ignore()),
    _p(r"(?:kl_|ref_kl_)?(?:beta|kl_coeff?|kl_coefficient|kl_ctl(?:_value)?|kl_weight)", to("kl/beta")),
    _level(r"(?:policy_|token_|actor_)?entropy", to("policy/entropy")),
    _p(r"entropy_(?:coeff?|bonus|coefficient)", ignore()),
    _level(r"explained_var(?:iance)?|value_explained_var(?:iance)?|vf_explained_var", to("value/explained_variance")),
    _level(r"values?|value_pred(?:iction)?s?|vpred", to("value/mean")),
    _level(r"advantages?|adv", to("advantage/mean")),
    _p(r"(?:advantages?|adv)[_/]std|std_(?:advantages?|adv)", to("advantage/std")),
    _p(r"(?:advantages?|adv)[_/]max", to("advantage/max")),
    _p(r"(?:advantages?|adv)[_/]min", to("advantage/min")),
    _p(r"returns?[_/]std", to("value/return_std")),
    _level(r"train_rollout_logprobs?_(?:abs_)?diff|(?:rollout|sampler|sampling|vllm|sglang)_logprobs?_(?:abs_)?(?:diff|gap)"
           r"|logprobs?_(?:abs_)?(?:diff|gap|mismatch)", to("rollout/logprob_gap_mean")),
    _p(r"logprobs?_(?:abs_)?(?:diff|gap|mismatch)_max|max_logprobs?_(?:diff|gap)", to("rollout/logprob_gap_max")),
    _level(_LENGTH + r"|len(?:gth)?", to("response/length_mean")),
    _p(rf"{_LENGTH}[_/]max|max_{_LENGTH}", to("response/length_max")),
    _p(rf"{_LENGTH}[_/]min|min_{_LENGTH}", to("response/length_min")),
    _p(rf"{_LENGTH}[_/]std", to("response/length_std")),
    _level(r"(?:total_|seq(?:uence)?_?)len(?:gths?)?", to("sequence/length_mean")),
    _level(r"prompt_?len(?:gths?)?|query_?len(?:gths?)?", to("prompt/length_mean")),
    _p(r"(?:responses?_)?(?:truncat(?:ed|ion)|cut_?off|clipped_responses|overlong)(?:_(?:frac(?:tion)?|ratio|rate))?"
       r"|response_length_clip_ratio|clipped_ratio", to("response/truncated_fraction")),
    _p(r"(?:finished|completed|natural_termination|stopped)_?(?:frac(?:tion)?|ratio|rate)",
    to("response/finished_fraction")),
    _p(r"(?:eos|has_eos|contains_eos)_?(?:frac(?:tion)?|ratio|rate)", to("response/eos_fraction")),
    _p(r"num_eos(?:_tokens)?|eos_count", to("response/eos_count")),
    _p(r"distinct_?2|distinct_bigrams", to("response/distinct_2")),
    _p(r"(?:repetition|repeat(?:ed)?)(?:_(?:frac(?:tion)?|ratio|rate|score))?|rep_?[234]", to("response/repetition")),
    _p(r"(?:empty)_?(?:responses?_)?(?:frac(?:tion)?|ratio|rate)", to("response/empty_fraction")),
    _p(r"duplicates?_?(?:frac(?:tion)?|ratio|rate)|unique_(?:frac(?:tion)?|ratio)_complement",
    to("batch/duplicate_fraction")),
    _p(r"unique_(?:responses?_)?(?:frac(?:tion)?|ratio|rate)", to("batch/duplicate_fraction", convert=complement)),
    _p(r"component_(.+)|reward_component_(.+)|(proxy_.+)|rewards?/(.+)", to("score/{0}{1}{2}{3}")),
    _p(r"(.+_(?:rewards?|penalty|bonus)|(?:format|correctness|accuracy|length|style|helpfulness|safety)_score)"
       r"(?:_mean)?", to("score/{0}")),
    _p(r"rewards?_(.+)", to("score/{0}")),
    _p(r"((?:noop|no_op|refusal|hedg\w*|apolog\w*|sycophan\w*|flatter\w*|filler|stock_phrase|emoji|list|bullet)\w*?)"
       r"_(?:rate|frac(?:tion)?|ratio)", to("style/{0}")),
)  # fmt: skip
_PM = (
    _p(r"(?:train_)?(?:acc|accuracy)(?:_mean)?|pref(?:erence)?_acc(?:uracy)?|accuracy_train", to("accuracy/train")),
    _p(r"(?:train_)?margins?(?:_mean)?|mean_margin|reward_margins?", to("margin/mean")),
    _p(r"margins?_std", to("margin/std")),
    _p(r"(?:mean_)?chosen_(?:score|reward)s?(?:_mean)?|(?:score|reward)s?_chosen(?:_mean)?", to("pm/chosen_score")),
    _p(r"(?:mean_)?reject(?:ed)?_(?:score|reward)s?(?:_mean)?|(?:score|reward)s?_reject(?:ed)?(?:_mean)?",
       to("pm/rejected_score")),
    _p(r"ece|expected_calibration_error", to("calibration/ece")),
    _p(r"brier(?:_score)?", to("calibration/brier")),
)  # fmt: skip
_LOSS = (
    _p(r"(?:train(?:ing)?_)?loss|loss_train|(?:train_)?loss_mean|avg_loss|mean_loss|bt_loss|rm_loss|sft_loss|dpo_loss",
       to("loss/train")),
    _p(r"grad(?:ient)?_?norm", to("gradient_norm")),
    _p(r"lr|learning_rate", to("learning_rate")),
    _p(r"(?:token_acc(?:uracy)?|mean_token_accuracy)", to("accuracy/tokens")),
)  # fmt: skip
_DIRECT = (
    _p(r"(?:rewards?[_/]accurac(?:y|ies))|(?:train_)?acc(?:uracy)?", to("dpo/accuracy")),
    _p(r"rewards?[_/]chosen|chosen_rewards?", to("dpo/chosen_reward")),
    _p(r"rewards?[_/]reject(?:ed)?|reject(?:ed)?_rewards?", to("dpo/rejected_reward")),
    _p(r"rewards?[_/]margins?|margins?", to("dpo/margin")),
    _p(r"log_?p(?:rob)?s?[_/]chosen|chosen_log_?p(?:rob)?s?", to("dpo/chosen_logprob")),
    _p(r"log_?p(?:rob)?s?[_/]reject(?:ed)?|reject(?:ed)?_log_?p(?:rob)?s?", to("dpo/rejected_logprob")),
)  # fmt: skip

PLAIN = Dialect("plain", "unknown", Stage.POLICY, "", (), {}, (*_POLICY, *_OPTIMISATION, _p("loss", to("policy/loss"))))
"""A policy trained by reinforcement, framework unknown."""
PAIRS = Dialect(
    "plain-pairs", "unknown", Stage.PREFERENCE_MODEL, "reward-model", (), {}, (*_PM, *_LOSS, *_OPTIMISATION)
)
"""A preference model, framework unknown."""
PLAIN_DIRECT = Dialect("plain-direct", "unknown", Stage.DIRECT, "dpo", (), {}, (*_DIRECT, *_LOSS, *_OPTIMISATION))
"""Direct preference optimisation, framework unknown."""
SUPERVISED = Dialect("plain-loss", "unknown", Stage.UNKNOWN, "", (), {}, (*_LOSS, *_OPTIMISATION))
"""A loss and little else."""

_BOOKKEEPING = _C(
    r"_?(?:step|global_?step|epoch|iter(?:ation)?|time|timestamp|_runtime|runtime|wall_?time|date|seed|rank|eta|fps|mfu"
    r"|samples?_per_second|steps_per_second|tokens?_per_second|elapsed(?:_time)?|remaining_time|throughput|duration"
    r"|step_time|mem(?:ory)?|gpu|_timestamp|_step|batch_size|num_samples|total_flos|percentage|total_steps|max_steps"
    r"|current_steps|mini_?batch|worker|num_tokens|tokens|total_tokens|minibatch_idx|minibatch_row|ppo_epochs?|update"
    r"|episode|kl_std|total_loss|total_timesteps|model_preparation_time)(?:_s|_ms|_sec(?:onds)?)?"
)
_TIMES = _C(
    r"(?:time|timing|timing_s|perf|performance|timers|memory|system|gpu|throughput|profiling|speed)[/_].*"
    r"|.*_(?:time|seconds|runtime|per_second|per_sec|latency|time_s|_ms)"
)
_HELD_OUT = _C(
    r"(?:(?:eval(?:uation)?|validation|val|test|dev|held_?out)[_/]|valid/|valid_(?=loss|acc|reward|score|ppl))+(.+)"
)
_INDEPENDENT = _C(
    r"(?:gold|oracle|true|ground_?truth|real|human|benchmark|judge|external|independent|golden)[_/].+"
    r"|(?:.+_)?win_?rate|.+[_/](?:gold|oracle|ground_?truth)|gold|exact_match|pass@?\d+"
)
_NO_MEASURE = _C(r".*(?:_err(?:ors?)?|_failures?|_count|_n|_std|_sd|_stderr|_se|_calls|_cost|_tokens)")


def normal(name: str) -> str:
    """`name` in lower case, with underscores for spaces, dots and dashes, without a leading `train/`."""
    plain = re.sub(r"[\s.\-]+", "_", name.strip()).lower()
    return plain.removeprefix("train/").removeprefix("training/").removeprefix("train_metrics/") or plain


def is_bookkeeping(name: str) -> bool:
    """Whether `name` (normal) counts steps, time or memory."""
    return bool(_BOOKKEEPING.fullmatch(name) or _TIMES.fullmatch(name))


def held_out_name(name: str) -> str | None:
    """The name without the prefix that says it was measured on held-out data; None without one."""
    match = _HELD_OUT.fullmatch(name)
    return match.group(1) if match else None


_NEUTRAL = _C(
    r"policy|actor|gen|generation|rollouts?|ppo|grpo|rloo|rl|stats|metrics|optim|optimizer|algo|batch|sampling"
    r"|responses?|completions?"
)


def regrouped(name: str) -> tuple[str, ...]:
    """Other forms of a name (normal) with a group of its own: `policy/entropy` is also `policy_entropy` and `entropy`.

    What is left of a name without its group says the same only where the group says who made the number; `value/loss`
    is no `loss`, and a `reward/...` that nobody knows may be a part of the reward.
    """
    head, slash, tail = name.partition("/")
    if not slash or held_out_name(name) is not None:
        return ()
    whole = name.replace("/", "_")
    return (whole, tail, tail.replace("/", "_")) if _NEUTRAL.fullmatch(head) else (whole,)


def independent(name: str) -> Meaning | None:
    """The meaning of a name (normal) that says that nothing trains on the measure."""
    if not _INDEPENDENT.fullmatch(name) or _NO_MEASURE.fullmatch(name):
        return None
    if name in ("gold", "gold_mean", "gold_score", "gold_reward", "gold/mean", "gold_reward_mean", "gold_score_mean"):
        return to("gold/mean")
    return to(f"eval/{name}")
