# ruff: noqa: E501 (lines are as long as trainers print them)
"""Small logs of our own making, in the form and with the names of each framework."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["FORMS", "Form", "grpo_rows", "jsonl"]


class Form:
    """A log as text, and what it must be read as."""

    def __init__(
        self, name: str, text: str, framework: str, algorithm: str, steps: Sequence[int],
        expected: Mapping[str, Sequence[float]], planned: int | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.text = text
        self.framework = framework
        self.algorithm = algorithm
        self.steps = list(steps)
        self.expected = expected
        self.planned = planned

    def __repr__(self) -> str:
        return self.name


def jsonl(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def grpo_rows(n: int = 6) -> list[dict[str, Any]]:
    """Entries of a `log_history` of TRL's GRPO."""
    return [
        {
            "loss": 0.001 * i, "grad_norm": 0.5 + i / 8, "learning_rate": 1e-6, "completions/mean_length": 40.0 + i,
            "completions/clipped_ratio": 0.0, "rewards/exact/mean": 0.25 + i / 64, "rewards/exact/std": 0.25,
            "reward": 0.25 + i / 64, "reward_std": 0.125, "frac_reward_zero_std": 0.25, "kl": 0.0625 * i,
            "entropy": 1.5 - i / 16, "clip_ratio/region_mean": 0.0, "epoch": i / 8, "step": 10 * (i + 1),
        }
        for i in range(n)
    ]  # fmt: skip


_ROWS = grpo_rows()
_STEPS = [10, 20, 30, 40, 50, 60]
_KL = [0.0625 * i for i in range(6)]
_GRPO = {"kl/reference_per_token": _KL, "score/mean": [0.25 + i / 64 for i in range(6)], "score/exact": [0.25 + i / 64 for i in range(6)],
         "group/zero_std_fraction": [0.25] * 6, "kl/reference": [k * (40.0 + i) for i, k in enumerate(_KL)]}  # fmt: skip


def _without_step(row: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k != "step"}


_STATE = {"epoch": 1.0, "global_step": 60, "max_steps": 600, "logging_steps": 10, "log_history": _ROWS}
_WARNING = "/x/site-packages/torch/utils.py:12: UserWarning: something {odd}: 3\n"
_BARS = "".join(
    f"\r  {i}%|##   | {10 * (i + 1)}/600 [00:0{i}<01:00,  2.00it/s]"
    + (f"\n{_without_step(row)}\n" if i % 2 else f"{_without_step(row)}\n")
    for i, row in enumerate(_ROWS)
)
_QUOTED = "".join(str({k: f"{v:.4g}" for k, v in _without_step(row).items()}) + "\n" for row in _ROWS)

_PPO_NEW = [
    {"eps": 1, "objective/kl": 2.0 * i, "objective/entropy": 40.0, "objective/non_score_reward": -0.1 * i,
     "objective/rlhf_reward": 1.0 - 0.1 * i, "objective/scores": 1.0, "policy/approxkl_avg": 0.01, "policy/clipfrac_avg": 0.125,
     "loss/policy_avg": -0.01, "loss/value_avg": 0.5, "val/clipfrac_avg": 0.0, "policy/entropy_avg": 1.25, "val/ratio": 1.0,
     "val/ratio_var": 0.0, "val/num_eos_tokens": 7, "lr": 1e-6, "episode": 8 * i, "epoch": 0.1 * i, "step": i}
    for i in range(1, 5)
]  # fmt: skip
_PPO_OLD = [
    {"objective/kl": 3.0, "objective/kl_coef": 0.2, "objective/entropy": 60.0, "ppo/mean_non_score_reward": -0.02,
     "ppo/mean_scores": 0.5 * i, "ppo/std_scores": 0.25, "ppo/loss/policy": -0.02, "ppo/loss/value": 0.4,
     "ppo/policy/entropy": 1.0, "ppo/policy/approxkl": 0.02, "ppo/policy/policykl": 0.01, "ppo/policy/clipfrac": 0.1,
     "ppo/returns/mean": 0.3, "ppo/returns/var": 0.04, "ppo/val/var_explained": 0.75, "tokens/responses_len_mean": 30.0,
     "env/reward_mean": 0.5 * i, "time/ppo/total": 12.0}
    for i in range(4)
]  # fmt: skip
_VERL = [
    {"actor/pg_loss": 0.01, "actor/ppo_kl": -0.001, "actor/pg_clipfrac": 0.02, "actor/kl_loss": 0.05 * i, "actor/entropy": 0.7,
     "actor/grad_norm": 0.3, "actor/lr": 1e-6, "critic/score/mean": 0.1 * i, "critic/rewards/mean": 0.1 * i - 0.01,
     "critic/vf_explained_var": 0.6, "critic/vf_loss": 0.2, "response_length/mean": 200.0, "response_length/clip_ratio": 0.125,
     "val-core/gsm8k/acc/mean@1": 0.5, "timing_s/step": 30.0}
    for i in range(1, 5)
]  # fmt: skip


def _verl_line(i: int, row: Mapping[str, Any]) -> str:
    return f"step:{i} - " + " - ".join(
        f"{k}:{v}" if n % 2 else f"{k}:np.float64({v})" for n, (k, v) in enumerate(row.items())
    )


def _verl_console() -> str:
    lines = []
    for i, row in enumerate(_VERL, 1):
        text = _verl_line(i, row)
        if i == 2:  # wrapped between two metrics, and in the middle of one
            at, middle = text.index(" - critic/score"), text.index("clip_ratio") + 4
            lines += [
                f"\x1b[36m(TaskRunner pid=77)\x1b[0m {text[:at]}",
                f"(TaskRunner pid=77) {text[at:middle]}",
                text[middle:],
            ]
        else:
            lines.append(f"\x1b[36m(TaskRunner pid=77)\x1b[0m {text}")
        lines.append("(WorkerDict pid=78, ip=10.0.0.2) INFO:something: 12 done")
    return "\n".join(lines) + "\n"


_VERL_EXPECTED = {
    "score/mean": [0.1 * i for i in range(1, 5)], "reward/mean": [0.1 * i - 0.01 for i in range(1, 5)],
    "kl/reference_per_token": [0.05 * i for i in range(1, 5)], "kl/reference": [0.05 * i * 200 for i in range(1, 5)],
    "kl/update": [-0.001] * 4, "policy/entropy": [0.7] * 4, "response/truncated_fraction": [0.125] * 4,
    "eval/gsm8k/acc/mean@1": [0.5] * 4, "value/explained_variance": [0.6] * 4,
}  # fmt: skip

_DPO = [
    {"loss": 0.69 - i / 32, "grad_norm": 2.0, "learning_rate": 5e-7, "rewards/chosen": -0.1 * i, "rewards/rejected": -0.2 * i,
     "rewards/accuracies": 0.5 + i / 16, "rewards/margins": 0.1 * i, "logps/chosen": -100.0, "logps/rejected": -120.0,
     "logits/chosen": -1.0, "epoch": i / 4, "step": i}
    for i in range(1, 5)
]  # fmt: skip
_DPO_EVAL = {
    "eval_loss": 0.6,
    "eval_rewards/accuracies": 0.75,
    "eval_rewards/margins": 0.3,
    "eval_runtime": 2.0,
    "epoch": 1.0,
    "step": 4,
}
_RM = [
    {"loss": 0.6, "min_reward": -1.0, "mean_reward": 0.0, "max_reward": 1.5, "accuracy": 0.7, "margin": 0.4, "grad_norm": 1.0,
     "learning_rate": 1e-5, "epoch": i / 4, "step": 5 * i}
    for i in range(1, 5)
] + [{"eval_loss": 0.55, "eval_accuracy": 0.72, "eval_margin": 0.5, "epoch": 1.0, "step": 20}]  # fmt: skip

_DS_OLD = """\
cmd = deepspeed main.py --actor_learning_rate 9.65e-6 --critic_learning_rate 5e-6 --ppo_epochs 1 --deepspeed
Beginning of Epoch 1/2, Total Generation Batches 3
[2024-01-01 08:48:01,543] [INFO] [loss_scaler.py:188:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768
epoch: 0|step: 0|ppo_ep: 1|act_loss: 0.25|cri_loss: 0.125|unsuper_loss: 0.0
average reward score: -0.5
-------------------------------------------------------------------------------------
|E2E latency=7.99s |Gather latency=0.00s (0.00%) |Generate time=5.26s (65.81%)
epoch: 0|step: 1|ppo_ep: 1|act_loss: inf|cri_loss: inf|unsuper_loss: 0.0
average reward score: 0.5
epoch: 0|step: 2|ppo_ep: 1|act_loss: 0.125|cri_loss: 0.0625|unsuper_loss: 0.0
average reward score: 1.5
Beginning of Epoch 2/2, Total Generation Batches 3
epoch: 1|step: 0|ppo_ep: 1|act_loss: 0.125|cri_loss: 0.0625|unsuper_loss: 0.0
average reward score: 2.0
"""
_DS_NEW = """\
Epoch: 0 | Step: 0 | PPO Epoch: 1 | Actor Loss: 0.25 | Critic Loss: 0.5 | Unsupervised Loss: 0.0
Average reward score: 1.0 | EMA reward score: 0.9
Epoch: 0 | Step: 1 | PPO Epoch: 1 | Actor Loss: 0.125 | Critic Loss: 0.25 | Unsupervised Loss: 0.0
Average reward score: 2.0 | EMA reward score: 1.1
"""
_DS_RM = """\
***** Evaluating reward, Epoch 0/2 *****
chosen_last_scores (higher is better) : 2.5, acc (higher is better) : 0.5
Beginning of Epoch 1/2, Total Micro Batches 100
Epoch 1/2 with loss 0.625
***** Evaluating reward, Epoch 1/2 *****
chosen_last_scores (higher is better) : 1.5, rejected_last_scores (lower is better) : 0.5, acc (higher is better) : 0.625
Epoch 2/2 with loss 0.5
***** Evaluating reward, Epoch 2/2 *****
chosen_last_scores (higher is better) : 1.75, rejected_last_scores (lower is better) : 0.25, acc (higher is better) : 0.6875
"""
_DS_DPO = """\
***** Evaluating rewards, Epoch 1/1 *****
chosen: 0.0, rejected: 0.0, loss: 0.693359375
[2025-01-02 15:47:38,841] [INFO] [logging.py:128:log_dist] [Rank 0] step=10, skipped=4, lr=[5e-05, 5e-05], mom=[(0.9, 0.95), (0.9, 0.95)]
[2025-01-02 15:47:38,842] [INFO] [timer.py:264:stop] epoch=0/micro_step=20/global_step=10, RunningAvgSamplesPerSec=46.9
***** Evaluating rewards, Epoch 1/1 *****
chosen: -3.5, rejected: -4.5, loss: 0.625
"""

_MIND = "".join(
    f"Epoch:[{e}/2]({i}/4), Reward: {-1.5 + i / 4}, KL_ref: {-0.01 * i:.4f}, Adv Std: 0.9258, Adv Mean: -0.0000, Actor Loss: 0.0000, "
    f"Avg Response Len: 270.00, Learning Rate: 0.00000030\n"
    for e in (1, 2)
    for i in (2, 4)
)
_MIND_DPO = "Model Params: 30.03M\n" + "".join(
    f"Epoch:[1/1]({i}/80), loss: {0.7 - i / 100:.4f}, dpo_loss: {0.7 - i / 100:.4f}, aux_loss: 0.0000, learning_rate: 0.00000004, epoch_time: 9.000min\n"
    for i in (20, 40, 60)
)
_TUNE = "".join(
    f"Step {i} | scores:{0.5 * i} num_stop_tokens:3 rlhf_reward:{0.5 * i - 0.1} kl:{1.5 * i} kl_reward:-0.1 lr:1e-06 loss:0.2 policy_loss:-0.01 "
    f"value_loss:0.3 clipfrac:0.05 ratios:1.0 approx_policy_kl:0.001 response_lengths:50.0 peak_memory_active:20.5 \n"
    for i in (1, 2, 3)
)
_SB3_BOX = "".join(
    "----------------------------------------\n| rollout/                |            |\n|    ep_len_mean          | 50.5       |\n"
    f"|    ep_rew_mean          | {i}.5        |\n| time/                   |            |\n|    total_timesteps      | {2048 * i}       |\n"
    "| train/                  |            |\n|    approx_kl            | 0.0125     |\n|    entropy_loss         | -1.25      |\n"
    "|    clip_fraction        | 0.1        |\n|    explained_variance   | 0.25       |\n|    value_loss           | 12.5       |\n"
    "----------------------------------------\n"
    for i in (1, 2, 3)
)
_SB3_CSV = (
    "rollout/ep_rew_mean,time/total_timesteps,time/fps\n1.5,2048,100\n"
    "rollout/ep_rew_mean,time/total_timesteps,time/fps,train/approx_kl,train/entropy_loss\n2.5,4096,100,0.0125,-1.25\n3.5,6144,99,0.0125,-1.125\n"
)
_OPENRLHF = "".join(
    f"\rTrain epoch [1/1]:  50%|##  | 1/2 [00:05<00:05,  5.0s/it, pg=-0.01, rm={0.25 * i}, ret={0.25 * i - 0.1}, glen=60, tlen=160, kl={0.01 * i}, act_lr=5e-7]"
    f"\rTrain epoch [1/1]: 100%|####| 2/2 [00:10<00:00,  5.0s/it, pg=-0.03, rm={0.25 * i + 0.5}, ret={0.25 * i - 0.1}, glen=60, tlen=160, kl={0.01 * i}, act_lr=5e-7]\n"
    for i in range(1, 6)
)
_OPENRLHF_DICT = "".join(
    f"2025-06-01 10:00:0{i} INFO ✨ Global step {i}: {{'policy_loss': -0.01, 'actor_lr': 5e-07, 'ppo_clip_ratio': 0.01, 'ppo_kl': 0.0005, 'vllm_kl': 0.002, "
    f"'kl': {0.01 * i}, 'reward': {0.25 * i}, 'return': {0.25 * i - 0.05}, 'response_length': 64.0, 'truncated': 0.125, 'entropy_loss': 0.9}}\n"
    for i in range(1, 5)
)
_NEMO = [
    {"train/loss": 0.01, "train/grad_norm": 0.4, "train/lr": 3e-7, "train/kl_penalty": 0.02 * i, "train/token_mult_prob_error": 1.01,
     "train/gen_kl_error": 0.001, "train/approx_entropy": 0.8, "train/reward": 0.2 * i, "train/mean_gen_tokens_per_sample": 100.0,
     "train/truncation_rate": 0.1, "validation/accuracy": 0.4, "step": i}
    for i in range(1, 4)
]  # fmt: skip
_TRLX = [
    {"losses/total_loss": 0.2, "losses/policy_loss": 0.01, "losses/value_loss": 0.3, "policy/sqrt_kl": 2.0, "policy/approx_kl": 0.01,
     "policy/clipfrac": 0.05, "kl_ctl_value": 0.05, "rollout_scores/mean": 0.5 * i, "values/mean": 0.1, "reward/mean": 0.6}
    for i in range(3)
]  # fmt: skip
_RL4LMS = [
    {"iteration": i, "rollout_info": {"ep_rew": 0.3 * i, "kl_div_mean": 0.02, "ep_lens": 40.0, "kl_coeff": 0.1}, "ppo": {"entropy_loss": -1.5, "value_loss": 0.2}}
    for i in range(1, 4)
]  # fmt: skip
_FACTORY = [
    {"current_steps": 10 * i, "total_steps": 300, "loss": -0.1, "reward": 0.1 * i, "lr": 1e-6, "epoch": 0.1 * i, "percentage": 3.0, "elapsed_time": "0:00:10",
     "remaining_time": "0:10:00"}
    for i in range(1, 4)
]  # fmt: skip
_SWIFT = [
    {**_without_step(row), "memory(GiB)": 20.1, "train_speed(iter/s)": 0.1, "global_step/max_steps": f"{10 * (i + 1)}/600", "percentage": "1.67%"}
    for i, row in enumerate(_ROWS)
]  # fmt: skip
_WANDB = (
    '"Step","quiet-sea-3 - train/kl","quiet-sea-3 - train/kl__MIN","quiet-sea-3 - train/kl__MAX","quiet-sea-3 - train/reward",'
    '"quiet-sea-3 - train/reward_std","quiet-sea-3 - train/completions/mean_length"\n'
    '"1","0.01","0.01","0.01","0.5","0.1","50"\n"2","0.02","0.02","0.02","0.6","0.1","50"\n'
)
_OPEN_INSTRUCT = [
    {"training_step": i, "episode": 8 * i, "objective/kl1_avg": 0.01 * i, "objective/kl3_avg": 0.02, "objective/verifiable_correct_rate": 0.25,
     "scores": 0.5 * i, "loss/policy_avg": 0.01, "policy/clipfrac_avg": 0.05, "val/sequence_lengths": 200.0, "val/stop_rate": 0.75, "lr": 1e-6}
    for i in (1, 2, 3)
]  # fmt: skip
_FARM = [
    {"objective/kl_sum_seq": 4.0, "objective/kl_avg_seq": 0.1, "objective/rewards": 0.5 * i, "objective/shaped_rewards": 0.5 * i - 0.1,
     "objective/kl_coef": 0.02, "ppo/loss/policy": 0.01, "ppo/policy/approxkl": 0.01}
    for i in range(3)
]  # fmt: skip
_CLEANRL = [
    {
        "global_step": 128 * i,
        "charts/episodic_return": 10.0 * i,
        "losses/approx_kl": 0.01,
        "losses/entropy": 0.6,
        "losses/clipfrac": 0.1,
    }
    for i in (1, 2, 3)
]
_NEMO_CONSOLE = "".join(
    f"\n========================= Step {i}/100 =========================\n▶ Generating responses...\n\n📊 Training Results:\n  • Loss: 0.0123\n"
    f"  • Generation KL Error: 0.0015\n  • Avg Reward: {0.25 * i}\n  • Mean Generation Length: 345.5\n\n⏱️ Timing:\n  • Total step time: 12.5s\n"
    for i in (1, 2, 3)
)
_SLIME = "".join(
    f"[2025-09-01 10:00:00] rollout.py:80 - rollout {i}: {{'rollout/raw_reward': {0.25 * i}, 'rollout/response_lengths': 500.0, 'rollout/truncated': 0.125}}\n"
    for i in (1, 2, 3)
)  # fmt: skip
_LONG = [
    {"step": s, "metric": name, "value": value}
    for s in (1, 2)
    for name, value in (("objective/kl", 2.0), ("objective/scores", 0.5), ("objective/rlhf_reward", 0.4))
]

FORMS = (
    Form("trainer-state", json.dumps(_STATE, indent=2), "trl", "grpo", _STEPS, _GRPO, 600),
    Form("trainer-state-one-line", json.dumps(_STATE), "trl", "grpo", _STEPS, _GRPO, 600),
    Form("log-history-list", json.dumps(_ROWS), "trl", "grpo", _STEPS, _GRPO),
    Form("log-history-list-pretty", json.dumps(_ROWS, indent=1), "trl", "grpo", _STEPS, _GRPO),
    Form("jsonl", jsonl(_ROWS), "trl", "grpo", _STEPS, _GRPO),
    Form("prefixed", jsonl([{**{f"train/{k}": v for k, v in _without_step(r).items()}, "train/global_step": r["step"]} for r in _ROWS]), "trl", "grpo", _STEPS, _GRPO),
    Form("console-dicts", _WARNING + "".join(f"{r}\n" for r in _ROWS), "trl", "grpo", _STEPS, _GRPO),
    Form("console-dicts-bars", _WARNING + _BARS, "trl", "grpo", _STEPS, _GRPO, 600),
    Form("console-quoted", _QUOTED, "trl", "grpo", [1, 2, 3, 4, 5, 6], {"score/mean": [float(f"{0.25 + i / 64:.4g}") for i in range(6)]}),
    Form("trl-ppo", jsonl(_PPO_NEW), "trl", "ppo", [1, 2, 3, 4], {"kl/reference": [2.0, 4.0, 6.0, 8.0], "score/mean": [1.0] * 4, "reward/mean": [0.9, 0.8, 0.7, 0.6],
         "reward/penalty": [-0.1, -0.2, -0.3, -0.4], "response/eos_count": [7.0] * 4, "policy/entropy": [1.25] * 4, "policy/entropy_sequence": [40.0] * 4}),
    Form("trl-ppo-legacy", jsonl(_PPO_OLD), "trl", "ppo", [1, 2, 3, 4], {"kl/reference": [3.0] * 4, "kl/reference_per_token": [0.1] * 4, "kl/beta": [0.2] * 4,
         "score/mean": [0.0, 0.5, 1.0, 1.5], "value/return_std": [0.2] * 4, "value/explained_variance": [0.75] * 4, "kl/update": [0.02] * 4}),
    Form("verl-console", _verl_console(), "verl", "ppo", [1, 2, 3, 4], _VERL_EXPECTED),
    Form("verl-jsonl", jsonl([{"step": i, "data": row} for i, row in enumerate(_VERL, 1)]), "verl", "ppo", [1, 2, 3, 4], _VERL_EXPECTED),
    Form("dpo", jsonl([*_DPO, _DPO_EVAL]), "trl", "dpo", [1, 2, 3, 4], {"dpo/chosen_reward": [-0.1, -0.2, -0.3, -0.4], "dpo/accuracy": [0.5625, 0.625, 0.6875, 0.75],
         "accuracy/validation": [0.75], "loss/validation": [0.6], "held_out/dpo/margin": [0.3], "dpo/chosen_logprob": [-100.0] * 4}),
    Form("kto", jsonl([{**row, "kl": 0.5} for row in _DPO]), "trl", "kto", [1, 2, 3, 4], {"kto/kl": [0.5] * 4}),
    Form("reward-trainer", jsonl(_RM), "trl", "reward-model", [5, 10, 15, 20], {"accuracy/train": [0.7] * 4, "accuracy/validation": [0.72], "loss/validation": [0.55],
         "margin/mean": [0.4] * 4, "held_out/margin/mean": [0.5], "pm/score_mean": [0.0] * 4}),
    Form("online-dpo", jsonl([{**row, "objective/kl": 2.0, "objective/scores_margin": 0.5, "objective/scores": 1.0, "val/contain_eos_token": 0.5, "beta": 0.1} for row in _DPO]),
         "trl", "online-dpo", [1, 2, 3, 4], {"kl/reference": [2.0] * 4, "response/eos_fraction": [0.5] * 4, "kl/beta": [0.1] * 4}),
    Form("sft", jsonl([{"loss": 1.5, "mean_token_accuracy": 0.6, "grad_norm": 1.0, "learning_rate": 1e-5, "num_tokens": 1e4, "epoch": 0.1 * i, "step": i} for i in (1, 2)]),
         "trl", "sft", [1, 2], {"loss/train": [1.5, 1.5], "accuracy/tokens": [0.6, 0.6]}),
    Form("deepspeed-old", _DS_OLD, "deepspeed-chat", "ppo", [0, 1, 2, 3], {"score/mean": [-0.5, 0.5, 1.5, 2.0], "policy/loss": [0.25, float("inf"), 0.125, 0.125],
         "precision/overflow": [1.0, 0.0, 0.0, 0.0], "precision/loss_scale": [32768.0]}, 6),
    Form("deepspeed-new", _DS_NEW, "deepspeed-chat", "ppo", [0, 1], {"score/mean": [1.0, 2.0], "policy/loss": [0.25, 0.125], "value/loss": [0.5, 0.25]}),
    Form("deepspeed-rm", _DS_RM, "deepspeed-chat", "reward-model", [0, 1, 2], {"accuracy/validation": [0.5, 0.625, 0.6875], "loss/train": [0.625, 0.5],
         "pm/chosen_score": [2.5, 1.5, 1.75], "pm/rejected_score": [0.5, 0.25]}, 200),
    Form("deepspeed-dpo", _DS_DPO, "deepspeed-chat", "dpo", [0, 10], {"dpo/chosen_reward": [0.0, -3.5], "dpo/rejected_reward": [0.0, -4.5], "loss/validation": [0.693359375, 0.625],
         "precision/skipped_updates": [4.0]}),
    Form("deepspeed-jsonl", jsonl([{"step": i, "act_loss": 0.1, "cri_loss": 0.2, "reward": 0.5} for i in (7, 8)]), "deepspeed-chat", "ppo", [7, 8], {"score/mean": [0.5, 0.5]}),
    Form("minimind-grpo", _MIND, "minimind", "grpo", [2, 4, 6, 8], {"score/mean": [-1.0, -0.5, -1.0, -0.5], "kl/reference_per_token": [0.02, 0.04, 0.02, 0.04],
         "response/length_mean": [270.0] * 4}, 8),
    Form("minimind-dpo", _MIND_DPO, "minimind", "dpo", [20, 40, 60], {"loss/train": [0.5, 0.3, 0.1]}, 80),
    Form("torchtune", _TUNE, "torchtune", "ppo", [1, 2, 3], {"score/mean": [0.5, 1.0, 1.5], "kl/reference": [1.5, 3.0, 4.5], "kl/reference_per_token": [0.03, 0.06, 0.09]}),
    Form("sb3-box", _SB3_BOX, "sb3", "ppo", [2048, 4096, 6144], {"score/mean": [1.5, 2.5, 3.5], "policy/entropy": [1.25] * 3, "kl/update": [0.0125] * 3}),
    Form("sb3-csv", _SB3_CSV, "sb3", "ppo", [2048, 4096, 6144], {"score/mean": [1.5, 2.5, 3.5], "policy/entropy": [1.25, 1.125]}),
    Form("openrlhf-bars", _OPENRLHF, "openrlhf", "ppo", [1, 2, 3, 4, 5], {"score/mean": [0.25 * i + 0.25 for i in range(1, 6)],
         "kl/reference_per_token": [0.01 * i for i in range(1, 6)], "response/length_mean": [60.0] * 5}),
    Form("openrlhf-dict", _OPENRLHF_DICT, "openrlhf", "ppo", [1, 2, 3, 4], {"score/mean": [0.25, 0.5, 0.75, 1.0], "reward/mean": [0.2, 0.45, 0.7, 0.95], "rollout/kl": [0.002] * 4}),
    Form("openrlhf-rm", jsonl([{"train/loss": 0.6, "train/acc": 0.75, "train/chosen_reward": 1.0, "train/reject_reward": 0.5, "eval/eval_loss": 0.5, "eval/acc_mean": 0.7,
         "train/global_step": i} for i in (10, 20)]), "openrlhf", "reward-model", [10, 20], {"accuracy/train": [0.75] * 2, "accuracy/validation": [0.7] * 2, "pm/chosen_score": [1.0] * 2}),
    Form("nemo-rl", jsonl(_NEMO), "nemo-rl", "grpo", [1, 2, 3], {"kl/reference_per_token": [0.02, 0.04, 0.06], "score/mean": [0.2, 0.4, 0.6], "rollout/prob_ratio_error": [1.01] * 3,
         "response/truncated_fraction": [0.1] * 3, "eval/accuracy": [0.4] * 3}),
    Form("nemo-rl-console", _NEMO_CONSOLE, "nemo-rl", "grpo", [1, 2, 3], {"score/mean": [0.25, 0.5, 0.75], "rollout/kl": [0.0015] * 3}, 100),
    Form("trlx", jsonl(_TRLX), "trlx", "ppo", [1, 2, 3], {"kl/reference": [4.0] * 3, "score/mean": [0.0, 0.5, 1.0], "kl/beta": [0.05] * 3, "eval/score": [0.6] * 3}),
    Form("rl4lms", jsonl(_RL4LMS), "rl4lms", "ppo", [1, 2, 3], {"score/mean": [0.3, 0.6, 0.9], "policy/entropy": [1.5] * 3, "kl/reference_per_token": [0.02] * 3, "kl/reference": [0.8] * 3}),
    Form("llama-factory", jsonl(_FACTORY), "llama-factory", "ppo", [10, 20, 30], {"score/mean": [0.1, 0.2, 0.3], "policy/loss": [-0.1] * 3}, 300),
    Form("ms-swift", jsonl(_SWIFT), "ms-swift", "grpo", _STEPS, _GRPO, 600),
    Form("wandb-csv", _WANDB, "trl", "grpo", [1, 2], {"kl/reference_per_token": [0.01, 0.02], "score/mean": [0.5, 0.6]}),
    Form("open-instruct", jsonl(_OPEN_INSTRUCT), "open-instruct", "grpo", [1, 2, 3], {"kl/reference_per_token": [0.01, 0.02, 0.03], "score/mean": [0.5, 1.0, 1.5],
         "response/truncated_fraction": [0.25] * 3, "score/correct_rate": [0.25] * 3}),
    Form("alpaca-farm", jsonl(_FARM), "alpaca-farm", "ppo", [1, 2, 3], {"kl/reference": [4.0] * 3, "kl/reference_per_token": [0.1] * 3, "score/mean": [0.0, 0.5, 1.0]}),
    Form("cleanrl", jsonl(_CLEANRL), "cleanrl", "ppo", [128, 256, 384], {"score/mean": [10.0, 20.0, 30.0], "policy/entropy": [0.6] * 3}),
    Form("slime", _SLIME, "slime", "grpo", [1, 2, 3], {"score/mean": [0.25, 0.5, 0.75], "response/length_mean": [500.0] * 3, "response/truncated_fraction": [0.125] * 3}),
    Form("long", jsonl(_LONG), "trl", "ppo", [1, 2], {"kl/reference": [2.0, 2.0], "score/mean": [0.5, 0.5]}),
    Form("columns", json.dumps({"step": [1, 2, 3], "objective/kl": [1.0, 2.0, 3.0], "objective/scores": [0.1, 0.2, 0.3]}), "trl", "ppo", [1, 2, 3], {"kl/reference": [1.0, 2.0, 3.0]}),
)  # fmt: skip
