"""What the audit says in words: every check in every ending, and which side a figure is on."""

from __future__ import annotations

import numpy as np
import pytest

from labeling.verdict_draws import draw_records, draw_table
from trimtab.labeling.audit import CHECKS, CheckStatus, audit
from trimtab.labeling.audit.results import Check
from trimtab.labeling.audit.words import check_figures, check_sentence, headline, not_measurable
from trimtab.labeling.verdicts import VerdictTable


@pytest.mark.parametrize("name", CHECKS)
def test_every_check_has_a_sentence_with_its_figure(name):
    check = Check(name, CheckStatus.POOR, 0.25, 0.2, 0.31, n=40, null=0.5, threshold=0.1, detectable=0.07)
    sentence = check_sentence(check)
    assert sentence.startswith(f"{name}: ")
    assert "25 % [20, 31]" in sentence
    missing = check_sentence(Check(name, CheckStatus.NOT_MEASURABLE, missing=("gold",)))
    assert missing == f"{name}: not measurable without gold"
    few = check_sentence(Check(name, CheckStatus.UNDERPOWERED, 0.25, 0.2, 0.31, n=40, detectable=0.07))
    assert few.endswith("underpowered: 40 verdicts show 7.00 points or more")


def test_a_judge_without_findings_is_described_by_what_is_known():
    judge = audit(draw_table(3, 150, accuracy=0.9), resamples=20).judges["j"]
    line = headline(judge)
    assert line.startswith("agrees with the reference in 89.3 % [")
    assert "nothing found in " in line
    assert "too few verdicts to tell: " in line
    assert "points or more)" in line


def test_a_judge_with_findings_is_described_by_them():
    judge = audit(draw_table(3, 300, position=0.5), resamples=20).judges["j"]
    parts = headline(judge).split("; ")
    assert parts[0].startswith("position-bias: ")
    assert parts[1].startswith("swap-consistency: ")


def test_nothing_measurable_is_said():
    judge = audit(VerdictTable.from_records([{"pair_id": "p", "judge": "j", "winner": 1}]), resamples=5).judges["j"]
    assert "too few verdicts" in headline(judge) or "nothing can be measured" in headline(judge)


def test_cells_of_a_table():
    biased = Check("position-bias", CheckStatus.BIASED, 0.25, 0.2, 0.31, 1e-9, 1e-8, detectable=0.07)
    assert check_figures(biased) == ("25 % [20, 31]", "< 0.001", "7.00 points")
    assert check_figures(Check("unparsed", CheckStatus.NOT_MEASURABLE)) == (None, None, None)


def test_only_what_no_judge_could_be_put_to_is_missing():
    records = [*draw_records(np.random.default_rng(0), 20), {"pair_id": "p0", "judge": "k", "winner": 1}]
    missing = not_measurable(audit(VerdictTable.from_records(records), resamples=5))
    assert "principle-conflict" in missing
    assert "position-bias" not in missing
    assert missing["null-response"] == "a judge that can be asked (--canary)"
