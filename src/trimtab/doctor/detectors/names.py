"""What the commonest frameworks call the signals that a check needs, so that "not logged" names the key to turn on."""

from __future__ import annotations

__all__ = ["in_words_of"]

_TRL = {
    "score/mean": "reward",
    "score/std": "reward_std",
    "kl/reference": "objective/kl",
    "kl/reference_per_token": "kl (beta > 0)",
    "kl/update": "policy/approxkl_avg",
    "policy/clip_fraction": "clip_ratio/region_mean",
    "policy/entropy": "entropy",
    "policy/gradient_norm": "grad_norm",
    "policy/ratio_mean": "val/ratio",
    "group/zero_std_fraction": "frac_reward_zero_std",
    "response/length_mean": "completions/mean_length",
    "response/truncated_fraction": "completions/clipped_ratio",
    "response/eos_count": "val/num_eos_tokens",
    "response/eos_fraction": "val/num_eos_tokens",
    "rollout/logprob_gap_mean": "sampling/sampling_logp_difference/mean",
    "value/loss": "loss/value_avg",
    "value/explained_variance": "ppo/val/var_explained",
    "advantage/mean": "ppo/policy/advantages_mean",
    "dpo/chosen_reward": "rewards/chosen",
    "dpo/margin": "rewards/margins",
    "dpo/accuracy": "rewards/accuracies",
    "dpo/chosen_logprob": "logps/chosen",
    "accuracy/validation": "eval_accuracy",
    "accuracy/train": "accuracy",
    "loss/validation": "eval_loss",
    "loss/train": "loss",
    "gradient_norm": "grad_norm",
    "margin/mean": "margin",
    "eval/<measure>": "eval_<measure>",
}

_VERL = {
    "score/mean": "critic/score/mean",
    "score/std": "critic/score/max and critic/score/min",
    "kl/reference": "actor/reward_kl_penalty",
    "kl/reference_per_token": "actor/kl_loss (use_kl_loss=True) or actor/reward_kl_penalty",
    "kl/update": "actor/ppo_kl",
    "policy/clip_fraction": "actor/pg_clipfrac",
    "policy/entropy": "actor/entropy",
    "policy/gradient_norm": "actor/grad_norm",
    "response/length_mean": "response_length/mean",
    "response/truncated_fraction": "response_length/clip_ratio",
    "rollout/logprob_gap_mean": "training/rollout_probs_diff_mean",
    "value/loss": "critic/vf_loss",
    "value/explained_variance": "critic/vf_explained_var",
    "advantage/mean": "critic/advantages/mean",
    "eval/<measure>": "val-core/<source>/<measure>",
}

_OPENRLHF = {
    "score/mean": "reward",
    "score/std": "group_reward_std",
    "kl/reference_per_token": "kl",
    "kl/update": "ppo_kl",
    "policy/clip_fraction": "ppo_clip_ratio",
    "policy/entropy": "entropy_loss",
    "policy/gradient_norm": "actor_grad_norm",
    "response/length_mean": "response_length",
    "response/truncated_fraction": "truncated",
    "rollout/kl": "vllm_kl",
    "rollout/logprob_gap_mean": "vllm_kl",
    "value/loss": "critic_loss",
    "accuracy/validation": "eval acc_mean",
    "accuracy/train": "acc",
    "loss/validation": "eval_loss",
    "loss/train": "loss",
}

_NEMO = {
    "score/mean": "train/reward",
    "kl/reference_per_token": "train/kl_penalty",
    "policy/entropy": "train/approx_entropy",
    "policy/gradient_norm": "train/grad_norm",
    "policy/ratio_mean": "train/probs_ratio",
    "policy/ratio_max": "train/probs_ratio_max",
    "response/length_mean": "train/mean_gen_tokens_per_sample",
    "response/truncated_fraction": "train/truncation_rate",
    "rollout/prob_ratio_error": "train/token_mult_prob_error",
    "rollout/logprob_gap_mean": "train/token_mult_prob_error",
    "value/explained_variance": "critic/explained_var",
    "value/loss": "critic/loss",
    "eval/<measure>": "validation/<measure>",
}

_TRLX = {
    "score/mean": "rollout_scores/mean",
    "score/std": "rollout_scores/std",
    "kl/reference": "policy/sqrt_kl",
    "kl/update": "policy/approx_kl",
    "policy/clip_fraction": "policy/clipfrac",
    "policy/ratio_mean": "ratio",
    "value/loss": "losses/value_loss",
    "eval/<measure>": "metrics/<measure>",
}

_SB3 = {
    "score/mean": "rollout/ep_rew_mean",
    "kl/update": "train/approx_kl",
    "policy/clip_fraction": "train/clip_fraction",
    "policy/entropy": "train/entropy_loss",
    "value/loss": "train/value_loss",
    "value/explained_variance": "train/explained_variance",
    "response/length_mean": "rollout/ep_len_mean",
}

_BY_FRAMEWORK = {
    "trl": _TRL,
    "ms-swift": _TRL,
    "llama-factory": _TRL,
    "verl": _VERL,
    "openrlhf": _OPENRLHF,
    "nemo-rl": _NEMO,
    "trlx": _TRLX,
    "sb3": _SB3,
}


def in_words_of(framework: str, key: str) -> str:
    """The name of a canonical key in a framework; the key itself where the framework has none that we know."""
    return _BY_FRAMEWORK.get(framework, {}).get(key, key)
