"""Logs of other people's runs, where they are at hand: the right framework, the expected series, a plausible length."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from trimtab.doctor.importers import read
from trimtab.doctor.judgments import JudgmentMaterial
from trimtab.doctor.log import Log, Stage

_CASES = Path(__file__).parents[4] / "shared" / "cases"


class _Case(NamedTuple):
    file: str
    framework: str
    stage: Stage
    rows: tuple[int, int]
    keys: str
    unknown: str = ""
    planned: int | None = None
    steps: tuple[int, int] | None = None


_P, _D, _M = Stage.POLICY, Stage.DIRECT, Stage.PREFERENCE_MODEL
_GRPO = "score/mean kl/reference_per_token kl/reference response/length_mean policy/gradient_norm score/group_std"
_PPO = "score/mean reward/mean kl/reference kl/update value/loss policy/entropy response/eos_count policy/ratio_mean"
_VERL = (
    "score/mean reward/mean advantage/mean policy/entropy response/truncated_fraction kl/update policy/clip_fraction"
)
_LOGS = (
    _Case("ds_chat_dpo_opt350m/*.log", "deepspeed-chat", _D, (230, 250),
     "dpo/chosen_reward dpo/rejected_reward loss/validation", planned=2354, steps=(0, 2350)),
    _Case("ds_chat_ppo_opt1.3b/*.log", "deepspeed-chat", _P, (477, 477),
     "score/mean policy/loss value/loss precision/loss_scale precision/overflow", planned=477, steps=(0, 476)),
    _Case("ds_chat_rm_opt350m/*.log", "deepspeed-chat", _M, (180, 190),
     "accuracy/validation loss/train pm/chosen_score precision/skipped_updates", planned=1840),
    _Case("grpo_proxy_gold_divergence/*.jsonl", "unknown", _P, (250, 250),
     "score/mean eval/gold_success score/proxy_success style/noop", steps=(1, 250)),
    _Case("grpo_strict_reward/*.jsonl", "unknown", _P, (250, 250), "score/mean eval/gold_success"),
    _Case("minimind_dpo/*.log", "minimind", _D, (215, 215), "loss/train learning_rate", planned=4292, steps=(20, 4292)),
    _Case("minimind_grpo_v1/*.log", "minimind", _P, (9751, 9751),
     "score/mean kl/reference_per_token advantage/std response/length_mean", planned=9751, steps=(1, 9751)),
    _Case("rlhf_kit_deadreward/*.jsonl", "unknown", _P, (50, 50),
     "score/mean score/std policy/clip_fraction advantage/std", "kl/reference"),
    _Case("t_ds_ppo_inf/*.jsonl", "deepspeed-chat", _P, (3, 3), "policy/loss value/loss score/mean", steps=(3183,
     3185)),
    _Case("t_ds_ppo_reward_pinned/*.jsonl", "deepspeed-chat", _P, (6, 6), "score/mean"),
    _Case("t_ds_rm_322/*.jsonl", "deepspeed-chat", _M, (4, 4), "loss/train accuracy/validation", steps=(0, 3)),
    _Case("t_halos24_kto_kl0/*.jsonl", "trl", _D, (3, 3), "kto/kl dpo/chosen_reward"),
    _Case("t_hongbo_ppo_noeos/*.jsonl", "trl", _P, (2, 2), _PPO),
    _Case("t_llamafactory664_negkl/*.jsonl", "trl", _P, (1, 1), "kl/reference"),
    _Case("t_llamafactory_856_ppo/*.jsonl", "llama-factory", _P, (5, 5), "score/mean policy/loss", planned=1287,
     steps=(10, 1260)),
    _Case("t_llava_rm_start/*.jsonl", "trl", Stage.UNKNOWN, (4, 4), "loss/train learning_rate"),
    _Case("t_msswift_5571_grad0/*.jsonl", "trl", _P, (1, 1), _GRPO + " group/zero_std_fraction"),
    _Case("t_openr1_239_start/*.jsonl", "trl", _P, (2, 2), _GRPO + " score/format_reward"),
    _Case("t_trl454_ratio/*.jsonl", "trl", _P, (22, 22), "policy/ratio_mean policy/ratio_first"),
    _Case("t_trl_1236_dpo_loss0/*.jsonl", "trl", _D, (10, 10), "dpo/chosen_reward dpo/accuracy loss/train"),
    _Case("t_verl_entropy21/*.jsonl", "verl", _P, (1, 1), "policy/clip_fraction eval/math/acc/mean@1"),
    _Case("t_vime64_sglang/*.jsonl", "slime", _P, (30, 30), "rollout/logprob_gap_mean"),
    _Case("trl_grpo_hotpot_v1_klblowup/*.log", "trl", _P, (94, 94), _GRPO),
    _Case("trl_grpo_hotpot_v2/*.log", "trl", _P, (46, 46), _GRPO),
    _Case("trl_grpo_v1_seed2025/trajectory.json", "trl", _P, (200, 201),
     _GRPO + " group/zero_std_fraction response/truncated_fraction", steps=(1, 200)),
    _Case("trl_grpo_v2_seed2025/trajectory.json", "trl", _P, (200, 201), _GRPO + " policy/entropy", steps=(1, 200)),
    _Case("trl_ppo_v1_seed2025/trajectory.json", "trl", _P, (100, 100), _PPO, steps=(1, 100)),
    _Case("trl_ppo_v2_seed2026/trajectory.json", "trl", _P, (100, 100), _PPO, steps=(1, 100)),
    _Case("verl_grpo_econ_n1_a/*.log", "verl", _P, (300, 300), _VERL, steps=(1, 300)),
    _Case("verl_grpo_econ_n4_final/*.log", "verl", _P, (699, 699), _VERL, steps=(1, 699)),
)  # fmt: skip
_JUDGMENTS = (
    "alpacaeval_annotator_stats/*.csv", "judgebench_judge_haiku/*.jsonl", "judgebench_rm_internlm20b/*.jsonl",
     "judgebench_rm_skywork8b/*.jsonl",
    "rlaif_rm_lowacc_gca/*.jsonl", "t_fastchat3911_judge/*.jsonl",
)  # fmt: skip


def _path(pattern: str) -> Path:
    found = sorted(_CASES.glob(pattern))
    if not found:
        pytest.skip(f"{_CASES} is not at hand")
    return found[0]


@pytest.mark.parametrize("case", _LOGS, ids=lambda case: case.file.partition("/")[0])
def test_a_log_of_other_people(case: _Case) -> None:
    (log,) = read(_path(case.file))
    assert isinstance(log, Log)
    assert (log.framework, log.stage) == (case.framework, case.stage)
    assert case.rows[0] <= log.rows <= case.rows[1]
    assert set(case.keys.split()) <= set(log.series)
    assert set(log.unit_unknown) == set(case.unknown.split())
    assert log.planned_steps == case.planned
    assert case.steps is None or log.steps == case.steps
    assert not log.truncated


@pytest.mark.parametrize("pattern", _JUDGMENTS, ids=lambda p: p.partition("/")[0])
def test_judgments_of_other_people_are_no_training_log(pattern: str) -> None:
    found = read(_path(pattern))
    assert [type(material) for material in found] == [JudgmentMaterial]


@pytest.mark.parametrize("case", _LOGS, ids=lambda case: case.file.partition("/")[0])
def test_its_directory_gives_the_same_log(case: _Case) -> None:
    file = _path(case.file)
    (alone,) = read(file)
    together = [m for m in read(file.parent) if isinstance(m, Log)]
    assert isinstance(alone, Log)
    assert [set(log.series) for log in together] == [set(alone.series)]
