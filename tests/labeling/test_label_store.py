"""The label store: durable, shared by processes, and the first verdict stays."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from labeling_fakes import candidate, two_principles
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Order, Outcome, Verdict
from trimtab.labeling.store import LabelStore

ME = JudgeIdentity("judge", "model", "template", 0)

# writes batches of 10 verdicts for pairs [start, stop), telling after each batch that it is recorded
WRITER = """
import sys
from pathlib import Path
from labeling_fakes import candidate, two_principles
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Outcome, Verdict
from trimtab.labeling.store import LabelStore
path, name, p, start, stop = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
directory = path.parent / name
directory.mkdir()
constitution = two_principles(directory)
store = LabelStore(path)
for at in range(start, stop, 10):
    requests = [JudgeRequest(candidate(i), constitution) for i in range(at, at + 10)]
    store.put(JudgeIdentity("judge", "model", "template", 0), requests, [Verdict(Outcome.OK, p)] * 10)
    print(at + 10, flush=True)
"""


def writer(path: Path, name: str, p: float, start: int, stop: int) -> subprocess.Popen[str]:
    tests = Path(__file__).parents[1]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-c", WRITER, str(path), name, str(p), str(start), str(stop)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def requests(tmp_path: Path, n: int) -> list[JudgeRequest]:
    constitution = two_principles(tmp_path)
    return [JudgeRequest(candidate(i), constitution) for i in range(n)]


def test_what_was_put_is_got_after_reopening(tmp_path: Path) -> None:
    asked = requests(tmp_path, 5)
    given = [
        Verdict(Outcome.OK, 0.1 + 0.2, 0.9),
        Verdict(Outcome.TIE, 0.5),
        Verdict(Outcome.UNPARSED, detail="I \udcff cannot 读".encode("utf-8", "replace").decode()),
        Verdict(Outcome.REFUSED, mass=1e-9),
        Verdict(Outcome.ERROR, detail="timeout"),
    ]
    with LabelStore(tmp_path / "deep" / "labels.sqlite") as store:
        assert store.get(ME, asked) == [None] * 5
        store.put(ME, asked, given)
    with LabelStore(tmp_path / "deep" / "labels.sqlite") as store:
        assert store.get(ME, asked) == given
        assert len(store) == 5
        assert set(store.counts().values()) == {1}


def test_every_part_of_the_key_counts(tmp_path: Path) -> None:
    (base,) = requests(tmp_path, 1)
    variants = [
        (replace(ME, name="other"), base),
        (replace(ME, model="other"), base),
        (replace(ME, template="other"), base),
        (replace(ME, seed=1), base),
        (ME, replace(base, order=Order.REVERSED)),
        (ME, replace(base, sample=1)),
        (ME, replace(base, constitution=base.constitution.swapped())),
        (ME, replace(base, pair=candidate(1))),
    ]
    with LabelStore(tmp_path / "labels.sqlite") as store:
        store.put(ME, [base], [Verdict(Outcome.OK, 0.5)])
        for judge, request in variants:
            assert store.get(judge, [request]) == [None]
            store.put(judge, [request], [Verdict(Outcome.OK, 0.25)])
        assert len(store) == len(variants) + 1
        assert store.get(ME, [base]) == [Verdict(Outcome.OK, 0.5)]


def test_the_first_verdict_stays_and_an_error_gives_way(tmp_path: Path) -> None:
    asked = requests(tmp_path, 2)
    with LabelStore(tmp_path / "labels.sqlite") as store:
        store.put(ME, asked, [Verdict(Outcome.OK, 0.9), Verdict(Outcome.ERROR)])
        store.put(ME, asked, [Verdict(Outcome.OK, 0.1), Verdict(Outcome.OK, 0.2)])
        store.put(ME, asked, [Verdict(Outcome.ERROR), Verdict(Outcome.ERROR)])
        assert store.get(ME, asked) == [Verdict(Outcome.OK, 0.9), Verdict(Outcome.OK, 0.2)]
    with sqlite3.connect(tmp_path / "labels.sqlite") as db:
        assert sorted(db.execute("SELECT attempts FROM verdicts").fetchall()) == [(1,), (2,)]


def test_a_batch_is_recorded_whole_or_not_at_all(tmp_path: Path) -> None:
    asked = requests(tmp_path, 3)
    broken = Verdict(Outcome.OK, 0.5)
    object.__setattr__(broken, "mass", object())  # what sqlite cannot store
    with LabelStore(tmp_path / "labels.sqlite") as store:
        with pytest.raises(sqlite3.Error):
            store.put(ME, asked, [Verdict(Outcome.OK, 0.5), Verdict(Outcome.OK, 0.5), broken])
        assert len(store) == 0
        store.put(ME, asked, [Verdict(Outcome.OK, 0.5)] * 3)
        assert len(store) == 3


def test_a_full_disk_is_told_in_plain_words_and_loses_nothing(tmp_path: Path) -> None:
    asked = requests(tmp_path, 400)
    with LabelStore(tmp_path / "labels.sqlite") as store:
        store.put(ME, asked[:1], [Verdict(Outcome.OK, 0.5)])
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(TrimtabError, match=r"labels\.sqlite: .*disk is full.*\n.*is lost") as caught:
            store.put(ME, asked, [Verdict(Outcome.OK, 0.5)] * 400)
        assert caught.value.kind is ErrorKind.FAILED
        assert len(store) == 1
        store._db.execute("PRAGMA max_page_count = 100000")
        store.put(ME, asked, [Verdict(Outcome.OK, 0.5)] * 400)
        assert len(store) == 400


def test_two_processes_write_the_same_and_different_pairs_at_once(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    processes = [writer(path, "a", 0.25, 0, 300), writer(path, "b", 0.75, 150, 450)]
    outputs = [p.communicate(timeout=120)[0] for p in processes]
    assert [p.returncode for p in processes] == [0, 0]
    assert [len(out.split()) for out in outputs] == [30, 30]
    asked = requests(tmp_path, 450)
    with LabelStore(path) as store:
        assert len(store) == 450
        found = [v.p_first for v in store.get(ME, asked) if v is not None]
    assert found[:150] == [0.25] * 150
    assert found[300:] == [0.75] * 150
    assert set(found[150:300]) <= {0.25, 0.75}


def test_what_a_killed_process_was_told_is_recorded_is_there(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    process = writer(path, "a", 0.25, 0, 1_000_000)
    assert process.stdout is not None
    told = 0
    while told < 100:
        told = int(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read().split()
    process.stdout.close()
    process.wait(timeout=60)
    told = max([told, *(int(x) for x in rest)])
    with LabelStore(path) as store:
        assert len(store) % 10 == 0
        assert all(v is not None for v in store.get(ME, requests(tmp_path, told)))
        store.put(ME, requests(tmp_path, 1), [Verdict(Outcome.OK, 0.5)])
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_is_no_store_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    path.write_text("not a database, and long enough to be read as a header" * 10)
    with pytest.raises(TrimtabError, match=r"labels\.sqlite: is not a usable label store"):
        LabelStore(path)


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    LabelStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(TrimtabError, match="format 99"):
        LabelStore(path)


def test_somebody_elses_sqlite_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE runs (id TEXT)")
        db.commit()
    before = path.read_bytes()
    with pytest.raises(TrimtabError, match=r"mlflow\.db: is an SQLite file, but no label store: its tables are runs"):
        LabelStore(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("change", ["outcome = 'x'", "p_first = 7", "detail = x'00ff'"])
def test_a_verdict_that_another_program_spoiled_is_named_with_its_store_and_pair(tmp_path: Path, change: str) -> None:
    path = tmp_path / "labels.sqlite"
    request = JudgeRequest(candidate(1), two_principles(tmp_path))
    with LabelStore(path) as store:
        store.put(JudgeIdentity("j"), [request], [Verdict(Outcome.OK, 0.7)])
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"UPDATE verdicts SET {change}")
        db.commit()
    with LabelStore(path) as store:
        look = (lambda: list(store.rows())) if "detail" in change else lambda: store.get(JudgeIdentity("j"), [request])
        with pytest.raises(TrimtabError, match=r"labels\.sqlite: the recorded verdict on pair \w{12}"):
            look()
