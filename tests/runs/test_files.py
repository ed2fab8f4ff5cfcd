"""Plain files: round trips of hostile text, half-written lines, hashes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.runs.files import (
    append_jsonl,
    atomic_write_text,
    dump_json,
    file_hash,
    read_json,
    read_jsonl,
    stable_hash,
    tree_hash,
    write_jsonl,
)

SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
any_text = st.text(st.characters(exclude_categories=()), max_size=12).filter(lambda s: not SURROGATE_PAIR.search(s))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(any_text, children, max_size=2),
    max_leaves=4,
)


@given(st.lists(st.dictionaries(any_text, json_values, max_size=3), max_size=3))
def test_any_record_survives_a_json_lines_round_trip(tmp_path_factory, records):
    path = tmp_path_factory.mktemp("jsonl") / "x.jsonl"
    write_jsonl(path, records)
    assert read_jsonl(path).records == records
    assert read_jsonl(path).lines == list(range(1, len(records) + 1))
    assert path.read_bytes().decode("utf-8").splitlines() == path.read_text("utf-8").split("\n")[:-1]


def test_text_stays_readable_and_terminal_controls_are_escaped():
    assert dump_json({"a": "你好 é"}) == '{"a": "你好 é"}'
    assert dump_json("\x9b31m\u2028\ud800\x7f") == '"\\u009b31m\\u2028\\ud800\\u007f"'


def test_nan_is_refused():
    with pytest.raises(ValueError, match="Out of range"):
        dump_json({"a": float("nan")})


def test_half_written_last_line_is_partial_and_spoils_nothing_that_follows(tmp_path):
    path = tmp_path / "x.jsonl"
    append_jsonl(path, [{"a": 1}])
    with path.open("ab") as file:
        file.write(b'{"a": 2, "b"')
    found = read_jsonl(path)
    assert (found.records, found.broken, found.partial) == ([{"a": 1}], [], True)
    append_jsonl(path, [{"a": 3}])
    found = read_jsonl(path)
    assert (found.records, found.lines, found.broken, found.partial) == ([{"a": 1}, {"a": 3}], [1, 3], [2], False)


def test_reader_copes_with_bom_crlf_blank_lines_and_lines_that_are_no_objects(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n[1]\n\xff\xfe\n{"a": 2}')
    found = read_jsonl(path)
    assert (found.records, found.lines, found.broken, found.partial) == ([{"a": 1}, {"a": 2}], [1, 5], [3, 4], False)
    path.write_bytes(b"[" * 200_000 + b"\n")
    assert read_jsonl(path).broken == [1]
    assert read_jsonl(tmp_path / "missing.jsonl").records == []


@pytest.mark.parametrize("cut", range(1, 12))
def test_every_cut_of_the_last_line_loses_only_that_line(tmp_path, cut):
    path = tmp_path / "x.jsonl"
    write_jsonl(path, [{"a": 1}, {"b": "é"}])
    path.write_bytes(path.read_bytes()[:-cut])
    assert read_jsonl(path).records == ([{"a": 1}, {"b": "é"}] if cut == 1 else [{"a": 1}])


def test_atomic_write_replaces_whole_and_leaves_no_scraps(tmp_path):
    path = tmp_path / "d" / "x.txt"
    atomic_write_text(path, "old")
    atomic_write_text(path, "new\r\n")
    assert path.read_bytes() == b"new\r\n"
    with pytest.raises(UnicodeEncodeError):
        atomic_write_text(path, "\ud800")
    assert path.read_bytes() == b"new\r\n"
    assert [p.name for p in path.parent.iterdir()] == ["x.txt"]


def test_a_full_disk_and_bad_places_are_told_in_plain_words(tmp_path):
    with pytest.raises(TrimtabError, match="/dev/full: cannot be written: No space left on device") as caught:
        append_jsonl("/dev/full", [{"a": 1}])
    assert caught.value.kind == ErrorKind.FAILED
    (tmp_path / "file").touch()
    for write in (lambda p: append_jsonl(p, [{}]), lambda p: atomic_write_text(p, "x")):
        with pytest.raises(TrimtabError, match=r"file/x: cannot be written: "):
            write(tmp_path / "file" / "x")


@pytest.mark.parametrize(
    ("text", "what"), [("{", "not valid JSON"), ("[1]", "holds a list"), ("\ud800", "not valid JSON")]
)
def test_read_json_names_the_file_and_the_trouble(tmp_path, text, what):
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(TrimtabError, match=f"x.json.*{what}"):
        read_json(path)
    with pytest.raises(TrimtabError, match=r"no\.json: cannot be read"):
        read_json(tmp_path / "no.json")


def test_file_hash_is_the_known_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert file_hash(tmp_path / "x") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_tree_hash_sees_names_and_contents_and_nothing_else(tmp_path):
    def tree(name: str, files: dict[str, str]) -> str:
        for file, text in files.items():
            atomic_write_text(tmp_path / name / file, text)
        return tree_hash(tmp_path / name)

    first = tree("a", {"x": "1", "d/y": "2"})
    assert tree("b", {"d/y": "2", "x": "1"}) == first
    assert tree("c", {"x": "1", "d/y": "3"}) != first
    assert tree("d", {"x": "1", "y": "2"}) != first


@dataclass
class Thing:
    a: int
    b: Path


def test_stable_hash_ignores_order_of_keys_and_knows_dataclasses_paths_and_sets():
    assert stable_hash({"a": 1, "b": [2]}) == stable_hash({"b": [2], "a": 1}) != stable_hash({"b": [2], "a": 1.0})
    assert stable_hash(Thing(1, Path("x"))) == stable_hash({"a": 1, "b": "x"})
    assert stable_hash({"s": {3, 1, 2}}) == stable_hash({"s": [1, 2, 3]})
    assert stable_hash({"a": "\ud800"}) != stable_hash({"a": "\ud801"})
    with pytest.raises(TypeError, match="object"):
        stable_hash({"a": object()})


@given(json_values)
def test_stable_hash_does_not_change_in_a_json_round_trip(value):
    assert stable_hash(json.loads(dump_json(value))) == stable_hash(value)
