"""`trimtab review`: making one, voting in a terminal, and what comes out."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trimtab.cli.review_vote import sit
from trimtab.data.pairs import write_pairs
from trimtab.data.records import Message, Pair, Prompt, Response
from trimtab.evaluation.review.store import ReviewStore, find_review
from trimtab.evaluation.review.tally import results
from trimtab.runs.files import write_jsonl
from trimtab.runs.run import Run

HOSTILE = "\x1b]0;owned\x07\x1b[2J \u202eevil\r[red]markup[/red] \ud800 " + "x" * 5000 + "\n" + "读" * 200


@pytest.fixture
def compared(project: Path) -> Path:
    """A project with a run whose end and reference differ on four prompts."""
    run = Run.create(project / "runs", "main", config={}, seed=0)
    run.begin_stage("eval", "f")
    write_jsonl(
        run.artifact("eval") / "samples.jsonl",
        [
            {"prompt_id": f"q{i}", "prompt": f"ask {i}", "side": side, "index": 0, "response": f"{word} {i}"}
            for side, word in (("policy", "pear"), ("reference", "plum"))
            for i in range(4)
        ],
    )
    run.close()
    return project


def keys(*pressed: str) -> Callable[[], str]:
    given: Iterator[str] = iter(pressed)
    return lambda: next(given)


def test_from_runs_to_pairs_and_reference_labels(trimtab: Any, compared: Path, tmp_path: Path):
    made = trimtab("review", "new", compared, "main", "main@0", "--aspects", "constitution", "--json")
    assert (made.code, made.json["name"], made.json["items"]) == (0, "review-1", 4)
    assert made.json["plan"]["aspects"] == ["polite"]
    store = ReviewStore(compared / "reviews.sqlite")
    review = find_review(store)
    assert trimtab("review", "results", compared).code == 0
    assert sit(store, review, "ana", ["lab"], key=keys("b", "a", "A", "\r", "2", "t", "0", " ", "q")) == 4
    assert sit(store, review, "ben", key=keys(*["1", "\r"] * 9)) >= 4
    found = trimtab("review", "results", compared, "--json").json
    assert (found["overall"]["votes"], found["overall"]["both_bad"]) == (8, 1)
    assert found["aspects"][0]["votes"] == 2
    assert [a["name"] for a in found["annotators"]] == ["ana", "ben"]
    page = trimtab("review", "results", compared)
    assert "win rate of main" in page.out
    assert "Krippendorff's alpha" in page.out
    assert "fewer than 20 prompts" in page.err
    listed = trimtab("review", "disagreements", compared, "--limit", 1, "--json").json
    assert (listed["count"], listed["truncated"]) == (1, True)
    assert "main@0: plum" in trimtab("review", "disagreements", compared).out
    out = [tmp_path / name for name in ("pairs.jsonl", "labels.jsonl")]
    done = trimtab("review", "export", compared, "--pairs", out[0], "--labels", out[1], "--json").json
    assert done["pairs"]["count"] == 4
    assert trimtab("data", "check", out[0]).code in (0, 3)
    audited = trimtab("labels", "audit", out[1], "--json")
    assert set(audited.json["judges"]) == {"ana", "ben"}


def test_the_principles_that_are_asked_about_are_the_guidelines(trimtab: Any, compared: Path):
    trimtab("review", "new", compared, "main", "main@0", "--aspects", "constitution")
    assert "polite: Prefer the polite response." in trimtab("review", "guidelines", compared).out
    (compared / "guide.md").write_text("Be strict.", encoding="utf-8")
    versions = trimtab("review", "guidelines", compared, compared / "guide.md", "--json").json
    assert [v["text"] for v in versions["versions"]][1:] == ["Be strict."]


def test_gold_questions_come_from_labeled_pairs(trimtab: Any, compared: Path, tmp_path: Path):
    prompt = Prompt("g", (Message("user", "gold"),))
    write_pairs(tmp_path / "gold.jsonl", [Pair("g", prompt, Response("right"), Response("wrong"))])
    made = trimtab("review", "new", compared, "--pairs", tmp_path / "gold.jsonl", "--gold", tmp_path / "gold.jsonl",
                   "--name", "mine", "--json").json  # fmt: skip
    assert (made["items"], made["gold"], made["systems"]) == (1, 1, ["chosen", "rejected"])


def test_hostile_text_is_shown_and_not_obeyed(compared: Path, capsys: pytest.CaptureFixture[str], monkeypatch):
    from trimtab.evaluation.review.records import Item
    from trimtab.evaluation.review.store import create

    monkeypatch.setenv("COLUMNS", "80")
    store = ReviewStore(compared / "reviews.sqlite")
    prompt = Prompt("q", (Message("user", HOSTILE), Message("\x1b[31mrole", "hi")))
    create(store, "r", [Item(prompt, Response(HOSTILE), Response(""), ("\x1b[1mx", "y"), id="\x1b[5mid")])
    sit(store, find_review(store), "ana", key=keys("m", "z", "q"))
    out, err = capsys.readouterr()
    assert not [c for c in out + err if not (c.isprintable() or c == "\n")]
    assert "\\x1b]0;owned\\x07" in out
    assert "[red]markup[/red]" in out
    assert "more characters: m shows all" in out
    assert "[empty]" in out
    assert max(map(cells, out.split("\n"))) <= 80
    assert out.count("x" * 70) > 60  # all of it, once asked for
    from trimtab.cli.main import main

    sit(store, find_review(store), "ana", key=keys("a"), line=lambda ask: "")
    sit(store, find_review(store), "ben", key=keys("r", "t"), line=lambda ask: "\x1b[31mred \udcff")
    for command in ("results", "disagreements"):
        capsys.readouterr()
        assert main(["review", command, str(compared)]) == 0
        shown = "".join(capsys.readouterr())
        assert not [c for c in shown if not (c.isprintable() or c == "\n")]


def cells(line: str) -> int:
    from rich.cells import cell_len

    return cell_len(line)


def test_undo_guidelines_and_the_end(compared: Path, trimtab: Any, capsys: pytest.CaptureFixture[str]):
    trimtab("review", "new", compared, "main", "main@0", "--repeats", 0)
    store = ReviewStore(compared / "reviews.sqlite")
    assert sit(store, find_review(store), "ana", key=keys("u", "g", "a", "b", "u", "t", "s", "x")) == 4
    said = "".join(capsys.readouterr())
    assert "there is no vote to undo" in said
    assert "there are no guidelines" in said
    assert "undone: b" in said
    assert "nothing is left" in said
    overall = results(store).overall
    assert (overall.votes, overall.first + overall.second, overall.ties, overall.both_bad) == (3, 1, 1, 1)


def test_an_aspect_can_be_started_again_and_the_end_of_input_stops(compared: Path, trimtab: Any):
    trimtab("review", "new", compared, "main", "main@0", "--aspects", "kind,brief")
    store = ReviewStore(compared / "reviews.sqlite")

    def ended() -> str:
        raise EOFError

    given = iter(["a", "b", "u", "t", "z", "s", "t", "\r"])
    assert sit(store, find_review(store), "ana", key=lambda: next(given, None) or ended()) == 1
    found = results(store)
    assert (found.overall.ties, found.aspects[0].ties, found.aspects[1].votes) == (1, 1, 0)


def test_voting_without_a_terminal_is_refused(compared: Path, trimtab: Any, monkeypatch: pytest.MonkeyPatch):
    trimtab("review", "new", compared, "main", "main@0")
    for stdin in (open(os.devnull), None):  # noqa: SIM115
        monkeypatch.setattr(sys, "stdin", stdin)
        refused = trimtab("review", "vote", compared, "--annotator", "ana")
        assert refused.code == 2
        assert "voting needs a terminal" in refused.err


def test_ctrl_c_in_a_terminal_keeps_the_votes(compared: Path, trimtab: Any):
    trimtab("review", "new", compared, "main", "main@0")
    master, slave = pty.openpty()
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "trimtab", "review", "vote", str(compared), "--annotator", "ana"]
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    seen = ""

    def press(key: bytes, after: int) -> None:
        """Press a key when the question stands there for the `after`-th time and the terminal hands on single keys."""
        nonlocal seen
        end = time.monotonic() + 90
        while seen.count("[q] stop") < after or termios.tcgetattr(slave)[3] & termios.ICANON:
            assert time.monotonic() < end, seen
            assert process.poll() is None, seen
            if select.select([master], [], [], 0.1)[0]:
                seen += os.read(master, 65536).decode("utf-8", "replace")
        os.write(master, key)

    try:
        press(b"a", 1)
        press(b"b", 2)
        press(b"\x03", 3)
        assert process.wait(timeout=90) == 130
        seen += os.read(master, 65536).decode("utf-8", "replace")
        assert "votes recorded: 2" in seen
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)
    assert results(ReviewStore(compared / "reviews.sqlite")).overall.votes == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["new", "P"], "not 0 points"),
        (["new", "P", "main"], "not 1 points"),
        (["new", "P", "main", "main"], "against itself"),
        (["new", "P", "main", "nope@3"], "no run 'nope@3'"),
        (["new", "P", "main", "main@7"], "no responses to a common prompt"),
        (["new", "P", "main", "main@0", "--pairs", "x.jsonl"], "2 points and a file"),
        (["new", "P", "--pairs", "missing.jsonl"], "missing.jsonl"),
        (["new", "P", "main", "main@0", "--repeats", "0.9"], "share of 0.9 repeats"),
        (["new", "P", "main", "main@0", "--aspects", "a,a"], "name each once"),
        (["new", "P", "main", "main@0", "--guidelines", "missing.md"], "missing.md"),
        (["new", "P", "main", "main@0", "--name", "\x1b[1m"], "name of a review"),
        (["new", "/no/such", "main", "main@0"], "no such directory"),
        (["results", "P"], "no review yet"),
        (["vote", "P", "--annotator", "ana"], "no review yet"),
        (["vote", "P"], "--annotator"),
        (["export", "P"], "nothing to write"),
    ],
)
def test_bad_commands_are_refused_in_plain_words(trimtab: Any, compared: Path, arguments: list[str], told: str):
    outcome = trimtab("review", *[str(compared) if a == "P" else a for a in arguments])
    assert outcome.code in (1, 2)
    assert told in outcome.err
    assert "Traceback" not in outcome.err
    assert not (compared / "reviews.sqlite").exists() or "new" in arguments


def test_nothing_is_exported_before_anybody_voted(trimtab: Any, compared: Path, tmp_path: Path):
    trimtab("review", "new", compared, "main", "main@0")
    for option in ("--pairs", "--labels"):
        outcome = trimtab("review", "export", compared, option, tmp_path / "out.jsonl")
        assert "yet" in outcome.err
    assert not (tmp_path / "out.jsonl").exists()
    error = trimtab("review", "results", compared, "--review", "other", "--json")
    assert json.loads(error.out)["error"]["kind"] == "usage"
