"""Drawn runs as the files that frameworks leave behind: their names, their units, their layout.

Units follow the frameworks' code: TRL's GRPO logs KL a token, its PPO trainer nats a response; SB3-like negative
entropies do not occur here.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trimtab.doctor.drawn.curves import Drawn

__all__ = ["DRESSES", "Dress", "able", "write"]

Row = dict[str, Any]
Names = Mapping[str, str]

_TRL_EVERYWHERE = {"policy/loss": "loss", "policy/gradient_norm": "grad_norm", "policy/learning_rate": "learning_rate"}
_TRL_GRPO = {
    **_TRL_EVERYWHERE, "score/mean": "reward", "score/group_std": "reward_std",
    "group/zero_std_fraction": "frac_reward_zero_std", "kl/reference_per_token": "kl", "policy/entropy": "entropy",
    "response/length_mean": "completions/mean_length", "response/length_max": "completions/max_length",
    "response/length_min": "completions/min_length", "response/truncated_fraction": "completions/clipped_ratio",
    "policy/clip_fraction": "clip_ratio/region_mean",
    "rollout/logprob_gap_mean": "sampling/sampling_logp_difference/mean", "eval/accuracy": "eval_accuracy",
    "eval/win_rate": "eval_win_rate", "eval/mmlu": "eval_mmlu", "eval/gsm8k": "eval_gsm8k",
    "eval/gsm8k_fresh": "eval_gsm8k_fresh",
}  # fmt: skip
_TRL_PPO = {
    "score/mean": "objective/scores", "reward/mean": "objective/rlhf_reward", "kl/reference": "objective/kl",
    "reward/penalty": "objective/non_score_reward", "policy/entropy_sequence": "objective/entropy",
    "kl/update": "policy/approxkl_avg", "policy/clip_fraction": "policy/clipfrac_avg",
    "policy/entropy": "policy/entropy_avg", "policy/loss": "loss/policy_avg", "value/loss": "loss/value_avg",
    "value/clip_fraction": "val/clipfrac_avg", "policy/ratio_mean": "val/ratio",
    "response/eos_count": "val/num_eos_tokens", "policy/learning_rate": "lr",
}  # fmt: skip
_TRL_PPO_OLD = {
    "score/mean": "ppo/mean_scores", "score/std": "ppo/std_scores", "kl/reference": "objective/kl",
    "kl/beta": "objective/kl_coef", "policy/entropy": "ppo/policy/entropy", "kl/update": "ppo/policy/approxkl",
    "policy/clip_fraction": "ppo/policy/clipfrac", "policy/loss": "ppo/loss/policy", "value/loss": "ppo/loss/value",
    "value/explained_variance": "ppo/val/var_explained", "value/mean": "ppo/val/mean",
    "value/clip_fraction": "ppo/val/clipfrac", "response/length_mean": "tokens/responses_len_mean",
    "advantage/mean": "ppo/policy/advantages_mean", "policy/learning_rate": "ppo/learning_rate",
    "value/return_mean": "ppo/returns/mean",
}  # fmt: skip
_VERL = {
    "score/mean": "critic/score/mean", "score/max": "critic/score/max", "score/min": "critic/score/min",
    "reward/mean": "critic/rewards/mean", "advantage/mean": "critic/advantages/mean",
    "value/explained_variance": "critic/vf_explained_var", "value/loss": "critic/vf_loss",
    "value/clip_fraction": "critic/vf_clipfrac", "value/gradient_norm": "critic/grad_norm",
    "value/mean": "critic/values/mean", "value/return_mean": "critic/returns/mean", "policy/loss": "actor/pg_loss",
    "policy/clip_fraction": "actor/pg_clipfrac", "kl/update": "actor/ppo_kl", "policy/entropy": "actor/entropy",
    "kl/reference_per_token": "actor/kl_loss", "kl/beta": "actor/kl_coef", "policy/gradient_norm": "actor/grad_norm",
    "policy/learning_rate": "actor/lr", "response/length_mean": "response_length/mean",
    "response/length_max": "response_length/max", "response/length_min": "response_length/min",
    "response/truncated_fraction": "response_length/clip_ratio", "eval/accuracy": "val-core/openai/gsm8k/acc/mean@1",
    "eval/win_rate": "val-core/alpaca/win_rate/mean@1", "eval/mmlu": "val-core/mmlu/acc/mean@1",
}  # fmt: skip
_OPENRLHF = {
    "policy/loss": "policy_loss", "policy/learning_rate": "actor_lr", "policy/gradient_norm": "actor_grad_norm",
    "policy/entropy": "entropy_loss", "policy/clip_fraction": "ppo_clip_ratio", "kl/update": "ppo_kl",
    "kl/reference_per_token": "kl", "score/mean": "reward", "reward/mean": "return",
    "score/group_std": "group_reward_std", "response/length_mean": "response_length",
    "response/truncated_fraction": "truncated", "value/loss": "critic_loss", "value/mean": "values",
    "value/gradient_norm": "critic_grad_norm", "eval/accuracy": "eval_gsm8k_pass1",
}  # fmt: skip
_PLAIN = {
    "score/mean": "score_mean", "score/std": "score_std", "kl/reference_per_token": "kl_per_token",
    "kl/reference": "kl_per_sequence", "kl/beta": "kl_coef", "kl/update": "approx_kl",
    "policy/clip_fraction": "clip_fraction", "policy/entropy": "entropy", "policy/gradient_norm": "grad_norm",
    "policy/ratio_mean": "ratio_mean", "policy/ratio_max": "ratio_max", "policy/loss": "policy_loss",
    "policy/learning_rate": "lr", "value/loss": "value_loss", "value/explained_variance": "explained_variance",
    "value/return_std": "return_std", "advantage/mean": "advantage_mean", "advantage/std": "advantage_std",
    "response/length_mean": "response_length", "response/truncated_fraction": "truncated_fraction",
    "response/eos_fraction": "eos_fraction", "response/distinct_2": "distinct_2",
    "response/repetition": "repetition_rate", "group/zero_std_fraction": "zero_std_frac",
    "rollout/logprob_gap_mean": "rollout_logprob_gap", "style/hedges": "hedges_rate",
    "style/sycophancy": "sycophancy_rate", "eval/accuracy": "eval/accuracy", "eval/win_rate": "eval/win_rate",
    "eval/mmlu": "eval/mmlu", "eval/gsm8k": "eval/gsm8k", "eval/gsm8k_fresh": "eval/gsm8k_fresh",
}  # fmt: skip
_TRL_DPO = {
    "sft/loss": "nll_loss",
    "loss/train": "loss", "gradient_norm": "grad_norm", "learning_rate": "learning_rate",
    "dpo/chosen_reward": "rewards/chosen", "dpo/rejected_reward": "rewards/rejected", "dpo/margin": "rewards/margins",
    "dpo/accuracy": "rewards/accuracies", "dpo/chosen_logprob": "logps/chosen",
    "dpo/rejected_logprob": "logps/rejected", "accuracy/validation": "eval_rewards/accuracies",
    "loss/validation": "eval_loss",
}  # fmt: skip
_OPENRLHF_DPO = {
    "loss/train": "loss", "dpo/accuracy": "acc", "dpo/chosen_reward": "chosen_reward",
    "dpo/rejected_reward": "reject_reward", "learning_rate": "lr", "gradient_norm": "grad_norm",
    "accuracy/validation": "eval/acc_mean", "loss/validation": "eval/eval_loss", "sft/loss": "nll_loss",
}  # fmt: skip
_FACTORY_DPO = {
    "loss/train": "loss", "dpo/accuracy": "accuracy", "learning_rate": "lr", "loss/validation": "eval_loss",
}  # fmt: skip
_TRL_RM = {
    "loss/train": "loss", "gradient_norm": "grad_norm", "learning_rate": "learning_rate", "accuracy/train": "accuracy",
    "margin/mean": "margin", "pm/score_mean": "mean_reward", "pm/score_min": "min_reward", "pm/score_max": "max_reward",
    "accuracy/validation": "eval_accuracy", "loss/validation": "eval_loss",
}  # fmt: skip
_OPENRLHF_RM = {
    "loss/train": "loss", "accuracy/train": "acc", "pm/chosen_score": "chosen_reward",
    "pm/rejected_score": "reject_reward", "learning_rate": "lr", "accuracy/validation": "eval/acc_mean",
    "loss/validation": "eval/eval_loss", "pm/score_std": "eval/reward_std",
}  # fmt: skip
_OWN = (
    "score/mean", "score/std", "score/group_std", "group/zero_std_fraction", "kl/reference", "kl/reference_per_token",
    "kl/beta", "kl/update", "policy/entropy", "policy/gradient_norm", "policy/learning_rate", "policy/clip_fraction",
    "policy/ratio_max", "policy/loss", "reward/mean", "advantage/mean", "advantage/std", "rollout/logprob_gap_mean",
    "response/length_mean", "response/length_max", "response/distinct_2", "response/repetition", "value/loss",
    "value/explained_variance", "value/return_mean", "value/return_std", "value/mean", "value/clip_fraction",
    "value/gradient_norm", "accuracy/train", "loss/train", "margin/mean", "margin/std", "gradient_norm",
    "learning_rate", "pm/score_mean", "pm/score_std", "margin/length_correlation", "calibration/ece",
    "calibration/temperature", "accuracy/validation", "loss/validation", "eval/accuracy", "eval/mmlu", "eval/gsm8k",
    "eval/gsm8k_fresh", "precision/loss_scale", "precision/skipped_updates", "shift/distance",
    "shift/outside_fraction",
)  # fmt: skip
_TRIMTAB = {key: key for key in _OWN} | {
    "response/truncated_fraction": "response/finished_fraction",
    "eval/win_rate": "eval/judged_quality",
}
_OURS = {"grpo": "ppo", "ppo": "ppo", "preference-model": "pm"}


class Dress(NamedTuple):
    """What a framework makes of a run.

    Args:
        kinds: of drawn runs that it can train.
        names: canonical key -> its own name.
        save: writes the rows into a directory and returns the file (or directory) to look at.
    """

    kinds: frozenset[str]
    names: Names
    save: Callable[[Drawn, list[Row], Path], Path]


def able(dress: Dress, kind: str, signals: Iterable[Iterable[str]]) -> bool:
    """Whether a dress trains this kind of run and logs one of each group of signals."""
    return kind in dress.kinds and all(any(key in dress.names for key in group) for group in signals)


def write(drawn: Drawn, dress: str, directory: Path) -> Path:
    """A run as the file (or directory) of a framework.

    Args:
        drawn: the run.
        dress: a name of `DRESSES`.
        directory: exists; what is written goes into it.
    """
    look = DRESSES[dress]
    return look.save(drawn, _rows(drawn, look.names), directory)


def _rows(drawn: Drawn, names: Names) -> list[Row]:
    rows = []
    beta = drawn.curves.get("kl/beta")
    if "kl/beta" not in names and beta is not None and not beta.any():
        names = {k: v for k, v in names.items() if not k.startswith("kl/reference")}  # no penalty, no reference model
    for i in range(len(drawn)):
        row = {}
        for key, curve in drawn.curves.items():
            name = names.get(key)
            if name is not None and drawn.has(key, i):
                row[name] = float(curve[i])
        rows.append(row)
    return rows


def _held(name: str) -> bool:
    return name.startswith(("eval_", "eval/", "val-"))


def _state(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    """`trainer_state.json` of transformers; evaluations are entries of their own."""
    history = []
    last = int(drawn.steps[-1])
    for step, row in zip(drawn.steps.tolist(), rows, strict=True):
        place = {"epoch": round(step / last, 4), "step": step}
        history.append({k: v for k, v in row.items() if not _held(k)} | place)
        if held := {k: v for k, v in row.items() if _held(k)}:
            history.append(held | {"eval_runtime": 12.4} | place)
    target = directory / "trainer_state.json"
    state = {"global_step": last, "max_steps": last, "log_history": history, "num_train_epochs": 1}
    target.write_text(json.dumps(state, indent=1), encoding="utf-8")
    return target


def _dicts(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    """A console with one Python dict a log point between progress bars, as transformers prints it."""
    lines = ["Loading checkpoint shards: 100%|##########| 2/2 [00:03<00:00,  1.64s/it]"]
    last = int(drawn.steps[-1])
    for step, row in zip(drawn.steps.tolist(), rows, strict=True):
        shown = {k: v if math.isnan(v) or math.isinf(v) else float(f"{v:.4g}") for k, v in row.items()}
        lines.append(f"{100 * step // last}%|###       | {step}/{last} [10:02<33:10,  4.1s/it]")
        lines.append(repr(shown | {"epoch": round(step / last, 3)}))
    target = directory / "train.log"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def _verl_console(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    lines = ["(TaskRunner pid=4711) Training Progress:   0%|          | 0/100 [00:00<?, ?it/s]"]
    for step, row in zip(drawn.steps.tolist(), rows, strict=True):
        told = " - ".join(f"{k}:{v!r}" for k, v in row.items())
        lines.append(f"(TaskRunner pid=4711) step:{step} - {told} - timing_s/step:41.2 - perf/throughput:1831.4")
    target = directory / "verl.log"
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def _verl_lines(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    steps = drawn.steps.tolist()
    return _lines(directory, "verl.jsonl", ({"step": s, "data": row} for s, row in zip(steps, rows, strict=True)))


def _swift(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    last = int(drawn.steps[-1])
    made = (
        row
        | {"epoch": s / last, "global_step/max_steps": f"{s}/{last}", "memory(GiB)": 61.4, "train_speed(iter/s)": 0.1}
        for s, row in zip(drawn.steps.tolist(), rows, strict=True)
    )
    return _lines(directory, "logging.jsonl", made)


def _factory(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    last = int(drawn.steps[-1])
    made = (
        {"current_steps": s, "total_steps": last, **row, "epoch": s / last, "percentage": 100 * s / last,
         "elapsed_time": "0:10:01", "remaining_time": "0:31:00"}
        for s, row in zip(drawn.steps.tolist(), rows, strict=True)
    )  # fmt: skip
    return _lines(directory, "trainer_log.jsonl", made)


def _plain_lines(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    steps = drawn.steps.tolist()
    return _lines(directory, "metrics.jsonl", ({"step": s, **row} for s, row in zip(steps, rows, strict=True)))


def _lines(directory: Path, name: str, records: Iterable[Row]) -> Path:
    target = directory / name
    with target.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(record) + "\n" for record in records)
    return target


def _plain_csv(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    return _csv(directory / "log.csv", "step", drawn.steps.tolist(), rows)


def _export(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    """A CSV export of Weights & Biases: `train/` before the names, its own counters beside them."""
    renamed = [
        {k if _held(k) else f"train/{k}": v for k, v in row.items()}
        | {"_runtime": 31.0 * i, "_timestamp": 1.7e9 + 31 * i}
        for i, row in enumerate(rows)
    ]
    return _csv(directory / "wandb_export.csv", "_step", drawn.steps.tolist(), renamed)


def _csv(target: Path, step: str, steps: list[int], rows: list[Row]) -> Path:
    names = list(dict.fromkeys(k for row in rows for k in row))
    with target.open("w", encoding="utf-8", newline="") as out:
        table = csv.writer(out)
        table.writerow([step, *names])
        for at, row in zip(steps, rows, strict=True):
            table.writerow(
                [at, *("" if k not in row else "NaN" if math.isnan(row[k]) else repr(row[k]) for k in names)]
            )
    return target


def _own(drawn: Drawn, rows: list[Row], directory: Path) -> Path:
    from trimtab.config.schema import Config
    from trimtab.runs.run import Run

    stage = _OURS.get(drawn.kind, "ppo")
    config = Config().model_dump(mode="json")
    if stage == "ppo":
        config["ppo"]["iterations"] = int(drawn.steps[-1])
    for key, value in drawn.settings.items():
        section, _, name = key.partition(".")
        config[section][name] = value
    run = Run.create(directory / "runs", "drawn", config=config, seed=0, hashes={"constitution": "0" * 64})
    try:
        run.begin_stage(stage, "0" * 64)
        for step, row in zip(drawn.steps.tolist(), rows, strict=True):
            if (cut := row.get("response/finished_fraction")) is not None:
                row["response/finished_fraction"] = 1 - cut
            run.log(stage, step, row)
        run.end_stage(stage, "done")
    finally:
        run.close()
    return run.path


_G, _P, _D, _M = frozenset({"grpo"}), frozenset({"ppo"}), frozenset({"direct"}), frozenset({"preference-model"})

DRESSES: dict[str, Dress] = {
    "trl-grpo": Dress(_G, _TRL_GRPO, _state),
    "trl-grpo-console": Dress(_G, _TRL_GRPO, _dicts),
    "ms-swift": Dress(_G, _TRL_GRPO, _swift),
    "verl-console": Dress(_G | _P, _VERL, _verl_console),
    "verl-jsonl": Dress(_G | _P, _VERL, _verl_lines),
    "openrlhf-wandb": Dress(_G | _P, _OPENRLHF, _export),
    "trl-ppo": Dress(_P, _TRL_PPO, _state),
    "trl-ppo-old-wandb": Dress(_P, _TRL_PPO_OLD, _plain_csv),
    "plain-csv": Dress(_G | _P, _PLAIN, _plain_csv),
    "plain-jsonl": Dress(_G | _P, _PLAIN, _plain_lines),
    "trl-dpo": Dress(_D, _TRL_DPO, _state),
    "trl-dpo-console": Dress(_D, _TRL_DPO, _dicts),
    "openrlhf-dpo-wandb": Dress(_D, _OPENRLHF_DPO, _export),
    "llama-factory-dpo": Dress(_D, _FACTORY_DPO, _factory),
    "trl-reward": Dress(_M, _TRL_RM, _state),
    "trl-reward-console": Dress(_M, _TRL_RM, _dicts),
    "openrlhf-rm-wandb": Dress(_M, _OPENRLHF_RM, _export),
    "trimtab": Dress(_P | _M, _TRIMTAB, _own),
}
"""Frameworks, by the name that benches use."""
