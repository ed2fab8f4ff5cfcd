"""TRL and what logs like it (LLaMA-Factory's and ms-swift's trainers, the RLHF ports with `objective/` names).

Units and signs are those of the code, which in places contradicts TRL's documentation: `objective/non_score_reward` is
minus beta times KL. The new PPO trainer averages `approxkl`, entropy and ratio over padding too.
"""

from __future__ import annotations

from trimtab.doctor.importers.dialects.base import Dialect, ignore, means, root, to
from trimtab.doctor.log import Estimator, Stage, Unit

__all__ = ["DIALECTS"]

E = Estimator
_EVERYWHERE = {
    "grad_norm": to("policy/gradient_norm"),
    "learning_rate": to("policy/learning_rate"),
    "lr": to("policy/learning_rate"),
    "step": ignore(), "global_step": ignore(), "epoch": ignore(), "episode": ignore(), "eps": ignore(),
    "step_time": ignore(), "total_flos": ignore(), "train_loss": ignore(), "train_runtime": ignore(),
    "train_samples_per_second": ignore(), "train_steps_per_second": ignore(), "train_tokens_per_second": ignore(),
}  # fmt: skip
_DIRECT = means(
    _EVERYWHERE,
    {
        "grad_norm": to("gradient_norm"),
        "learning_rate": to("learning_rate"),
        "lr": to("learning_rate"),
        "loss": to("loss/train"),
        "num_tokens": to("tokens"),
        "mean_token_accuracy": to("accuracy/tokens"),
        "entropy": to("policy/entropy"),
        "aux_loss": ignore(),
        "nll_loss": ignore(),
    },
)

_PAIRS = {
    "rewards/chosen": to("dpo/chosen_reward"),
    "rewards/rejected": to("dpo/rejected_reward"),
    "rewards/margins": to("dpo/margin"),
    "rewards/accuracies": to("dpo/accuracy"),
    "logps/chosen": to("dpo/chosen_logprob"),
    "logps/rejected": to("dpo/rejected_logprob"),
    "logits/chosen": ignore(), "logits/rejected": ignore(), "logps/ref_chosen": ignore(),
    "logps/ref_rejected": ignore(),
    "rewards/chosen_sum": ignore(), "rewards/rejected_sum": ignore(), "count/chosen": ignore(),
    "count/rejected": ignore(),
    "log_odds_chosen": ignore(), "log_odds_ratio": ignore(), "sft_loss": ignore(), "odds_ratio_loss": ignore(),
}  # fmt: skip
_PPO_NEW = Dialect(
    "trl-ppo", "trl", Stage.POLICY, "ppo",
    (
        frozenset({"objective/rlhf_reward", "objective/kl"}),
        frozenset({"objective/kl", "objective/scores"}), frozenset({"objective/rlhf_reward"}),
        frozenset({"policy/approxkl_avg", "objective/kl"}), frozenset({"loss/policy_avg", "val/num_eos_tokens"}),
    ),
    means(
        _EVERYWHERE,
        {
            "objective/kl": to("kl/reference", E.K1),
            "objective/entropy": to("policy/entropy_sequence", masked=False),
            "objective/non_score_reward": to("reward/penalty"),
            "objective/rlhf_reward": to("reward/mean"),
            "objective/scores": to("score/mean"),
            "policy/approxkl_avg": to("kl/update", E.K2, masked=False),
            "policy/clipfrac_avg": to("policy/clip_fraction", E.PESSIMISTIC),
            "policy/entropy_avg": to("policy/entropy", masked=False),
            "loss/policy_avg": to("policy/loss"),
            "loss/value_avg": to("value/loss"),
            "val/clipfrac_avg": to("value/clip_fraction"),
            "val/ratio": to("policy/ratio_mean", masked=False),
            "val/ratio_var": ignore(),
            "val/num_eos_tokens": to("response/eos_count"),
        },
    ),
    steps=("step", "global_step", "episode"),
    without=frozenset({"objective/kl_coef", "ppo/mean_scores", "objective/scores_margin", "val/contain_eos_token"}),
)  # fmt: skip

_PPO_OLD = Dialect(
    "trl-ppo-legacy", "trl", Stage.POLICY, "ppo",
    (
        frozenset({"ppo/mean_scores"}), frozenset({"ppo/mean_non_score_reward"}), frozenset({"ppo/loss/policy"}),
        frozenset({"ppo/policy/policykl"}), frozenset({"env/reward_mean", "objective/kl"}),
        frozenset({"objective/kl", "objective/kl_coef"}), frozenset({"objective/kl"}),
    ),
    means(
        _EVERYWHERE,
        {
            "objective/kl": to("kl/reference", E.K1),
            "objective/kl_coef": to("kl/beta"),
            "objective/entropy": to("policy/entropy_sequence"),
            "ppo/mean_non_score_reward": to("reward/penalty", unit=Unit.UNKNOWN),
            "ppo/mean_scores": to("score/mean"),
            "objective/scores": to("score/mean"),
            "ppo/std_scores": to("score/std"),
            "env/reward_mean": to("score/mean"),
            "env/reward_std": to("score/std"),
            "ppo/learning_rate": to("policy/learning_rate"),
            "ppo/loss/policy": to("policy/loss"),
            "ppo/loss/value": to("value/loss"),
            "ppo/loss/total": ignore(),
            "ppo/policy/entropy": to("policy/entropy"),
            "ppo/policy/approxkl": to("kl/update", E.K2),
            "ppo/policy/policykl": to("kl/update", E.K1),
            "ppo/policy/clipfrac": to("policy/clip_fraction", E.PESSIMISTIC),
            "ppo/policy/advantages_mean": to("advantage/mean"),
            "ppo/policy/ratio": to("policy/ratio_mean"),
            "ppo/returns/mean": to("value/return_mean"),
            "ppo/returns/var": to("value/return_std", convert=root),
            "ppo/val/vpred": to("value/mean"),
            "ppo/val/mean": to("value/mean"),
            "ppo/val/var": to("value/std", convert=root),
            "ppo/val/error": to("value/error"),
            "ppo/val/clipfrac": to("value/clip_fraction"),
            "ppo/val/var_explained": to("value/explained_variance"),
            "tokens/queries_len_mean": to("prompt/length_mean"),
            "tokens/responses_len_mean": to("response/length_mean"),
            "tokens/responses_len_std": to("response/length_std"),
        },
    ),
    (
        (r"time/ppo/.*|.*_dist|tokens/.*|objective/(?:ref_)?logprobs|game_log|ppo/policy/advantages",
        ignore()),
    ),
    steps=("step", "global_step"),
    without=frozenset({"objective/rlhf_reward"}),
)  # fmt: skip

_ONLINE_DPO = Dialect(
    "trl-online-dpo", "trl", Stage.DIRECT, "online-dpo",
    (frozenset({"objective/scores_margin"}), frozenset({"val/contain_eos_token"})),
    means(
        _DIRECT,
        _PAIRS,
        {
            "objective/kl": to("kl/reference", E.K1, masked=False),
            "objective/entropy": to("policy/entropy_sequence", masked=False),
            "objective/non_score_reward": to("reward/penalty"),
            "objective/rlhf_reward": to("reward/mean"),
            "objective/scores": to("score/mean"),
            "objective/scores_margin": to("margin/mean"),
            "val/contain_eos_token": to("response/eos_fraction"),
            "beta": to("kl/beta"),
        },
    ),
)  # fmt: skip

_GROUP = means(
    _EVERYWHERE,
    {
        "loss": to("policy/loss"),
        "policy_loss": ignore(),
        "reward": to("score/mean"),
        "reward_std": to("score/group_std"),
        "frac_reward_zero_std": to("group/zero_std_fraction"),
        "entropy": to("policy/entropy"),
        "entropy/mean": to("policy/entropy"),
        "entropy_coef": to("policy/entropy_coefficient"),
        "completion_length": to("response/length_mean"),
        "completions/mean_length": to("response/length_mean"),
        "completions/min_length": to("response/length_min"),
        "completions/max_length": to("response/length_max"),
        "completions/clipped_ratio": to("response/truncated_fraction"),
        "completions/mean_terminated_length": to("response/terminated_length_mean"),
        "completions/min_terminated_length": ignore(),
        "completions/max_terminated_length": ignore(),
        "response_clip_ratio": to("response/truncated_fraction"),
        "clip_ratio": to("policy/clip_fraction", E.PESSIMISTIC),
        "clip_ratio/region_mean": to("policy/clip_fraction", E.PESSIMISTIC),
        "clip_ratio/low_mean": to("policy/clip_fraction_low", E.PESSIMISTIC),
        "clip_ratio/high_mean": to("policy/clip_fraction_high", E.PESSIMISTIC),
        "clip_ratio/low_min": ignore(),
        "clip_ratio/high_max": ignore(),
        "ratio": to("policy/ratio_mean"),
        "num_tokens": to("tokens"),
        "num_turns": ignore(),
        "aux_loss": ignore(),
        "cispo_clip_ratio": ignore(),
        "sampling/sampling_logp_difference/mean": to("rollout/logprob_gap_mean"),
        "sampling/sampling_logp_difference/max": to("rollout/logprob_gap_max"),
        "sampling/importance_sampling_ratio/mean": to("rollout/is_weight_mean"),
        "sampling/importance_sampling_ratio/min": to("rollout/is_weight_min"),
        "sampling/importance_sampling_ratio/max": to("rollout/is_weight_max"),
        "rollout_correction/kl": to("rollout/kl", E.K1),
        "rollout_correction/is_weight_mean": to("rollout/is_weight_mean"),
        "rollout_correction/ess": to("rollout/ess"),
    },
)
_GROUP_PATTERNS = (
    (r"rewards/(.+)/mean", to("score/{0}")),
    (r"rewards/.+/(?:std|min|max)", ignore()),
    (r"rewards/(.+)", to("score/{0}")),
    (r"(?:profiling|tools|vespo|sample|batch|perf|entropy|rollout_correction)/.*", ignore()),
    (r"memory\(GiB\)|train_speed\(.*\)|elapsed_time|remaining_time|percentage", ignore()),
)
_GROUP_MARKS = (
    frozenset({"reward", "reward_std"}), frozenset({"reward", "completion_length"}),
    frozenset({"frac_reward_zero_std"}),
    frozenset({"reward", "completions/mean_length"}), frozenset({"completions/clipped_ratio"}),
    frozenset({"completions/mean_length", "kl"}), frozenset({"completion_length", "kl"}),
    frozenset({"rewards/*", "reward"}), frozenset({"rewards/*", "kl"}), frozenset({"rewards/*", "grad_norm"}),
)  # fmt: skip
_NO_GROUP = frozenset({"policy/approxkl_avg", "objective/kl", "total_steps", "rlhf_reward"})

_GRPO = Dialect(
    "trl-grpo", "trl", Stage.POLICY, "grpo", _GROUP_MARKS,
    means(_GROUP, {"kl": to("kl/reference_per_token", E.K3)}), _GROUP_PATTERNS, without=_NO_GROUP,
)  # fmt: skip
_SWIFT_GRPO = Dialect(
    "ms-swift-grpo", "ms-swift", Stage.POLICY, "grpo",
    tuple(mark | {name} for mark in _GROUP_MARKS for name in ("memory(GiB)", "train_speed(iter/s)")),
    _GRPO.names, _GROUP_PATTERNS, without=_NO_GROUP,
)  # fmt: skip

_DPO = Dialect(
    "trl-dpo", "trl", Stage.DIRECT, "dpo",
    (
        frozenset({"rewards/chosen", "rewards/rejected"}), frozenset({"rewards/margins"}),
        frozenset({"logps/chosen", "logps/rejected"}), frozenset({"rewards/accuracies"}),
    ),
    means(_DIRECT, _PAIRS), without=frozenset({"kl", "objective/scores"}),
)  # fmt: skip
_KTO = Dialect(
    "trl-kto", "trl", Stage.DIRECT, "kto",
    (frozenset({"rewards/chosen", "kl"}), frozenset({"rewards/rejected", "kl"}), frozenset({"logps/chosen", "kl"})),
    means(_DIRECT, _PAIRS, {"kl": to("kto/kl")}),
)  # fmt: skip

_REWARD = Dialect(
    "trl-reward", "trl", Stage.PREFERENCE_MODEL, "reward-model",
    (
        frozenset({"accuracy", "margin"}), frozenset({"mean_reward", "min_reward"}), frozenset({"eval_accuracy",
        "eval_loss"}),
        frozenset({"eval/accuracy", "eval/loss"}), frozenset({"mean_reward", "margin"}),
    ),
    means(
        _DIRECT,
        {
            "accuracy": to("accuracy/train"),
            "margin": to("margin/mean"),
            "mean_reward": to("pm/score_mean"),
            "min_reward": to("pm/score_min"),
            "max_reward": to("pm/score_max"),
        },
    ),
    without=frozenset({"reward", "mean_token_accuracy", "rewards/chosen"}),
)  # fmt: skip

_SFT = Dialect(
    "trl-sft", "trl", Stage.SFT, "sft",
    (frozenset({"loss", "mean_token_accuracy", "epoch", "step"}), frozenset({"loss", "mean_token_accuracy"}),
     frozenset({"loss", "mean_token_accuracy", "learning_rate", "epoch"})),
    _DIRECT, without=frozenset({"reward", "rewards/chosen"}),
)  # fmt: skip
_TRAINER = Dialect(
    "hf-trainer", "trl", Stage.UNKNOWN, "",
    (
        frozenset({"loss", "learning_rate", "epoch"}), frozenset({"loss", "grad_norm", "epoch"}),
        frozenset({"loss", "learning_rate", "grad_norm"}),
    ),
    _DIRECT,
    without=frozenset({"reward", "rewards/chosen", "policy_loss", "value_loss", "kl", "current_steps", "reward_mean"}),
)  # fmt: skip

_FACTORY_TIME = (r"elapsed_time|remaining_time|percentage|throughput|total_tokens|total_steps", ignore())
_WARNED = {"objective/kl": to("kl/reference", E.K1), "ppo/policy/ratio": to("policy/ratio_mean")}
"""What TRL's first PPO trainer, which LLaMA-Factory runs, warns of beside its records."""
_FACTORY_PPO = Dialect(
    "llama-factory-ppo", "llama-factory", Stage.POLICY, "ppo",
    (frozenset({"current_steps", "total_steps", "reward"}), frozenset({"current_steps", "reward"})),
    means(_EVERYWHERE, _WARNED, {"loss": to("policy/loss"), "reward": to("score/mean"), "current_steps": ignore()}),
    (_FACTORY_TIME,), steps=("current_steps",),
)  # fmt: skip
_FACTORY = Dialect(
    "llama-factory", "llama-factory", Stage.UNKNOWN, "",
    (frozenset({"current_steps", "total_steps"}), frozenset({"current_steps", "loss"})),
    means(
        _DIRECT,
        {"current_steps": ignore(), "eval_loss": to("loss/validation"), "accuracy": to("dpo/accuracy"),
         "predict_loss": ignore()},
    ),
    (_FACTORY_TIME,), steps=("current_steps",), without=frozenset({"reward"}),
)  # fmt: skip
_PPO_SAVED = Dialect(
    "llama-factory-ppo-state", "llama-factory", Stage.POLICY, "ppo",
    (frozenset({"loss", "reward", "learning_rate", "epoch"}),),
    means(_EVERYWHERE, _WARNED, {"loss": to("policy/loss"), "reward": to("score/mean")}),
    without=frozenset({"reward_std", "kl", "completion_length", "completions/mean_length", "grad_norm"}),
)  # fmt: skip

_PORTS = Dialect(
    "rlhf-port", "trl", Stage.POLICY, "ppo",
    (frozenset({"objective/kl", "objective/score_total"}), frozenset({"ppo/loss/policy_avg"})),
    means(
        _EVERYWHERE,
        {
            "objective/kl": to("kl/reference", E.K1),
            "objective/kl_coef": to("kl/beta"),
            "objective/entropy": to("policy/entropy_sequence"),
            "objective/non_score_reward": to("reward/penalty"),
            "objective/score_total": to("reward/mean"),
            "objective/scores": to("score/mean"),
            "objective/score": to("score/mean"),
            "objective/validation_score": to("eval/score"),
            "ppo/lr": to("policy/learning_rate"),
            "ppo/loss/policy_avg": to("policy/loss"),
            "ppo/loss/value_avg": to("value/loss"),
            "ppo/loss/policy": to("policy/loss"),
            "ppo/loss/value": to("value/loss"),
            "ppo/policy/entropy_avg": to("policy/entropy"),
            "ppo/policy/approxkl_avg": to("kl/update", E.K2),
            "ppo/policy/clipfrac_avg": to("policy/clip_fraction", E.PESSIMISTIC),
            "ppo/policy/entropy": to("policy/entropy"),
            "ppo/policy/approxkl": to("kl/update", E.K2),
            "ppo/policy/clipfrac": to("policy/clip_fraction", E.PESSIMISTIC),
            "ppo/val/clipfrac_avg": to("value/clip_fraction"),
            "ppo/val/clipfrac": to("value/clip_fraction"),
            "ppo/val/mean": to("value/mean"),
            "ppo/val/var": to("value/std", convert=root),
            "ppo/val/var_explained": to("value/explained_variance"),
            "ppo/val/ratio": to("policy/ratio_mean"),
            "ppo/returns/mean": to("value/return_mean"),
            "ppo/returns/var": to("value/return_std", convert=root),
        },
    ),
    ((r"elapsed/.*|ppo/(?:eps|episode|val/.*|loss/.*|policy/.*)", ignore()),),
)  # fmt: skip

_ROLL = Dialect(
    "ratio-table",
    "trl",
    Stage.POLICY,
    "ppo",
    (frozenset({"ratio", "minibatch"}),),
    {"ratio": to("policy/ratio_mean"), "epoch": ignore(), "minibatch": ignore()},
)

_REFERENCE_DPO = Dialect(
    "dpo-reference", "dpo", Stage.DIRECT, "dpo",
    (frozenset({"rewards_train/chosen"}), frozenset({"rewards_train/margins"}), frozenset({"logps_train/chosen"})),
    {
        "loss/train": to("loss/train"), "loss/eval": to("loss/validation"), "grad_norm": to("gradient_norm"),
        "rewards_train/chosen": to("dpo/chosen_reward"), "rewards_train/rejected": to("dpo/rejected_reward"),
        "rewards_train/margins": to("dpo/margin"), "rewards_train/accuracies": to("dpo/accuracy"),
        "rewards_eval/accuracies": to("accuracy/validation"), "logps_train/chosen": to("dpo/chosen_logprob"),
        "logps_train/rejected": to("dpo/rejected_logprob"), "rewards_train/KL": to("kto/kl"),
    },
    ((r"(?:rewards|logps)_eval/.*|counters/.*|examples_per_second|grad_norm_.*", ignore()),),
    steps=("counters/updates", "counters/examples"),
)  # fmt: skip

DIALECTS = (
    _REFERENCE_DPO, _PPO_NEW, _PPO_OLD, _PORTS, _ONLINE_DPO, _SWIFT_GRPO, _GRPO, _KTO, _DPO, _REWARD, _SFT,
    _FACTORY_PPO, _FACTORY, _PPO_SAVED, _TRAINER, _ROLL,
)  # fmt: skip
