"""Prompt files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.data import Message, Prompt, read_prompts, write_prompts
from trimtab.errors import ErrorKind, TrimtabError

SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
any_text = st.text(st.characters(exclude_categories=()), max_size=20).filter(lambda s: not SURROGATE_PAIR.search(s))
content = any_text.filter(lambda s: s.strip())
conversations = st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant"]), any_text), max_size=2)
prompts = st.builds(
    lambda name, before, last, tags, extra: Prompt(name, (*before, Message("user", last)), tuple(tags), extra),
    content,
    conversations,
    content,
    st.lists(any_text, max_size=2),
    st.dictionaries(any_text.filter(lambda k: k not in ("id", "prompt", "tags")), st.integers() | any_text, max_size=2),
)


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


@given(st.lists(prompts, min_size=1, max_size=4, unique_by=lambda p: p.id))
def test_prompts_of_any_text_survive_a_round_trip(tmp_path_factory, many):
    path = tmp_path_factory.mktemp("prompts") / "p.jsonl"
    write_prompts(path, many)
    assert read_prompts(path) == many


def test_texts_messages_ids_tags_and_other_columns(tmp_path):
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    path = write(
        tmp_path / "p.jsonl",
        {"prompt": "Hello", "id": "a", "tags": ["x"], "source": "me"},
        "",
        {"prompt": talk},
        {"prompt": "Yes?", "id": 7},
    )
    first, second, third = read_prompts(path)
    assert first == Prompt("a", (Message("user", "Hello"),), ("x",), {"source": "me"})
    assert (second.id, second.messages) == ("line-3", (Message("system", "Be brief."), Message("user", "Hi")))
    assert second.text == "system: Be brief.\nuser: Hi"
    assert third.id == "7"
    assert read_prompts(path, limit=2) == [first, second]
    assert read_prompts(path, limit=0) == []


def test_bom_crlf_and_a_missing_last_line_end_are_fine(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a\\r\\n"}\r\n{"prompt": "\xe4\xbd\xa0"}')
    assert [p.text for p in read_prompts(path)] == ["a\r\n", "你"]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"prompt": "a"', "is not JSON: .* at column"),
        ("[1]", "is a JSON list, not an object"),
        ('{"prompt": ""}', "prompt is empty"),
        ('{"prompt": " \\n\\t"}', "prompt is empty"),
        ("{}", "prompt is missing"),
        ('{"prompt": null}', "prompt is missing"),
        ('{"prompt": 3}', "prompt is a number"),
        ('{"prompt": []}', "prompt is empty; it is a text, or a list of messages"),
        ('{"prompt": ["a"]}', "message 1 of prompt has no role out of system, user, assistant"),
        ('{"prompt": [{"role": "bot", "content": "a"}]}', "message 1 of prompt has no role"),
        ('{"prompt": [{"role": "user", "content": [1]}]}', "message 1 of prompt has no content that is a text"),
        ('{"prompt": [{"role": "assistant", "content": "a"}]}', "last message of prompt is the assistant's"),
        ('{"prompt": "a", "id": true}', "id is True"),
        ('{"prompt": "a", "id": " "}', "id is ' '"),
        ('{"prompt": "a", "id": "first"}', "id 'first' is that of line 1 already"),
        ('{"prompt": "a", "tags": "x"}', "tags is no list of texts"),
        ('{"prompt": "a", "x": NaN}', "NaN is no JSON number"),
        ('{"prompt": "a", "x": 1e999}', "1e999, which is too large"),
        ("[" * 100_000, "nested too deeply|not JSON"),
    ],
)
def test_a_broken_line_is_named_with_its_number_and_nothing_is_read(tmp_path, line, what):
    path = write(tmp_path / "p.jsonl", {"prompt": "fine", "id": "first"}, line, {"prompt": "fine too"})
    with pytest.raises(TrimtabError, match=rf"p\.jsonl, line 2: .*({what})") as caught:
        read_prompts(path)
    assert caught.value.kind == ErrorKind.DATA


def test_bytes_that_are_no_utf8_are_named_with_their_line(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n{"prompt": "\xff"}\n')
    with pytest.raises(TrimtabError, match="line 2: is not UTF-8: invalid start byte at byte 12"):
        read_prompts(path)
    path.write_bytes('{"prompt": "a"}\n'.encode("utf-16"))
    with pytest.raises(TrimtabError, match="is UTF-16"):
        read_prompts(path)


def test_every_broken_line_up_to_ten_is_listed(tmp_path):
    path = write(tmp_path / "p.jsonl", "x", {"prompt": "ok"}, "y", *["z"] * 20)
    with pytest.raises(TrimtabError) as caught:
        read_prompts(path)
    lines = caught.value.message.splitlines()
    assert len(lines) == 10
    assert "line 1:" in lines[0]
    assert "line 3:" in lines[1]


@pytest.mark.parametrize("text", ["", "\n \n", "\ufeff"])
def test_a_file_without_prompts_is_an_error(tmp_path, text):
    (tmp_path / "p.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(TrimtabError, match="holds no prompts"):
        read_prompts(tmp_path / "p.jsonl")
    with pytest.raises(TrimtabError, match=r"none\.jsonl: cannot be read: No such file"):
        read_prompts(tmp_path / "none.jsonl")


def test_a_huge_line_is_read_whole(tmp_path):
    path = write(tmp_path / "p.jsonl", {"prompt": "x" * 5_000_000})
    assert len(read_prompts(path)[0].text) == 5_000_000
