"""verl, OpenRLHF, NeMo-RL, NeMo-Aligner, slime, open-instruct: trainers with a separate engine for rollouts."""

from __future__ import annotations

from trimtab.doctor.importers.dialects.base import Dialect, ignore, means, square, to
from trimtab.doctor.log import Aggregation, Estimator, Stage

__all__ = ["DIALECTS"]

E, LAST = Estimator, Aggregation.LAST

_VERL = Dialect(
    "verl", "verl", Stage.POLICY, "",
    tuple(
        frozenset({name})
        for name in (
            "actor/pg_loss", "actor/ppo_kl", "actor/pg_clipfrac", "critic/score/mean", "critic/rewards/mean",
            "actor/reward_kl_penalty", "actor/kl_loss", "response_length/clip_ratio", "critic/vf_loss", "actor/entropy",
            "actor/entropy_loss", "critic/advantages/mean", "training/rollout_probs_diff_mean", "actor/*",
        )
    ),
    {
        "critic/score/mean": to("score/mean"),
        "critic/score/max": to("score/max"),
        "critic/score/min": to("score/min"),
        "critic/rewards/mean": to("reward/mean"),
        "critic/rewards/max": to("reward/max"),
        "critic/rewards/min": to("reward/min"),
        "critic/advantages/mean": to("advantage/mean"),
        "critic/advantages/max": to("advantage/max"),
        "critic/advantages/min": to("advantage/min"),
        "critic/returns/mean": to("value/return_mean"),
        "critic/returns/max": to("value/return_max"),
        "critic/returns/min": to("value/return_min"),
        "critic/values/mean": to("value/mean"),
        "critic/values/max": to("value/max"),
        "critic/values/min": to("value/min"),
        "critic/vf_explained_var": to("value/explained_variance"),
        "critic/vf_loss": to("value/loss"),
        "critic/vf_clipfrac": to("value/clip_fraction"),
        "critic/vpred_mean": to("value/mean"),
        "critic/grad_norm": to("value/gradient_norm"),
        "critic/lr": to("value/learning_rate"),
        "critic/kl": to("kl/reference_per_token", E.K1),
        "critic/kl_coeff": to("kl/beta"),
        "actor/pg_loss": to("policy/loss"),
        "actor/pg_clipfrac": to("policy/clip_fraction", E.PESSIMISTIC),
        "actor/pg_clipfrac_lower": to("policy/dual_clip_fraction"),
        "actor/ppo_kl": to("kl/update", E.K1),
        "actor/entropy": to("policy/entropy"),
        "actor/entropy_loss": to("policy/entropy"),
        "actor/reward_kl_penalty": to("kl/reference_per_token", E.UNKNOWN),
        "actor/reward_kl_penalty_coeff": to("kl/beta"),
        "actor/kl_loss": to("kl/reference_per_token", E.UNKNOWN),
        "actor/kl_coef": to("kl/beta"),
        "actor/grad_norm": to("policy/gradient_norm"),
        "actor/lr": to("policy/learning_rate"),
        "response_length/mean": to("response/length_mean"),
        "response_length/max": to("response/length_max"),
        "response_length/min": to("response/length_min"),
        "response_length/clip_ratio": to("response/truncated_fraction"),
        "response/aborted_ratio": to("response/aborted_fraction"),
        "prompt_length/mean": to("prompt/length_mean"),
        "training/rollout_probs_diff_mean": to("rollout/prob_gap_mean"),
        "training/rollout_probs_diff_max": to("rollout/prob_gap_max"),
        "training/rollout_actor_probs_pearson_corr": to("rollout/prob_correlation"),
        "rollout_corr/kl": to("rollout/kl", E.K1),
        "rollout_corr/k3_kl": to("rollout/kl", E.K3),
        "rollout_corr/chi2_token": to("rollout/chi2"),
        "rollout_corr/rollout_is_mean": to("rollout/is_weight_mean"),
        "rollout_corr/rollout_is_max": to("rollout/is_weight_max"),
        "rollout_corr/rollout_is_min": to("rollout/is_weight_min"),
        "rollout_corr/rollout_is_std": to("rollout/is_weight_std"),
        "rollout_corr/rollout_is_eff_sample_size": to("rollout/ess"),
        "train/loss": to("loss/train"),
        "val/loss": to("loss/validation"),
        "step": ignore(), "training/global_step": ignore(), "training/epoch": ignore(), "epoch": ignore(),
    },
    (
        (r"val-core/(.+?)/(?:reward|score)/(?:mean@\d+)", to("eval/score")),
        (r"val-core/(.+)", to("eval/{0}")),
        (r"val/test_score/(.+)", to("eval/{0}")),
        ((r"(?:val-aux|timing_s|timing_per_token_ms|perf|global_seqlen|variance_proxy|rollout_corr|training|num_turns"
            r"|tool_call_counts|response_length_non_aborted|prompt_length|mismatch)/.*"), ignore()),
        (r"(?:actor|critic)/(?:mfu|vpred_.*|perf/.*)", ignore()),
    ),
    steps=("step", "training/global_step", "global_step"),
)  # fmt: skip

_OPENRLHF_PPO = Dialect(
    "openrlhf", "openrlhf", Stage.POLICY, "ppo",
    (
        frozenset({"policy_loss", "response_length", "kl"}), frozenset({"actor_lr", "policy_loss"}),
        frozenset({"act_loss", "gen_len"}), frozenset({"pg", "rm", "glen"}), frozenset({"pg", "ret", "kl"}),
        frozenset({"act_loss", "ent_loss"}), frozenset({"ppo_clip_ratio", "policy_loss"}),
        frozenset({"actor_grad_norm"}),
        frozenset({"act_lr", "act_loss"}), frozenset({"pg", "act_lr"}), frozenset({"rollout/truncated_rate"}),
        frozenset({"policy_loss", "critic_loss", "response_length"}), frozenset({"policy_loss", "return", "reward"}),
    ),
    {
        "policy_loss": to("policy/loss"), "act_loss": to("policy/loss"), "pg": to("policy/loss"),
        "actor_lr": to("policy/learning_rate"), "act_lr": to("policy/learning_rate"),
        "actor_grad_norm": to("policy/gradient_norm", aggregation=LAST),
        "grad_norm": to("policy/gradient_norm", aggregation=LAST),
        "entropy_loss": to("policy/entropy"), "ent_loss": to("policy/entropy"),
        "ppo_clip_ratio": to("policy/clip_fraction", E.PESSIMISTIC),
        "ppo_kl": to("kl/update", E.K1),
        "vllm_kl": to("rollout/kl"),
        "kl": to("kl/reference_per_token", E.UNKNOWN),
        "logprobs_diff": to("kl/reference_per_token", E.K1),
        "reward": to("score/mean"), "rm": to("score/mean"),
        "rollout/reward_mean": to("score/mean"), "rollout/reward_std": to("score/std"),
        "return": to("reward/mean"), "ret": to("reward/mean"),
        "group_reward_std": to("score/group_std"),
        "response_length": to("response/length_mean"), "gen_len": to("response/length_mean"),
        "glen": to("response/length_mean"), "rollout/response_length_mean": to("response/length_mean"),
        "total_length": to("sequence/length_mean"), "tot_len": to("sequence/length_mean"),
        "tlen": to("sequence/length_mean"),
        "truncated": to("response/truncated_fraction"),
        "rollout/truncated_rate": to("response/truncated_fraction", aggregation=Aggregation.MEAN),
        "critic_loss": to("value/loss"), "cri": to("value/loss"), "cri_loss": to("value/loss"),
        "values": to("value/mean"), "vals": to("value/mean"),
        "critic_lr": to("value/learning_rate"), "cri_lr": to("value/learning_rate"),
        "critic_grad_norm": to("value/gradient_norm", aggregation=LAST),
        "num_actions": ignore(), "num_samples": ignore(), "ptx_loss": ignore(), "ptx": ignore(),
        "rollout/num_samples": to("batch/size"),
        "dynamic_filtering_pass_rate": ignore(), "generated_samples": ignore(), "global_step": ignore(),
        "step": ignore(),
        "kl_coef": to("kl/beta"),
    },
    (
        (r"(?:eval|val)[_/](.+?)_(pass\d+|acc|reward)", to("eval/{0}_{1}")),
        (r"(?:timing|perf)/.*", ignore()),
    ),
    without=frozenset({"ppo_ep", "objective/kl"}),
)  # fmt: skip
_OPENRLHF_RM = Dialect(
    "openrlhf-rm", "openrlhf", Stage.PREFERENCE_MODEL, "reward-model",
    (frozenset({"acc", "chosen_reward", "reject_reward"}), frozenset({"acc_mean", "loss_mean"}),
     frozenset({"chosen_reward", "reject_reward"})),
    {
        "loss": to("loss/train"), "loss_mean": to("loss/train"),
        "acc": to("accuracy/train"), "acc_mean": to("accuracy/train"),
        "chosen_reward": to("pm/chosen_score"), "reject_reward": to("pm/rejected_score"),
        "lr": to("learning_rate"), "grad_norm": to("gradient_norm"), "aux_loss": ignore(), "global_step": ignore(),
        "eval_loss": to("loss/validation"), "eval/eval_loss": to("loss/validation"),
        "eval/acc_mean": to("accuracy/validation"), "eval_acc_mean": to("accuracy/validation"),
        "reward_mean": to("pm/score_mean"), "reward_std": to("pm/score_std"),
        "eval/reward_mean": to("pm/score_mean"), "eval/reward_std": to("pm/score_std"),
    },
    without=frozenset({"nll_loss", "logps/chosen"}),
)  # fmt: skip
_OPENRLHF_DPO = Dialect(
    "openrlhf-dpo", "openrlhf", Stage.DIRECT, "dpo",
    (frozenset({"acc", "chosen_reward", "reject_reward", "nll_loss"}),),
    {
        "loss": to("loss/train"), "loss_mean": to("loss/train"),
        "acc": to("dpo/accuracy"), "acc_mean": to("dpo/accuracy"),
        "chosen_reward": to("dpo/chosen_reward"), "reject_reward": to("dpo/rejected_reward"),
        "lr": to("learning_rate"), "grad_norm": to("gradient_norm"), "aux_loss": ignore(), "nll_loss": ignore(),
        "eval/eval_loss": to("loss/validation"), "eval/acc_mean": to("accuracy/validation"), "global_step": ignore(),
    },
)  # fmt: skip

_NEMO = Dialect(
    "nemo-rl", "nemo-rl", Stage.POLICY, "grpo",
    (
        frozenset({"gen_kl_error"}), frozenset({"token_mult_prob_error"}), frozenset({"probs_ratio", "kl_penalty"}),
        frozenset({"mean_gen_tokens_per_sample"}), frozenset({"probs_ratio_clamped"}),
        frozenset({"generation_kl_error"}), frozenset({"mean_generation_length", "avg_reward"}),
    ),
    {
        "loss": to("policy/loss"), "grad_norm": to("policy/gradient_norm"), "lr": to("policy/learning_rate"),
        "probs_ratio": to("policy/ratio_mean"), "probs_ratio_max": to("policy/ratio_max"),
        "probs_ratio_min": to("policy/ratio_min"),
        "kl_penalty": to("kl/reference_per_token", E.K3),
        "token_mult_prob_error": to("rollout/prob_ratio_error"),
        "gen_kl_error": to("rollout/kl"), "generation_kl_error": to("rollout/kl"), "policy_kl_error": ignore(),
        "js_divergence_error": ignore(),
        "sampling_importance_ratio": to("rollout/is_weight_mean"),
        "approx_entropy": to("policy/entropy"),
        "reward": to("score/mean"), "avg_reward": to("score/mean"), "mean_total_reward": to("score/mean"),
        "advantages/mean": to("advantage/mean"), "advantages/max": to("advantage/max"),
        "advantages/min": to("advantage/min"),
        "mean_gen_tokens_per_sample": to("response/length_mean"), "mean_generation_length": to("response/length_mean"),
        "mean_prompt_length": to("prompt/length_mean"),
        "truncation_rate": to("response/truncated_fraction", aggregation=Aggregation.MEAN),
        "natural_termination_rate": to("response/finished_fraction", aggregation=Aggregation.MEAN),
        "critic/loss": to("value/loss"), "critic/grad_norm": to("value/gradient_norm"),
        "critic/lr": to("value/learning_rate"), "critic/vf_clipfrac": to("value/clip_fraction"),
        "critic/returns_mean": to("value/return_mean"), "critic/values_mean": to("value/mean"),
        "critic/values_min": to("value/min"), "critic/values_max": to("value/max"),
        "critic/explained_var": to("value/explained_variance"),
        "num_valid_samples": to("batch/size"), "step": ignore(), "global_step": ignore(),
    },
    (
        (r"validation/(?:accuracy|avg_accuracy)", to("eval/accuracy")),
        (r"validation/(.+)", to("held_out/{0}")),
        ((r"(?:performance|timing|ray|critic)/.*|probs_ratio_clamped.*|positive_nll_loss|is_oob_ratio|global_valid_.*"
            r"|total_num_tokens"), ignore()),
    ),
)  # fmt: skip
_NEMO_PAIRS = Dialect(
    "nemo-rl-pairs", "nemo-rl", Stage.PREFERENCE_MODEL, "reward-model",
    (frozenset({"rewards_chosen_mean", "rewards_rejected_mean"}),),
    {
        "loss": to("loss/train"), "accuracy": to("accuracy/train"), "acc": to("accuracy/train"),
        "rewards_chosen_mean": to("pm/chosen_score"), "rewards_rejected_mean": to("pm/rejected_score"),
        "rewards_all_mean": to("pm/score_mean"), "rewards_all_std": to("pm/score_std"),
        "grad_norm": to("gradient_norm"), "lr": to("learning_rate"), "num_valid_samples": ignore(),
        "validation/accuracy": to("accuracy/validation"), "validation/loss": to("loss/validation"),
        "val_loss": to("loss/validation"), "val_acc": to("accuracy/validation"),
        "step": ignore(), "global_step": ignore(),
    },
    ((r"(?:performance|timing|ray|validation)/.*|rewards_(?:chosen|rejected)_std", ignore()),),
    without=frozenset({"sft_loss", "preference_loss"}),
)  # fmt: skip
_NEMO_DPO = Dialect(
    "nemo-rl-dpo", "nemo-rl", Stage.DIRECT, "dpo",
    (frozenset({"rewards_chosen_mean", "preference_loss"}), frozenset({"rewards_chosen_mean", "sft_loss"})),
    means(
        _NEMO_PAIRS.names,
        {
            "accuracy": to("dpo/accuracy"), "rewards_chosen_mean": to("dpo/chosen_reward"),
            "rewards_rejected_mean": to("dpo/rejected_reward"), "sft_loss": ignore(), "preference_loss": ignore(),
        },
    ),
    _NEMO_PAIRS.patterns,
)  # fmt: skip
_ALIGNER = Dialect(
    "nemo-aligner", "nemo-rl", Stage.POLICY, "ppo",
    (frozenset({"train_rollouts/init_policy_kl"}), frozenset({"train_rollouts/rewards"}),
    frozenset({"init_policy_kl"})),
    {
        "train_rollouts/rewards": to("score/mean"), "train_rollouts/rewards_with_kl": to("reward/mean"),
        "train_rollouts/init_policy_kl": to("kl/reference_per_token", E.ABS_K1),
        "init_policy_kl": to("kl/reference_per_token", E.ABS_K1),
        "train_rollouts/generation_length": to("response/length_mean"),
        "train_rollouts/response_lengths": to("sequence/length_mean"),
        "train_rollouts/prompt_lengths": to("prompt/length_mean"),
        "train_rollouts/fraction_of_samples_properly_ended": to("response/finished_fraction"),
        "train_rollouts/advantages_mean": to("advantage/mean"), "train_rollouts/advantages_std": to("advantage/std"),
        "train_rollouts/returns_mean": to("value/return_mean"), "train_rollouts/returns_std": to("value/return_std"),
        "train_rollouts/values_mean": to("value/mean"), "train_rollouts/values_std": to("value/std"),
        "train_rollouts/rollout_size": to("batch/size"),
        "train_optim/loss": to("policy/loss"), "train_optim/ppo_ratio": to("policy/ratio_mean"),
        "train_optim/scaled_entropy": ignore(), "train_optim/grad_norm": to("policy/gradient_norm"),
        "train_optim/lr": to("policy/learning_rate"), "val_rollouts/rewards": to("eval/score"),
    },
    ((r"(?:train_rollouts|train_optim|val_rollouts|timers|table)/.*", ignore()),),
)  # fmt: skip

_SLIME = Dialect(
    "slime", "slime", Stage.POLICY, "grpo",
    (frozenset({"train_rollout_logprob_abs_diff"}), frozenset({"rollout/raw_reward"}),
     frozenset({"pg_loss", "pg_clipfrac"})),
    {
        "train_rollout_logprob_abs_diff": to("rollout/logprob_gap_mean"),
        "loss": ignore(), "pg_loss": to("policy/loss"), "entropy_loss": to("policy/entropy"),
        "pg_clipfrac": to("policy/clip_fraction", E.PESSIMISTIC), "ppo_kl": to("kl/update", E.K1),
        "kl_loss": to("kl/reference_per_token", E.UNKNOWN), "grad_norm": to("policy/gradient_norm"),
        "lr-pg_0": to("policy/learning_rate"), "rollout/raw_reward": to("score/mean"),
        "rollout/rewards": ignore(), "rollout/response_lengths": to("response/length_mean"),
        "rollout/response_len/mean": to("response/length_mean"),
        "rollout/truncated_ratio": to("response/truncated_fraction"),
        "rollout/truncated": to("response/truncated_fraction"), "rollout/advantages": to("advantage/mean"),
        "rollout/returns": to("value/return_mean"), "rollout/values": to("value/mean"), "value_loss": to("value/loss"),
        "value_clipfrac": to("value/clip_fraction"), "tis": to("rollout/is_weight_mean"),
        "ois": to("policy/ratio_mean"),
        "step": ignore(), "rollout/step": ignore(),
    },
    ((r"(?:rollout|perf|multi_turn|passrate)/.*|lr-pg_\d+|tis_.*", ignore()),),
    steps=("step", "rollout/step"),
)  # fmt: skip

_OPEN_INSTRUCT = Dialect(
    "open-instruct", "open-instruct", Stage.POLICY, "grpo",
    (frozenset({"objective/kl0_avg"}), frozenset({"objective/kl3_avg"}),
    frozenset({"objective/verifiable_correct_rate"}),
     frozenset({"objective/verifiable_reward"}), frozenset({"val/stop_rate", "loss/policy_avg"})),
    {
        "objective/kl0_avg": ignore(), "objective/kl1_avg": to("kl/reference_per_token", E.K1),
        "objective/kl2_avg": ignore(), "objective/kl3_avg": to("kl/reference_k3_per_token", E.K3),
        "objective/kl_avg": to("kl/reference_per_token", E.UNKNOWN),
        "objective/verifiable_reward": to("score/mean"), "objective/scores": to("score/mean"),
        "scores": to("score/mean"),
        "objective/verifiable_correct_rate": to("score/correct_rate", aggregation=Aggregation.MEAN),
        "loss/policy_avg": to("policy/loss"), "loss/value": to("value/loss"), "loss/kl_avg": ignore(),
        "loss/total_avg": ignore(), "policy/clipfrac_avg": to("policy/clip_fraction", E.PESSIMISTIC),
        "policy/entropy_avg": to("policy/entropy"), "policy/approxkl_avg": to("kl/update", E.K2),
        "val/ratio": to("policy/ratio_mean"), "val/ratio_var": ignore(),
        "val/sequence_lengths": to("response/length_mean"), "val/sequence_lengths_max": to("response/length_max"),
        "val/sequence_lengths_min": to("response/length_min"),
        "val/stop_rate": to("response/finished_fraction", aggregation=Aggregation.MEAN),
        "val/advantages_mean": to("advantage/mean"), "val/advantages_max": to("advantage/max"),
        "val/advantages_min": to("advantage/min"), "optim/grad_norm": to("policy/gradient_norm"),
        "lr": to("policy/learning_rate"), "episode": ignore(), "training_step": ignore(), "epoch": ignore(),
        "eval/scores": to("eval/score"), "eval/objective/verifiable_correct_rate": to("eval/score"),
    },
    (
        (r"objective/(.+)_(reward|correct_rate)", to("score/{0}_{1}")),
        (r"(?:val|time|debug|loss|policy)/.*", ignore()),
    ),
    steps=("training_step", "step", "episode"),
)  # fmt: skip
_OPEN_INSTRUCT_RM = Dialect(
    "open-instruct-rm", "open-instruct", Stage.PREFERENCE_MODEL, "reward-model",
    (frozenset({"train/rm/accuracy"}), frozenset({"rm/accuracy", "rm/loss"})),
    {
        f"{prefix}{name}": meaning
        for prefix in ("train/rm/", "rm/")
        for name, meaning in {
            "accuracy": to("accuracy/train"), "loss": to("loss/train"), "chosen_rewards": to("pm/chosen_score"),
            "rejected_rewards": to("pm/rejected_score"), "reward_margin": to("margin/mean"), "lr": to("learning_rate"),
        }.items()
    },
    (
        (r"eval/rm/.+/accuracy", to("accuracy/validation")),
        (r"eval/rm/.+/loss", to("loss/validation")),
        (r"eval/rm/.*", ignore()),
    ),
)  # fmt: skip

_TRLX = Dialect(
    "trlx", "trlx", Stage.POLICY, "ppo",
    (frozenset({"policy/sqrt_kl"}), frozenset({"losses/total_loss", "losses/policy_loss"}),
    frozenset({"policy/kl_per_token"}),
     frozenset({"rollout_scores/mean"}), frozenset({"exp_scores/mean"}), frozenset({"kl_ctl_value"})),
    {
        "losses/policy_loss": to("policy/loss"), "losses/value_loss": to("value/loss"), "losses/total_loss": ignore(),
        "policy/sqrt_kl": to("kl/reference", E.K3, convert=square),
        "policy/kl_per_token": to("kl/reference_per_token", E.K3, masked=False, convert=square),
        "policy/approx_kl": to("kl/update", E.K3), "policy/clipfrac": to("policy/clip_fraction", E.PESSIMISTIC),
        "ratio": to("policy/ratio_mean"), "kl_ctl_value": to("kl/beta"), "padding_percentage": ignore(),
        "values/mean": to("value/mean"), "values/min": to("value/min"), "values/max": to("value/max"),
        "values/std": to("value/std"), "values/values_error": to("value/error"),
        "values/clipfrac": to("value/clip_fraction"),
        "returns/mean": to("value/return_mean"), "returns/std": to("value/return_std"),
        "returns/min": to("value/return_min"), "returns/max": to("value/return_max"),
        "rollout_scores/mean": to("score/mean"), "rollout_scores/std": to("score/std"),
        "exp_scores/mean": to("score/mean"), "exp_scores/std": to("score/std"),
        "learning_rate_group_0": to("policy/learning_rate"),
    },
    (
        (r"reward/mean.*", to("eval/score")),
        (r"metrics/(.+)", to("eval/{0}")),
        ((r"(?:time|old_values|rollout_scores|exp_scores|values|returns|losses)/.*"
            r"|learning_rate_group_\d+|samples"), ignore()),
    ),
)  # fmt: skip

DIALECTS = (
    _VERL, _OPENRLHF_PPO, _OPENRLHF_DPO, _OPENRLHF_RM, _NEMO, _NEMO_DPO, _NEMO_PAIRS, _ALIGNER, _SLIME, _OPEN_INSTRUCT,
    _OPEN_INSTRUCT_RM, _TRLX,
)  # fmt: skip
