"""Planted faults over many seeds: intervals hold the truth in about 95 %, and honest judges are seldom accused."""

from __future__ import annotations

import numpy as np
import pytest

from labeling.verdict_draws import draw_table
from trimtab.labeling.audit import CheckStatus, audit
from trimtab.labeling.audit.consistency import position_bias
from trimtab.labeling.audit.headline import headline
from trimtab.labeling.audit.inference import settle
from trimtab.labeling.audit.preferences import length_bias, self_preference
from trimtab.labeling.audit.units import order_couples

SEEDS = 100
# binomial: 10 or more misses in 100 have probability .03 at a rate of .05, 12 or more .004
MOST_MISSES = 11


def position(table):
    return position_bias(table, order_couples(table))


def length(table):
    return length_bias(table, 20, 0)


def own(table):
    return self_preference(table, table, frozenset({"j"}), 20, 0)


CASES = {
    "no position bias": (position, {}, 0.5),
    "position bias": (position, {"position": 0.2}, 0.6),
    "position only": (position, {"position": 0.9}, 0.95),
    "prompts of unequal difficulty": (position, {"prompt_noise": 0.2}, 0.5),
    "no length bias, longer is better": (length, {"gold_longer": 0.75}, 0.5),
    "length bias": (length, {"length": 0.3, "gold_longer": 0.6}, 0.65),
    "no self-preference, own responses worse": (own, {"own_quality": 0.3}, 0.5),
    "self-preference": (own, {"own": 0.2, "own_quality": 0.3}, 0.6),
}


@pytest.mark.parametrize("case", CASES)
def test_intervals_hold_the_planted_bias(case):
    measure, faults, truth = CASES[case]
    missed = accused = 0
    for seed in range(SEEDS):
        check = next(iter(settle([measure(draw_table(seed, 80, **faults))]).values()))
        missed += not check.low <= truth <= check.high
        accused += check.status is CheckStatus.BIASED
    assert missed <= MOST_MISSES
    if truth == 0.5:
        assert accused <= MOST_MISSES
    elif truth >= 0.65:
        assert accused > 0.5 * SEEDS


def test_intervals_hold_accuracy_and_inconsistency():
    missed = np.zeros(3, dtype=int)
    for seed in range(SEEDS):
        found = headline(draw_table(seed, 80, accuracy=0.8, position=0.2))
        truths = (0.8 * 0.8 + 0.2 * 0.5, _inconsistent(0.2, 0.8), 0.6)
        for i, (estimate, truth) in enumerate(
            zip((found.accuracy, found.inconsistent_rate, found.first_share), truths, strict=True)
        ):
            missed[i] += not estimate.low <= truth <= estimate.high
    assert (missed <= MOST_MISSES).all()


def _inconsistent(position, accuracy):
    """P(the two orders differ): each verdict is the slot's with `position`, else right with `accuracy`."""
    # the better response, with the first slot and with the second
    when_first = position + (1 - position) * accuracy
    when_second = (1 - position) * accuracy
    return when_first * (1 - when_second) + (1 - when_first) * when_second


def test_an_honest_judge_is_accused_of_nothing_in_most_audits():
    # all the biases of one judge together: Holm holds the whole at 5 %
    accused = 0
    for seed in range(60):
        judge = audit(draw_table(seed, 80, own_quality=0.4, gold_longer=0.6), resamples=20).judges["j"]
        accused += any(c.status is CheckStatus.BIASED for c in judge.checks.values())
    assert accused <= 8


def test_a_small_sample_claims_neither_bias_nor_its_absence():
    statuses = [settle([position(draw_table(seed, 12))])["position-bias"].status for seed in range(50)]
    assert CheckStatus.OK not in statuses
    assert statuses.count(CheckStatus.UNDERPOWERED) >= 45
