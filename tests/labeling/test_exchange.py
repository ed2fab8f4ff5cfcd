"""Labels out to a file and back in: nothing is lost, nothing real is overwritten unasked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from labeling_fakes import candidate, two_principles
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.exchange import Imported, export_labels, import_labels
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Order, Outcome, Verdict
from trimtab.labeling.store import LabelStore

ME = JudgeIdentity("openai", "m at http://x", "t" * 64, 3, "plain")
GIVEN = [
    Verdict(
        Outcome.OK, 0.1 + 0.2, 1e-17, "", (-0.1, None), "logprobs", "A \u2028 \U0001f600", "why\x00", 3, 0, 1e-9, 0.25
    ),
    Verdict(Outcome.TIE, 0.5),
    Verdict(Outcome.UNPARSED, mass=0.3, detail="读", logprobs=(-1.0, -2.5), text='"quoted",\r\n'),
    Verdict(Outcome.REFUSED),
    Verdict(Outcome.ERROR, detail="timeout"),
]


def filled(path: Path, given: list[Verdict]) -> LabelStore:
    store = LabelStore(path / "labels.sqlite")
    requests = [
        JudgeRequest(candidate(i), two_principles(path), list(Order)[i % 2], i, "warm") for i in range(len(given))
    ]
    store.put(ME, requests, given)
    return store


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_out_and_in_is_the_same_to_the_last_bit(tmp_path: Path, ending: str) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    (tmp_path / "a").mkdir()
    with filled(tmp_path / "a", GIVEN) as store, LabelStore(tmp_path / "b.sqlite") as other:
        file = tmp_path / f"labels{ending}"
        assert export_labels(store, file) == 5
        assert import_labels(other, file) == Imported(read=5, added=5, same=0, mended=0, kept=0, replaced=0)
        assert list(other.rows()) == list(store.rows())
        assert import_labels(other, file) == Imported(read=5, added=0, same=5, mended=0, kept=0, replaced=0)
        again = tmp_path / f"again{ending}"
        export_labels(other, again)
        assert again.read_bytes() == file.read_bytes()


def test_a_real_verdict_is_never_overwritten_unasked_and_an_error_gives_way(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    theirs = [Verdict(Outcome.OK, 0.9), Verdict(Outcome.OK, 0.8), Verdict(Outcome.ERROR), Verdict(Outcome.OK, 0.7)]
    mine = [Verdict(Outcome.OK, 0.1), Verdict(Outcome.ERROR), Verdict(Outcome.OK, 0.4)]
    file = tmp_path / "labels.jsonl"
    with filled(tmp_path / "a", theirs) as store:
        export_labels(store, file)
    with filled(tmp_path / "b", mine) as store:
        before = list(store.rows())
        with pytest.raises(
            TrimtabError, match=r"1 verdicts say something else.*'p0'.*0\.9 in the file.*0\.1 in the"
        ) as e:
            import_labels(store, file)
        assert e.value.kind is ErrorKind.DATA
        assert list(store.rows()) == before
        kept = import_labels(store, file, "keep")
        assert kept == Imported(read=4, added=1, same=0, mended=1, kept=2, replaced=0)
        found = sorted((row["pair_id"], row["p_1"]) for row in store.verdict_records())
        assert [p for _, p in found] == [0.1, 0.8, 0.4, 0.7]
        assert import_labels(store, file, "replace").replaced == 1
        assert sorted((row["pair_id"], row["p_1"]) for row in store.verdict_records())[0][1] == 0.9


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"p_first": 2.0}, "not a probability"),
        ({"p_first": None}, "needs a probability"),
        ({"outcome": "fine"}, "fine"),
        ({"shown": "sideways"}, "shown"),
        ({"sample": "1"}, "sample"),
        ({"sample": True}, "sample"),
        ({"pair_hash": None}, "pair_hash"),
        ({"extra": 1}, "unknown column 'extra'"),
        ({"cost": float("nan")}, "cost"),
    ],
)
def test_a_broken_file_is_named_by_line_and_imports_nothing(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    file = tmp_path / "labels.jsonl"
    with filled(tmp_path, GIVEN[:2]) as store:
        export_labels(store, file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[1] |= change
    file.write_text("\n".join(map(json.dumps, lines)))
    with LabelStore(tmp_path / "other.sqlite") as store:
        with pytest.raises(TrimtabError, match=r"labels\.jsonl:2: ") as caught:
            import_labels(store, file)
        assert told in str(caught.value)
        assert len(store) == 0


def test_lines_that_are_no_json_and_files_that_are_not_there(tmp_path: Path) -> None:
    with LabelStore(tmp_path / "s.sqlite") as store:
        (tmp_path / "x.jsonl").write_bytes(b'{"a": 1}\n[]\n\xff\xfe\n')
        with pytest.raises(TrimtabError, match=r"x\.jsonl:3"):
            import_labels(store, tmp_path / "x.jsonl")
        for name in ("missing.jsonl", "labels.csv"):
            with pytest.raises(TrimtabError, match=name):
                import_labels(store, tmp_path / name)
        (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
        if "pyarrow" in sys.modules:
            with pytest.raises(TrimtabError, match=r"x\.parquet"):
                import_labels(store, tmp_path / "x.parquet")


def test_parquet_without_pyarrow_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with LabelStore(tmp_path / "s.sqlite") as store, pytest.raises(TrimtabError, match="pyarrow") as caught:
        export_labels(store, tmp_path / "x.parquet")
    assert caught.value.kind is ErrorKind.MISSING


def test_a_file_that_answers_one_question_twice_names_both_lines_and_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "labels.jsonl"
    with filled(tmp_path / "a", GIVEN[:1]) as store:
        export_labels(store, file)
    line = file.read_text()
    file.write_text(line + json.dumps({**json.loads(line), "p_first": 0.9}) + "\n")
    with LabelStore(tmp_path / "b.sqlite") as other:
        with pytest.raises(TrimtabError, match=r"labels\.jsonl:2: says ok 0\.9 where line 1 says ok 0\.3 of the same"):
            import_labels(other, file, "replace")
        assert list(other.rows()) == []


def test_a_number_that_no_float_holds_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    file = tmp_path / "labels.jsonl"
    with filled(tmp_path / "a", GIVEN[:1]) as store:
        export_labels(store, file)
        file.write_text(json.dumps({**json.loads(file.read_text()), "cost": 10**400}) + "\n")
        with pytest.raises(TrimtabError, match=r"labels\.jsonl:1: cost = "):
            import_labels(store, file)
