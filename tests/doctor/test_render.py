"""The report for terminals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from made_up_diagnoses import healthy, inconclusive, sick
from trimtab.doctor.diagnosis import Diagnosis
from trimtab.doctor.finding import Message, Prescription
from trimtab.doctor.log import Skipped
from trimtab.doctor.render import fold, report


def text(diagnosis: Diagnosis, lang: str = "en", width: int = 90, **how: bool) -> str:
    return "\n".join("".join(part.text for part in line).rstrip() for line in report(diagnosis, lang, width, **how))


def test_the_verdict_comes_first_and_the_story_is_a_tree():
    lines = text(sick()).splitlines()
    assert lines[0] == "Sick: length-exploitation since step 64; 3 consequences."
    heads = [line for line in lines if "since step" in line and not line.startswith(("Sick", "│  The"))]
    assert heads == [
        "critical  length-exploitation  since step 64  root cause",
        "├─ critical  kl-explosion  since step 88",
        "│  └─ warning  entropy-collapse  since step 120",
        "└─ warning  truncated-responses  since step 130",
        "  note  reward-hacking  since step 70",
    ]


def test_a_root_cause_has_its_evidence_its_fixes_and_its_source_in_that_order():
    shown = text(sick())
    order = [
        "The score pays for length",
        "- Responses grew from 212 to 903 tokens.",
        "█  completions/mean_length",
        "- Length explains 87% of the gain in reward.",
        "What else could look like this",
        "- A change of the prompts",
        "Try first",
        "beta=0.08",
        "A stronger tie",
        "Then",
        "learning_rate x0.5",
        "Threshold from: AlpacaEval's annotator table",
        "More: trimtab explain length-exploitation",
        "kl-explosion",
    ]
    places = [shown.index(piece) for piece in order]
    assert places == sorted(places)


def test_our_own_runs_get_set_lines():
    assert "--set beta=0.08" in text(sick("trimtab"))


def test_what_could_not_be_told_names_the_key_and_is_not_red():
    lines = report(sick(), "en", 100)
    told = {"".join(p.text for p in line).strip(): {p.style for p in line} for line in lines}
    assert "red" not in " ".join(told["- value-not-learning, diverging-loss: needs val/explained_variance"])
    shown = text(sick(), width=100)
    assert "- oscillating: more steps are needed" in shown
    assert "- negative-kl: the unit of objective/kl cannot be told" in shown


def test_what_was_read_and_skipped_is_said():
    shown = text(sick(), width=110)
    assert "runs/grpo/trainer_state.json: hf-log-history; rows: 200, steps 1 to 200, signals: 4" in shown
    assert "- Skipped 3: not JSON (first: line 20)" in shown
    assert "- Keys that nothing is known of: my_metric, lr_group_2" in shown


def test_many_unknown_keys_are_counted():
    many = replace(sick().logs[0], unmapped=tuple(f"k{i}" for i in range(40)))
    assert "k11, and 28 more" in text(replace(sick(), logs=(many,)), width=110)


def test_what_was_looked_for_and_not_found_is_listed():
    shown = text(sick())
    assert "Looked for and not found\n  nan-inf, no-gradient" in shown


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", [40, 59, 60, 80, 110])
def test_lines_keep_to_the_width_but_for_what_cannot_be_broken(lang: str, width: int):
    whole = ("completions/mean_length", "since step", "始于", "runs/grpo", "explain", "val/")
    for line in text(sick(), lang, width).splitlines():
        assert cell_len(line) <= width or any(piece in line for piece in whole), line


def test_a_stream_of_ascii_gets_ascii():
    assert text(sick(), ascii_only=True).isascii()
    assert "`- warning  truncated-responses" in text(sick(), ascii_only=True)


def test_chinese_says_the_same():
    shown = text(sick(), "zh")
    assert shown.startswith("异常：length-exploitation，始于第 64 步；3 项后果。")
    assert "易混淆的情形" in shown
    assert "先试" in shown


def test_text_of_a_log_cannot_steer_the_terminal():
    root = sick().findings[0]
    evil = "x\x1b[2J\x1b]0;owned\x07\u202e"
    hostile = replace(
        root, id=evil, cause=Message("{k} rises", {"k": evil}), source=evil, where=evil,
        prescriptions=(Prescription({evil: evil}, Message(evil), ""),),
    )  # fmt: skip
    log = replace(sick().logs[0], unmapped=(evil,), path=evil)
    skipped = (Skipped(evil, 1, 1, evil),)
    everything = replace(
        sick(), findings=(hostile,), root_cause=evil, logs=(log,), formats={evil: evil}, skipped=skipped
    )
    for lang in ("en", "zh"):
        shown = text(everything, lang)
        assert not {"\x1b", "\x07", "\u202e", "\r"} & set(shown)
        assert "\\x1b" in shown


def test_a_healthy_and_an_inconclusive_log_are_short():
    assert len(text(healthy()).splitlines()) < 12
    shown = text(inconclusive())
    assert shown.startswith("Inconclusive")
    assert "- x.jsonl: jsonl" in shown


@given(st.text(max_size=300), st.integers(1, 60))
def test_folding_loses_nothing(words: str, width: int):
    lines = fold(words, width)
    assert "".join("".join(lines).split()) == "".join(words.split())
    assert all(cell_len(line) <= width or len(line.split()) == 1 for line in lines)


def test_wide_characters_count_as_two_and_stops_do_not_begin_a_line():
    lines = fold("响应越来越长，而奖励也随之上升。", 10)
    assert all(cell_len(line) <= 12 for line in lines)
    assert not any(line[0] in "，。" for line in lines)
