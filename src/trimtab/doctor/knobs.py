"""What each knob is called in each framework: the one table behind every prescription.

Dialects are finer than frameworks where one framework has several trainers. A knob that a dialect does not have is not
in its column, and the prescription says so. A key in words ("self.kl_ctl in ppo_trainer.py") is set in the code, since
there is no option for it. OpenRLHF's are the options of its flat command line; TRL's PPO is that of releases 0.12 to
1.12 (`trl-ppo`) and before (`trl-ppo-legacy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trimtab.doctor.log import Log

__all__ = ["DIALECTS", "KEYS", "KNOBS", "dialect_of", "key_of"]

DIALECTS: Final = (
    "trimtab", "trl-ppo", "trl-ppo-legacy", "trl-grpo", "trl-dpo", "trl-reward", "verl", "openrlhf", "deepspeed-chat",
    "llama-factory", "trlx", "nemo-rl", "ms-swift", "sb3",
)  # fmt: skip

_ACTOR, _CRITIC, _ROLLOUT = "actor_rollout_ref.actor", "critic", "actor_rollout_ref.rollout"
_LR, _HF_BATCH = "learning_rate", "per_device_train_batch_size"
_ACCUMULATE = "gradient_accumulation_steps"
_DSC = "in ppo_trainer.py"

KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    # optimisation of the policy
    "learning_rate": {
        "trimtab": "ppo.learning_rate", "trl-ppo": _LR, "trl-ppo-legacy": _LR, "trl-grpo": _LR,
        "verl": f"{_ACTOR}.optim.lr", "openrlhf": "--actor_learning_rate", "deepspeed-chat": "--actor_learning_rate",
        "llama-factory": _LR, "trlx": "optimizer.kwargs.lr", "nemo-rl": "policy.optimizer.kwargs.lr", "ms-swift": _LR,
        "sb3": _LR,
    },
    "learning_rate_schedule": {
        "trimtab": "ppo.learning_rate_schedule", "trl-ppo": "lr_scheduler_type", "trl-grpo": "lr_scheduler_type",
        "verl": f"{_ACTOR}.optim.lr_scheduler_type", "openrlhf": "--lr_scheduler",
        "deepspeed-chat": "--lr_scheduler_type", "llama-factory": "lr_scheduler_type", "trlx": "scheduler.name",
        "nemo-rl": "policy.scheduler", "ms-swift": "lr_scheduler_type",
    },
    "warmup": {
        "trimtab": "ppo.warmup_fraction", "trl-ppo": "warmup_ratio", "trl-grpo": "warmup_ratio",
        "verl": f"{_ACTOR}.optim.lr_warmup_steps_ratio", "openrlhf": "--lr_warmup_ratio",
        "deepspeed-chat": "--num_warmup_steps", "llama-factory": "warmup_ratio", "ms-swift": "warmup_ratio",
    },
    "batch_size": {
        "trimtab": "ppo.batch_size", "trl-ppo": _ACCUMULATE, "trl-ppo-legacy": "batch_size", "trl-grpo": _ACCUMULATE,
        "verl": "data.train_batch_size", "openrlhf": "--rollout_batch_size",
        "deepspeed-chat": "--per_device_training_batch_size", "llama-factory": "ppo_buffer_size",
        "trlx": "method.num_rollouts", "nemo-rl": "grpo.num_prompts_per_step", "ms-swift": _ACCUMULATE,
        "sb3": "n_steps",
    },
    "minibatches": {
        "trimtab": "ppo.minibatches", "trl-ppo": "num_mini_batches", "nemo-rl": "policy.train_global_batch_size",
        "ms-swift": "num_mini_batches",
    },
    "minibatch_size": {
        "trl-ppo-legacy": "mini_batch_size", "verl": f"{_ACTOR}.ppo_mini_batch_size", "openrlhf": "--train_batch_size",
        "trlx": "train.batch_size", "sb3": "batch_size",
    },
    "epochs": {
        "trimtab": "ppo.epochs", "trl-ppo": "num_ppo_epochs", "trl-ppo-legacy": "ppo_epochs",
        "trl-grpo": "num_iterations", "verl": f"{_ACTOR}.ppo_epochs", "openrlhf": "--max_epochs",
        "deepspeed-chat": "--ppo_epochs", "llama-factory": "ppo_epochs", "trlx": "method.ppo_epochs",
        "ms-swift": "num_iterations", "sb3": "n_epochs",
    },
    "clip_range": {
        "trimtab": "ppo.clip_range", "trl-ppo": "cliprange", "trl-ppo-legacy": "cliprange", "trl-grpo": "epsilon",
        "verl": f"{_ACTOR}.clip_ratio", "openrlhf": "--eps_clip", "deepspeed-chat": f"self.cliprange {_DSC}",
        "trlx": "method.cliprange", "nemo-rl": "loss_fn.ratio_clip_min", "ms-swift": "epsilon", "sb3": "clip_range",
    },
    "clip_range_high": {
        "trl-grpo": "epsilon_high", "verl": f"{_ACTOR}.clip_ratio_high", "openrlhf": "--eps_clip_low_high",
        "nemo-rl": "loss_fn.ratio_clip_max", "ms-swift": "epsilon_high",
    },
    "dual_clip": {
        "trimtab": "ppo.dual_clip", "trl-grpo": "delta", "verl": f"{_ACTOR}.clip_ratio_c", "openrlhf": "--dual_clip",
        "nemo-rl": "loss_fn.ratio_clip_c", "ms-swift": "delta",
    },
    "gradient_clip": {
        "trimtab": "ppo.max_grad_norm", "trl-ppo-legacy": "max_grad_norm", "trl-grpo": "max_grad_norm",
        "verl": f"{_ACTOR}.grad_clip", "openrlhf": "--max_norm",
        "deepspeed-chat": "gradient_clipping in the DeepSpeed config", "llama-factory": "max_grad_norm",
        "nemo-rl": "policy.max_grad_norm", "ms-swift": "max_grad_norm", "sb3": "max_grad_norm",
    },
    "adam_epsilon": {
        "trimtab": "ppo.adam_epsilon", "trl-ppo": "adam_epsilon", "trl-grpo": "adam_epsilon",
        "trlx": "optimizer.kwargs.eps", "nemo-rl": "policy.optimizer.kwargs.eps", "ms-swift": "adam_epsilon",
    },
    "entropy_bonus": {
        "verl": f"{_ACTOR}.entropy_coeff", "openrlhf": "--entropy_loss_coef", "sb3": "ent_coef",
    },
    "iterations": {
        "trimtab": "ppo.iterations", "trl-ppo": "total_episodes", "trl-grpo": "max_steps",
        "verl": "trainer.total_training_steps", "openrlhf": "--num_episodes", "deepspeed-chat": "--num_train_epochs",
        "llama-factory": "max_steps", "trlx": "train.total_steps", "nemo-rl": "grpo.max_num_steps",
        "ms-swift": "max_steps", "sb3": "total_timesteps",
    },
    "dtype": {
        "trimtab": "model.dtype", "trl-ppo": "bf16", "trl-grpo": "bf16", "trl-dpo": "bf16", "trl-reward": "bf16",
        "openrlhf": "--bf16", "deepspeed-chat": "--dtype", "llama-factory": "bf16", "nemo-rl": "policy.precision",
        "ms-swift": "bf16",
    },
    # KL to the reference
    "beta": {
        "trimtab": "ppo.beta", "trl-ppo": "kl_coef", "trl-ppo-legacy": "init_kl_coef", "trl-grpo": "beta",
        "verl": f"{_ACTOR}.kl_loss_coef", "openrlhf": "--init_kl_coef", "deepspeed-chat": f"self.kl_ctl {_DSC}",
        "trlx": "method.init_kl_coef", "nemo-rl": "loss_fn.reference_policy_kl_penalty", "ms-swift": "beta",
    },
    "kl_target": {
        "trimtab": "ppo.kl_target_nats", "trl-ppo-legacy": "target", "verl": "algorithm.kl_ctrl.target_kl",
        "openrlhf": "--kl_target", "llama-factory": "ppo_target", "trlx": "method.target",
    },
    "kl_estimator": {
        "trimtab": "ppo.kl_estimator", "trl-ppo": "kl_estimator", "trl-ppo-legacy": "kl_penalty",
        "verl": f"{_ACTOR}.kl_loss_type", "openrlhf": "--kl_estimator",
    },
    "update_kl_stop": {"trl-ppo-legacy": "target_kl", "sb3": "target_kl"},
    # value model and advantages
    "value_learning_rate": {
        "trimtab": "ppo.value_learning_rate", "verl": f"{_CRITIC}.optim.lr", "openrlhf": "--critic_learning_rate",
        "deepspeed-chat": "--critic_learning_rate",
    },
    "value_coef": {
        "trimtab": "ppo.value_coef", "trl-ppo": "vf_coef", "trl-ppo-legacy": "vf_coef", "trlx": "method.vf_coef",
        "ms-swift": "vf_coef", "sb3": "vf_coef",
    },
    "value_clip": {
        "trimtab": "ppo.value_clip_range", "trl-ppo": "cliprange_value", "trl-ppo-legacy": "cliprange_value",
        "verl": f"{_CRITIC}.cliprange_value", "openrlhf": "--value_clip",
        "deepspeed-chat": f"self.cliprange_value {_DSC}", "trlx": "method.cliprange_value",
        "ms-swift": "cliprange_value", "sb3": "clip_range_vf",
    },
    "value_normalisation": {"trimtab": "ppo.value_normalisation", "sb3": "VecNormalize(norm_reward)"},
    "value_warmup": {"verl": "trainer.critic_warmup", "openrlhf": "--freezing_actor_steps"},
    "value_init": {
        "trimtab": "ppo.value_init", "trl-ppo": "value_model (argument of PPOTrainer)", "verl": f"{_CRITIC}.model.path",
        "openrlhf": "--critic_pretrain", "deepspeed-chat": "--critic_model_name_or_path",
    },
    "gamma": {
        "trimtab": "ppo.gamma", "trl-ppo": "gamma", "trl-ppo-legacy": "gamma", "verl": "algorithm.gamma",
        "openrlhf": "--gamma", "deepspeed-chat": f"self.gamma {_DSC}", "trlx": "method.gamma", "ms-swift": "gamma",
        "sb3": "gamma",
    },
    "lambda": {
        "trimtab": "ppo.gae_lambda", "trl-ppo": "lam", "trl-ppo-legacy": "lam", "verl": "algorithm.lam",
        "openrlhf": "--lambd", "deepspeed-chat": f"self.lam {_DSC}", "trlx": "method.lam", "ms-swift": "lam",
        "sb3": "gae_lambda",
    },
    "group_size": {
        "trimtab": "ppo.responses_per_prompt", "trl-grpo": "num_generations", "verl": f"{_ROLLOUT}.n",
        "openrlhf": "--n_samples_per_prompt", "nemo-rl": "grpo.num_generations_per_prompt",
        "ms-swift": "num_generations",
    },
    "advantage_whitening": {"trimtab": "ppo.advantage_whitening", "sb3": "normalize_advantage"},
    # reward
    "score_normalisation": {
        "trimtab": "ppo.score_normalisation", "trl-ppo-legacy": "use_score_scaling", "trl-grpo": "scale_rewards",
        "openrlhf": "--normalize_reward", "llama-factory": "ppo_score_norm", "trlx": "method.scale_reward",
        "nemo-rl": "grpo.normalize_rewards", "ms-swift": "scale_rewards", "sb3": "VecNormalize(norm_reward)",
    },
    "score_clip": {
        "trimtab": "ppo.score_clip", "trl-ppo-legacy": "score_clip", "openrlhf": "--reward_clip_range",
        "deepspeed-chat": f"self.clip_reward_value {_DSC}", "trlx": "method.cliprange_reward",
        "sb3": "VecNormalize(clip_reward)",
    },
    "reward_whitening": {
        "trimtab": "ppo.reward_whitening", "trl-ppo": "whiten_rewards", "trl-ppo-legacy": "whiten_rewards",
        "llama-factory": "ppo_whiten_rewards", "ms-swift": "whiten_rewards",
    },
    "length_penalty": {"trimtab": "ppo.length_penalty", "openrlhf": "--overlong_penalty_factor"},
    "missing_eos_penalty": {
        "trimtab": "ppo.missing_eos_penalty", "trl-ppo": "missing_eos_penalty", "ms-swift": "missing_eos_penalty",
    },
    "mask_truncated": {
        "trl-grpo": "mask_truncated_completions", "nemo-rl": "grpo.overlong_filtering", "ms-swift": "overlong_filter",
    },
    "drop_flat_groups": {
        "verl": "algorithm.filter_groups.enable", "openrlhf": "--dynamic_filtering",
        "nemo-rl": "grpo.use_dynamic_sampling", "ms-swift": "dynamic_sample",
    },
    # sampling
    "temperature": {
        "trimtab": "ppo.temperature", "trl-ppo": "temperature", "trl-ppo-legacy": "temperature (generation_kwargs)",
        "trl-grpo": "temperature", "verl": f"{_ROLLOUT}.temperature", "openrlhf": "--temperature",
        "llama-factory": "temperature", "trlx": "method.gen_kwargs.temperature",
        "nemo-rl": "policy.generation.temperature", "ms-swift": "temperature",
    },
    "top_k": {
        "trl-ppo-legacy": "top_k (generation_kwargs)", "trl-grpo": "top_k", "verl": f"{_ROLLOUT}.top_k",
        "llama-factory": "top_k", "trlx": "method.gen_kwargs.top_k", "nemo-rl": "policy.generation.top_k",
        "ms-swift": "top_k",
    },
    "top_p": {
        "trl-ppo-legacy": "top_p (generation_kwargs)", "trl-grpo": "top_p", "verl": f"{_ROLLOUT}.top_p",
        "openrlhf": "--top_p", "llama-factory": "top_p", "trlx": "method.gen_kwargs.top_p",
        "nemo-rl": "policy.generation.top_p", "ms-swift": "top_p",
    },
    "max_new_tokens": {
        "trimtab": "ppo.max_new_tokens", "trl-ppo": "response_length",
        "trl-ppo-legacy": "max_new_tokens (generation_kwargs)", "trl-grpo": "max_completion_length",
        "verl": "data.max_response_length", "openrlhf": "--generate_max_len", "deepspeed-chat": "--max_answer_seq_len",
        "llama-factory": "max_new_tokens", "trlx": "method.gen_kwargs.max_new_tokens",
        "nemo-rl": "policy.generation.max_new_tokens", "ms-swift": "max_completion_length",
    },
    "importance_cap": {
        "trl-grpo": "vllm_importance_sampling_cap", "verl": "algorithm.rollout_correction.rollout_is_threshold",
        "nemo-rl": "loss_fn.use_importance_sampling_correction",
    },
    "language_loss_mix": {"openrlhf": "--ptx_coef", "deepspeed-chat": "--unsup_coef"},
    # labels and the preference model
    "both_orders": {"trimtab": "label.both_orders"},
    "judge_model": {"trimtab": "label.model"},
    "least_gap": {"trimtab": "label.abstain"},
    "votes": {"trimtab": "label.samples"},
    "judge_templates": {"trimtab": "label.templates"},
    "vote_aggregation": {"trimtab": "label.aggregation"},
    "pair_temperature": {"trimtab": "sample.temperature"},
    "pairs_per_prompt": {"trimtab": "sample.pairs_per_prompt"},
    "soft_labels": {"trimtab": "preference.soft_labels"},
    "label_smoothing": {"trimtab": "preference.label_smoothing"},
    "pm_learning_rate": {
        "trimtab": "preference.learning_rate", "trl-reward": _LR, "openrlhf": "--learning_rate",
        "deepspeed-chat": "--learning_rate", "llama-factory": _LR, "nemo-rl": "policy.optimizer.kwargs.lr",
        "ms-swift": _LR,
    },
    "pm_epochs": {
        "trimtab": "preference.epochs", "trl-reward": "num_train_epochs", "openrlhf": "--max_epochs",
        "deepspeed-chat": "--num_train_epochs", "llama-factory": "num_train_epochs", "nemo-rl": "rm.max_num_epochs",
        "ms-swift": "num_train_epochs",
    },
    "pm_weight_decay": {
        "trimtab": "preference.weight_decay", "trl-reward": "weight_decay", "openrlhf": "--l2",
        "deepspeed-chat": "--weight_decay", "llama-factory": "weight_decay", "ms-swift": "weight_decay",
    },
    "pm_centring": {"trl-reward": "center_rewards_coefficient", "ms-swift": "center_rewards_coefficient"},
    "pm_max_tokens": {
        "trimtab": "preference.max_tokens", "trl-reward": "max_length", "openrlhf": "--max_len",
        "deepspeed-chat": "--max_seq_len", "llama-factory": "cutoff_len", "ms-swift": "max_length",
    },
    # direct preference optimisation
    "dpo_learning_rate": {
        "trimtab": "dpo.learning_rate",
        "trl-dpo": _LR, "openrlhf": "--learning_rate", "deepspeed-chat": "--learning_rate", "llama-factory": _LR,
        "nemo-rl": "policy.optimizer.kwargs.lr", "ms-swift": _LR,
    },
    "dpo_beta": {
        "trimtab": "dpo.beta",
        "trl-dpo": "beta", "openrlhf": "--beta", "deepspeed-chat": "--beta", "llama-factory": "pref_beta",
        "nemo-rl": "dpo.reference_policy_kl_penalty", "ms-swift": "beta",
    },
    "dpo_epochs": {
        "trimtab": "dpo.epochs",
        "trl-dpo": "num_train_epochs", "openrlhf": "--max_epochs", "deepspeed-chat": "--num_train_epochs",
        "llama-factory": "num_train_epochs", "nemo-rl": "dpo.max_num_epochs", "ms-swift": "num_train_epochs",
    },
    "dpo_label_smoothing": {
        "trimtab": "dpo.label_smoothing",
        "trl-dpo": "label_smoothing", "openrlhf": "--label_smoothing", "deepspeed-chat": "--label_smoothing",
        "llama-factory": "dpo_label_smoothing", "ms-swift": "label_smoothing",
    },
    "dpo_sft_weight": {
        "trimtab": "dpo.language_coef",
        "trl-dpo": "rpo_alpha", "openrlhf": "--nll_loss_coef", "llama-factory": "pref_ftx",
        "nemo-rl": "dpo.sft_loss_weight", "ms-swift": "rpo_alpha",
    },
}  # fmt: skip
"""Knob -> dialect -> key."""


def _by_key() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {"algorithm.kl_ctrl.kl_coef": {"beta"}}
    for knob, keys in KEYS.items():
        for key in (knob, *keys.values()):
            found.setdefault(key, set()).add(knob)
    return {key: frozenset(knobs) for key, knobs in found.items()}


KNOBS: Final[Mapping[str, frozenset[str]]] = _by_key()
"""Key of any dialect -> the knobs that it may be."""


def dialect_of(log: Log | None) -> str:
    """Whose keys a prescription uses; `unknown` where the framework is not known, ours without a log."""
    if log is None:
        return "trimtab"
    if log.framework == "ms-swift" and log.algorithm == "ppo":
        return "trl-ppo"  # its PPO is TRL's, under TRL's names
    if log.framework != "trl":
        return log.framework if log.framework in DIALECTS else "unknown"
    by_algorithm = {"dpo": "dpo", "kto": "dpo", "reward-model": "reward", "grpo": "grpo", "rloo": "grpo"}
    if log.algorithm in by_algorithm:
        return f"trl-{by_algorithm[log.algorithm]}"
    by_stage = {"pm": "trl-reward", "direct": "trl-dpo"}
    if log.stage.value in by_stage:
        return by_stage[log.stage.value]
    first = ("ppo/", "env/", "tokens/", "objective/kl_coef")
    legacy = any(series.name.removeprefix("train/").startswith(first) for series in log.series.values())
    legacy = legacy or log.format == "console-warnings"  # only that trainer gave any
    return "trl-ppo-legacy" if legacy else "trl-ppo"


def key_of(knob: str, dialect: str, log: Log | None = None) -> str | None:
    """The key of a knob in a dialect; None where it has none."""
    # verl puts the KL into the loss or into the reward, each with a coefficient of its own
    in_loss = log is None or any(series.name.endswith("actor/kl_loss") for series in log.series.values())
    if dialect == "verl" and knob == "beta" and not in_loss:
        return "algorithm.kl_ctrl.kl_coef"
    return KEYS[knob].get(dialect)
