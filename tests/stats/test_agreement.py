"""Agreement beyond chance: hand values, slow derivations, public implementations, invariances."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trimtab.errors import TrimtabError
from trimtab.stats.agreement import (
    agreement,
    agreement_intervals,
    cohen_kappa,
    fleiss_kappa,
    gwet_ac1,
    krippendorff_alpha,
    raw_agreement,
)

# Krippendorff (2011), section C: four observers, twelve units, five values (here from 0 on), votes missing
KRIPPENDORFF = (
    np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, 0, 0, 0],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, 0, 3],
            [0, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, 0],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, 0],
        ]
    ).T
    - 1
)
# Fleiss (1971) as usually quoted: ten items, fourteen raters, five classes; counts
FLEISS = [
    (0, 0, 0, 0, 14),
    (0, 2, 6, 4, 2),
    (0, 0, 3, 5, 6),
    (0, 3, 9, 2, 0),
    (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0),
    (3, 2, 6, 3, 0),
    (2, 5, 3, 2, 2),
    (6, 5, 2, 1, 0),
    (0, 2, 2, 3, 7),
]

votes = hnp.arrays(np.int64, st.tuples(st.integers(2, 12), st.integers(2, 5)), elements=st.integers(-1, 2))


def two(table):
    """Votes of two raters from their table of counts."""
    cells = [(a, b) for (a, b), n in np.ndenumerate(np.array(table)) for _ in range(n)]
    return np.array([c[0] for c in cells]), np.array([c[1] for c in cells])


def expand(counts):
    return np.array([[k for k, n in enumerate(row) for _ in range(n)] for row in counts])


def test_cohens_kappa_of_the_textbook_table():
    # observed 35/50; chance .5 x .6 + .5 x .4 = .5
    a, b = two([[20, 5], [10, 15]])
    assert raw_agreement(a, b) == pytest.approx(0.7, abs=1e-12)
    assert cohen_kappa(a, b) == pytest.approx(0.4, abs=1e-12)


def test_weighted_kappa_by_hand():
    # squared distances 1, 4; observed cost (2 x 1 + 1 x 4) / 10 = .6; marginals (4, 3, 3) and (4, 3, 3):
    # chance cost 2 (12 + 9 + 4 x 12) / 100 = 1.38
    a, b = two([[3, 0, 1], [0, 2, 1], [1, 1, 1]])
    cost = (1 * 4 + 1 * 4 + 1 + 1) / 10
    assert cohen_kappa(a, b, "quadratic") == pytest.approx(1 - cost / 1.38, abs=1e-12)


def test_fleiss_kappa_of_fleiss_table():
    assert fleiss_kappa(expand(FLEISS)) == pytest.approx(0.20993, abs=5e-6)


@pytest.mark.parametrize(("level", "value"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_krippendorffs_example(level, value):
    assert krippendorff_alpha(KRIPPENDORFF, level) == pytest.approx(value, abs=5e-4)


def test_ac1_by_hand():
    # observed 118/125; mean share of the first class (123 + 120) / 250 = .972; chance 2 x .972 x .028
    a, b = two([[118, 5], [2, 0]])
    chance = 2 * 0.972 * 0.028
    assert gwet_ac1(np.stack([a, b], 1)) == pytest.approx((118 / 125 - chance) / (1 - chance), abs=1e-12)


def slow_alpha(votes, level):
    """1 - Do / De over all pairs of votes, from Krippendorff's definition with explicit loops."""
    units = [[v for v in row if v >= 0] for row in votes.tolist()]
    units = [u for u in units if len(u) > 1]
    pool = [v for u in units for v in u]
    n = len(pool)
    count = {c: pool.count(c) for c in range(3)}

    def distance(a, b):
        if level == "nominal":
            return float(a != b)
        if level == "interval":
            return float((a - b) ** 2)
        low, high = min(a, b), max(a, b)
        return (sum(count[c] for c in range(low, high + 1)) - (count[a] + count[b]) / 2) ** 2

    observed = sum(sum(distance(a, b) for a, b in itertools.permutations(u, 2)) / (len(u) - 1) for u in units)
    expected = sum(distance(a, b) for a, b in itertools.permutations(pool, 2))
    return math.nan if expected == 0 else 1 - (observed / n) / (expected / (n * (n - 1)))


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
@given(votes=votes)
@settings(max_examples=60, deadline=None)
def test_alpha_is_what_its_definition_says(level, votes):
    np.testing.assert_allclose(krippendorff_alpha(votes, level, 3), slow_alpha(votes, level), atol=1e-10)


def slow_ac1(votes, classes):
    rows = [[v for v in row if v >= 0] for row in votes.tolist()]
    agreed = [
        sum(a == b for a, b in itertools.permutations(row, 2)) / (len(row) * (len(row) - 1))
        for row in rows
        if len(row) > 1
    ]
    if not agreed:
        return math.nan
    shares = [[row.count(c) / len(row) for row in rows if row] for c in range(classes)]
    mean = [sum(s) / len(s) for s in shares]
    chance = sum(m * (1 - m) for m in mean) / (classes - 1)
    return (sum(agreed) / len(agreed) - chance) / (1 - chance)


@given(votes=votes)
@settings(max_examples=60, deadline=None)
def test_ac1_is_what_its_definition_says(votes):
    np.testing.assert_allclose(gwet_ac1(votes, 3), slow_ac1(votes, 3), atol=1e-10)


def test_measures_agree_with_public_implementations():
    metrics = pytest.importorskip("sklearn.metrics")
    raters = pytest.importorskip("statsmodels.stats.inter_rater")
    rng = np.random.default_rng(3)
    for _ in range(5):
        v = rng.integers(0, 3, (40, 4))
        v[:20] = v[:20, :1]
        assert cohen_kappa(v[:, 0], v[:, 1]) == pytest.approx(metrics.cohen_kappa_score(v[:, 0], v[:, 1]), abs=1e-12)
        for weights in ("linear", "quadratic"):
            wanted = metrics.cohen_kappa_score(v[:, 0], v[:, 1], weights=weights)
            assert cohen_kappa(v[:, 0], v[:, 1], weights) == pytest.approx(wanted, abs=1e-12)
        assert fleiss_kappa(v) == pytest.approx(raters.fleiss_kappa(raters.aggregate_raters(v)[0]), abs=1e-12)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_alpha_agrees_with_evalica(level):
    evalica = pytest.importorskip("evalica")
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(4)
    v = rng.integers(0, 3, (50, 4))
    v[:25] = v[:25, :1]
    v[rng.random(v.shape) < 0.3] = -1
    wanted = evalica.alpha(pandas.DataFrame(v.T.astype(float)).replace(-1, np.nan), level).alpha
    assert krippendorff_alpha(v, level) == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("measure", ["fleiss", "alpha", "alpha-ordinal", "alpha-interval", "ac1"])
@given(votes=votes, seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_order_of_items_and_of_raters_does_not_matter(measure, votes, seed):
    rng = np.random.default_rng(seed)
    mixed = votes[rng.permutation(len(votes))][:, rng.permutation(votes.shape[1])]
    np.testing.assert_allclose(agreement(measure, mixed, 3), agreement(measure, votes, 3), atol=1e-10)


@pytest.mark.parametrize("measure", ["fleiss", "alpha", "ac1"])
@given(votes=votes)
@settings(max_examples=40, deadline=None)
def test_names_of_classes_do_not_matter(measure, votes):
    renamed = np.where(votes >= 0, np.array([2, 0, 1])[votes], -1)
    np.testing.assert_allclose(agreement(measure, renamed, 3), agreement(measure, votes, 3), atol=1e-10)


@given(votes=votes)
@settings(max_examples=40, deadline=None)
def test_a_rater_without_votes_changes_nothing(votes):
    more = np.concatenate([votes, np.full((len(votes), 1), -1)], axis=1)
    for measure in ("alpha", "alpha-ordinal", "ac1"):
        np.testing.assert_allclose(agreement(measure, more, 3), agreement(measure, votes, 3), atol=1e-12)


def test_perfect_agreement_is_one_and_a_constant_class_is_undefined_but_for_ac1():
    same = np.repeat(np.array([[0], [1], [2], [1]]), 3, axis=1)
    for measure in ("fleiss", "alpha", "alpha-ordinal", "alpha-interval", "ac1"):
        assert agreement(measure, same) == pytest.approx(1, abs=1e-12)
    constant = np.zeros((5, 2), dtype=int)
    for measure in ("cohen", "fleiss", "alpha"):
        assert math.isnan(agreement(measure, constant))
    assert gwet_ac1(constant) == 1


def test_intervals_cover_the_measure_of_the_population():
    # two raters who are right with .85 each: kappa of the infinite table is (2 x .85 - 1)^2
    truth, missed = (2 * 0.85 - 1) ** 2, 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        true = rng.integers(0, 2, 150)
        v = np.stack([np.where(rng.random(150) < 0.85, true, 1 - true) for _ in range(2)], 1)
        found = agreement_intervals(("cohen",), v, None, 2, 300, seed)["cohen"]
        missed += not found.low <= truth <= found.high
    assert missed <= 11


def test_items_of_one_prompt_are_drawn_together():
    rng = np.random.default_rng(0)
    v = rng.integers(0, 2, (30, 2))
    copied = np.repeat(v, 8, axis=0)
    groups = np.repeat(np.arange(30), 8)
    alone = agreement_intervals(("raw", "cohen", "ac1"), v, None, 2, 2000, 1)
    together = agreement_intervals(("raw", "cohen", "ac1"), copied, groups, 2, 2000, 1)
    loose = agreement_intervals(("raw", "cohen", "ac1"), copied, None, 2, 2000, 1)
    for measure, found in alone.items():
        assert together[measure].mean == pytest.approx(found.mean, abs=1e-9)
        assert together[measure].low == pytest.approx(found.low, abs=0.02)
        assert loose[measure].high - loose[measure].low < 0.5 * (found.high - found.low)


def test_one_prompt_has_no_interval():
    found = agreement_intervals(("raw",), np.array([[0, 1], [1, 1]]), np.zeros(2, dtype=int))["raw"]
    assert found.mean == 0.5
    assert math.isnan(found.low)


@pytest.mark.parametrize(
    ("measure", "bad"),
    [
        ("cohen", np.zeros((3, 3), int)),
        ("alpha", np.zeros((3, 2))),
        ("alpha", np.full((3, 2), -2)),
        ("ac1", np.zeros(4, int)),
        ("ac1", np.zeros((4, 1), int)),
    ],
)
def test_votes_of_another_form_are_refused(measure, bad):
    with pytest.raises(TrimtabError, match="agreement"):
        agreement(measure, bad)


def test_more_classes_than_stated_are_refused():
    with pytest.raises(TrimtabError, match="vote 2 with 2 classes"):
        gwet_ac1(np.array([[0, 2]]), 2)
