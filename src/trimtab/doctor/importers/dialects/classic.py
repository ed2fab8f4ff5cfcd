"""DeepSpeed-Chat, MiniMind, torchtune, alpaca_farm, RL4LMs, Stable-Baselines3, CleanRL."""

from __future__ import annotations

from trimtab.doctor.importers.dialects.base import Dialect, ignore, means, negated, to, unclear
from trimtab.doctor.log import Aggregation, Estimator, Stage

__all__ = ["DIALECTS"]

E, LAST = Estimator, Aggregation.LAST
_COUNTS = {"epoch": ignore(), "step": ignore(), "global_step": ignore(), "ppo_ep": ignore(), "ppo_epoch": ignore()}
_FP16 = {
    "precision/overflow": to("precision/overflow"), "precision/loss_scale": to("precision/loss_scale",
    aggregation=LAST),
    "precision/skipped_updates": to("precision/skipped_updates", aggregation=LAST), "log/lr": to("learning_rate"),
}  # fmt: skip

_DEEPSPEED = Dialect(
    "deepspeed-chat", "deepspeed-chat", Stage.POLICY, "ppo",
    (frozenset({"act_loss", "cri_loss"}), frozenset({"actor_loss_sum", "critic_loss_sum"}), frozenset({"unsuper_loss"}),
     frozenset({"actor_loss", "unsupervised_loss"}), frozenset({"average_reward_score"})),
    means(
        _COUNTS, _FP16,
        {
            "act_loss": to("policy/loss", aggregation=LAST), "actor_loss": to("policy/loss", aggregation=LAST),
            "cri_loss": to("value/loss", aggregation=LAST), "critic_loss": to("value/loss", aggregation=LAST),
            "reward": to("score/mean"), "average_reward_score": to("score/mean"), "average_reward": to("score/mean"),
            "ema_reward_score": ignore(), "unsuper_loss": ignore(), "unsupervised_loss": ignore(),
            "actor_loss_sum": ignore(), "critic_loss_sum": ignore(), "log/lr": to("policy/learning_rate"),
        },
    ),
    without=frozenset({"gen_len", "ent_loss", "kl_ref"}),
)  # fmt: skip
_DEEPSPEED_RM = Dialect(
    "deepspeed-chat-rm", "deepspeed-chat", Stage.PREFERENCE_MODEL, "reward-model",
    (frozenset({"chosen_last_scores"}), frozenset({"chosen_score", "acc"}), frozenset({"rejected_last_scores"})),
    means(
        _COUNTS, _FP16,
        {
            "loss": to("loss/train"), "chosen_last_scores": to("pm/chosen_score"),
            "chosen_score": to("pm/chosen_score"),
            "rejected_last_scores": to("pm/rejected_score"), "rejected_score": to("pm/rejected_score"),
            "acc": to("accuracy/validation"), "reward": to("pm/score_mean"), "lr": to("learning_rate"),
        },
    ),
)  # fmt: skip
_DEEPSPEED_DPO = Dialect(
    "deepspeed-chat-dpo", "deepspeed-chat", Stage.DIRECT, "dpo",
    (frozenset({"chosen", "rejected", "loss"}), frozenset({"chosen", "rejected"})),
    means(
        _COUNTS, _FP16,
        {
            "loss": to("loss/validation"), "train_loss": to("loss/train"),
            "chosen": to("dpo/chosen_reward"), "rejected": to("dpo/rejected_reward"),
        },
    ),
)  # fmt: skip
_DEEPSPEED_SFT = Dialect(
    "deepspeed-chat-sft", "deepspeed-chat", Stage.SFT, "sft",
    (frozenset({"ppl"}), frozenset({"ppl", "loss"})),
    means(_COUNTS, _FP16, {"ppl": ignore(), "loss": to("loss/validation"), "train_loss": to("loss/train")}),
)  # fmt: skip

_MIND = {
    "reward": to("score/mean"), "avg_reward": to("score/mean"), "avg_response_len": to("response/length_mean"),
    "avg_rewards": to("score/mean"), "avg_resp_length": to("response/length_mean"),
    "actor_loss": to("policy/loss"), "policy_loss": to("policy/loss"), "critic_loss": to("value/loss"),
    "aux_loss": ignore(), "learning_rate": to("policy/learning_rate"), "actor_lr": to("policy/learning_rate"),
    "critic_lr": to("value/learning_rate"), "clipfrac": to("policy/clip_fraction"), "eta_min": ignore(),
    "adv_std": to("advantage/std"), "adv_mean": to("advantage/mean"), "advantages_std": to("advantage/std"),
    "advantages_mean": to("advantage/mean"), "epoch_time": ignore(), "epoch": ignore(), "step": ignore(),
}  # fmt: skip
_MIND_GRPO = Dialect(
    "minimind-grpo", "minimind", Stage.POLICY, "grpo",
    (frozenset({"kl_ref", "adv_std"}), frozenset({"kl_ref", "advantages_std"})),
    means(_MIND, {"kl_ref": to("kl/reference_per_token", E.K1, convert=negated)}),
)  # fmt: skip
_MIND_PPO = Dialect(
    "minimind-ppo", "minimind", Stage.POLICY, "ppo",
    (frozenset({"kl_ref", "critic_loss"}), frozenset({"kl_ref", "avg_response_len"}), frozenset({"kl_ref",
    "avg_resp_length"})),
    means(_MIND, {"kl_ref": unclear("kl/reference"), "approx_kl": to("kl/update", E.UNKNOWN),
    "kl": unclear("kl/update")}),
)  # fmt: skip
_MIND_DPO = Dialect(
    "minimind-dpo", "minimind", Stage.DIRECT, "dpo",
    (frozenset({"dpo_loss"}), frozenset({"loss", "dpo_loss"})),
    {
        "dpo_loss": to("loss/train"), "loss": ignore(), "aux_loss": ignore(), "learning_rate": to("learning_rate"),
        "lr": to("learning_rate"), "epoch_time": ignore(), "epoch": ignore(), "step": ignore(),
    },
)  # fmt: skip

_TORCHTUNE = Dialect(
    "torchtune", "torchtune", Stage.POLICY, "ppo",
    (frozenset({"rlhf_reward", "kl", "scores"}), frozenset({"num_stop_tokens", "scores"}),
    frozenset({"approx_policy_kl"})),
    means(
        _COUNTS,
        {
            "scores": to("score/mean"), "rlhf_reward": to("reward/mean"), "kl": to("kl/reference", E.K1),
            "kl_reward": to("reward/penalty"), "lr": to("policy/learning_rate"), "loss": ignore(),
            "policy_loss": to("policy/loss"), "value_loss": to("value/loss"),
            "clipfrac": to("policy/clip_fraction", E.PESSIMISTIC), "ratios": to("policy/ratio_mean"),
            "approx_policy_kl": to("kl/update", E.UNKNOWN), "response_lengths": to("response/length_mean"),
            "num_stop_tokens": ignore(),
        },
    ),
    ((r"tokens_per_second.*|peak_memory.*|rewards", ignore()),),
)  # fmt: skip

_FARM = Dialect(
    "alpaca-farm", "alpaca-farm", Stage.POLICY, "ppo",
    (frozenset({"objective/kl_sum_seq"}), frozenset({"objective/kl_avg_seq"}), frozenset({"objective/shaped_rewards"})),
    {
        "objective/kl_coef": to("kl/beta"), "objective/kl_sum_seq": to("kl/reference", E.CLAMPED_K1),
        "objective/kl_avg_seq": to("kl/reference_per_token", E.CLAMPED_K1),
        "objective/shaped_rewards": to("reward/mean"), "objective/non_score_rewards": to("reward/penalty"),
        "objective/rewards": to("score/mean"), "objective/lr": to("policy/learning_rate"),
        "objective/entropies": to("policy/entropy"), "objective/ref_entropies": ignore(),
        "ppo/loss/policy": to("policy/loss"), "ppo/loss/value": to("value/loss"), "ppo/loss/total": ignore(),
        "ppo/policy/entropy": to("policy/entropy"), "ppo/policy/approxkl": to("kl/update", E.K2),
        "ppo/policy/clipfrac": to("policy/clip_fraction", E.PESSIMISTIC), "ppo/returns/mean": to("value/return_mean"),
        "ppo/val/vpred": to("value/mean"), "ppo/val/clipfrac": to("value/clip_fraction"),
        "ppo/val/mean": to("value/mean"), "ppo/policy/advantages_mean": to("advantage/mean"),
    },
    ((r"(?:ppo|time|eval)/.*", ignore()),),
)  # fmt: skip

_RL4LMS = Dialect(
    "rl4lms", "rl4lms", Stage.POLICY, "ppo",
    (frozenset({"rollout_info/kl_div_mean"}), frozenset({"rollout_info/ep_rew"}),
    frozenset({"ppo/policy_gradient_loss"}),
     frozenset({"rollout_info/kl_coeff"})),
    {
        "rollout_info/ep_rew": to("score/mean"), "rollout_info/ep_rew_std": to("score/std"),
        "rollout_info/kl_div_mean": to("kl/reference_per_token", E.K1), "rollout_info/kl_coeff": to("kl/beta"),
        "rollout_info/ep_lens": to("response/length_mean"), "rollout_info/ep_lens_std": to("response/length_std"),
        "rollout_info/ep_kl_rew": to("reward/penalty"), "rollout_info/values": to("value/mean"),
        "ppo/entropy_loss": to("policy/entropy", convert=negated), "ppo/policy_gradient_loss": to("policy/loss"),
        "ppo/value_loss": to("value/loss"), "ppo/approx_kl": to("kl/update", E.K3),
        "ppo/explained_variance": to("value/explained_variance"), "ppo/clip_fraction": to("policy/clip_fraction",
        E.OUTSIDE),
        "iteration": ignore(), "epoch": ignore(),
    },
    ((r"(?:rollout_info|ppo|time)/.*", ignore()),),
    steps=("iteration", "epoch", "step"),
)  # fmt: skip

_SB3 = Dialect(
    "sb3", "sb3", Stage.POLICY, "ppo",
    (frozenset({"rollout/ep_rew_mean"}), frozenset({"train/policy_gradient_loss"}), frozenset({"time/total_timesteps"}),
     frozenset({"policy_gradient_loss", "clip_range"}), frozenset({"train/entropy_loss", "train/clip_range"})),
    {
        f"{prefix}{name}": meaning
        for prefix in ("train/", "")
        for name, meaning in {
            "approx_kl": to("kl/update", E.K3), "clip_fraction": to("policy/clip_fraction", E.OUTSIDE),
            "entropy_loss": to("policy/entropy", convert=negated), "explained_variance": to("value/explained_variance"),
            "policy_gradient_loss": to("policy/loss"), "value_loss": to("value/loss"),
            "learning_rate": to("policy/learning_rate"), "loss": ignore(), "clip_range": ignore(),
            "clip_range_vf": ignore(), "n_updates": ignore(), "std": ignore(),
        }.items()
    } | {
        "rollout/ep_rew_mean": to("score/mean"), "rollout/ep_len_mean": to("response/length_mean"),
        "rollout/success_rate": to("score/success_rate", aggregation=Aggregation.MEAN),
        "eval/mean_reward": to("eval/score"), "eval/mean_ep_length": ignore(),
    },
    ((r"time/.*", ignore()),),
    steps=("time/total_timesteps", "total_timesteps", "time/iterations"),
)  # fmt: skip
_CLEANRL = Dialect(
    "cleanrl", "cleanrl", Stage.POLICY, "ppo",
    (frozenset({"charts/episodic_return"}), frozenset({"losses/old_approx_kl"}), frozenset({"losses/clipfrac",
    "losses/policy_loss"})),
    {
        "charts/episodic_return": to("score/mean"), "charts/episodic_length": to("response/length_mean"),
        "charts/learning_rate": to("policy/learning_rate"), "charts/SPS": ignore(),
        "losses/value_loss": to("value/loss", aggregation=LAST), "losses/policy_loss": to("policy/loss",
        aggregation=LAST),
        "losses/entropy": to("policy/entropy", aggregation=LAST), "losses/old_approx_kl": ignore(),
        "losses/approx_kl": to("kl/update", E.K3, aggregation=LAST),
        "losses/clipfrac": to("policy/clip_fraction", E.OUTSIDE),
        "losses/explained_variance": to("value/explained_variance"), "global_step": ignore(),
    },
)  # fmt: skip

DIALECTS = (
    _DEEPSPEED, _DEEPSPEED_RM, _DEEPSPEED_DPO, _DEEPSPEED_SFT, _MIND_GRPO, _MIND_PPO, _MIND_DPO, _TORCHTUNE, _FARM,
    _RL4LMS,
    _SB3, _CLEANRL,
)  # fmt: skip
