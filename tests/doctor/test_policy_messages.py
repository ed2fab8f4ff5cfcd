"""Every sentence that a detector on logs can say is in the catalogue, in both languages, with the values it needs."""

from __future__ import annotations

import re

import pytest

from planted_faults import FAULTS
from trimtab.doctor.driver import diagnose_materials
from trimtab.doctor.finding import Finding, Message
from trimtab.doctor.messages.catalogue import placeholders, render
from trimtab.doctor.messages.policy import MESSAGES

_CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def said() -> list[Message]:
    found = [f for fault in FAULTS for f in diagnose_materials([fault.draw(0)]).findings]
    return [m for f in found for m in _messages(f)]


def _messages(finding: Finding) -> list[Message]:
    return [finding.cause, *(e.text for e in finding.evidence), *finding.ruled_out]


def test_what_planted_faults_say_is_in_the_catalogue(said: list[Message]) -> None:
    assert not {m.key for m in said} - set(MESSAGES)


def test_no_placeholder_is_left_open(said: list[Message]) -> None:
    for message in said:
        for lang in ("en", "zh"):
            assert "{" not in render(message, lang), (message, lang)


def test_both_languages_use_the_same_values() -> None:
    for key, text in MESSAGES.items():
        assert placeholders(text.en) == placeholders(text.zh), key


def test_the_chinese_is_chinese_and_the_english_is_not() -> None:
    for key, text in MESSAGES.items():
        assert _CHINESE.search(text.zh), key
        assert not _CHINESE.search(text.en), key


def test_every_key_that_the_detectors_name_is_there() -> None:
    """Read from the source, so that rare branches count as well."""
    from importlib import import_module

    from trimtab.doctor.detectors import LOG_DETECTORS

    modules = {r.find.__module__ for r in LOG_DETECTORS}  # type: ignore[attr-defined]
    for name in sorted(modules):
        path = import_module(name).__file__
        assert path is not None
        with open(path, encoding="utf-8") as file:
            source = file.read()
        for what in re.findall(r'figure\(\s*"([a-z0-9-]+)"', source):
            assert f"figure.{what}" in MESSAGES, (name, what)
        for id, what in re.findall(r'ruled_out\(\s*"([a-z-]+)",\s*"([a-z-]+)"', source):
            assert f"{id}.not-{what}" in MESSAGES, (name, id, what)
        named = {key.partition(".")[2] for key in MESSAGES}
        for what in re.findall(r'ruled_out\(\s*id,\s*"([a-z-]+)"', source):
            assert f"not-{what}" in named, (name, what)
        for what in re.findall(r'cause="([a-z-]+)"', source):
            assert what in named, (name, what)
