"""Pair, candidate and demonstration files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.data import (
    CandidatePair,
    Demonstration,
    Message,
    Pair,
    Prompt,
    Response,
    read_candidates,
    read_demonstrations,
    read_pairs,
    write_candidates,
    write_demonstrations,
    write_pairs,
)
from trimtab.data.pairs import candidate_record
from trimtab.errors import TrimtabError
from trimtab.runs.files import append_jsonl

SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
any_text = st.text(st.characters(exclude_categories=()), max_size=12).filter(lambda s: not SURROGATE_PAIR.search(s))
content = any_text.filter(lambda s: s.strip())
messages = st.builds(
    lambda before, last: (*before, Message("user", last)),
    st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant"]), any_text), max_size=2),
    content,
)
extras = st.dictionaries(st.sampled_from(["source", "note", "annotator"]), any_text | st.integers(), max_size=2)
prompts = st.builds(Prompt, content, messages, st.lists(any_text, max_size=2).map(tuple), extras)
responses = st.builds(Response, any_text, st.booleans(), st.none() | st.integers(0, 99))
probability = st.none() | st.floats(0, 1)
by_principle = st.dictionaries(any_text, st.floats(0, 1), max_size=2)
pairs = st.builds(
    Pair, content, prompts, responses, responses, probability, st.none() | st.floats(-1e9, 1e9), extras,
    principles=by_principle,
)  # fmt: skip
candidates = st.builds(CandidatePair, content, prompts, responses, responses, extras)
demonstrations = st.builds(Demonstration, prompts, any_text, content, extras)


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def turn(role: str, text: str) -> dict[str, str]:
    return {"role": role, "content": text}


@given(st.lists(pairs, min_size=1, max_size=3, unique_by=lambda p: p.id))
def test_pairs_survive_a_round_trip(tmp_path_factory, many):
    path = tmp_path_factory.mktemp("pairs") / "x.jsonl"
    write_pairs(path, many)
    assert read_pairs(path) == many


@given(st.lists(candidates, min_size=1, max_size=3, unique_by=lambda p: p.id))
def test_candidates_survive_a_round_trip(tmp_path_factory, many):
    path = tmp_path_factory.mktemp("candidates") / "x.jsonl"
    write_candidates(path, many)
    assert read_candidates(path) == many


@given(st.lists(demonstrations, min_size=1, max_size=3, unique_by=lambda d: d.id))
def test_demonstrations_survive_a_round_trip(tmp_path_factory, many):
    path = tmp_path_factory.mktemp("demonstrations") / "x.jsonl"
    write_demonstrations(path, many)
    assert read_demonstrations(path) == many


HELLO = (Message("user", "Hello"),)


@pytest.mark.parametrize(
    "line",
    [
        {"prompt": "Hello", "chosen": "Hi!", "rejected": "No."},
        {
            "prompt": [turn("user", "Hello")],
            "chosen": [turn("assistant", "Hi!")],
            "rejected": [turn("assistant", "No.")],
        },
        {"prompt": "Hello", "chosen": [turn("assistant", "Hi!")], "rejected": "No."},
        {
            "prompt": "Hello",
            "chosen": [turn("user", "Hello"), turn("assistant", "Hi!")],
            "rejected": [turn("user", "Hello"), turn("assistant", "No.")],
        },
        {
            "chosen": [turn("user", "Hello"), turn("assistant", "Hi!")],
            "rejected": [turn("user", "Hello"), turn("assistant", "No.")],
        },
        {"chosen": "\n\nHuman: Hello\n\nAssistant: Hi!", "rejected": "\n\nHuman: Hello\n\nAssistant: No."},
    ],
)
def test_every_form_that_hugging_face_users_have_gives_the_same_pair(tmp_path, line):
    (pair,) = read_pairs(write(tmp_path / "x.jsonl", line))
    assert (pair.prompt.messages, pair.chosen, pair.rejected) == (HELLO, Response("Hi!"), Response("No."))
    assert (pair.id, pair.p_chosen, pair.margin) == ("line-1", None, None)


def test_an_implicit_prompt_is_the_longest_common_beginning_and_leaves_a_response(tmp_path):
    talk = [turn("user", "a"), turn("assistant", "b"), turn("user", "c")]
    same = [*talk, turn("assistant", "d")]
    path = write(
        tmp_path / "x.jsonl",
        {"chosen": [*talk, turn("assistant", "d")], "rejected": [*talk, turn("assistant", "e")]},
        {"chosen": same, "rejected": same},
    )
    first, second = read_pairs(path)
    assert [m.content for m in first.prompt.messages] == ["a", "b", "c"]
    assert [m.content for m in second.prompt.messages] == ["a", "b", "c"]
    assert (second.chosen, second.rejected) == (Response("d"), Response("d"))
    assert first.prompt.id == second.prompt.id


def test_pairs_of_one_prompt_share_an_id_made_from_it(tmp_path):
    one = {"prompt": "Hello", "chosen": "a", "rejected": "b"}
    pairs = read_pairs(write(tmp_path / "x.jsonl", one, {**one, "prompt": "Bye"}, one, {**one, "prompt_id": "p7"}))
    ids = [p.prompt.id for p in pairs]
    assert ids[0] == ids[2] != ids[1]
    assert ids[3] == "p7"


def test_written_pairs_keep_prompt_and_responses_in_one_form(tmp_path):
    prompt = Prompt("p", (Message("system", "s"), Message("user", "u")))
    write_pairs(tmp_path / "x.jsonl", [Pair("1", prompt, Response("a"), Response("b", False, 3), 0.75)])
    assert json.loads((tmp_path / "x.jsonl").read_text()) == {
        "id": "1",
        "prompt_id": "p",
        "prompt": [turn("system", "s"), turn("user", "u")],
        "chosen": [turn("assistant", "a")],
        "rejected": [turn("assistant", "b")],
        "rejected_finished": False,
        "rejected_tokens": 3,
        "p_chosen": 0.75,
    }


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"prompt": "a", "chosen": "b"}, "rejected is missing"),
        ({"chosen": "b", "rejected": "c"}, "chosen is a text, and there is no prompt"),
        ({"chosen": [turn("user", "a")], "rejected": [turn("user", "b")]}, "do not begin with the same messages"),
        ({"prompt": "a", "chosen": [turn("user", "b")], "rejected": "c"}, "chosen is not one message of the assistant"),
        ({"prompt": "a", "chosen": [turn("assistant", "b")] * 2, "rejected": "c"}, "chosen is not one message"),
        (
            {"prompt": "a", "chosen": "b", "rejected": "c", "p_chosen": 1.5},
            "p_chosen is 1.5; it is a number from 0 to 1",
        ),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "margin": "x"}, "margin is 'x'; it is a number"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "chosen_finished": 1}, "chosen_finished is 1"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "rejected_tokens": -1}, "rejected_tokens is -1"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "prompt_id": 3}, "prompt_id is 3"),
        ({"prompt": " ", "chosen": "b", "rejected": "c"}, "prompt is empty"),
    ],
)
def test_broken_pairs_are_named(tmp_path, line, what):
    path = write(tmp_path / "x.jsonl", {"prompt": "ok", "chosen": "b", "rejected": "c"}, line)
    with pytest.raises(TrimtabError, match=rf"x\.jsonl, line 2: .*{re.escape(what)}"):
        read_pairs(path)


def test_candidates_take_origin_and_keep_other_columns_there(tmp_path):
    line = {"prompt": "a", "first": "", "second": "c", "origin": {"principle": "warm"}, "source": "x"}
    (pair,) = read_candidates(write(tmp_path / "x.jsonl", line))
    assert pair.origin == {"source": "x", "principle": "warm"}
    assert pair.first == Response("")
    with pytest.raises(TrimtabError, match="line 1: second is missing"):
        read_candidates(write(tmp_path / "y.jsonl", {"prompt": "a", "first": "b"}))
    with pytest.raises(TrimtabError, match="line 1: origin is a list"):
        read_candidates(write(tmp_path / "z.jsonl", {"prompt": "a", "first": "b", "second": "c", "origin": [1]}))


def test_candidates_of_a_killed_writer_are_read_up_to_its_last_whole_line(tmp_path):
    pairs = [CandidatePair(str(i), Prompt("p", HELLO), Response("a"), Response("b")) for i in range(3)]
    path = tmp_path / "x.jsonl"
    append_jsonl(path, [candidate_record(pairs[0])])
    with path.open("a") as file:
        file.write('{"id": "1", "prom')
    assert read_candidates(path, partial=True) == pairs[:1]
    append_jsonl(path, [candidate_record(pairs[2])])
    assert read_candidates(path, partial=True) == [pairs[0], pairs[2]]
    with pytest.raises(TrimtabError, match="line 2: is not JSON"):
        read_candidates(path)
    path.write_text("")
    assert read_candidates(path, partial=True) == []
    path.write_text('{"prompt": "a"}')
    with pytest.raises(TrimtabError, match="line 1: first is missing"):
        read_candidates(path, partial=True)


def test_demonstrations_as_columns_or_as_messages(tmp_path):
    path = write(
        tmp_path / "x.jsonl",
        {"id": "1", "prompt": "Hello", "response": "Hi!"},
        {"messages": [turn("user", "Hello"), turn("assistant", "Hi!")], "source": "me"},
    )
    first, second = read_demonstrations(path)
    assert (first.prompt.messages, first.response, first.id) == (HELLO, "Hi!", "1")
    assert (second.prompt, second.response, second.extra) == (first.prompt, "Hi!", {"source": "me"})
    for line, what in [
        ({"prompt": "a"}, "response is missing"),
        ({"messages": [turn("assistant", "a")]}, "does not end with a response"),
        ({"messages": [turn("user", "a"), turn("user", "b")]}, "does not end with a response"),
    ]:
        with pytest.raises(TrimtabError, match=rf"line 1: .*{what}"):
            read_demonstrations(write(tmp_path / "y.jsonl", line))


def test_labels_by_principle_are_ours_where_they_are_probabilities_and_else_somebody_elses(tmp_path):
    line = {"prompt": "p", "chosen": "a", "rejected": "b"}
    said = write(tmp_path / "ours.jsonl", line | {"principles": {"kind": 0.25, "short": 1}})
    (pair,) = read_pairs(said)
    assert (pair.principles, pair.extra) == ({"kind": 0.25, "short": 1.0}, {})
    (other,) = read_pairs(write(tmp_path / "theirs.jsonl", line | {"principles": ["be kind"]}))
    assert (other.principles, other.extra) == ({}, {"principles": ["be kind"]})
    write_pairs(tmp_path / "back.jsonl", [other])
    assert read_pairs(tmp_path / "back.jsonl")[0].extra == other.extra
    with pytest.raises(TrimtabError, match=r"principles\.kind is 1\.5; it is a probability"):
        read_pairs(write(tmp_path / "wrong.jsonl", line | {"principles": {"kind": 1.5}}))
