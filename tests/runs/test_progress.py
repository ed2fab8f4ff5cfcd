"""Progress lines and bars."""

from __future__ import annotations

import io

import pytest

from trimtab.runs import progress as module
from trimtab.runs.progress import duration, progress, set_quiet


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _loud():
    set_quiet(False)
    yield
    set_quiet(True)  # as the suite has it


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 100.0

    monkeypatch.setattr(module.time, "monotonic", lambda: Clock.now)
    return Clock


def test_one_plain_line_a_step_with_per_cent_and_time_left(clock):
    out = io.StringIO()
    with progress(4, "ppo", stream=out) as bar:
        for i in range(4):
            clock.now += 30
            bar.advance(kl=0.123456, n=i)
    assert out.getvalue().splitlines() == [
        "ppo: 1/4  25 %  1:30 left  kl=0.1235 n=0",
        "ppo: 2/4  50 %  1:00 left  kl=0.1235 n=1",
        "ppo: 3/4  75 %  30 s left  kl=0.1235 n=2",
        "ppo: 4/4  100 %  0 s left  kl=0.1235 n=3",
    ]


def test_steps_done_before_do_not_count_in_the_time_left(clock):
    out = io.StringIO()
    with progress(10, "x", done=8, stream=out) as bar:
        clock.now += 5
        bar.advance()
    assert out.getvalue() == "x: 9/10  90 %  5 s left\n"


def test_quick_steps_share_a_line_and_the_last_has_its_own(clock):
    out = io.StringIO()
    with progress(10_000, "x", stream=out) as bar:
        for _ in range(10_000):
            clock.now += 0.001
            bar.advance()
    done = [int(line.split("/")[0].split()[-1]) for line in out.getvalue().splitlines()]
    assert len(done) == 6
    assert done[:2] == [1, pytest.approx(2001, abs=2)]
    assert done[-1] == 10_000


def test_slow_steps_never_fall_silent(clock):
    out = io.StringIO()
    with progress(1_000_000, "x", stream=out) as bar:
        for _ in range(5):
            clock.now += 11
            bar.advance()
    assert len(out.getvalue().splitlines()) == 5


def test_unknown_and_zero_totals(clock):
    out = io.StringIO()
    with progress(None, "x", stream=out) as bar:
        bar.advance(3)
    with progress(0, "y", stream=out) as bar:
        bar.advance(0)
    assert out.getvalue() == "x: 3\ny: 0/0  100 %\n"


def test_a_terminal_gets_a_bar_and_a_dumb_one_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with progress(2, "[b]ppo[/b]", stream=out) as bar:
        bar.advance(kl=1.5)
        bar.advance(kl=2.5)
    assert "\x1b[" in out.getvalue()
    assert "[b]ppo[/b]" in out.getvalue()
    assert "2/2" in out.getvalue()
    assert "kl=2.5" in out.getvalue()
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    with progress(2, "ppo", stream=out) as bar:
        bar.advance()
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().startswith("ppo: 1/2")


def test_no_color_means_no_colour_codes(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    out = Terminal()
    with progress(2, "ppo", stream=out) as bar:
        bar.advance()
    assert "\x1b[3" not in out.getvalue()
    assert "\x1b[9" not in out.getvalue()


def test_quiet_says_nothing_but_counts(capsys):
    out = io.StringIO()
    with progress(2, "x", quiet=True, stream=out) as bar:
        bar.advance()
    assert bar.done == 1
    set_quiet(True)
    try:
        with progress(2, "x", stream=out) as bar:
            bar.advance()
        assert out.getvalue() == ""
        with progress(2, "x", quiet=False) as bar:
            bar.advance()
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("x: 1/2")
    finally:
        set_quiet(False)


def test_a_bar_ends_when_the_work_fails(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    with pytest.raises(KeyError), progress(2, "ppo", stream=out):
        raise KeyError
    assert "\x1b[?25h" in out.getvalue()  # the cursor is back


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1:00"), (3723, "1:02:03")])
def test_durations(seconds, text):
    assert duration(seconds) == text
