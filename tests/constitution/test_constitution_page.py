"""The page on constitutions: its example is one, and it says of the hashes what is so."""

from __future__ import annotations

import re
from pathlib import Path

from trimtab.constitution import load_constitution
from trimtab.constitution.check import LONG_IN_ALL_WORDS, LONG_WORDS, WEIGHT_RATIO, check
from trimtab.sampling.transcripts import Fate

PAGE = (Path(__file__).parents[2] / "docs" / "constitution.md").read_text(encoding="utf-8")


def test_the_example_holds_and_has_nothing_to_remark(tmp_path):
    (tmp_path / "c.toml").write_text(re.findall(r"```toml\n(.+?)```", PAGE, re.DOTALL)[0], encoding="utf-8")
    constitution = load_constitution(tmp_path / "c.toml")
    assert check(constitution) == []
    assert [len(chat) for chat in constitution.chats] == [6]
    # the chat shows how the requests of the file are answered
    requests = {p.critique for p in constitution.principles} | {p.revision for p in constitution.principles}
    assert {t.content for t in constitution.chats[0] if t.role == "user"} - requests == {"What is a budget?"}


def test_the_page_names_the_limits_and_every_fate():
    assert f"more than {LONG_WORDS} words, or all have more than {LONG_IN_ALL_WORDS}" in PAGE
    assert WEIGHT_RATIO == 20
    assert "more than twenty times" in PAGE
    named = {name.strip() for row in re.findall(r"^\| ([a-z, -]+) \|", PAGE, re.MULTILINE) for name in row.split(",")}
    assert {str(fate) for fate in Fate} <= named
