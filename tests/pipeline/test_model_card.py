"""The card of a preference model: what it says of what is known, and that nothing in it is markup of somebody else."""

from __future__ import annotations

import re

import pytest
import yaml

from trimtab.config.schema import Config
from trimtab.pipeline.model_card import model_card

PARTS = ("pm", "label", "sample", "calibration", "probe", "model")
NOTHING: dict[str, dict[str, object]] = {name: {} for name in PARTS}


def interval(mean: float, low: float, high: float, n: int = 60) -> dict[str, float]:
    return {"mean": mean, "low": low, "high": high, "n": n}


def card(config=None, **parts) -> str:
    made = Config().model_dump(mode="json")
    for section, values in (config or {}).items():
        made[section] |= values
    return model_card("main", made, {**NOTHING, **parts}, {"pairs": "ab" * 32})


def header(text: str) -> dict[str, object]:
    return yaml.safe_load(re.split(r"(?m)^---$", text)[1])


def test_the_header_is_what_hubs_read():
    found = header(card({"model": {"name": "HuggingFaceTB/SmolLM2-135M-Instruct"}}))
    assert found == {
        "library_name": "transformers", "pipeline_tag": "text-classification",
        "base_model": "HuggingFaceTB/SmolLM2-135M-Instruct", "tags": ["reward-model", "preference-model", "trimtab"],
    }  # fmt: skip
    for local in ("tiny-world", "./models/mine", "/models/mine"):
        assert "base_model" not in header(card({"model": {"name": local}}))
    assert header(card({"model": {"name": 'a"\n---\nx: 1'}}))["base_model"] == 'a"\n---\nx: 1'


def test_it_says_what_is_known_and_leaves_out_what_is_not():
    bare = card()
    assert "## Accuracy" not in bare
    assert "## Faults" not in bare
    assert "## Intended use and limits" in bare
    text = card(
        {"preference": {"epochs": 3}},
        pm={"pairs": 120, "prompts": 60, "accuracy": interval(0.73, 0.66, 0.81), "length_accuracy": 0.68,
            "over_length": interval(0.05, -0.04, 0.15), "training_pairs": 680,
            "members": {"count": 3, "accuracy": [0.7, 0.71, 0.69]},
            "human_held_out": {"accuracy": interval(0.7, 0.5, 0.85)}},
        label={"judge": "likelihood", "constitution": "everyday", "constitution_hash": "9f" * 32,
               "principles": [{"id": "warm", "text": "Be warm."}]},
        calibration={"kept": True, "method": "platt", "temperature": 2.5,
                     "before": {"ece": interval(0.12, 0.1, 0.15)}, "after": {"ece": interval(0.03, 0.02, 0.06)}},
        probe={"responses": 240, "faults": [{"id": "pm-length-bias", "severity": "warning", "evidence": "it pays"}],
               "edits": [{"name": "praise", "change": interval(0.8, 0.6, 1.0)},
                         {"name": "rare", "change": interval(3.0, 2.0, 4.0, 2)}],
               "length": {"within": interval(0.6, 0.5, 0.7)}, "agreement": {"change": interval(0.4, 0.3, 0.5)}},
    )  # fmt: skip
    for said in (
        "| ordered as labeled | 73 % [66, 81] |", "| “the longer one wins” gets | 68 % |", "5 % [-4, 15]",
        "| ordered as people labeled | 70 % [50, 85] |", "| members | 70 %, 71 %, 69 % |", "the first of 3 members",
        "divided by the temperature 2.50",
        "| expected calibration error | 0.120 [0.100, 0.150] | 0.030 [0.020, 0.060] |",
        "kept in `calibration.json`", "**pm-length-bias** (warning): it pays", "| praise | +0.80 [0.60, 1.00] | 60 |",
        "correlate 0.60 [0.50, 0.70]", "side is worth +0.40 [0.30, 0.50]", "| `preference.epochs` | `3` |",
        "- warm: Be warm.", "| judge | likelihood |", f"`{'ab' * 32}`",
    ):  # fmt: skip
        assert said in text, said
    assert "rare" not in text
    quiet = card(probe={"responses": 240, "faults": []})
    assert "None found in 240 responses" in quiet
    assert "not applied" in card(
        calibration={"before": {"ece": interval(0.1, 0, 1)}, "after": {"ece": interval(0, 0, 1)}}
    )


@pytest.mark.parametrize(
    "hostile", ["<script>x</script>", "a | b", "\n# Title\n", "[x](http://evil)", "\u202eabc", "`code`"]
)
def test_texts_of_others_are_no_markup(hostile):
    text = card(
        label={"judge": hostile, "constitution": hostile, "principles": [{"id": hostile, "text": hostile}]},
        sample={"source": hostile},
        probe={"responses": 1, "faults": [{"id": hostile, "severity": hostile, "evidence": hostile}]},
    )
    plain = card(
        label={"judge": "x", "constitution": "x", "principles": [{"id": "x", "text": "x"}]}, sample={"source": "x"},
        probe={"responses": 1, "faults": [{"id": "x", "severity": "x", "evidence": "x"}]},
    )  # fmt: skip
    for mark in ("<", "[", "`", "#", "|"):
        assert len(re.findall(rf"(?<!\\){re.escape(mark)}", text)) == len(
            re.findall(rf"(?<!\\){re.escape(mark)}", plain)
        )
    assert "\u202e" not in text


@pytest.mark.parametrize(
    "broken", [{"accuracy": 3}, {"accuracy": {"mean": "x"}}, {"members": 3}, {"human_held_out": []}]
)
def test_results_of_another_form_are_left_out(broken):
    assert "# Preference model" in card(pm=broken, label={"principles": 3}, probe={"faults": [3], "edits": [3]})
