"""The pages that are made from the code are the ones that are committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.cli.docs import main, pages, stale
from trimtab.config.describe import fields
from trimtab.runs.signals import SIGNALS

DOCS = Path(__file__).parents[2] / "docs"


def test_the_committed_pages_are_up_to_date():
    assert stale(DOCS) == [], "run `make docs` and commit the pages"


def test_the_pages_hold_every_command_setting_and_signal():
    made = pages()
    for command in ("init", "run", "pm train", "pm eval", "config explain", "show", "signals", "report"):
        assert f"\n### trimtab {command}\n" in made["cli.md"]
    assert all(f"| `{key}` |" in made["settings.md"] for key in fields())
    assert all(made["signals.md"].count(f"| `{key}` |") == 1 for key in SIGNALS)


def test_check_fails_on_a_page_that_was_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path)]) == 0
    assert main(["--check", str(tmp_path)]) == 0
    page = tmp_path / "settings.md"
    page.write_text(page.read_text() + "\nedited\n")
    capsys.readouterr()
    assert main(["--check", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"error: {page} is out of date\n  make docs\n"
    (tmp_path / "cli.md").unlink()
    assert stale(tmp_path) == ["cli.md", "settings.md"]
    assert page.read_text().endswith("edited\n")


def test_the_page_of_a_finding_that_is_gone_is_stale_and_goes(tmp_path: Path):
    assert main([str(tmp_path)]) == 0
    assert "failures/kl-explosion.md" in pages()
    gone = tmp_path / "failures" / "of-old.md"
    gone.write_text("of old")
    assert stale(tmp_path) == ["failures/of-old.md"]
    assert main([str(tmp_path)]) == 0
    assert stale(tmp_path) == []
    assert not gone.exists()


def test_the_pages_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch):
    first = pages()
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert pages() == first


def test_a_wrong_argument_is_refused():
    assert main(["--chek"]) == 2
