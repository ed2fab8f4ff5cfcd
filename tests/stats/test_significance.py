"""Tests of shares and signs: hand values, public implementations, what they promise under the null."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.stats.significance import (
    benjamini_hochberg,
    binomial_test,
    detectable_mean,
    detectable_share,
    holm,
    mantel_haenszel,
    mantel_haenszel_odds,
    mcnemar_test,
    normal_p,
    sign_flip_test,
    student_p,
    student_quantile,
    two_proportion_test,
)


def test_binomial_by_hand():
    # 9 or 10, 0 or 1 of ten coins: 2 (10 + 1) / 1024
    assert binomial_test(9, 10) == pytest.approx(22 / 1024, abs=1e-12)
    # one die of two shows a six, p 1/6: outcomes 1 and 2 are at most as likely as 1; 0 has 25/36
    assert binomial_test(1, 2, 1 / 6) == pytest.approx(11 / 36, abs=1e-12)
    assert binomial_test(0, 0) == 1


def test_binomial_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    for n, p in itertools.product((1, 7, 60, 999), (0.5, 0.1, 0.77)):
        for k in {0, 1, n // 3, n // 2, n}:
            assert binomial_test(k, n, p) == pytest.approx(stats.binomtest(k, n, p).pvalue, rel=1e-9, abs=1e-15)


def test_mcnemar_agrees_with_statsmodels():
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    for b, c in ((3, 12), (0, 5), (7, 7)):
        assert mcnemar_test(b, c) == pytest.approx(tables.mcnemar([[9, b], [c, 4]], exact=True).pvalue, abs=1e-12)


def test_two_proportions_by_hand_and_statsmodels():
    # 30/50 and 20/50: pooled .5, z = .2 / sqrt(.25 x 2 / 50) = 2
    assert two_proportion_test(30, 50, 20, 50) == pytest.approx(math.erfc(math.sqrt(2)), abs=1e-12)
    assert two_proportion_test(0, 5, 0, 9) == 1
    assert math.isnan(two_proportion_test(0, 0, 1, 2))
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    wanted = proportion.proportions_ztest([13, 40], [77, 101])[1]
    assert two_proportion_test(13, 77, 40, 101) == pytest.approx(wanted, abs=1e-12)


def slow_sign_flip(values):
    total = abs(sum(values))
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in _signs(len(values))]
    return sum(s >= total - 1e-9 for s in sums) / len(sums)


def _signs(n):
    return list(itertools.product((-1, 1), repeat=n))


@given(values=st.lists(st.integers(-5, 5), min_size=1, max_size=9))
@settings(deadline=None)
def test_sign_flip_counts_all_signs(values):
    assert sign_flip_test(values) == pytest.approx(slow_sign_flip(values), abs=1e-12)


def test_sign_flip_of_equal_sizes_is_the_sign_test():
    assert sign_flip_test([1] * 14 + [-1] * 4 + [0] * 50) == pytest.approx(binomial_test(4, 18), abs=1e-12)
    assert sign_flip_test([3] * 14 + [-3] * 4) == pytest.approx(binomial_test(4, 18), abs=1e-12)
    assert sign_flip_test([]) == 1


def test_sign_flip_of_many_values_is_normal():
    x = np.array([1.0] * 5200 + [-1.0] * 4800)
    assert sign_flip_test(x) == pytest.approx(normal_p(400 / 100), rel=1e-12)
    small = np.array([1.0] * 2060 + [-1.0] * 1940)
    assert sign_flip_test(small) == pytest.approx(normal_p(119 / math.sqrt(4000)), rel=0.02)


def test_mantel_haenszel_agrees_with_statsmodels():
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    t = np.random.default_rng(0).integers(1, 30, (4, 2, 2))
    wanted = tables.StratifiedTable(list(t))
    found = mantel_haenszel(t)
    assert found.odds_ratio == pytest.approx(wanted.oddsratio_pooled, rel=1e-12)
    assert (found.low, found.high) == pytest.approx(wanted.oddsratio_pooled_confint(), rel=1e-9)
    assert found.p == pytest.approx(wanted.test_null_odds(correction=False).pvalue, rel=1e-9)
    assert mantel_haenszel_odds(np.stack([t, t])) == pytest.approx([found.odds_ratio] * 2)


def test_mantel_haenszel_by_hand_and_at_its_edges():
    # one table: the plain odds ratio 8 x 6 / (2 x 4)
    assert mantel_haenszel([[[8, 2], [4, 6]]]).odds_ratio == pytest.approx(6, abs=1e-12)
    assert mantel_haenszel([[[3, 0], [0, 3]]]).odds_ratio == math.inf
    assert math.isnan(mantel_haenszel([[[3, 0], [0, 0]]]).odds_ratio)
    with pytest.raises(TrimtabError, match="shape"):
        mantel_haenszel([[1, 2, 3]])


def test_student_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    for t, freedom in itertools.product((0.0, 0.3, 1.0, 2.7, 12.0), (1, 2.4, 9, 55, 4000)):
        assert student_p(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-9)
    for freedom in (1, 3.3, 18, 2000):
        assert student_quantile(0.95, freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)


def test_student_by_hand():
    # one degree of freedom is Cauchy: P(|t| > 1) = 1/2; two: P(|t| > t) = 1 - t / sqrt(2 + t^2)
    assert student_p(1.0, 1) == pytest.approx(0.5, abs=1e-12)
    assert student_p(3.0, 2) == pytest.approx(1 - 3 / math.sqrt(11), abs=1e-12)
    assert student_p(1.96, math.inf) == pytest.approx(0.05, abs=1e-4)


def test_what_a_sample_could_have_shown_is_what_it_shows_in_four_of_five():
    n = 200
    d = detectable_share(n)
    rng = np.random.default_rng(0)
    found = [abs(k / n - 0.5) * 2 * math.sqrt(n) > 1.96 for k in rng.binomial(n, 0.5 + d, 4000)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)
    # z_.975 + z_.8 standard errors
    assert detectable_mean(1.0) == pytest.approx(1.959964 + 0.841621, abs=1e-6)
    assert detectable_share(3) == math.inf
    assert detectable_share(0) == math.inf


@given(n=st.integers(8, 5000), null=st.floats(0.05, 0.95))
@settings(max_examples=60, deadline=None)
def test_more_trials_show_smaller_effects(n, null):
    assert detectable_share(4 * n, null) <= detectable_share(n, null)


def test_holm_and_benjamini_hochberg_by_hand():
    p = [0.01, 0.04, 0.03, math.nan]
    # Holm: .01 x 3, .03 x 2, .04 x 1, not falling; BH: .01 x 3, .03 x 3/2, .04, not rising from the end
    np.testing.assert_allclose(holm(p), [0.03, 0.06, 0.06, math.nan], atol=1e-12)
    np.testing.assert_allclose(benjamini_hochberg(p), [0.03, 0.04, 0.04, math.nan], atol=1e-12)


def test_corrections_agree_with_statsmodels():
    multi = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(0).random(25) ** 3
    np.testing.assert_allclose(holm(p), multi.multipletests(p, method="holm")[1], atol=1e-12)
    np.testing.assert_allclose(benjamini_hochberg(p), multi.multipletests(p, method="fdr_bh")[1], atol=1e-12)


@given(p=st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_corrections_never_lower_p(p):
    assert (holm(p) >= np.array(p) - 1e-12).all()
    assert (holm(p) >= benjamini_hochberg(p) - 1e-12).all()
    assert (benjamini_hochberg(p) >= np.array(p) - 1e-12).all()
    assert holm(p).max() <= 1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: binomial_test(3, 2),
        lambda: binomial_test(1, 2, 1.0),
        lambda: mcnemar_test(-1, 2),
        lambda: two_proportion_test(3, 2, 1, 2),
        lambda: sign_flip_test([math.nan]),
        lambda: detectable_share(10, 0.0),
        lambda: detectable_mean(1.0, alpha=0.0),
        lambda: student_quantile(1.0, 3),
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(TrimtabError):
        wrong()
