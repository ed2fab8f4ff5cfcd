"""`trimtab explain` and the pages of docs/failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trimtab.doctor import explained as module
from trimtab.doctor.explained import explained, pages
from trimtab.doctor.messages import Text

CATALOG = Path(__file__).parents[2].parent / "shared" / "design" / "failure_catalog.md"


def test_every_finding_of_the_catalog_of_failures_is_explained():
    if not CATALOG.is_file():
        pytest.skip("the catalog of failures is not here")
    section = CATALOG.read_text(encoding="utf-8").partition("## 2. Finding ids")[2]
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("| ") and "| ids |" not in line]
    plain = " ".join(re.sub(r"\[.*?\]|\(.*?\)", "", row) for row in rows)
    listed = set(re.findall(r"[a-z]+(?:-[a-z]+)+|oscillating|sycophancy", plain))
    assert len(listed) > 40
    assert listed - {"---"} <= explained().keys()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_explanation_is_whole(lang: str):
    for one in explained(lang).values():
        assert one.title != one.id
        assert one.what
        assert one.signals, one.id
        assert one.confusers, one.id
        assert one.fixes, one.id
        assert not re.search(r"\{\w*\}", one.page())


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "kl-explosion.title": Text("The policy <runs> off", "策略失控"),
        "kl-explosion.what": Text("It leaves its reference.", "它离开了参考模型。"),
        "kl-explosion.signals": Text("kl/reference rises\nkl/update rises", "KL 上升"),
        "kl-explosion.fixes": Text("a higher beta\na lower rate", "提高 beta"),
        "kl-explosion.cause": Text("x", "x"),
    }
    monkeypatch.setattr(
        "trimtab.doctor.messages.catalogue.MESSAGES",
        texts | {key: text for key, text in module.MESSAGES.items() if key.startswith("face.")},
    )
    monkeypatch.setattr(module, "MESSAGES", texts)


def test_a_page_has_the_parts_that_the_catalogue_has(made_up: None):
    page = pages()["kl-explosion.md"]
    assert page.startswith("# kl-explosion\n")
    assert "**The policy \\<runs> off.** It leaves its reference." in page
    assert "## Signals\n\n- kl/reference rises\n- kl/update rises\n" in page
    assert "1. a higher beta\n2. a lower rate\n" in page
    assert "What else" not in page
    assert "| [kl-explosion](kl-explosion.md) | The policy \\<runs> off |" in pages()["README.md"]


def test_lines_for_a_terminal_are_folded(made_up: None):
    lines = ["".join(p.text for p in line) for line in explained("en")["kl-explosion"].lines(24)]
    assert lines[0] == "kl-explosion  The policy <runs> off"
    assert "  1. a higher beta" in lines
