"""TRL's first PPO trainer tells an impossible KL and a wild ratio in a warning, not in its records."""

from __future__ import annotations

from pathlib import Path

from trimtab.doctor.driver import diagnose
from trimtab.doctor.importers import read
from trimtab.doctor.log import Log

KL = "x.py:1: UserWarning: KL divergence is starting to become negative: {}\n"
RATIO = "x.py:1: UserWarning: The average ratio of batch ({}) exceeds threshold 10.00. Skipping batch.\n"
ROW = "{{'loss': 0.1, 'reward': 0.{}, 'learning_rate': 1e-05, 'epoch': 0.0{}}}\n"


def _log(path: Path, text: str) -> Log:
    file = path / "run.log"
    file.write_text(text)
    (log,) = read(file)
    assert isinstance(log, Log)
    return log


def test_a_warning_belongs_to_the_record_after_it(tmp_path: Path) -> None:
    log = _log(tmp_path, KL.format("-2.5") + ROW.format(1, 1) + ROW.format(2, 2) + KL.format("-4.0") + ROW.format(3, 3))
    kl = log.series["kl/reference"]
    assert (kl.steps.tolist(), kl.values.tolist()) == ([1, 3], [-2.5, -4.0])
    assert log.rows == 3


def test_warnings_alone_are_a_log(tmp_path: Path) -> None:
    for sentence, value, id in ((KL, "-233.01", "negative-kl"), (RATIO, "14.31", "ratio-blow-up")):
        file = tmp_path / "posted.txt"
        file.write_text(sentence.format(value) + "  warnings.warn(\n")
        assert diagnose(file).root_cause == id


def test_a_shallow_warning_now_and_then_says_nothing_of_the_other_records(tmp_path: Path) -> None:
    rows = [ROW.format(i, i) for i in range(1, 8)]
    assert "kl/reference" not in _log(tmp_path, KL.format("-1.2") + "".join(rows)).series
    assert "kl/reference" in _log(tmp_path, KL.format("-51.2") + "".join(rows)).series
