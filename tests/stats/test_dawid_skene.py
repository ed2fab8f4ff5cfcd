"""Dawid-Skene: a fixed point by hand, a slow EM, recovery of planted raters, invariances."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.stats.dawid_skene import dawid_skene


def draw(rng, n, accuracies, classes=2, missing=0.0):
    truth = rng.integers(0, classes, n)
    votes = np.empty((n, len(accuracies)), dtype=np.int64)
    for j, accuracy in enumerate(accuracies):
        wrong = (truth + rng.integers(1, classes, n)) % classes
        votes[:, j] = np.where(rng.random(n) < accuracy, truth, wrong)
    votes[rng.random(votes.shape) < missing] = -1
    return truth, votes


def slow_em(votes, classes, steps):
    """Plain loops over items, raters and classes; no smoothing."""
    n, raters = len(votes), len(votes[0])
    posterior = [[sum(v == k for v in row) / sum(v >= 0 for v in row) for k in range(classes)] for row in votes]
    likelihood = 0.0
    for _ in range(steps):
        prior = [sum(p[k] for p in posterior) / n for k in range(classes)]
        confusion = [[[0.0] * classes for _ in range(classes)] for _ in range(raters)]
        for j, k in itertools.product(range(raters), range(classes)):
            total = sum(posterior[i][k] for i in range(n) if votes[i][j] >= 0)
            for vote in range(classes):
                given_ = sum(posterior[i][k] for i in range(n) if votes[i][j] == vote)
                confusion[j][k][vote] = given_ / total
        likelihood = 0.0
        for i in range(n):
            joint = [
                prior[k] * math.prod(confusion[j][k][votes[i][j]] for j in range(raters) if votes[i][j] >= 0)
                for k in range(classes)
            ]
            likelihood += math.log(sum(joint))
            posterior[i] = [x / sum(joint) for x in joint]
    return posterior, confusion, likelihood


@pytest.mark.parametrize("classes", [2, 3])
def test_every_step_is_that_of_a_slow_em(classes):
    _, votes = draw(np.random.default_rng(classes), 40, [0.8, 0.7, 0.75, 0.6], classes, missing=0.1)
    votes[:, 0] = np.maximum(votes[:, 0], 0)
    for steps in (1, 2, 7):
        posterior, _, likelihood = slow_em(votes.tolist(), classes, steps)
        # our last step ends with a maximisation, the slow one's with an expectation
        _, confusion, _ = slow_em(votes.tolist(), classes, steps + 1)
        found = dawid_skene(votes, classes, smoothing=0, max_iterations=steps, tolerance=-1)
        np.testing.assert_allclose(found.posterior, posterior, atol=1e-10)
        np.testing.assert_allclose(found.confusion, confusion, atol=1e-10)
        assert found.log_likelihood == pytest.approx(likelihood, abs=1e-8)


def test_a_unanimous_table_by_hand():
    # every rater says the same: confusion is the identity, the posterior certain, the likelihood that of the classes
    votes = np.array([[0, 0], [0, 0], [1, 1], [0, 0]])
    found = dawid_skene(votes, 2, smoothing=0)
    np.testing.assert_allclose(found.prior, [0.75, 0.25], atol=1e-12)
    np.testing.assert_allclose(found.confusion, [np.eye(2)] * 2, atol=1e-12)
    assert found.log_likelihood == pytest.approx(3 * math.log(0.75) + math.log(0.25), abs=1e-9)
    assert found.converged


@pytest.mark.parametrize("classes", [2, 3])
def test_planted_raters_are_recovered(classes):
    accuracies = [0.9, 0.8, 0.7, 0.6]
    truth, votes = draw(np.random.default_rng(1), 4000, accuracies, classes, missing=0.3)
    found = dawid_skene(votes, classes)
    np.testing.assert_allclose(found.accuracy, accuracies, atol=0.03)
    counted = np.stack([(votes == k).sum(axis=1) for k in range(classes)], axis=1)
    right = (found.posterior.argmax(axis=1) == truth).mean()
    assert right > (counted.argmax(axis=1) == truth).mean() + 0.01
    assert found.converged


def test_a_rater_who_is_mostly_wrong_is_turned_around():
    _, votes = draw(np.random.default_rng(2), 2000, [0.85, 0.85, 0.85, 0.2])
    found = dawid_skene(votes, 2)
    assert found.accuracy[3] == pytest.approx(0.2, abs=0.03)
    split = (votes[:, :3] == [0, 1, 0]).all(axis=1)
    # two against one, and the contrarian speaks for the one by saying the opposite
    assert found.posterior[split & (votes[:, 3] == 0), 0].max() < found.posterior[split & (votes[:, 3] == 1), 0].min()


def test_a_biased_rater_has_a_lopsided_confusion():
    rng = np.random.default_rng(5)
    truth = rng.integers(0, 2, 3000)
    good = [np.where(rng.random(3000) < 0.85, truth, 1 - truth) for _ in range(3)]
    says_zero = np.where(rng.random(3000) < 0.8, 0, truth)
    found = dawid_skene(np.stack([*good, says_zero], axis=1), 2)
    np.testing.assert_allclose(found.confusion[3], [[1.0, 0.0], [0.8, 0.2]], atol=0.05)


def test_the_symmetric_model_has_one_error_rate_a_rater():
    _, votes = draw(np.random.default_rng(6), 3000, [0.9, 0.75, 0.65], 3)
    found = dawid_skene(votes, 3, symmetric=True)
    np.testing.assert_allclose(found.accuracy, [0.9, 0.75, 0.65], atol=0.03)
    for matrix in found.confusion:
        assert np.ptp(np.diag(matrix)) < 1e-12
        assert np.ptp(matrix[~np.eye(3, dtype=bool)]) < 1e-12


@given(seed=st.integers(0, 50), classes=st.integers(2, 3))
@settings(max_examples=25, deadline=None)
def test_probabilities_add_up_and_order_does_not_matter(seed, classes):
    rng = np.random.default_rng(seed)
    _, votes = draw(rng, 60, [0.8, 0.7, 0.6], classes, missing=0.2)
    found = dawid_skene(votes, classes)
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1, atol=1e-9)
    np.testing.assert_allclose(found.confusion.sum(axis=2), 1, atol=1e-9)
    assert found.prior.sum() == pytest.approx(1, abs=1e-9)
    items, raters = rng.permutation(60), rng.permutation(3)
    mixed = dawid_skene(votes[items][:, raters], classes)
    np.testing.assert_allclose(mixed.posterior, found.posterior[items], atol=1e-6)
    np.testing.assert_allclose(mixed.confusion, found.confusion[raters], atol=1e-6)


def test_more_steps_never_lower_the_likelihood():
    _, votes = draw(np.random.default_rng(9), 200, [0.8, 0.65, 0.6], missing=0.2)
    reached = [dawid_skene(votes, 2, smoothing=0, max_iterations=n, tolerance=-1).log_likelihood for n in range(1, 30)]
    assert (np.diff(reached) >= -1e-9).all()


def test_an_item_without_votes_gets_the_prior():
    votes = np.array([[0, 0], [1, 1], [0, 0], [-1, -1]])
    found = dawid_skene(votes, 2)
    np.testing.assert_allclose(found.posterior[3], found.prior, atol=1e-9)
    without = dawid_skene(votes[:3], 2)
    np.testing.assert_allclose(without.confusion, found.confusion, atol=1e-9)


@pytest.mark.parametrize(
    ("votes", "classes", "words"),
    [
        (np.zeros(3, int), 2, "shape"),
        (np.zeros((2, 2)), 2, "type float64"),
        (np.full((2, 2), -1), 2, "without a vote"),
        (np.array([[0, 2]]), 2, "vote 2 is no class"),
        (np.array([[0, -3]]), 2, "vote -3 is no class"),
        (np.array([[0, 1]]), 1, "1 classes"),
    ],
)
def test_votes_that_cannot_be_used_are_named(votes, classes, words):
    with pytest.raises(TrimtabError, match=words):
        dawid_skene(votes, classes)
