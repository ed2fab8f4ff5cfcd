"""Verdict files: every container, what records mean, and what is wrong with them by line."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import Outcome
from trimtab.labeling.verdicts import OUTCOMES, Coded, VerdictTable, read_verdicts

RECORDS = [
    {"pair_id": "a", "judge": "j", "order": "12", "winner": 1, "gold": 1, "slice": "chat/short", "p_1": 0.9},
    {"pair_id": "a", "judge": "j", "order": "21", "winner": 2, "gold": 1, "slice": "chat/short", "p_1": 0.3},
    {"pair_id": "b", "judge": "k", "order": "12", "winner": "tie", "gold": 2, "sample": 1, "length_1": 3},
    {"pair_id": "b", "judge": "k", "order": "21", "winner": None, "status": "refused", "cost": 0.25},
]


def table(**fields):
    return VerdictTable.from_records([{"pair_id": "a", "judge": "j", "winner": 1, **fields}])


def problem(**fields):
    with pytest.raises(TrimtabError) as error:
        table(**fields)
    assert error.value.kind is ErrorKind.DATA
    return error.value.message


def check(found):
    assert found.pair.names == ("a", "b")
    assert found.judge.codes.tolist() == [0, 0, 1, 1]
    assert found.order.tolist() == [1, 2, 1, 2]
    assert found.winner.tolist() == [1, 2, 0, -1]
    assert [OUTCOMES[s] for s in found.status] == [Outcome.OK, Outcome.OK, Outcome.TIE, Outcome.REFUSED]
    assert found.gold.tolist() == [1, 1, 2, -1]
    assert found.sample.tolist() == [0, 0, 1, 0]
    assert found.slice.of(0) == "chat/short"
    assert found.slice.of(2) is None
    np.testing.assert_array_equal(found.p_1, [0.9, 0.3, math.nan, math.nan])
    np.testing.assert_array_equal(found.length_1, [math.nan, math.nan, 3, math.nan])
    np.testing.assert_array_equal(found.cost, [math.nan, math.nan, math.nan, 0.25])


def as_csv(records):
    columns = list(dict.fromkeys(k for r in records for k in r))
    lines = [",".join(columns)]
    lines += [",".join("" if r.get(c) is None else str(r[c]) for c in columns) for r in records]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "tsv"])
def test_every_container_reads_the_same(tmp_path, kind, zipped):
    text = {
        "jsonl": "\ufeff" + "\n\n".join(map(json.dumps, RECORDS)) + "\r\n",
        "json": json.dumps(RECORDS, indent=1),
        "csv": as_csv(RECORDS),
        "tsv": as_csv(RECORDS).replace(",", "\t"),
    }[kind]
    path = tmp_path / f"verdicts.{kind}{'.gz' if zipped else ''}"
    data = text.encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    found = read_verdicts(str(path))
    check(found)
    assert found.source == str(path)


def test_parquet_reads_the_same(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    # in a table of typed columns a winner is a text
    rows = [{**r, "winner": None if r["winner"] is None else str(r["winner"])} for r in RECORDS]
    parquet.write_table(pa.Table.from_pylist(rows, schema=_schema(pa)), tmp_path / "v.parquet")
    check(read_verdicts(str(tmp_path / "v.parquet")))


def _schema(pa):
    texts = ("pair_id", "judge", "order", "winner", "slice", "status")
    return pa.schema(
        [(name, pa.string()) for name in texts]
        + [("gold", pa.float64()), ("sample", pa.float64()), ("p_1", pa.float64())]
        + [("length_1", pa.float64()), ("cost", pa.float64())]
    )


def test_a_person_is_a_judge_where_there_is_no_other():
    found = VerdictTable.from_records([{"pair_id": 7, "annotator": "ann", "winner": 2, "group": "g"}])
    assert found.judge.names == ("ann",)
    assert not found.annotator.known
    assert found.pair.names == ("7",)
    assert found.group.of(0) == "g"


def test_a_probability_alone_names_the_winner():
    found = VerdictTable.from_records([{"pair_id": "a", "judge": "j", "p_1": p} for p in (0.2, 0.5, 0.8)])
    assert found.winner.tolist() == [2, 0, 1]
    failed = VerdictTable.from_records([{"pair_id": "a", "judge": "j", "status": "error", "p_1": None}])
    assert failed.winner.tolist() == [-1]


@pytest.mark.parametrize("tie", [{"winner": "tie"}, {"winner": "TIE"}, {"winner": None, "status": "tie"}])
def test_ways_to_say_tie(tie):
    assert table(**tie).winner.tolist() == [0]
    assert OUTCOMES[table(**tie).status[0]] is Outcome.TIE


def test_no_winner_without_a_status_is_unparsed():
    assert OUTCOMES[table(winner=None).status[0]] is Outcome.UNPARSED


def test_texts_give_lengths_and_prompts_give_clusters():
    rows = [
        {"pair_id": "a", "judge": "j", "winner": 1, "prompt": "q", "response_1": "one two", "response_2": "one"},
        {"pair_id": "b", "judge": "j", "winner": 1, "prompt_id": "x", "length_1": 9},
        {"pair_id": "c", "judge": "j", "winner": 1, "prompt_id": "x"},
    ]
    found = VerdictTable.from_records(rows)
    np.testing.assert_array_equal(found.length_1, [2, 9, math.nan])
    np.testing.assert_array_equal(found.length_2, [1, math.nan, math.nan])
    assert found.texts[0].first == "one two"
    a, b, c = found.cluster
    assert a != b
    assert b == c


def test_messages_are_a_prompt_too():
    rows = [{"pair_id": "a", "judge": "j", "winner": 1, "prompt": [{"role": "user", "content": "hello"}]}]
    assert VerdictTable.from_records(rows).texts[0].prompt == "hello"


def test_columns_that_nothing_reads_are_named():
    assert table(mood="good", winner=2).ignored == ("mood",)


def test_rows_can_be_taken():
    found = VerdictTable.from_records(RECORDS)
    assert found.of_judge("k").winner.tolist() == [0, -1]
    assert len(found.take(found.decided)) == 2
    assert found.first_won.tolist() == [True, True, False, False]
    with pytest.raises(KeyError):
        found.of_judge("nobody")


def test_names_are_coded_in_order_of_appearance():
    found = Coded.of_names(["b", None, "a", "b", ""])
    assert found.names == ("b", "a")
    assert found.codes.tolist() == [0, -1, 1, 0, -1]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pair_id": None}, "has no pair_id"),
        ({"judge": None}, "neither judge nor annotator"),
        ({"winner": 3}, "winner is 3"),
        ({"winner": True}, "winner is True"),
        ({"winner": "first"}, "winner is 'first'"),
        ({"order": "1"}, "order is '1'"),
        ({"gold": 0}, "gold is 0"),
        ({"status": "fine"}, "status is 'fine'; it is one of ok, tie, unparsed, refused, error"),
        ({"status": "error"}, "winner 1 does not go with status error"),
        ({"winner": None, "status": "ok"}, "winner null does not go with status ok"),
        ({"p_1": 1.5}, "p_1 is 1.5; it is a number from 0 to 1"),
        ({"p_1": "high"}, "p_1 is 'high'"),
        ({"sample": 1.5}, "sample is 1.5; it is a whole number"),
        ({"length_1": -1}, "length_1 is -1"),
        ({"judge": ["a"]}, "judge is a list"),
    ],
)
def test_what_is_wrong_with_a_record_is_said(fields, words):
    assert words in problem(**fields)


def test_broken_lines_are_named_and_counted_to_ten(tmp_path):
    good = json.dumps(RECORDS[0])
    path = tmp_path / "v.jsonl"
    path.write_text("\n".join([good, "", json.dumps({"pair_id": "b"}), *[json.dumps({"judge": "j"})] * 30]))
    with pytest.raises(TrimtabError) as error:
        read_verdicts(str(path))
    lines = error.value.message.splitlines()
    assert len(lines) == 10
    assert lines[0] == f"{path}, line 3: has neither judge nor annotator"
    assert lines[1].startswith(f"{path}, line 4: has no pair_id")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("v.jsonl", b"", "no verdicts"),
        ("v.jsonl", b"hello", "line 1: is not JSON"),
        ("v.json", b"[{]", "is not JSON"),
        ("v.jsonl", b"\xff\xfe\x00", "is not UTF-8"),
        ("v.jsonl", b"[1, 2]", "record 1"),
        ("v.csv", b'pair_id,judge,winner\n"a', "is not CSV"),
        ("v.jsonl.gz", b"\x1f\x8bgarbage", "cannot be read"),
        ("v.parquet", b"PAR1rubbish", "parquet"),
        ("v.sqlite", b"SQLite format 3\x00rubbish", "label store"),
        ("v.jsonl", b'{"a": ' * 100_000, "is not JSON"),
    ],
)
def test_files_that_are_none_of_these_are_refused_without_a_traceback(tmp_path, name, data, words):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(TrimtabError) as error:
        read_verdicts(str(path))
    assert error.value.kind is ErrorKind.DATA
    assert words.replace("record 1", "line 1") in error.value.message


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TrimtabError, match="cannot be read: No such file"):
        read_verdicts(str(tmp_path / "none.jsonl"))
