"""Every finding has a plan; it is told in the keys and values of the run at hand."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from trimtab.config.load import default_config, load_config
from trimtab.config.schema import Config
from trimtab.doctor.finding import Finding, Message, Severity
from trimtab.doctor.knobs import DIALECTS, KEYS, dialect_of
from trimtab.doctor.log import Estimator, Log, Series, Stage, Unit
from trimtab.doctor.messages.catalogue import MESSAGES, render
from trimtab.doctor.plan import PLAN
from trimtab.doctor.prescriptions import prescribe, reconcile

OURS = {f"{s}.{k}": v for s, section in default_config().model_dump().items() for k, v in section.items()}


def _finding(id: str) -> Finding:
    return Finding(id, Severity.WARNING, 3, (), Message(f"{id}.cause"))


def _series(key: str, name: str, values: list[float], estimator: Estimator = Estimator.NONE) -> Series:
    return Series(key, name, np.arange(len(values)), np.array(values), Unit.ONE, estimator)


def _log(
    framework: str,
    algorithm: str = "ppo",
    stage: Stage = Stage.POLICY,
    config: Mapping[str, Any] | None = None,
    series: tuple[Series, ...] = (),
) -> Log:
    by_key = {s.key: s for s in series}
    return Log("x", "f", framework, stage, algorithm, 10, (0, 9), None, by_key, config or {})


def _settings(id: str, log: Log | None) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for each in prescribe(_finding(id), log):
        merged.update(each.set)
    return merged


def test_every_finding_of_the_catalogue_has_a_plan_and_every_plan_a_page() -> None:
    assert {key.removesuffix(".what") for key in MESSAGES if key.endswith(".what")} == set(PLAN)
    assert all(PLAN.values())


def test_every_step_is_worded_and_every_knob_named() -> None:
    for steps in PLAN.values():
        for step in steps:
            assert f"prescribe.{step.why}" in MESSAGES
            assert not step.knob or (step.knob in KEYS and f"knob.{step.knob}" in MESSAGES)


def test_keys_of_ours_exist_in_the_config() -> None:
    for knob, keys in KEYS.items():
        if "trimtab" in keys:
            section, _, name = keys["trimtab"].partition(".")
            assert name in Config.model_fields[section].annotation.model_fields, knob  # type: ignore[union-attr]


def test_every_dialect_is_used_and_no_other() -> None:
    used = {dialect for keys in KEYS.values() for dialect in keys}
    assert used == set(DIALECTS)


@pytest.mark.parametrize("id", sorted(PLAN))
def test_what_is_prescribed_for_our_runs_is_a_config_that_loads(id: str) -> None:
    for each in prescribe(_finding(id), _log("trimtab", config=OURS)):
        if each.set:
            words = shlex.split(each.command)
            assert words[:2] == ["trimtab", "run"]
            load_config(overrides=[word for word in words[2:] if word != "--set"])


def test_values_of_our_runs_are_computed_from_the_config() -> None:
    log = _log("trimtab", config={**OURS, "ppo.learning_rate": 1e-5, "ppo.beta": 0.05, "ppo.epochs": 4})
    told = prescribe(_finding("kl-explosion"), log)
    assert [dict(each.set) for each in told[:3]] == [
        {"ppo.beta": 0.1}, {"ppo.learning_rate": 5e-6}, {"ppo.epochs": 2},
    ]  # fmt: skip
    assert told[1].command == "trimtab run --set ppo.learning_rate=5e-06"


def test_a_setting_that_is_there_already_is_not_prescribed() -> None:
    log = _log("trimtab", config={**OURS, "ppo.value_normalisation": True, "ppo.epochs": 1})
    assert "ppo.value_normalisation" not in _settings("value-not-learning", log)
    assert "ppo.epochs" not in _settings("kl-explosion", log)


def test_a_setting_that_our_config_refuses_is_not_prescribed() -> None:
    log = _log("trimtab", "grpo", config={**OURS, "ppo.advantage": "grpo", "ppo.responses_per_prompt": 4})
    assert not {k for k in _settings("value-not-learning", log) if "value" in k or "gamma" in k}


def test_settings_that_need_each_other_come_together() -> None:
    each = next(
        p for p in prescribe(_finding("kl-explosion"), _log("trimtab", config=OURS)) if "ppo.kl_target_nats" in p.set
    )
    assert set(each.set) == {"ppo.kl_target_nats", "ppo.kl_controller", "ppo.kl_horizon_episodes"}


def test_a_beta_of_zero_is_not_doubled() -> None:
    assert _settings("kl-explosion", _log("trimtab", config={**OURS, "ppo.beta": 0.0}))["ppo.beta"] == 0.05


def test_the_length_penalty_is_a_tenth_of_the_scores_deviation_a_response() -> None:
    series = (_series("score/std", "reward_std", [2.0, 2.0]), _series("response/length_mean", "length", [100.0, 100.0]))
    log = _log("trimtab", config=OURS, series=series)
    assert _settings("length-exploitation", log)["ppo.length_penalty"] == pytest.approx(0.002)


DIALECT_CASES = [
    ("trl", "ppo", Stage.POLICY, "trl-ppo", "kl_coef"),
    ("trl", "grpo", Stage.POLICY, "trl-grpo", "beta"),
    ("trl", "rloo", Stage.POLICY, "trl-grpo", "beta"),
    ("ms-swift", "ppo", Stage.POLICY, "trl-ppo", "kl_coef"),
    ("openrlhf", "ppo", Stage.POLICY, "openrlhf", "--init_kl_coef"),
    ("trlx", "ppo", Stage.POLICY, "trlx", "method.init_kl_coef"),
    ("nemo-rl", "grpo", Stage.POLICY, "nemo-rl", "loss_fn.reference_policy_kl_penalty"),
    ("deepspeed-chat", "ppo", Stage.POLICY, "deepspeed-chat", "self.kl_ctl in ppo_trainer.py"),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "algorithm", "stage", "dialect", "key"), DIALECT_CASES)
def test_frameworks_are_told_in_their_own_keys(
    framework: str, algorithm: str, stage: Stage, dialect: str, key: str
) -> None:
    log = _log(framework, algorithm, stage)
    assert dialect_of(log) == dialect
    assert prescribe(_finding("kl-explosion"), log)[0].set == {key: "x2"}


def test_old_trl_is_known_by_its_series() -> None:
    log = _log("trl", series=(_series("value/loss", "ppo/loss/value", [1.0]),))
    assert prescribe(_finding("kl-explosion"), log)[0].set == {"init_kl_coef": "x2"}


def test_verl_has_two_kl_coefficients() -> None:
    reward = _log("verl", series=(_series("kl/reference", "actor/reward_kl_penalty", [1.0]),))
    loss = _log("verl", series=(_series("kl/reference_per_token", "actor/kl_loss", [1.0]),))
    assert prescribe(_finding("kl-explosion"), reward)[0].set == {"algorithm.kl_ctrl.kl_coef": "x2"}
    assert prescribe(_finding("kl-explosion"), loss)[0].set == {"actor_rollout_ref.actor.kl_loss_coef": "x2"}


def test_old_values_come_from_the_config_or_the_log() -> None:
    stated = _log("openrlhf", config={"actor_learning_rate": 1e-6})
    assert _settings("clip-fraction-high", stated)["--actor_learning_rate"] == 5e-7
    scheduled = _log("trl", "grpo", series=(_series("policy/learning_rate", "learning_rate", [0.0, 2e-6, 1e-6]),))
    assert _settings("clip-fraction-high", scheduled)["learning_rate"] == 1e-6


def test_command_lines_are_copyable_where_there_are_any() -> None:
    verl = prescribe(_finding("kl-explosion"), _log("verl", config={"actor_rollout_ref.actor.optim.lr": 1e-6}))
    assert "actor_rollout_ref.actor.optim.lr=5e-07" in {each.command for each in verl}
    flags = prescribe(_finding("value-not-learning"), _log("openrlhf"))
    assert "--normalize_reward" in {each.command for each in flags}
    assert all(each.command == "" for each in prescribe(_finding("kl-explosion"), _log("trl", "grpo")))


def test_a_missing_key_is_said_and_not_invented() -> None:
    told = [p for p in prescribe(_finding("kl-explosion"), _log("trl", "grpo")) if p.why.key == "prescribe.no-key"]
    assert [render(p.why.values["knob"]) for p in told] == ["KL target"]
    assert all(p.set == {} for p in told)
    assert "TRL GRPO has no key for it" in render(told[0].why)


def test_critic_free_runs_get_no_advice_on_a_value_model() -> None:
    told = prescribe(_finding("diverging-loss"), _log("trl", "grpo"))
    assert not [p for p in told if "value" in str(p.why.values.get("knob", "")) or "value" in " ".join(map(str, p.set))]


def test_a_log_of_verl_without_a_value_loss_gets_no_advice_on_a_value_model() -> None:
    keys = ("critic/score/mean", "critic/returns/mean", "actor/entropy", "actor/grad_norm", "actor/lr", "actor/pg_loss")
    ours = ("score/mean", "value/return_mean", "policy/entropy", "policy/gradient_norm", "policy/learning_rate",
            "policy/loss")  # fmt: skip
    series = [_series(key, name, [1.0, 1.0]) for key, name in zip(ours, keys, strict=True)]
    assert "critic.optim.lr" not in _settings("reward-decreasing", _log("verl", "", series=tuple(series)))
    series.append(_series("value/loss", "critic/vf_loss", [1.0, 1.0]))
    assert "critic.optim.lr" in _settings("reward-decreasing", _log("verl", "", series=tuple(series)))


def test_an_unknown_framework_is_told_the_knobs() -> None:
    assert prescribe(_finding("kl-explosion"), _log("unknown"))[0].set == {"beta": "x2"}


def test_k2_is_only_for_k3() -> None:
    k3 = (_series("kl/reference_per_token", "kl", [0.1], Estimator.K3),)
    assert _settings("kl-explosion", _log("openrlhf", series=k3))["--kl_estimator"] == "k2"
    assert "--kl_estimator" not in _settings("kl-explosion", _log("openrlhf"))
    assert "ppo.kl_estimator" not in _settings("kl-explosion", _log("trimtab", config=OURS))


def test_preference_model_and_dpo_have_learning_rates_of_their_own() -> None:
    pm = _log("trimtab", "reward-model", Stage.PREFERENCE_MODEL, {**OURS, "preference.learning_rate": 2e-5})
    assert _settings("pm-overfit", pm)["preference.learning_rate"] == 1e-5
    dpo = _log("llama-factory", "dpo", Stage.DIRECT, {"pref_beta": 0.1})
    assert _settings("preference-overfit", dpo)["pref_beta"] == 0.2


def test_judgments_are_told_in_our_keys() -> None:
    assert prescribe(_finding("judge-position-bias"), None)[0].command == "trimtab run --set label.both_orders=true"


def test_an_id_of_a_plugin_has_no_plan() -> None:
    assert prescribe(_finding("somebody-elses"), None) == ()


# contradictions


def _told(*ids: str) -> tuple[Finding, ...]:
    log = _log("trimtab", config=OURS)
    made = [_finding(id) for id in ids]
    return reconcile([Finding(f.id, f.severity, 3, (), f.cause, (), prescribe(f, log)) for f in made])


def test_a_later_finding_does_not_turn_a_knob_back() -> None:
    first, second = _told("policy-not-moving", "kl-explosion")
    assert {"ppo.learning_rate", "ppo.beta"} <= {k for p in first.prescriptions for k in p.set}
    assert not {"ppo.learning_rate", "ppo.beta"} & {k for p in second.prescriptions for k in p.set}
    said = [render(p.why) for p in second.prescriptions if p.why.key == "prescribe.contradicts"]
    assert len(said) == 2
    assert "policy-not-moving" in said[0]


def test_findings_that_agree_keep_their_prescriptions() -> None:
    first, second = _told("kl-explosion", "clip-fraction-high")
    assert "ppo.learning_rate" in {k for p in second.prescriptions for k in p.set}
    assert first == _told("kl-explosion")[0]


def test_different_values_of_one_setting_contradict_each_other() -> None:
    first, second = _told("value-not-learning", "diverging-loss")
    clips = [p.set.get("ppo.value_clip_range") for f in (first, second) for p in f.prescriptions]
    assert [c for c in clips if c is not None] == [0.5]


def test_settings_of_another_version_hinder_no_prescription() -> None:
    log = _log("trimtab", config={**OURS, "ppo.max_new_tokens": 48, "label.min_gap": 0.1, "gone.knob": 1})
    assert _settings("truncated-responses", log)["ppo.max_new_tokens"] == 96
