"""Settings: layers, origins, and what is refused in which words."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from trimtab.config import PRESETS, Config, default_config, json_schema, load_config
from trimtab.config.describe import fields, flatten, nearest_key
from trimtab.config.layout import Layout, Lora
from trimtab.errors import ErrorKind, TrimtabError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trimtab.toml"
    path.write_bytes(text.encode("utf-8"))
    return path


def refused(path: Path | None, *overrides: str) -> str:
    with pytest.raises(TrimtabError) as caught:
        load_config(path, overrides)
    assert caught.value.kind == ErrorKind.CONFIG
    assert caught.value.exit_code == 2
    return caught.value.message


# layers


def test_set_goes_before_file_goes_before_default_and_origins_say_which(tmp_path):
    path = write(tmp_path, "[ppo]\nbeta = 0.1\n\niterations = 7\n[sft]\nepochs=3\n")
    resolved = load_config(path, ["ppo.beta=0.2", "ppo.beta = 0.3"])
    assert (resolved.config.ppo.beta, resolved.config.ppo.iterations, resolved.config.sft.epochs) == (0.3, 7, 3)
    assert resolved.directory == tmp_path
    rows = {row.key: row for row in resolved.rows()}
    assert list(rows) == list(fields()) == list(resolved.origins)
    assert rows["ppo.beta"] == ("ppo.beta", 0.3, "--set")
    assert rows["ppo.iterations"].origin == f"{path}:4"
    assert rows["sft.epochs"].origin == f"{path}:6"
    assert rows["ppo.gamma"].origin == "default"


def test_no_file_is_the_defaults_here():
    resolved = load_config()
    assert resolved.config == Config()
    assert resolved.directory == Path.cwd()
    assert set(resolved.origins.values()) == {"default"}


def test_dotted_keys_tables_bom_and_crlf(tmp_path):
    text = '\ufeff# note\r\nppo.beta = 0.1\r\n[ppo.reward]\r\npreference = 1\r\n"rule:length" = -0.5\r\n'
    resolved = load_config(write(tmp_path, text))
    assert resolved.config.ppo.reward == {"preference": 1.0, "rule:length": -0.5}
    assert resolved.origins["ppo.beta"].endswith("trimtab.toml:2")
    assert resolved.origins["ppo.reward"].endswith("trimtab.toml:3")


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("ppo.learning_rate=1e-5", "ppo.learning_rate", 1e-5),
        ("ppo.gae_lambda=1", "ppo.gae_lambda", 1.0),
        ("model.name=my/model", "model.name", "my/model"),
        ('model.name="my model"', "model.name", "my model"),
        ("model.name=123", "model.name", "123"),
        ("project.runs=2024-01-01", "project.runs", "2024-01-01"),
        ("sft.data=a=b.jsonl", "sft.data", "a=b.jsonl"),
        ("ppo.reward={preference = 1, 'rule:length' = -0.1}", "ppo.reward", {"preference": 1.0, "rule:length": -0.1}),
        ("ppo.reward=my_rewards:score", "ppo.reward", "my_rewards:score"),
        ("ppo.reward_whitening=true", "ppo.reward_whitening", True),
        ('eval.measures=["gold", "rule:length"]', "eval.measures", ["gold", "rule:length"]),
        ("ppo.score_clip=none", "ppo.score_clip", None),
        ("sft.data=None", "sft.data", None),
        ("ppo.score_transform=none", "ppo.score_transform", "none"),
        ("ppo.micro_batch_size=4", "ppo.micro_batch_size", 4),
        ("ppo.micro_batch_size=auto", "ppo.micro_batch_size", "auto"),
    ],
)
def test_values_of_set(tmp_path, override, key, value):
    path = write(tmp_path, "[sft]\ndata = 'x'\n[ppo]\nscore_clip = 3\n")
    found = flatten(load_config(path, [override]).config)[key]
    assert found == value
    assert type(found) is type(value)


def test_a_beta_schedule_is_written_as_lists(tmp_path):
    path = write(tmp_path, "[ppo]\nkl_controller = 'scheduled'\nbeta_schedule = [[0, 0.1], [10, 0]]\n")
    assert load_config(path).config.ppo.beta_schedule == [(0, 0.1), (10, 0.0)]
    again = Config.model_validate(json.loads(json.dumps(load_config(path).config.model_dump(mode="json"))))
    assert again == load_config(path).config
    for bad in ("[[0, -1]]", "[[-1, 0.1]]", "[[0.5, 0.1]]", "[[0]]", "[[0, '0.1']]", "[0, 0.1]"):
        path = write(tmp_path, f"[ppo]\nkl_controller = 'scheduled'\nbeta_schedule = {bad}\n")
        assert "ppo.beta_schedule = " in refused(path)
    path = write(tmp_path, "[ppo]\nkl_controller = 'scheduled'\nbeta_schedule = [[5, 0.1], [5, 0]]\n")
    assert "must rise" in refused(path)


# what is refused


@pytest.mark.parametrize("key", list(fields()))
def test_every_setting_refuses_a_wrong_value_and_names_key_value_and_what_is_allowed(tmp_path, key):
    info = fields()[key]
    section, name = key.split(".")
    value = "true" if info.kinds & {"integer", "number"} else "-1"
    message = refused(write(tmp_path, f"\n[{section}]\n{name} = {value}\n"))
    assert f"{tmp_path}/trimtab.toml:3: {key} = {value}: it must be {info.allowed}" in message.splitlines()


@pytest.mark.parametrize("key", [k for k, f in fields().items() if "number" in f.kinds])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_no_setting_takes_a_number_that_is_not_finite(key, value):
    assert f"--set: {key} = " in refused(None, f"{key}={value}")


@pytest.mark.parametrize("value", ["{a = nan}", "{a = 'x'}", '""', "[1]", "{a = {b = 1}}"])
def test_rewards_that_make_no_sense(value):
    assert "--set: ppo.reward = " in refused(None, f"ppo.reward={value}")


@pytest.mark.parametrize(
    ("override", "what"),
    [
        ("ppo.learning_rate=-1", "--set: ppo.learning_rate = -1: it must be a number above 0"),
        ("ppo.gae_lambda=1.5", "ppo.gae_lambda = 1.5: it must be a number from 0 to 1"),
        ("ppo.clip_range=1", "ppo.clip_range = 1: it must be a number above 0 and below 1"),
        ("ppo.gamma=0", "ppo.gamma = 0: it must be a number above 0 and up to 1"),
        ("ppo.epochs=2.0", "ppo.epochs = 2.0: it must be a whole number from 1 on"),
        ("ppo.epochs=two", 'ppo.epochs = "two": it must be a whole number from 1 on'),
        ("ppo.advantage=gea", 'ppo.advantage = "gea": it must be one of "gae", "rloo", "grpo"'),
        ("ppo.advantage=none", 'ppo.advantage = "none": it must be one of "gae", "rloo", "grpo"'),
        ("ppo.score_clip=0", "ppo.score_clip = 0: it must be a number above 0 (or not set)"),
        ("model.device=gpu", 'model.device = "gpu": it must be auto, cpu, cuda, cuda:N or mps'),
        ("model.name=", 'model.name = "": it must be a text that is not empty'),
        ("eval.measures=gold", 'eval.measures = "gold": it must be a list of: a text'),
        ("ppo.lerning_rate=1", "--set: unknown key 'ppo.lerning_rate', did you mean 'ppo.learning_rate'?"),
        ("ppo.abstain=1", "did you mean 'label.abstain'?"),
        ("pppo.beta=1", "unknown section 'pppo' in 'pppo.beta', did you mean 'ppo.beta'?"),
        ("ppo.reward.preference=1", "unknown key 'ppo.reward.preference', did you mean 'ppo.reward'?"),
        ("beta=1", "--set beta=1: is not of the form section.key=value"),
        ("ppo.beta", "--set ppo.beta: is not of the form section.key=value"),
        ("ppo.beta=1\nx = 2", "ppo.beta = "),
    ],
)
def test_bad_overrides_in_plain_words(override, what):
    assert what in refused(None, override)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("project.seed", "9" * 26, "it must be a whole number from 0 on, at most 9223372036854775807"),
        ("project.seed", str(2**63), "at most 9223372036854775807"),
        ("ppo.iterations", "9" * 400, "it must be a whole number from 1 on, at most 9223372036854775807"),
        ("ppo.temperature", "1e-300", "ppo.temperature = 1e-300: it must be a number from 0.001 on"),
        ("sample.temperature", "9e-4", "it must be a number from 0.001 on"),
        ("eval.temperature", "0", "it must be a number from 0.001 on"),
        ("eval.measures", "[" * 150 + "]" * 150, "eval.measures = [[["),
    ],
)
def test_values_that_are_out_of_every_proportion(tmp_path, key, value, what):
    section, name = key.split(".")
    for message in (refused(None, f"{key}={value}"), refused(write(tmp_path, f"[{section}]\n{name} = {value}\n"))):
        assert what in message
        assert len(message) < 400


def test_the_largest_seed_and_the_lowest_temperature_hold():
    config = load_config(None, [f"project.seed={2**63 - 1}", "ppo.temperature=0.001"]).config
    assert (config.project.seed, config.ppo.temperature) == (2**63 - 1, 0.001)


def test_numbers_of_thousands_of_digits_and_deep_nesting_are_refused(tmp_path):
    assert "it must be a whole number from 1 on" in refused(None, "ppo.iterations=" + "9" * 5000)
    assert "too many digits" in refused(write(tmp_path, "[ppo]\niterations = " + "9" * 5000))
    for value in ("[" * 5000, "[" * 5000 + "]" * 5000, "{a=" * 5000):
        message = refused(None, f"ppo.reward={value}")
        assert message.startswith("--set ppo.reward = ")
        assert "nested too deeply" in message
        assert len(message) < 200
        assert "nested too deeply" in refused(write(tmp_path, f"[ppo]\nreward = {value}\n"))


def test_unknown_keys_and_sections_of_a_file_are_named_with_their_lines(tmp_path):
    path = write(tmp_path, "seeds = 1\nppo = 3\n[pppo]\nbeta = 1\n[sft]\nbatchsize = 3\n[zzzz]\n")
    assert refused(path).splitlines() == [
        f"{path}:1: unknown section or key 'seeds', did you mean project.seed?",
        f"{path}:2: ppo = 3: it is a section, written [ppo]",
        f"{path}:3: unknown section or key 'pppo', did you mean [ppo]?",
        f"{path}:6: unknown key 'sft.batchsize', did you mean 'sft.batch_size'?",
        f"{path}:7: unknown section or key 'zzzz'",
    ]


def test_all_problems_are_listed_at_once(tmp_path):
    path = write(tmp_path, "[ppo]\nbeta = -1\nepochs = 0\nfoo = 1\n[sft]\nepochs = 'x'\n")
    assert len(refused(path, "eval.bootstrap=0").splitlines()) == 5


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[ppo]\nadvantage = 'rloo'", 'advantage = "rloo" compares responses to one prompt'),
        ("[ppo]\nadvantage = 'rloo'\nresponses_per_prompt = 4\ngae_lambda = 0.5", "gae_lambda would have no effect"),
        ("[ppo]\nresponses_per_prompt = 3", "responses_per_prompt = 3 does not divide batch_size = 32"),
        ("[ppo]\nminibatches = 5", "minibatches = 5 does not divide"),
        ("[ppo]\nkl_placement = 'loss'", "zero expected gradient"),
        ("[ppo]\nkl_controller = 'adaptive'", "needs kl_target_nats and kl_horizon_episodes"),
        ("[ppo]\nkl_target_nats = 6", "have no effect with"),
        ("[ppo]\nkl_controller = 'scheduled'", "go together"),
        ("[ppo]\nvalue_coef = 1", "set value_learning_rate instead"),
        ("[ppo]\nreward = {}", "reward is an empty table"),
    ],
)
def test_settings_at_odds_name_file_and_section(tmp_path, text, what):
    path = write(tmp_path, text)
    message = refused(path)
    assert f"{path}: [ppo] " in message
    assert what in message


def test_every_rule_that_is_broken_is_told(tmp_path):
    assert (
        len(refused(write(tmp_path, "[ppo]\nresponses_per_prompt = 3\nminibatches = 5\nvalue_coef = 1")).splitlines())
        == 3
    )


def test_rules_across_sections(tmp_path):
    message = refused(write(tmp_path, "[label]\njudge = 'construction'"))
    assert message.endswith('sample.source must be "contrast"')


def test_files_that_cannot_be_read(tmp_path):
    assert "none.toml: cannot be read: No such file" in refused(tmp_path / "none.toml")
    assert "is not valid TOML" in refused(write(tmp_path, "[ppo\n"))
    (tmp_path / "trimtab.toml").write_bytes(b"\xff")
    assert "is not UTF-8" in refused(tmp_path / "trimtab.toml")


# presets and schema


@pytest.mark.parametrize("preset", list(PRESETS))
def test_presets_hold_and_name_only_settings(preset):
    config = default_config(preset)
    for section, table in PRESETS[preset].items():
        for key, value in table.items():
            assert flatten(config)[f"{section}.{key}"] == value


def test_presets_can_be_changed_by_key():
    assert default_config("tiny", **{"ppo.beta": 0.5}, sft__epochs=3).ppo.beta == 0.5
    assert default_config("tiny", sft__epochs=3).sft.epochs == 3
    assert default_config() == Config()
    with pytest.raises(TrimtabError, match="no preset 'huge'"):
        default_config("huge")
    with pytest.raises(TrimtabError, match=re.escape("argument: unknown key 'ppo.bta', did you mean 'ppo.beta'?")):
        default_config(ppo__bta=1)
    with pytest.raises(TrimtabError, match=r"ppo\.beta = -1"):
        default_config("tiny", ppo__beta=-1)


def test_every_setting_is_described():
    for key, info in fields().items():
        assert info.description.endswith("."), key
        assert "anything" not in info.allowed, key
    assert len(fields()) < 200


def test_json_schema_is_json_and_knows_every_key():
    schema = json.loads(json.dumps(json_schema()))
    keys = {
        f"{section}.{name}"
        for section, ref in schema["properties"].items()
        for name in schema["$defs"][ref["$ref"].split("/")[-1]]["properties"]
    }
    assert keys == set(fields())


def test_the_tree_does_not_change_and_refuses_unknown_keys():
    with pytest.raises(ValidationError):
        Config().ppo.beta = 1.0
    with pytest.raises(ValidationError):
        Config.model_validate({"ppo": {"foo": 1}})


def test_nearest_key():
    assert nearest_key("ppo.betaa") == "ppo.beta"
    assert nearest_key("learning_rate") in {"sft.learning_rate", "preference.learning_rate", "ppo.learning_rate"}
    assert nearest_key("ppo.qqqqqq") is None


def test_a_setting_that_is_gone_names_what_took_its_place():
    with pytest.raises(TrimtabError, match=r'no model.shared_layers any more: model.trainable = "top:<layers>"'):
        load_config(None, ["model.shared_layers=2"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.trainable=top:0"], "from 1 layer on"),
        (["model.trainable=all"], 'must be "full", "lora"'),
        (["model.lora_rank=4"], r'lora_rank = 4 speaks of adapters, and trainable = "full" has none'),
        (["model.trainable=top:2", "model.lora_targets=['q_proj']"], "lora_targets = .* speaks of adapters"),
        (["model.trainable=lora", "model.lora_targets=['q_proj', 'q_proj']"], "names a layer twice"),
        (["model.trainable=lora", "model.lora_rank=0"], "a whole number from 1 on"),
        (["model.trainable=lora", "model.lora_alpha=0"], "a number above 0"),
    ],
)
def test_layouts_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(TrimtabError, match=message):
        load_config(None, settings)


def test_settings_of_adapters_reach_the_layout():
    settings = [
        "model.trainable=lora-top:3",
        "model.lora_rank=4",
        "model.lora_alpha=8",
        "model.lora_targets=['q_proj']",
    ]
    layout = load_config(None, settings).config.model.layout
    assert layout == Layout(3, Lora(4, 8.0, ("q_proj",)))
    assert load_config(None, ["model.trainable=top:3"]).config.model.layout == Layout(3)
    assert load_config(None, ["model.lora_rank=16"]).config.model.layout == Layout()  # the default may stand there


@pytest.mark.parametrize("key", ["ppo.top_k", "ppo.top_p", "sample.repetition_penalty", "ppo.min_new_tokens"])
def test_restricted_sampling_is_refused_with_the_reason(tmp_path, key):
    section, name = key.split(".")
    message = refused(write(tmp_path, f"[{section}]\n{name} = 1\n"))
    assert key in message
    assert "whole softmax" in message
    assert f"{section}.temperature" in message
    assert "did you mean" not in message


def test_a_horizon_that_could_turn_beta_negative_is_refused(tmp_path):
    text = '[ppo]\nkl_controller = "adaptive"\nkl_target_nats = 6\nbatch_size = 100\nkl_horizon_episodes = 20\n'
    assert "kl_horizon_episodes = 20 is too short" in refused(write(tmp_path, text))
