"""The review store: durable, shared by processes, and quick with ten thousand items."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from reviews import review
from trimtab.errors import ErrorKind, TrimtabError
from trimtab.evaluation.review.assignment import next_item
from trimtab.evaluation.review.records import Plan
from trimtab.evaluation.review.store import ReviewStore
from trimtab.evaluation.review.tally import results
from trimtab.evaluation.review.voting import vote

# votes until nothing is left, telling after each vote that it is recorded
VOTER = """
import sys
from trimtab.evaluation.review.assignment import next_item
from trimtab.evaluation.review.store import ReviewStore
from trimtab.evaluation.review.voting import vote
store = ReviewStore(sys.argv[1])
while (shown := next_item(store, None, sys.argv[2])) is not None:
    vote(store, shown.ticket, "a", annotator=sys.argv[2])
    print(shown.ticket, flush=True)
"""


def voter(path: Path, name: str) -> subprocess.Popen[str]:
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", VOTER, str(path), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_two_processes_share_the_items_and_no_vote_is_given_twice(tmp_path: Path) -> None:
    store = review(tmp_path, 150, Plan(1, 0, 0))
    processes = [voter(store.path, name) for name in ("ana", "ben")]
    told = [p.communicate(timeout=120)[0].split() for p in processes]
    assert [p.returncode for p in processes] == [0, 0]
    assert len(told[0]) + len(told[1]) == 150
    found = results(store)
    assert (found.overall.votes, found.overall.items, found.complete) == (150, 150, 150)


def test_a_killed_process_loses_no_vote_and_its_item_is_shown_again(tmp_path: Path) -> None:
    store = review(tmp_path, 2000, Plan(1, 0, 0))
    process = voter(store.path, "ana")
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(25)]
    process.send_signal(signal.SIGKILL)
    told += process.stdout.read().split()
    process.wait()
    with closing(sqlite3.connect(store.path)) as db:
        recorded = [row[0] for row in db.execute("SELECT ticket FROM votes ORDER BY id")]
        held = [row[0] for row in db.execute("SELECT ticket FROM showings WHERE voted = 0")]
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert recorded[: len(told)] == told
    assert len(recorded) - len(told) <= 1
    again = next_item(store, None, "ana")
    assert again is not None
    assert not held or again.ticket in held
    vote(store, again.ticket, "a", annotator="ana")


def test_ten_thousand_items_are_quick(tmp_path: Path) -> None:
    store = review(tmp_path, 10_000, Plan(2, 0.1, 0.1), gold=50)
    with store.transaction("votes cannot be made up") as cursor:
        # two votes on each of nine thousand items, as `vote` leaves them
        cursor.execute("INSERT INTO annotators VALUES ('ana', '[]', 0), ('ben', '[]', 0)")
        cursor.execute(
            "INSERT INTO showings SELECT a.name || i.id, 1, i.id, a.name, 0, i.id % 2, '', 0, 0, 1"
            " FROM items i, annotators a WHERE i.id <= 9000"
        )
        cursor.execute(
            "INSERT INTO votes (ticket, review, annotator, groups, choice, aspects, reason, seconds, guidelines,"
            " recorded) SELECT ticket, 1, annotator, '[]', 'a', '{}', '', 1, '', 0 FROM showings"
        )
    start = time.process_time()
    for _ in range(10):
        shown = next_item(store, None, "cy")
        assert shown is not None
        vote(store, shown.ticket, "b", annotator="cy")
    assert time.process_time() - start < 10 * 0.5
    start = time.process_time()
    found = results(store)
    assert time.process_time() - start < 10
    assert found.overall.items >= 9000
    assert found.overall.win_rate is not None
    assert found.overall.win_rate.value == pytest.approx(0.5, abs=0.01)


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "labels.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE verdicts (x)")
    before = path.read_bytes()
    with pytest.raises(TrimtabError, match="no review store: its tables are verdicts"):
        ReviewStore(path)
    assert path.read_bytes() == before
    (tmp_path / "text").write_text("no database at all, but long enough to look at" * 100)
    with pytest.raises(TrimtabError, match="not a usable review store"):
        ReviewStore(tmp_path / "text")


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "reviews.sqlite"
    ReviewStore(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(TrimtabError, match="newer Trimtab"):
        ReviewStore(path)


def test_a_full_disk_is_told_in_plain_words_and_loses_nothing(tmp_path: Path) -> None:
    store = review(tmp_path, 30, Plan(1, 0, 0))
    shown = next_item(store, None, "ana")
    assert shown is not None
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(TrimtabError, match=r"the vote cannot be recorded.*full") as caught:
        vote(store, shown.ticket, "a", annotator="ana", reason="x" * 9000)
    assert caught.value.kind is ErrorKind.FAILED
    store._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
    vote(store, shown.ticket, "a", annotator="ana", reason="x" * 9000)
    assert results(store).overall.votes == 1
