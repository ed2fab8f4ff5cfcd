"""The catalogue of messages: complete in both languages, free of dead entries, and never in the way of a diagnosis."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.doctor.finding import Message
from trimtab.doctor.messages import LANGUAGES, Text
from trimtab.doctor.messages.catalogue import MESSAGES, ROOMS, placeholders, render, title

SOURCE = Path(__file__).parents[2] / "src" / "trimtab"
EXPLAINED = ("title", "what", "signals", "confusers", "fixes")
"""Endings that `trimtab explain` reads by name."""


def strings_of_the_source() -> tuple[set[str], list[re.Pattern[str]]]:
    """Every string in the code outside the catalogue, and every f-string that could make a key, as a pattern."""
    plain: set[str] = set()
    patterns: list[re.Pattern[str]] = []
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "messages":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                plain.add(node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = [re.escape(str(v.value)) if isinstance(v, ast.Constant) else r"[a-z0-9-]+" for v in node.values]
                fixed = "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
                if len(fixed) > 3 and re.fullmatch(r"[a-z.-]+", fixed):
                    patterns.append(re.compile("".join(parts)))
    for path in SOURCE.rglob("*.j2"):
        plain |= set(re.findall(r"""say\(["']([^"']+)["']""", path.read_text(encoding="utf-8")))
    return plain, patterns


def messages_of_the_source() -> list[tuple[str, str]]:
    """(file, key) of every `Message("key", ...)` with a key written out."""
    found = []
    for path in sorted((SOURCE / "doctor").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Message" and node.args:
                key = node.args[0]
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    found.append((path.name, key.value))
    return found


def test_both_languages_are_there_with_the_same_placeholders():
    for key, text in MESSAGES.items():
        assert isinstance(text, Text), key
        assert len(text) == len(LANGUAGES), key
        assert all(part.strip() for part in text), key
        assert placeholders(text.en) == placeholders(text.zh), key


def test_chinese_is_chinese_and_english_is_not():
    for key, text in MESSAGES.items():
        words = re.sub(r"{.*?}", "", text.en)
        assert not re.search("[\u4e00-\u9fff]", text.en), key
        assert len(words) <= 12 or re.search("[\u4e00-\u9fff]", text.zh), key


def test_no_two_rooms_hold_one_key():
    held: dict[str, str] = {}
    for room in ROOMS:
        for key in room.MESSAGES:
            assert key not in held, f"{key} is in {held[key]} and in {room.__name__}"
            held[key] = room.__name__


def test_every_key_that_the_code_names_is_in_the_catalogue():
    missing = [(where, key) for where, key in messages_of_the_source() if key not in MESSAGES and "{" not in key]
    assert missing == []


def test_no_entry_of_the_catalogue_is_unused():
    """A key is used where the code has it whole, as an f-string, or in two parts (`finding(id, "cause", ...)`)."""
    plain, patterns = strings_of_the_source()

    def in_parts(key: str) -> bool:
        finding, _, what = key.partition(".")
        told = what in plain or what.removeprefix("not-") in plain or any(p.fullmatch(what) for p in patterns)
        return finding in plain | {"figure"} and told

    unused = [
        key
        for key in MESSAGES
        if key not in plain
        and key.rpartition(".")[2] not in EXPLAINED
        and not in_parts(key)
        and not any(pattern.fullmatch(key) for pattern in patterns)
    ]
    assert unused == []


def test_figures_have_three_digits_whole_numbers_none_lists_are_joined():
    values = {
        "a": 1234.5678,
        "b": np.float32(0.0123456),
        "c": np.int64(1234567),
        "d": ["x", 2.0],
        "e": None,
        "f": True,
        "g": Message("n is {n}", {"n": 3}),
    }
    text = "{a}|{b}|{c}|{d}|{e}|{f}|{g}|{h:.1%}"
    assert render(Message(text, values | {"h": 0.256})) == "1235|0.0123|1234567|x, 2.00|None|True|n is 3|25.6%"
    assert render(Message("{d}", values), "zh") == "x、2.00"


def test_a_message_in_a_message_is_in_the_same_language():
    inner = Message("face.sick-without-step", {"finding": "kl-explosion"})
    assert render(Message("<{m}>", {"m": inner}), "zh") == "<异常：kl-explosion>"
    assert render(Message("<{m}>", {"m": inner}), "nowhere") == "<Sick: kl-explosion>"


@pytest.mark.parametrize(
    ("template", "values", "shown"),
    [
        ("no {such} value", {}, "no {such} value"),
        ("half a { brace", {"brace": 1}, "half a { brace"),
        ("{x:d}", {"x": 1.5}, "1.50"),
        ("{x:.0%}", {"x": "many"}, "many"),
        ("{x.__class__.__mro__}", {"x": 1}, "{x.__class__.__mro__}"),
        ("{x[0]}", {"x": [1]}, "{x[0]}"),
        ("{x!z}", {"x": 1}, "{x!z}"),
    ],
)
def test_what_cannot_be_filled_stays(template: str, values: dict[str, object], shown: str):
    assert render(Message(template, values)) == shown


@given(st.text(), st.dictionaries(st.text(), st.floats() | st.text() | st.none() | st.binary()))
def test_rendering_never_fails(template: str, values: dict[str, object]):
    assert isinstance(render(Message(template, values)), str)


def test_a_finding_without_a_title_is_called_by_its_id():
    assert title("of-a-plugin") == "of-a-plugin"
