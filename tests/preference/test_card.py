"""`trimtab.json` beside a preference model: a value that cannot be is named before anything is loaded."""

from __future__ import annotations

import json
import re

import pytest

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.preference.card import CARD, Card

GOOD = {"chat": True, "max_tokens": 48, "backbone": "some", "members": 2, "offsets": [0.5, -1], "other": "kept"}


def write(directory, **changes):
    facts = {key: value for key, value in (GOOD | changes).items() if value != "gone"}
    (directory / CARD).write_text(json.dumps(facts), "utf-8")


def test_a_whole_card_is_read(tmp_path):
    write(tmp_path)
    assert Card.read(tmp_path) == Card(True, 48, True, 2, (0.5, -1.0), GOOD)


def test_a_model_alone_has_no_offsets(tmp_path):
    write(tmp_path, members="gone", offsets="gone", backbone="gone")
    card = Card.read(tmp_path)
    assert (card.members, card.offsets, card.backbone) == (1, (), False)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("chat", "gone", "chat is missing.*true or false"),
        ("chat", "auto", "chat is 'auto'"),
        ("max_tokens", "gone", "max_tokens is missing"),
        ("max_tokens", "512", "max_tokens is '512'.*whole number"),
        ("max_tokens", 0, "max_tokens is '0'"),
        ("max_tokens", True, "max_tokens is 'True'"),
        ("members", 0, "members is '0'"),
        ("members", 2.0, "members is '2.0'"),
        ("members", 10**9, "offsets is.*1000000000 numbers"),
        ("offsets", "gone", "offsets is missing.*2 numbers"),
        ("offsets", [1], "offsets is"),
        ("offsets", [1, "2"], "offsets is"),
        ("offsets", [1, float("nan")], "offsets is"),
        ("offsets", [1, True], "offsets is"),
        ("offsets", [1, 10**400], "offsets is"),
        ("max_tokens", 10**50, "max_tokens is '1000.*to 1000000000"),
        ("members", None, "members is null"),
        ("chat", None, "chat is null"),
        ("backbone", True, "backbone is 'True'"),
        ("backbone", ["x"], "backbone is"),
        ("backbone", None, "backbone is null"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_the_file(tmp_path, key, value, told):
    write(tmp_path, **{key: value})
    with pytest.raises(TrimtabError) as found:
        Card.read(tmp_path)
    assert found.value.kind is ErrorKind.MODEL
    text = f"{found.value.message} {found.value.hint}"
    assert str(tmp_path / CARD) in text
    assert re.search(told, text), text


def test_a_card_that_is_no_object_is_told(tmp_path):
    (tmp_path / CARD).write_text("[1, 2]", "utf-8")
    with pytest.raises(TrimtabError, match="JSON object is expected"):
        Card.read(tmp_path)
