"""Distances, indices and classifiers of shift: by hand, anew in float64, against scikit-learn, by properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.covariance import ledoit_wolf
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from trimtab.errors import TrimtabError
from trimtab.stats import shift

some = st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 3)), min_size=3, max_size=40)


# stability index


def test_the_index_by_hand():
    # cut at 2.5: reference 2 + 2, sample 0 + 4, half a count each: 2.5/5 twice; .5/5 and 4.5/5
    want = (0.1 - 0.5) * math.log(0.1 / 0.5) + (0.9 - 0.5) * math.log(0.9 / 0.5)
    assert shift.psi([1, 2, 3, 4], [5, 6, 7, 8], bins=2) == pytest.approx(want, abs=1e-12)


@given(some, some, st.integers(2, 6))
def test_the_index_counted_one_by_one(reference, sample, bins):
    cuts = sorted({float(np.quantile(np.array(reference), k / bins)) for k in range(1, bins)})

    def shares(values):
        counts = [0.5] * (len(cuts) + 1)
        for value in values:
            counts[sum(value > cut for cut in cuts)] += 1
        return [count / sum(counts) for count in counts]

    p, q = shares(reference), shares(sample)
    want = math.fsum((b - a) * math.log(b / a) for a, b in zip(p, q, strict=True))
    assert shift.psi(reference, sample, bins) == pytest.approx(want, abs=1e-12)


@given(some)
def test_a_sample_is_the_same_population_as_itself(values):
    assert shift.psi(values, values) == pytest.approx(0, abs=1e-12)
    assert shift.ks(values, values) == 0


def test_chance_alone_gives_about_what_is_expected():
    rng = np.random.default_rng(0)
    found = [shift.psi(rng.normal(size=500), rng.normal(size=200)) for _ in range(300)]
    assert np.mean(found) == pytest.approx(shift.expected_psi(500, 200), rel=0.1)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_distribution_is_refused(values):
    with pytest.raises(TrimtabError, match="distribution"):
        shift.psi([1.0, 2.0], values)
    with pytest.raises(TrimtabError, match="distribution"):
        shift.ks(values, [1.0])


def test_one_bin_is_refused():
    with pytest.raises(TrimtabError, match="bins"):
        shift.psi([1.0], [2.0], bins=1)


# Kolmogorov-Smirnov, AUC, percentiles


def test_the_largest_gap_by_hand():
    assert shift.ks([1, 2, 3, 4], [3, 4, 5, 6]) == 0.5


@given(some, some)
def test_the_largest_gap_counted_one_by_one(x, y):
    want = max(abs(sum(a <= t for a in x) / len(x) - sum(b <= t for b in y) / len(y)) for t in [*x, *y])
    assert shift.ks(x, y) == pytest.approx(want, abs=1e-12)
    assert shift.ks(x, y) == pytest.approx(shift.ks(y, x), abs=1e-12)


@given(some, some)
def test_the_area_is_scikit_learns(high, low):
    want = roc_auc_score([1] * len(high) + [0] * len(low), [*high, *low])
    assert shift.auc(high, low) == pytest.approx(want, abs=1e-12)


def test_no_area_without_values():
    assert math.isnan(shift.auc([], [1.0]))
    assert math.isnan(shift.auc([1.0], []))


def test_percentiles_by_hand():
    assert shift.percentiles([0, 2, 2.5, 9], [1, 2, 3]).tolist() == pytest.approx([0, 0.5, 2 / 3, 1])


# distances


@pytest.mark.parametrize(("n", "d"), [(200, 8), (20, 60)])
def test_distances_are_those_of_scikit_learns_covariance(n, d):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 5
    covariance, shrinkage = ledoit_wolf(x)
    y = rng.normal(size=(7, d)) * 4
    centred = y - x.mean(0)
    want = np.sqrt(np.einsum("ni,ij,nj->n", centred, np.linalg.inv(covariance), centred) / d)
    fitted = shift.fit_gaussian(x)
    assert fitted.shrinkage == pytest.approx(shrinkage, rel=1e-10)
    assert fitted.distances(y) == pytest.approx(want, rel=1e-9)


def test_a_distance_by_hand():
    # variances 1 and 1, no correlation: nothing to shrink towards but itself
    x = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]]) * math.sqrt(2)
    fitted = shift.fit_gaussian(x)
    assert fitted.distances([[3.0, 4.0]])[0] == pytest.approx(5 / math.sqrt(2), rel=1e-9)


@given(st.integers(0, 1000), st.floats(0.1, 10))
def test_scale_and_place_of_the_vectors_do_not_matter(seed, scale):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(30, 5)), rng.normal(size=(4, 5))
    turn = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    moved = shift.fit_gaussian(scale * x @ turn + 7).distances(scale * y @ turn + 7)
    assert moved == pytest.approx(shift.fit_gaussian(x).distances(y), rel=1e-6)


def test_rows_that_are_all_the_same_have_a_distance_all_the_same():
    fitted = shift.fit_gaussian(np.ones((5, 3)))
    assert fitted.distances(np.ones((1, 3)))[0] == 0
    assert fitted.distances(2 * np.ones((1, 3)))[0] > 1e3


@pytest.mark.parametrize("rows", [np.ones((1, 3)), np.array([[1.0, math.nan], [0, 1]]), np.ones(4)])
def test_no_covariance_is_refused(rows):
    with pytest.raises(TrimtabError, match="covariance"):
        shift.fit_gaussian(rows)


def test_a_row_is_measured_by_a_fit_that_has_not_seen_its_group():
    rng = np.random.default_rng(4)
    x, groups = rng.normal(size=(60, 4)), np.repeat(np.arange(20), 3)
    found, fold = shift.cross_distances(x, groups, 5, seed=1), shift.folds_of(groups, 5, seed=1)
    for i in (0, 17, 59):
        fitted = shift.fit_gaussian(x[fold != fold[i]])
        assert found[i] == pytest.approx(fitted.distances(x[i : i + 1])[0], rel=1e-12)
    assert all(len(set(fold[groups == g])) == 1 for g in range(20))
    # many columns: rows that were fitted on lie nearer than new ones, cross-fitted ones do not
    mixing = rng.normal(size=(40, 40)) * np.geomspace(1, 0.02, 40)[:, None]
    wide, new = rng.normal(size=(60, 40)) @ mixing, rng.normal(size=(400, 40)) @ mixing
    usual = shift.cross_distances(wide, np.arange(60))
    fitted = shift.fit_gaussian(wide)
    assert shift.percentiles(fitted.distances(wide), usual).mean() < 0.3
    assert abs(shift.percentiles(fitted.distances(new), usual).mean() - 0.5) < 0.1


def test_principal_directions_have_unit_variance_and_keep_the_largest():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 6)) * np.array([9, 5, 1, 1, 1, 1])
    found = shift.principal(x, 2)
    assert found.T @ found / 200 == pytest.approx(np.eye(2), abs=1e-9)
    assert abs(np.corrcoef(found[:, 0], x[:, 0])[0, 1]) > 0.99


# classifier, relabelings


def two_samples(gap: float, seed: int = 0):
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(60), 3)
    second = groups >= 30
    x = rng.normal(size=(180, 5)) + np.repeat(rng.normal(size=(60, 5)), 3, axis=0)
    x[second, 0] += gap
    return x, second, groups


def test_prompts_that_differ_are_not_taken_for_a_shift():
    areas = []
    for seed in range(30):
        x, second, groups = two_samples(0.0, seed)
        found = shift.cross_fitted(x, second, shift.folds_of(groups, 5, seed))
        areas.append(shift.auc(found[second], found[~second]))
    assert abs(np.mean(areas) - 0.5) < 0.05


def test_the_classifier_finds_a_gap_in_any_direction():
    x, second, groups = two_samples(4.0)
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0]
    for rows in (x, x @ turn):
        found = shift.cross_fitted(rows, second, shift.folds_of(groups, 5))
        assert shift.auc(found[second], found[~second]) > 0.95


def test_the_classifier_is_fishers():
    x, second, _ = two_samples(1.0)
    fold = np.r_[np.zeros(90, int), np.ones(90, int)][np.random.default_rng(2).permutation(180)]
    train, test = fold == 1, fold == 0
    a, b = x[train & second], x[train & ~second]
    covariance, _ = ledoit_wolf(np.concatenate([a - a.mean(0), b - b.mean(0)]), assume_centered=True)
    direction = np.linalg.solve(covariance, a.mean(0) - b.mean(0))
    want = (x[test] - (a.mean(0) + b.mean(0)) / 2) @ direction / math.sqrt((a.mean(0) - b.mean(0)) @ direction)
    assert shift.cross_fitted(x, second, fold)[test] == pytest.approx(want, rel=1e-9)


def test_relabelings_move_groups_whole_and_keep_the_level():
    rng = np.random.default_rng(6)
    groups = np.repeat(np.arange(40), 5)
    second = groups >= 20
    alone, together = [], []
    for seed in range(40):
        x = np.repeat(rng.normal(size=40), 5) + 0.1 * rng.normal(size=200)

        def gap(side, x=x):
            return abs(float(x[side].mean() - x[~side].mean()))

        together.append(shift.permuted(gap, second, groups, 40, seed).p < 0.05)
        alone.append(shift.permuted(gap, second, np.arange(200), 40, seed).p < 0.05)
    assert np.mean(together) < 0.15
    assert np.mean(alone) > 0.25


def test_p_by_hand():
    second = np.array([True, True, False, False])
    found = shift.permuted(lambda side: float(side[0] and side[1]), second, np.arange(4), 999, 0)
    assert found.value == 1
    assert found.p == pytest.approx(1 / 6, abs=0.03)


def test_p_is_never_nothing():
    second = np.arange(40) >= 20
    found = shift.permuted(lambda side: float((side == second).all()), second, np.arange(40), 49, 0)
    assert (found.value, found.floor, found.p) == (1.0, 0.0, 1 / 50)


# logistic


def test_the_regression_is_scikit_learns():
    rng = np.random.default_rng(7)
    x = rng.normal(size=(150, 2))
    y = (rng.random(150) < 1 / (1 + np.exp(-(0.4 + x @ [1.0, -0.5])))).astype(float)
    weights = rng.integers(0, 3, 150).astype(float)
    theirs = LogisticRegression(C=0.5, tol=1e-12, max_iter=1000).fit(x, y, weights)
    own = shift.logistic_fit(x, y, weights, ridge=2.0)
    # their intercept has no ridge at all, ours next to none
    assert own == pytest.approx(np.r_[theirs.intercept_, theirs.coef_[0]], abs=1e-4)
    assert shift.logistic_value(own, x) == pytest.approx(theirs.predict_proba(x)[:, 1], abs=1e-4)


def test_one_class_is_no_error():
    found = shift.logistic_value(shift.logistic_fit(np.zeros((30, 1)), np.ones(30)), np.zeros((1, 1)))
    assert 0.95 < found[0] < 1
