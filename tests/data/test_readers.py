"""Every form and container of preference data, what is broken in it, and the way there and back."""

from __future__ import annotations

import csv
import gzip
import json
import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.data import Message, Pair, Prompt, Response, read_pairs
from trimtab.data.convert import Form, write
from trimtab.data.readers import Options, read
from trimtab.errors import ErrorKind, TrimtabError

SHARED = Path(__file__).parents[3] / "shared" / "data"
PAIR = {"prompt": "Hello", "chosen": "Hi!", "rejected": "No."}
PLAIN = ((Message("user", "Hello"),), Response("Hi!"), Response("No."))


def jsonl(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def core(pair: Pair) -> tuple:
    return pair.prompt.messages, pair.chosen, pair.rejected


# forms


def test_ratings_make_pairs_of_the_better_over_the_worse(tmp_path):
    completions = [
        {"model": "a", "response": "one", "overall_score": 2, "fine-grained_score": 3.5},
        {"model": "b", "response": "two", "overall_score": 9, "fine-grained_score": 4.5},
        {"model": "c", "response": "three", "overall_score": 5, "fine-grained_score": 3.5},
    ]
    record = {"id": "q", "source": "s", "instruction": "Count", "models": ["a", "b", "c"], "completions": completions}
    path = jsonl(tmp_path / "x.jsonl", record)
    pairs = read_pairs(path)
    said = [(p.id, p.chosen.text, p.rejected.text, p.margin, p.p_chosen) for p in pairs]
    assert said == [
        ("q/1-2", "two", "one", 1.0, None),
        ("q/1-3", "two", "three", 1.0, None),
        ("q/2-3", "one", "three", 0.0, 0.5),
    ]
    assert pairs[0].extra == {
        "source": "s", "chosen_model": "b", "rejected_model": "a", "chosen_rating": 4.5, "rejected_rating": 3.5,
    }  # fmt: skip
    (best,) = read_pairs(path, Options(rating="overall_score", pairing="best-worst"))
    assert (best.id, best.chosen.text, best.rejected.text, best.margin) == ("q", "two", "one", 7.0)
    assert len(read_pairs(path, Options(pairing="best-rest"))) == 2
    reading = read(path, Options(ties="drop"))
    assert (len(reading.pairs), reading.left_out["ties"]) == (2, 1)


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "Hello", "responses": ["No.", "Hi!"], "scores": [1, 2]},
        {"prompt": "Hello", "answers": [{"answer": "No.", "rank": 2}, {"answer": "Hi!", "rank": 1}]},
        {
            "instruction": "Hello",
            "completions": [
                {"response": "Hi!", "annotations": {"a": {"Rating": "5"}, "b": {"Rating": "N/A"}}},
                {"response": "No.", "annotations": {"a": {"Rating": "1"}, "b": {"Rating": "3"}}},
            ],
        },
        {"input": "Hello", "output_1": "No.", "output_2": "Hi!", "label": 2},
        {"instruction": "Hello", "output_1": "Hi!", "output_2": "No.", "preference": 1.0},
        {"idx": 0, "instruction": "Hello", "input": "", "response1": "Hi!", "response2": "No.", "annotator1": 1},
        {"question": "Hello", "chosen": "Hi!", "rejected": "No."},
        {
            "conversations": [{"from": "human", "value": "Hello"}],
            "chosen": {"from": "gpt", "value": "Hi!"},
            "rejected": {"from": "gpt", "value": "No."},
        },
        {
            "chosen_instruction": "Rate.\n###The instruction to evaluate:\nHello\n\n###Response to evaluate:\nHi!\n\n"
            "###Score Rubrics:\n[...]",
            "rejected_instruction": "Rate.\n###The instruction to evaluate:\nHello\n\n###Response to evaluate:\nNo.\n\n"
            "###Score Rubrics:\n[...]",
        },
    ],
)
def test_every_form_gives_the_same_pair(tmp_path, record):
    (pair,) = read_pairs(jsonl(tmp_path / "x.jsonl", record))
    assert core(pair) == PLAIN
    assert pair.p_chosen is None


def test_votes_of_annotators_are_a_soft_label_and_a_tie_counts_half(tmp_path):
    row = {"instruction": "Do", "input": "this", "response1": "a", "response2": "b", "cmp_key": "m-1_m-2"}
    path = jsonl(
        tmp_path / "x.jsonl",
        {**row, "annotator1": 2, "annotator2": 2, "annotator3": 0},
        {**row, "annotator1": 1, "annotator2": 2, "annotator3": 0},
    )
    first, second = read_pairs(path)
    assert first.prompt.text == "Do\n\nthis"
    assert (first.chosen.text, first.p_chosen) == ("b", pytest.approx(5 / 6))
    assert first.extra["votes"] == {"annotator1": "chosen", "annotator2": "chosen", "annotator3": "tie"}
    assert (first.extra["chosen_model"], first.extra["rejected_model"]) == ("m-2", "m-1")
    assert second.p_chosen == 0.5
    (half,) = read_pairs(
        jsonl(tmp_path / "y.jsonl", {"instruction": "x", "output_1": "a", "output_2": "b", "preference": 1.75})
    )
    assert (half.chosen.text, half.p_chosen) == ("b", 0.75)


def test_a_system_text_beside_a_question_is_the_first_message(tmp_path):
    line = {"system": "Be brief.", "question": "Hello", "chosen": "Hi!", "rejected": "No."}
    (pair,) = read_pairs(jsonl(tmp_path / "x.jsonl", line))
    assert pair.prompt.messages == (Message("system", "Be brief."), Message("user", "Hello"))


def test_columns_can_have_other_names_and_be_hidden(tmp_path):
    path = jsonl(tmp_path / "x.jsonl", *[{"id": 1, "q": "Hello", "good": "Hi!", "bad": "No."}] * 2)
    options = Options(columns={"prompt": "q", "chosen": "good", "rejected": "bad", "id": ""})
    pairs = read_pairs(path, options)
    assert [p.id for p in pairs] == ["line-1", "line-2"]
    assert core(pairs[0]) == PLAIN
    assert pairs[0].extra == {}


# containers


def as_file(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / f"data.{kind}"
    if kind.startswith("csv"):
        with gzip.open(path, "wt", newline="") if kind.endswith("gz") else path.open("w", newline="") as file:
            writer = csv.DictWriter(file, PAIR)
            writer.writeheader()
            writer.writerows([PAIR, {**PAIR, "prompt": 'Two\nlines, "quoted"'}])
        return path
    records = [PAIR, {**PAIR, "prompt": 'Two\nlines, "quoted"'}]
    if kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(records), path)
        return path
    text = {
        "json": json.dumps(records, indent=2),
        "object.json": json.dumps({"version": 1, "data": records}, indent=1),
        "jsonl": "\ufeff" + "\r\n".join(map(json.dumps, records)),
        "jsonl.gz": "\n".join(map(json.dumps, records)),
    }[kind]
    path.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    return path


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "json", "object.json", "csv", "csv.gz", "parquet"])
def test_every_container_gives_the_same_pairs_whatever_its_name(tmp_path, kind):
    path = as_file(tmp_path, kind)
    path = path.rename(tmp_path / "without-suffix")
    first, second = read_pairs(path)
    assert core(first) == PLAIN
    assert second.prompt.text == 'Two\nlines, "quoted"'


def test_a_directory_is_the_files_in_it(tmp_path):
    jsonl(tmp_path / "b.jsonl", PAIR)
    jsonl(tmp_path / "a.jsonl", {**PAIR, "prompt": "First"})
    (tmp_path / "README.md").write_text("no data")
    pairs = read_pairs(tmp_path)
    assert [p.id for p in pairs] == ["a/line-1", "b/line-1"]
    assert pairs[0].prompt.text == "First"
    (tmp_path / "empty").mkdir()
    with pytest.raises(TrimtabError, match="no data files in this directory"):
        read(tmp_path / "empty")


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_a_json_array_is_read_in_pieces(tmp_path, monkeypatch, size):
    monkeypatch.setattr("trimtab.data.readers.files._CHUNK", size)
    records = [{**PAIR, "id": f"é{i}", "n": i, "chosen": "x" * i} for i in range(12)]
    path = tmp_path / "x.json"
    path.write_text(json.dumps(records, indent=3, ensure_ascii=False))
    assert [(p.id, p.extra["n"], len(p.chosen.text)) for p in read_pairs(path)] == [(f"é{i}", i, i) for i in range(12)]


# what is broken


@pytest.mark.parametrize(
    ("name", "text", "where", "what"),
    [
        ("x.jsonl", json.dumps(PAIR) + '\n{"prompt": ', "line 2", "is not JSON"),
        ("x.jsonl", json.dumps(PAIR) + "\n[1]", "line 2", "is a JSON list"),
        ("x.json", json.dumps([PAIR, 3], indent=1), "record 2 (line 7)", "is a number, not an object"),
        ("x.json", json.dumps([PAIR])[:-1] + ", {", "record 2 (line 1)", "is not JSON"),
        ("x.json", "[" + json.dumps(PAIR), "record 2 (line 1)", "is not JSON"),
        ("x.csv", "prompt,chosen,rejected\na,b,c\nd,e\n", "row 2 (line 3)", "has 2 fields where the header has 3"),
        ("x.csv", "prompt,chosen,rejected,p_chosen\na,b,c,much\n", "row 1 (line 2)", "p_chosen is 'much'; it is a"),
        ("x.jsonl", '{"input": "a", "output_1": "b", "output_2": "c", "label": 3}', "line 1", "label is 3; it is 1"),
        ("x.jsonl", json.dumps({**PAIR, "weight": -1}), "line 1", "weight is -1; it is a number from 0"),
        ("x.jsonl", '{"prompt": "a", "responses": ["b"], "scores": [1, 2]}', "line 1", "has 1 responses, but scores"),
        ("x.jsonl", '{"prompt": "a", "responses": ["b", "c"], "scores": [1, "x"]}', "line 1", "'x'; it is a number"),
        ("x.jsonl", '{"prompt": "a", "completions": [{"text": "b"}, {"text": "c"}]}', "line 1", "have no rating"),
        ("x.jsonl", '{"chosen": "\\n\\nHuman: a\\n\\nAssistant: b\\n\\nAssistant: c", '
         '"rejected": "\\n\\nHuman: a\\n\\nAssistant: d"}', "line 1", "chosen goes on for 2"),
    ],
)  # fmt: skip
def test_what_is_broken_is_named_with_its_place(tmp_path, name, text, where, what):
    path = tmp_path / name
    path.write_text(text)
    reading = read(path)
    assert len(reading.broken) == 1
    assert str(reading.broken[0]).startswith(f"{path}, {where}: ")
    assert what in str(reading.broken[0])
    with pytest.raises(TrimtabError) as error:
        read_pairs(path)
    assert where in error.value.message


def test_a_cut_gzip_file_gives_what_it_holds_and_says_where_it_ends(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    lines = "".join(json.dumps({**PAIR, "prompt": f"{i} {hash(str(i))}"}) + "\n" for i in range(5000))
    path.write_bytes(gzip.compress(lines.encode())[:-2000])
    reading = read(path)
    assert 1000 < len(reading.pairs) < 5000
    assert [b.problem for b in reading.broken] == ["the gzip file ends or breaks here; nothing after it was read"]
    assert f"line {len(reading.pairs) + 1}" in reading.broken[0].where
    path.write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(TrimtabError, match="is broken gzip"):
        read(path)


def test_what_holds_no_pairs_says_which_columns_it_has_and_which_are_needed(tmp_path):
    with pytest.raises(TrimtabError) as error:
        read(jsonl(tmp_path / "x.jsonl", {"question": "a", "answer": "b"}))
    assert "question, answer" in error.value.message
    assert "--column chosen=NAME" in error.value.hint
    with pytest.raises(TrimtabError, match="holds no pairs"):
        read_pairs(jsonl(tmp_path / "empty.jsonl"))
    with pytest.raises(TrimtabError, match="cannot be read: No such file"):
        read(tmp_path / "absent.jsonl")
    with pytest.raises(TrimtabError) as error:
        read("someone/some-data")
    assert "hf download --repo-type dataset someone/some-data" in error.value.hint


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TrimtabError) as error:
        read(path)
    assert (error.value.kind, error.value.hint) == (ErrorKind.MISSING, "pip install 'trimtab[parquet]'")


def test_broken_parquet_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(TrimtabError, match=r"x\.parquet: is no sound parquet file"):
        read(path)


def test_a_line_of_a_megabyte_and_hostile_characters_come_through_unchanged(tmp_path):
    nasty = "\x1b[31m\u202eabc\u2066\x00\x07" + "y" * 1_000_000
    (pair,) = read_pairs(jsonl(tmp_path / "x.jsonl", {**PAIR, "chosen": nasty}))
    assert pair.chosen.text == nasty


# there and back

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
said = text.filter(lambda s: s.strip())
turns = st.builds(
    lambda before, last: (*before, Message("user", last)),
    st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant"]), text), max_size=2),
    said,
)
label = st.none() | st.floats(0, 1)


def pairs_of(messages):
    made = st.builds(
        lambda i, m, c, r, p, margin, extra, weight, tags: Pair(
            i, Prompt("prompt", m, tags), c, r, p, margin, extra, weight
        ),
        said.filter(lambda s: s == s.strip()),
        messages,
        st.builds(Response, text, st.booleans(), st.none() | st.integers(0, 99)),
        st.builds(Response, text),
        label,
        st.none() | st.floats(-1e9, 1e9),
        st.dictionaries(st.sampled_from(["source", "note"]), said, max_size=2),
        st.floats(0, 10),
        st.lists(text, max_size=2).map(tuple),
    )
    return st.lists(made, min_size=1, max_size=3, unique_by=lambda p: p.id)


@settings(max_examples=40)
@given(pairs_of(turns), st.sampled_from(["x.jsonl", "x.jsonl.gz", "x.json"]), st.sampled_from(["pairs", "messages"]))
def test_pairs_survive_conversion_to_conversations_and_back(tmp_path_factory, many, name, form):
    path = tmp_path_factory.mktemp("convert") / name
    assert write(path, many, Form(form)) == len(many)
    assert read_pairs(path) == many


@settings(max_examples=30)
@given(
    pairs_of(said.map(lambda s: (Message("user", s),))), st.sampled_from(["x.csv", "x.tsv", "x.csv.gz", "x.parquet"])
)
def test_pairs_survive_tables(tmp_path_factory, many, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("table") / name
    write(path, many, Form.TEXT)
    back = read_pairs(path)
    for pair, other in zip(back, many, strict=True):
        # a table has every column in every row: what was not there is empty
        extra = {k: v for k, v in pair.extra.items() if v not in (None, "")}
        assert extra == dict(other.extra)
        assert (pair.id, pair.prompt, pair.chosen, pair.rejected) == (
            other.id,
            other.prompt,
            other.chosen,
            other.rejected,
        )
        assert (pair.p_chosen, pair.margin, pair.weight) == (other.p_chosen, other.margin, other.weight)


def test_dialogues_there_and_back(tmp_path):
    messages = (Message("user", "a"), Message("assistant", "b"), Message("user", "c"))
    pair = Pair("1", Prompt("p", messages), Response("d\n\ne"), Response(""), 0.75)
    write(tmp_path / "x.jsonl", [pair], Form.DIALOGUES)
    line = json.loads((tmp_path / "x.jsonl").read_text())
    assert line["chosen"] == "\n\nHuman: a\n\nAssistant: b\n\nHuman: c\n\nAssistant: d\n\ne"
    assert "prompt" not in line
    assert read_pairs(tmp_path / "x.jsonl") == [pair]


@pytest.mark.parametrize(
    ("messages", "response", "form", "why"),
    [
        ((Message("system", "s"), Message("user", "u")), "r", "dialogues", "a system message has no place"),
        ((Message("user", "u"),), "r\n\nHuman: x", "dialogues", "holds a Human/Assistant turn"),
        ((Message("system", "s"), Message("user", "u")), "r", "text", "its prompt has 2 messages"),
    ],
)
def test_a_form_that_cannot_hold_a_pair_names_it_and_writes_nothing(tmp_path, messages, response, form, why):
    pairs = [Pair("7", Prompt("p", messages), Response(response), Response(""))]
    with pytest.raises(TrimtabError, match=f"pair 7 cannot be written as {form}: .*{why}"):
        write(tmp_path / "x.jsonl", pairs, Form(form))
    assert list(tmp_path.iterdir()) == []


# public data


def shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return path


@pytest.mark.parametrize(
    ("name", "form", "pairs", "broken"),
    [
        ("hh-rlhf/harmless-base-test.jsonl.gz", "dialogues", 2307, 5),
        ("pandalm/testset-v1.json", "pandalm", 993, 6),
        ("llmbar/Natural/dataset.json", "outputs", 100, 0),
        ("llmbar/Adversarial/Neighbor/dataset.json", "outputs", 134, 0),
        ("prometheus/hhh_alignment_eval.json", "hhh", 221, 0),
    ],
)
def test_public_data_sets_are_recognised_and_every_record_is_accounted_for(name, form, pairs, broken):
    reading = read(shared(name))
    assert (str(reading.form), len(reading.pairs), len(reading.broken)) == (form, pairs, broken)
    assert reading.records == pairs + broken


def test_dialogues_of_public_data_are_split_exactly():
    path = shared("hh-rlhf/harmless-base-test.jsonl.gz")
    with gzip.open(path, "rt") as file:
        lines = [json.loads(line) for line in file]
    for pair in read(path).pairs:
        raw = lines[int(pair.id.removeprefix("line-")) - 1]
        names = {"user": "Human", "assistant": "Assistant"}
        before = "".join(rf"\n\n{names[m.role]}: ?{re.escape(m.content)}" for m in pair.prompt.messages)
        for side in ("chosen", "rejected"):
            answer = re.escape(getattr(pair, side).text)
            assert re.fullmatch(rf"{before}\n\nAssistant: ?{answer}", raw[side]), f"{pair.id} was split elsewhere"
