"""The same name is another quantity in another framework; a unit that cannot be told is not guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from made_up_logs import FORMS, jsonl
from trimtab.doctor.importers import read
from trimtab.doctor.importers.dialects import BY_NAME
from trimtab.doctor.importers.dialects.base import Meaning
from trimtab.doctor.log import Aggregation, Estimator, Log, Unit
from trimtab.doctor.quantities import FAMILIES, QUANTITIES, nearest, quantity
from trimtab.runs.signal_table import ROWS


def _log(path: Path, rows: list[dict[str, Any]], **mapping: str) -> Log:
    file = path / "log"
    file.write_text(jsonl(rows))
    (log,) = read(file, {k.replace("__", "/"): v for k, v in mapping.items()})
    assert isinstance(log, Log)
    return log


def _rows(n: int = 4, **columns: float) -> list[dict[str, Any]]:
    return [{"step": i, **columns} for i in range(1, n + 1)]


_KL = {
    "trl-ppo": ({"objective/kl": 6.0, "objective/rlhf_reward": 0.1}, "kl/reference", Unit.NATS_PER_SEQUENCE,
     Estimator.K1, 6.0),
    "trl-ppo-legacy": ({"objective/kl": 6.0, "objective/kl_coef": 0.2}, "kl/reference", Unit.NATS_PER_SEQUENCE,
     Estimator.K1, 6.0),
    "trl-grpo": ({"kl": 0.05, "reward": 1.0, "reward_std": 0.1}, "kl/reference_per_token", Unit.NATS_PER_TOKEN,
     Estimator.K3, 0.05),
    "trl-rloo": ({"kl": -0.05, "reward": 1.0, "reward_std": 0.1}, "kl/reference_per_token", Unit.NATS_PER_TOKEN,
     Estimator.UNKNOWN, -0.05),
    "kto": ({"kl": 0.5, "rewards/chosen": 1.0, "rewards/rejected": 0.1}, "kto/kl", Unit.NATS_PER_SEQUENCE,
     Estimator.NONE, 0.5),
    "online-dpo": ({"objective/kl": 6.0, "val/contain_eos_token": 0.5}, "kl/reference", Unit.NATS_PER_SEQUENCE,
     Estimator.K1, 6.0),
    "torchtune": ({"kl": 6.0, "scores": 1.0, "rlhf_reward": 0.5}, "kl/reference", Unit.NATS_PER_SEQUENCE, Estimator.K1,
     6.0),
    "openrlhf": ({"kl": 0.05, "policy_loss": 0.1, "response_length": 50.0, "actor_lr": 1e-6}, "kl/reference_per_token",
     Unit.NATS_PER_TOKEN, Estimator.UNKNOWN, 0.05),
    "verl-loss": ({"actor/kl_loss": 0.05, "actor/pg_loss": 0.1}, "kl/reference_per_token", Unit.NATS_PER_TOKEN,
     Estimator.UNKNOWN, 0.05),
    "verl-reward": ({"actor/reward_kl_penalty": 0.05, "actor/pg_loss": 0.1}, "kl/reference_per_token",
     Unit.NATS_PER_TOKEN, Estimator.UNKNOWN, 0.05),
    "verl-update": ({"actor/ppo_kl": -0.01, "actor/pg_loss": 0.1}, "kl/update", Unit.NATS_PER_TOKEN, Estimator.K1,
     -0.01),
    "nemo": ({"kl_penalty": 0.05, "gen_kl_error": 0.001, "reward": 1.0}, "kl/reference_per_token", Unit.NATS_PER_TOKEN,
     Estimator.K3, 0.05),
    "aligner": ({"train_rollouts/init_policy_kl": 0.05, "train_rollouts/rewards": 1.0}, "kl/reference_per_token",
     Unit.NATS_PER_TOKEN, Estimator.ABS_K1, 0.05),
    "trlx": ({"policy/sqrt_kl": 3.0, "losses/policy_loss": 0.1}, "kl/reference", Unit.NATS_PER_SEQUENCE, Estimator.K3,
     9.0),
    "trlx-token": ({"policy/kl_per_token": 0.2, "losses/policy_loss": 0.1}, "kl/reference_per_token",
     Unit.NATS_PER_TOKEN, Estimator.K3, 0.2**2),
    "alpaca-farm": ({"objective/kl_sum_seq": 4.0}, "kl/reference", Unit.NATS_PER_SEQUENCE, Estimator.CLAMPED_K1, 4.0),
    "rl4lms": ({"rollout_info/kl_div_mean": 0.05, "rollout_info/ep_rew": 1.0}, "kl/reference_per_token",
     Unit.NATS_PER_TOKEN, Estimator.K1, 0.05),
    "trl-update": ({"policy/approxkl_avg": 0.01, "objective/kl": 1.0}, "kl/update", Unit.NATS_PER_TOKEN, Estimator.K2,
     0.01),
    "sb3-update": ({"train/approx_kl": 0.01, "train/clip_range": 0.2, "train/entropy_loss": -1.0}, "kl/update",
     Unit.NATS_PER_TOKEN, Estimator.K3, 0.01),
}  # fmt: skip


@pytest.mark.parametrize("name", _KL)
def test_each_kl_has_its_own_unit_and_estimator(name: str, tmp_path: Path) -> None:
    columns, key, unit, estimator, value = _KL[name]
    series = _log(tmp_path, _rows(**columns)).series[key]
    assert (series.unit, series.estimator) == (unit, estimator)
    np.testing.assert_allclose(series.values, value, rtol=1e-14)


def test_a_bare_kl_of_an_unknown_framework_has_no_unit(tmp_path: Path) -> None:
    columns = {"policy_loss": 0.1, "kl_mean": 3.0, "kl_loss": 0.03, "reward_mean": 1.0, "response_length": 50.0}
    log = _log(tmp_path, _rows(**columns))
    assert log.framework == "unknown"
    assert log.unit_unknown == {"kl/reference": "kl_mean"}
    assert not any(key.startswith("kl/") for key in log.series)


def test_a_map_says_the_unit(tmp_path: Path) -> None:
    columns = {"policy_loss": 0.1, "kl_mean": 3.0, "reward_mean": 1.0, "n_tok": 50.0}
    log = _log(tmp_path, _rows(**columns), kl__reference="kl_mean", response__length_mean="n_tok")
    assert log.unit_unknown == {}
    assert log.series["kl/reference"].unit is Unit.NATS_PER_SEQUENCE
    assert log.series["kl/reference"].name == "kl_mean"
    assert log.series["kl/reference_per_token"].values.tolist() == [0.06] * 4
    assert "n_tok" in log.series["kl/reference_per_token"].derived


def test_a_map_to_a_name_that_is_not_there_is_said(tmp_path: Path) -> None:
    log = _log(tmp_path, _rows(policy_loss=0.1), kl__reference="kl_mean")
    assert any("kl_mean" in s.reason for s in log.skipped)


def test_a_map_may_name_the_step(tmp_path: Path) -> None:
    rows = [{"tick": 5 * i, "reward": 1.0, "policy_loss": 0.1} for i in range(4)]
    assert _log(tmp_path, rows, step="tick").series["score/mean"].steps.tolist() == [0, 5, 10, 15]


def test_kl_is_converted_only_where_the_length_was_logged(tmp_path: Path) -> None:
    rows = _rows(6, **{"objective/kl": 6.0, "objective/kl_coef": 0.1})
    for row in rows[::2]:
        row["tokens/responses_len_mean"] = 30.0
    rows[4]["tokens/responses_len_mean"] = 0.0
    series = _log(tmp_path, rows).series["kl/reference_per_token"]
    assert series.steps.tolist() == [1, 3, 5]
    assert series.values[:2].tolist() == [0.2, 0.2]
    assert np.isnan(series.values[2])


def test_signs_are_those_of_the_quantity(tmp_path: Path) -> None:
    sb3 = _log(tmp_path, _rows(**{"train/entropy_loss": -1.25, "train/clip_range": 0.2})).series["policy/entropy"]
    assert sb3.values.tolist() == [1.25] * 4
    assert "sign" in sb3.derived
    verl = _log(tmp_path, _rows(**{"actor/entropy_loss": 1.25, "actor/pg_loss": 0.1})).series["policy/entropy"]
    assert verl.values.tolist() == [1.25] * 4
    assert not verl.derived
    mind = _log(tmp_path, _rows(**{"kl_ref": -0.02, "advantages_std": 0.9, "reward": 1.0})).series[
        "kl/reference_per_token"
    ]
    assert mind.values.tolist() == [0.02] * 4


def test_padding_in_the_averages_is_marked(tmp_path: Path) -> None:
    columns = {
        "objective/kl": 1.0,
        "objective/rlhf_reward": 1.0,
        "objective/entropy": -90.0,
        "policy/entropy_avg": 1.0,
        "val/ratio": 1.0,
    }
    log = _log(tmp_path, _rows(**columns))
    assert log.series["policy/entropy_sequence"].masked is False
    assert log.series["policy/entropy_sequence"].values.tolist() == [-90.0] * 4
    assert log.series["policy/entropy"].masked is False
    assert log.series["policy/ratio_mean"].masked is False


def test_clip_fractions_that_count_different_things_are_told_apart(tmp_path: Path) -> None:
    outside = _log(tmp_path, _rows(**{"train/clip_fraction": 0.1, "train/clip_range": 0.2, "train/entropy_loss": -1.0}))
    chosen = _log(tmp_path, _rows(**{"actor/pg_clipfrac": 0.1, "actor/pg_loss": 0.1}))
    assert outside.series["policy/clip_fraction"].estimator is Estimator.OUTSIDE
    assert chosen.series["policy/clip_fraction"].estimator is Estimator.PESSIMISTIC


def test_score_and_reward_are_kept_apart(tmp_path: Path) -> None:
    log = _log(tmp_path, _rows(**{"critic/score/mean": 2.0, "critic/rewards/mean": 1.5, "actor/pg_loss": 0.1}))
    assert log.series["score/mean"].values.tolist() == [2.0] * 4
    assert log.series["reward/mean"].values.tolist() == [1.5] * 4
    log = _log(tmp_path, _rows(**{"objective/scores": 2.0, "objective/rlhf_reward": 1.5, "objective/kl": 1.0}))
    assert log.series["score/mean"].name == "objective/scores"
    assert log.series["reward/mean"].name == "objective/rlhf_reward"


def test_what_nothing_trains_on_is_told_from_what_is_trained_on(tmp_path: Path) -> None:
    columns = {
        "reward": 1.0, "reward_std": 0.1, "rewards/format/mean": 0.5, "eval_reward": 0.9,
         "eval_rewards/format/mean": 0.4,
        "eval_gsm8k": 0.3, "gold_reward": 0.2, "win_rate": 0.5, "eval_runtime": 3.0, "judge_error_count": 2.0,
    }  # fmt: skip
    log = _log(tmp_path, _rows(**columns))
    independent = {
        key for key in log.series if (q := quantity(key)) is not None and q.independent and key != "eval/score"
    }
    assert independent == {"eval/gsm8k", "gold/mean", "eval/win_rate"}
    assert log.series["eval/score"].name == "eval_reward"
    assert "held_out/score/format" in log.series
    assert log.unmapped == ("judge_error_count",)


def test_components_of_an_own_reward(tmp_path: Path) -> None:
    columns = {"reward": 1.0, "component_a": 0.5, "format_reward": 0.2, "noop_penalty": 0.1, "noop_rate": 0.3,
     "proxy_success": 0.4, "gold_success": 0.1,
               "valid_action": 1.0, "judge_err": 0.0}  # fmt: skip
    log = _log(tmp_path, _rows(**columns))
    assert set(log.series) == {
        "score/mean", "score/a", "score/format_reward", "score/noop_penalty", "style/noop", "score/proxy_success",
         "eval/gold_success",
    }  # fmt: skip
    assert set(log.unmapped) == {"valid_action", "judge_err"}


def test_an_entropy_that_cannot_be_a_tokens_is_left_out(tmp_path: Path) -> None:
    for value in (80.0, -1.0):
        log = _log(tmp_path, _rows(policy_loss=0.1, reward=1.0, entropy=value))
        assert log.unit_unknown == {"policy/entropy": "entropy"}
    assert "policy/entropy" in _log(tmp_path, _rows(policy_loss=0.1, reward=1.0, entropy=1.5)).series


def test_every_meaning_of_every_dialect_is_a_quantity() -> None:
    for dialect in BY_NAME.values():
        meanings: list[Meaning] = [*dialect.names.values(), *(m for _, m in dialect.patterns)]
        for meaning in meanings:
            if meaning.key and "{" not in meaning.key:
                known = quantity(meaning.key)
                assert known is not None, f"{dialect.name}: {meaning.key}"
                assert known.unit is not Unit.UNKNOWN or meaning.key.startswith(tuple(FAMILIES)), meaning.key


def test_every_mark_is_known_to_its_dialect_or_counts_steps() -> None:
    for dialect in BY_NAME.values():
        for mark in dialect.marks:
            for name in mark:
                short = name.removeprefix("eval_").removeprefix("eval/")
                known = any(dialect.meaning(n) is not None for n in (name, short)) or name in (
                    "total_steps",
                    "actor/*",
                    "rewards/*",
                )
                assert known, f"{dialect.name}: {name}"


def test_every_signal_of_ours_is_a_quantity() -> None:
    for row in ROWS:
        assert quantity(row.key) is not None or row.key in QUANTITIES, row.key


def test_the_nearest_quantity() -> None:
    assert nearest("kl/referense") == "kl/reference"
    assert nearest("zzzz") is None


def test_extremes_are_not_averaged(tmp_path: Path) -> None:
    log = _log(
        tmp_path, _rows(**{"critic/score/max": 2.0, "critic/score/min": 0.0, "actor/pg_loss": 0.1, "actor/lr": 1e-6})
    )
    assert log.series["score/max"].aggregation is Aggregation.MAX
    assert log.series["score/min"].aggregation is Aggregation.MIN


# renaming


_DRESSES: dict[str, dict[str, str]] = {
    "trl-ppo-legacy": {"kl/reference": "objective/kl", "score/mean": "ppo/mean_scores", "score/std": "ppo/std_scores",
     "policy/loss": "ppo/loss/policy",
                       "value/loss": "ppo/loss/value", "response/length_mean": "tokens/responses_len_mean",
                        "kl/beta": "objective/kl_coef"},
    "trlx": {"kl/reference": "policy/sqrt_kl", "score/mean": "rollout_scores/mean", "score/std": "rollout_scores/std",
     "policy/loss": "losses/policy_loss",
             "value/loss": "losses/value_loss", "kl/beta": "kl_ctl_value"},
    "verl": {"kl/reference_per_token": "actor/kl_loss", "score/mean": "critic/score/mean",
     "policy/loss": "actor/pg_loss", "value/loss": "critic/vf_loss",
             "response/length_mean": "response_length/mean", "kl/beta": "actor/kl_coef"},
    "openrlhf": {"kl/reference_per_token": "kl", "score/mean": "reward", "policy/loss": "policy_loss",
     "value/loss": "critic_loss",
                 "response/length_mean": "response_length", "kl/beta": "kl_coef"},
    "alpaca-farm": {"kl/reference": "objective/kl_sum_seq", "score/mean": "objective/rewards",
     "policy/loss": "ppo/loss/policy", "value/loss": "ppo/loss/value",
                    "kl/beta": "objective/kl_coef"},
}  # fmt: skip


@given(
    st.lists(
        st.tuples(st.floats(0.01, 40), st.floats(-5, 5), st.floats(0.01, 3), st.floats(-1, 1), st.floats(0, 9),
         st.integers(1, 900), st.floats(0.01, 1)),
        min_size=2, max_size=8,
    )
)  # fmt: skip
def test_the_same_run_in_another_dress_is_the_same_series(run: list[tuple[float, ...]]) -> None:
    import tempfile

    names = ("kl/reference", "score/mean", "score/std", "policy/loss", "value/loss", "response/length_mean", "kl/beta")
    for dress, table in _DRESSES.items():
        rows = []
        for i, numbers in enumerate(run, 1):
            truth = dict(zip(names, numbers, strict=True))
            truth["kl/reference_per_token"] = truth["kl/reference"] / truth["response/length_mean"]
            row: dict[str, Any] = {theirs: truth[ours] for ours, theirs in table.items()}
            if dress == "trlx":
                row["policy/sqrt_kl"] = row["policy/sqrt_kl"] ** 0.5
            rows.append({"step": i, **row})
        with tempfile.TemporaryDirectory() as folder:
            log = _log(Path(folder), rows)
        for j, key in enumerate(names):
            if key in table or (key == "kl/reference" and "response/length_mean" in table):
                np.testing.assert_allclose(log.series[key].values, [numbers[j] for numbers in run], rtol=1e-12)
                assert log.series[key].steps.tolist() == list(range(1, len(run) + 1))


@pytest.mark.parametrize("form", FORMS, ids=repr)
def test_every_series_has_a_unit_that_fits_its_quantity(form: Any, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(form.text)
    for log in read(path):
        assert isinstance(log, Log)
        for key, series in log.series.items():
            known = quantity(key)
            assert known is not None, key
            assert series.unit in (known.unit, Unit.UNKNOWN), key
            assert not np.any(np.diff(series.steps) <= 0)


# logs of no known framework


def test_beside_a_score_the_reward_is_what_the_penalty_left(tmp_path: Path) -> None:
    for columns in ({"mean_score": 2.0, "mean_reward": 1.5}, {"mean_reward": 1.5, "mean_score": 2.0}):
        log = _log(tmp_path, _rows(policy_loss=0.1, **columns))
        assert log.series["score/mean"].values.tolist() == [2.0] * 4
        assert log.series["reward/mean"].values.tolist() == [1.5] * 4


def test_one_named_reward_is_the_score(tmp_path: Path) -> None:
    log = _log(tmp_path, _rows(policy_loss=0.1, proxy_reward=2.0, gold_reward=0.5))
    assert log.series["score/mean"].name == "proxy_reward"
    assert log.series["gold/mean"].name == "gold_reward"


_STAGES = {
    "pm": {"loss": 0.6, "val_loss": 0.6, "train_acc": 0.7, "val_acc": 0.6},
    "policy": {"loss": 0.6, "reward": 0.5, "accuracy": 0.7},
    "unknown": {"loss": 0.6, "lr": 1e-5},
    "direct": {"loss": 0.6, "logp_chosen": -50.0, "logp_rejected": -60.0, "acc": 0.7},
}


@pytest.mark.parametrize("stage", _STAGES)
def test_the_stage_of_an_unknown_log(stage: str, tmp_path: Path) -> None:
    log = _log(tmp_path, _rows(**_STAGES[stage]))
    assert (log.framework, log.stage.value) == ("unknown", stage)
    if stage == "pm":
        assert set(log.series) == {"loss/train", "loss/validation", "accuracy/train", "accuracy/validation"}


def test_beta_follows_from_the_penalty_and_the_kl(tmp_path: Path) -> None:
    columns = {"objective/kl": 8.0, "objective/non_score_reward": -0.4, "objective/rlhf_reward": 0.1}
    beta = _log(tmp_path, _rows(**columns)).series["kl/beta"]
    assert beta.values.tolist() == [0.05] * 4
    assert beta.unit is Unit.ONE
    assert beta.derived


def test_excerpts_with_few_names_are_recognised(tmp_path: Path) -> None:
    for columns, framework in (
        ({"rewards/accuracy_reward": 0.1, "kl": 0.01}, "trl"), ({"completion_length": 50.0, "kl": 0.1}, "trl"),
        ({"actor/kl_coef": 0.1}, "verl"), ({"rewards_train/chosen": 0.1, "loss/train": 0.6}, "dpo"),
    ):  # fmt: skip
        assert _log(tmp_path, _rows(**columns)).framework == framework


def test_a_judges_score_is_independent_only_beside_what_is_trained_on(tmp_path: Path) -> None:
    beside = _log(tmp_path, _rows(policy_loss=0.1, reward=1.0, judge_score=0.5))
    assert beside.series["eval/judge_score"].values.tolist() == [0.5] * 4
    alone = _log(tmp_path, _rows(policy_loss=0.1, judge_score=0.5))
    assert alone.series["score/mean"].name == "judge_score"
    assert "eval/judge_score" not in alone.series


def test_names_of_no_framework_are_known_with_groups_of_their_own(tmp_path: Path) -> None:
    log = _log(
        tmp_path,
        _rows(
            **{
                "policy/entropy": 1.2,
                "policy/clipfrac": 0.1,
                "policy/approx_kl": 0.01,
                "value/loss": 0.3,
                "value/explained_variance": 0.6,
                "gen/len_mean": 50.0,
                "reward/mean": 0.5,
            }
        ),
    )
    wanted = {
        "policy/entropy": 1.2,
        "policy/clip_fraction": 0.1,
        "kl/update": 0.01,
        "value/loss": 0.3,
        "value/explained_variance": 0.6,
        "response/length_mean": 50.0,
        "score/mean": 0.5,
    }
    assert {key: float(log.series[key].values[0]) for key in wanted if key in log.series} == wanted
    assert not log.unmapped


@pytest.mark.parametrize("name", ["eval/reward", "misc/bonus", "value/mean"])
def test_a_group_makes_no_score_of_what_is_none(tmp_path: Path, name: str) -> None:
    log = _log(tmp_path, _rows(**{"reward/mean": 0.5, "policy/entropy": 1.0, name: 7.0}))
    assert not [s for s in log.series.values() if s.name == name and s.key.startswith("score/")]


def test_a_trainer_that_logs_token_accuracy_is_sft(tmp_path: Path) -> None:
    columns = {"loss": 1.9, "grad_norm": 0.8, "learning_rate": 1e-5, "mean_token_accuracy": 0.6, "epoch": 0.1}
    assert _log(tmp_path, _rows(**columns)).stage.value == "sft"
