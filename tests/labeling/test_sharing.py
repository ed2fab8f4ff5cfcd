"""A label store that is shared: claims, dead owners, two processes at once; and files of the first format."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from labeling_fakes import ScriptedJudge, candidate, two_principles
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.labeling import claims, store_schema
from trimtab.labeling.claims import is_alive, new_owner
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import JudgeIdentity, JudgeRequest, Order, Outcome, Verdict
from trimtab.labeling.questions import Question, key_of, questions_about
from trimtab.labeling.store import LabelStore

ME = JudgeIdentity("scripted", "v1", "t1", 0)

# labels the pairs [start, stop); every call of the judge is written to a file and takes a moment
WORKER = """
import os, sys, time
from pathlib import Path
from labeling_fakes import ScriptedJudge, candidate, two_principles
from trimtab.labeling.labels import label_pairs
from trimtab.labeling.protocol import Outcome, Verdict
from trimtab.labeling.store import LabelStore
path, name, start, stop = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
directory = path.parent / name
directory.mkdir()
log = os.open(path.parent / "asked.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def answer(request):
    os.write(log, f"{request.pair.id} {request.order} {name}\\n".encode())
    time.sleep(0.002)
    return Verdict(Outcome.OK, 0.75)
with LabelStore(path) as store:
    labels = label_pairs([candidate(i) for i in range(start, stop)], ScriptedJudge(answer), two_principles(directory),
                         store=store, batch_size=4)
print(sum(label.usable for label in labels))
"""


def worker(path: Path, name: str, start: int, stop: int) -> subprocess.Popen[str]:
    tests = Path(__file__).parents[1]
    paths = [str(tests), str(tests.parent / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", WORKER, str(path), name, str(start), str(stop)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def asked(path: Path) -> list[list[str]]:
    return [line.split() for line in (path.parent / "asked.txt").read_text().splitlines()]


def questions(tmp_path: Path, n: int) -> list[Question]:
    constitution = two_principles(tmp_path)
    requests = [JudgeRequest(candidate(i), constitution) for i in range(n)]
    return [Question(key_of(ME, request), request, ME) for request in requests]


def test_two_processes_share_the_work_and_no_question_is_asked_twice(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    processes = [worker(path, name, 0, 150) for name in "ab"]
    outputs = [p.communicate(timeout=120)[0] for p in processes]
    assert [p.returncode for p in processes] == [0, 0]
    assert [int(out) for out in outputs] == [150, 150]
    lines = asked(path)
    assert len(lines) == len({(pair, order) for pair, order, _ in lines}) == 300
    assert {name for _, _, name in lines} == {"a", "b"}
    with LabelStore(path) as store:
        assert len(store) == 300
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM claims").fetchone() == (0,)


def test_what_a_killed_process_had_claimed_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    first = worker(path, "a", 0, 3000)
    while not (tmp_path / "asked.txt").exists() or len(asked(path)) < 20:
        time.sleep(0.01)
    first.kill()
    first.wait()
    began = time.monotonic()
    second = worker(path, "b", 0, 40)
    assert int(second.communicate(timeout=60)[0]) == 40
    assert time.monotonic() - began < claims.LEASE_SECONDS / 4
    lines = asked(path)
    with LabelStore(path) as store:
        recorded = len(store)
    assert recorded >= 80
    # at most the calls under way at the kill were asked again
    assert len(lines) - recorded <= 4


def test_a_claim_keeps_others_off_until_it_is_given_up_or_runs_out(tmp_path: Path) -> None:
    asking = questions(tmp_path, 4)
    mine, other = new_owner(), new_owner()
    with LabelStore(tmp_path / "labels.sqlite") as store:
        assert store.claim(asking[:2], mine).mine == asking[:2]
        held = store.claim(asking, other)
        assert (held.mine, held.busy) == (asking[2:], asking[:2])
        assert store.claim(asking[:2], mine).mine == asking[:2]  # one's own is no obstacle
        store.record(asking[:1], [Verdict(Outcome.OK, 0.5)])
        now = store.claim(asking, other)
        assert now.recorded == {asking[0].key: Verdict(Outcome.OK, 0.5)}
        assert now.busy == [asking[1]]
        store.release(mine)
        assert store.claim(asking[1:2], other).mine == asking[1:2]
        # somebody of whom it cannot be told from here whether he lives
        store.release(other)
        store.claim(asking[3:], "elsewhere|1|1|x")
        assert store.claim(asking[3:], mine).busy == asking[3:]
        with sqlite3.connect(tmp_path / "labels.sqlite") as db:
            db.execute("UPDATE claims SET expires = ? WHERE owner LIKE 'elsewhere%'", (time.time() - 1,))
        db.close()
        assert store.claim(asking[3:], mine).mine == asking[3:]


def test_a_recorded_error_can_be_claimed(tmp_path: Path) -> None:
    (question,) = questions(tmp_path, 1)
    with LabelStore(tmp_path / "labels.sqlite") as store:
        store.record([question], [Verdict(Outcome.ERROR)])
        assert store.claim([question], new_owner()).mine == [question]


def test_the_living_and_the_dead(tmp_path: Path) -> None:
    assert is_alive(new_owner())
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    machine, _, _, token = new_owner().split("|")
    theirs = "|".join([machine, str(child.pid), claims._started(child.pid), token])
    assert is_alive(theirs)
    reused = "|".join([machine, str(child.pid), "1", token])
    assert not is_alive(reused)  # the number is the same, the process another
    child.kill()
    deadline = time.monotonic() + 10
    while is_alive(theirs) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(theirs)  # not even buried
    child.communicate()
    assert not is_alive(theirs)
    assert is_alive(theirs.replace(machine, "another machine"))


def test_what_another_one_is_asking_is_waited_for_and_not_asked(tmp_path: Path) -> None:
    constitution = two_principles(tmp_path)
    pairs = [candidate(i) for i in range(3)]
    judge = ScriptedJudge(lambda r: Verdict(Outcome.OK, 0.6))
    everything = [q for mine in questions_about(pairs, [judge], constitution) for q in mine]
    with LabelStore(tmp_path / "labels.sqlite") as store, LabelStore(tmp_path / "labels.sqlite") as theirs:
        theirs.claim(everything[:2], new_owner())

        def later() -> None:
            time.sleep(0.4)
            theirs.record(everything[:2], [Verdict(Outcome.OK, 0.9)] * 2)

        thread = threading.Thread(target=later)
        thread.start()
        labels = label_pairs(pairs, judge, constitution, store=store)
        thread.join()
    assert [label.p_first for label in labels] == pytest.approx([0.9, 0.6, 0.6])
    assert {r.pair.id for r in judge.asked} == {"p1", "p2"}


def test_claims_are_renewed_while_a_judge_thinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.labeling.store.LEASE_SECONDS", 0.4)
    monkeypatch.setattr("trimtab.labeling.asking.LEASE_SECONDS", 0.4)
    constitution, pair = two_principles(tmp_path), candidate(0)
    seen: list[int] = []
    with LabelStore(tmp_path / "labels.sqlite") as store, LabelStore(tmp_path / "labels.sqlite") as theirs:

        def answer(request: JudgeRequest) -> Verdict:
            if not seen:
                time.sleep(1.0)
                question = Question(key_of(judge.identity, request), request, judge.identity)
                seen.append(len(theirs.claim([question], "elsewhere|1|1|x").busy))
            return Verdict(Outcome.OK, 0.6)

        judge = ScriptedJudge(answer)
        label_pairs([pair], judge, constitution, store=store)
    assert seen == [1]


def test_claims_are_given_up_when_a_judge_breaks(tmp_path: Path) -> None:
    def broken(request: JudgeRequest) -> Verdict:
        raise RuntimeError("boom")

    with LabelStore(tmp_path / "labels.sqlite") as store:
        with pytest.raises(RuntimeError, match="boom"):
            label_pairs([candidate(0)], ScriptedJudge(broken), two_principles(tmp_path), store=store)
        other = ScriptedJudge(lambda r: Verdict(Outcome.OK, 0.6))
        began = time.monotonic()
        label_pairs([candidate(0)], other, two_principles(tmp_path), store=store)
        assert time.monotonic() - began < 5
        assert len(other.asked) == 2


# older files


def first_format(path: Path, rows: list[tuple[object, ...]]) -> None:
    with sqlite3.connect(path) as db:
        db.execute(store_schema._VERDICTS_1)
        db.executemany(f"INSERT INTO verdicts VALUES ({','.join('?' * 15)})", rows)
        db.execute("PRAGMA user_version = 1")
    db.close()


def test_a_file_of_the_first_format_is_brought_up_to_date_in_place(tmp_path: Path) -> None:
    path, (question, _) = tmp_path / "labels.sqlite", questions(tmp_path, 2)
    failed = (*question.key[:6], 1, 0, "p0", "error", None, None, "timeout", 1, 2.5)
    first_format(path, [(*question.key, "p0", "ok", 0.3, 0.9, "", 2, 1.5), failed])
    with LabelStore(path) as store:
        assert store.find([question.key]) == {question.key: Verdict(Outcome.OK, 0.3, 0.9)}
        assert store.counts()[Outcome.ERROR] == 1
        full = Verdict(Outcome.OK, 0.5, 0.5, "", (-1.0, -1.0), "text", "B", "because", 5, 6, 0.25, 1.5)
        other = JudgeRequest(question.request.pair, question.request.constitution, Order.REVERSED)
        store.put(ME, [other], [full])
        assert store.get(ME, [other]) == [full]
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        rows = db.execute("SELECT attempts, recorded, text, cost FROM verdicts WHERE outcome = 'ok' ORDER BY recorded")
        assert rows.fetchone() == (2, 1.5, "", None)
    db.close()


def test_two_processes_bring_a_file_up_to_date_once(tmp_path: Path) -> None:
    path, (question,) = tmp_path / "labels.sqlite", questions(tmp_path, 1)
    first_format(path, [(*question.key, "p0", "ok", 0.3, 0.9, "", 1, 1.5)])
    failed: list[BaseException] = []

    def opening() -> None:
        try:
            LabelStore(path).close()
        except BaseException as error:  # noqa: BLE001 - told by the assertion below
            failed.append(error)

    threads = [threading.Thread(target=opening) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    with LabelStore(path) as store:
        assert len(store) == 1


# what can go wrong with the file


def test_a_full_disk_at_opening_is_told_and_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path, (question,) = tmp_path / "labels.sqlite", questions(tmp_path, 1)
    first_format(path, [(*question.key, "p0", "ok", 0.3, 0.9, "", 1, 1.5)])

    class Full(LabelStore):
        def _connect(self, synchronous: str) -> sqlite3.Connection:
            db = super()._connect(synchronous)
            db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
            return db

    with pytest.raises(TrimtabError, match=r"cannot be opened for writing: .*full") as caught:
        Full(path)
    assert caught.value.kind is ErrorKind.FAILED
    assert "make room" in caught.value.hint
    with LabelStore(path) as store:
        assert len(store) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_without_permission_is_told(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(TrimtabError, match="cannot be opened for writing"):
        LabelStore(tmp_path / "closed" / "labels.sqlite")


def test_a_directory_in_the_place_of_the_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "labels.sqlite").mkdir()
    with pytest.raises(TrimtabError, match="cannot be opened for writing"):
        LabelStore(tmp_path / "labels.sqlite")
    (tmp_path / "file").write_text("")
    with pytest.raises(TrimtabError, match="cannot be written"):
        LabelStore(tmp_path / "file" / "labels.sqlite")


def test_a_damaged_file_is_told_when_it_is_read(tmp_path: Path) -> None:
    path, asking = tmp_path / "labels.sqlite", questions(tmp_path, 300)
    with LabelStore(path) as store:
        store.record(asking, [Verdict(Outcome.OK, 0.5)] * 300)
    data = bytearray(path.read_bytes())
    for at in range(4096, len(data), 4096):
        data[at : at + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(TrimtabError, match=r"labels\.sqlite: ") as caught, LabelStore(path) as store:
        store.find([q.key for q in asking])
    assert caught.value.kind is ErrorKind.DATA
