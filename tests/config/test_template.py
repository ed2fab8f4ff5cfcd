"""The commented trimtab.toml."""

from __future__ import annotations

import re
import tomllib
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.config import PRESETS, Config, default_config, load_config, write_toml
from trimtab.config.describe import fields, flatten
from trimtab.config.template import toml_value

CHANGED = {
    "ppo.reward": {"my module:f": 1.0, "rule:length": -0.5},
    "ppo.kl_controller": "scheduled",
    "ppo.beta_schedule": [[0, 0.1], [10, 1e-7]],
    "ppo.score_clip": 3.0,
    "sft.data": 'a "quoted"\\path\n\x07\x7f\u2028你.jsonl',
    "eval.measures": ["gold", "a'b"],
    "ppo.learning_rate": 1e-300,
    "label.both_orders": False,
}


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_what_is_written_reads_back_as_the_preset(tmp_path, preset):
    path = tmp_path / "trimtab.toml"
    path.write_text(write_toml(preset=preset), encoding="utf-8")
    resolved = load_config(path)
    assert resolved.config == default_config(preset)
    live = {key for key, origin in resolved.origins.items() if origin != "default"}
    assert live == {f"{s}.{k}" for s, table in PRESETS.get(preset, {}).items() for k in table}
    for key in live:
        line = path.read_text(encoding="utf-8").split("\n")[int(resolved.origins[key].rpartition(":")[2]) - 1]
        assert line.startswith(key.partition(".")[2] + " = ")


def test_changed_values_are_live_and_read_back(tmp_path):
    config = default_config("tiny", **CHANGED)
    path = tmp_path / "trimtab.toml"
    path.write_text(write_toml(config, "tiny"), encoding="utf-8")
    assert load_config(path).config == config
    path.write_text(write_toml(config), encoding="utf-8")
    assert load_config(path).config == config


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_every_setting_stands_there_described_and_its_default_can_be_uncommented(preset):
    text = write_toml(preset=preset)
    for info in fields().values():
        assert re.search(rf"^#?{info.name} =", text, re.MULTILINE), info.key
    plain = " ".join(text.replace("\n# ", " ").split())
    for info in fields().values():
        assert f"{info.description} [{info.allowed}]" in plain, info.key
    uncommented = re.sub(r"^#(\w+ = )(?! \(not set\))", r"\1", text, flags=re.MULTILINE)
    document = tomllib.loads(uncommented)
    expected = {k: v for k, v in flatten(default_config(preset)).items() if v is not None}
    assert {f"{s}.{k}": v for s, table in document.items() for k, v in table.items()} == expected
    assert Config.model_validate(document) == default_config(preset)


def test_lines_are_short_enough_to_read():
    assert max(map(len, write_toml(preset="demo").splitlines())) <= 120


text = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
values = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(text, children, max_size=3),
    max_leaves=6,
)


@given(values)
def test_any_value_survives_toml(value):
    text = toml_value(value)
    assert "\n" not in text
    assert tomllib.loads(f"v = {text}")["v"] == value


def test_what_toml_cannot_say_is_an_error():
    for value in (None, date(2024, 1, 1), [None]):
        with pytest.raises(TypeError, match="has no TOML form"):
            toml_value(value)
    with pytest.raises(ValueError, match="surrogates"):
        toml_value("\ud800")
