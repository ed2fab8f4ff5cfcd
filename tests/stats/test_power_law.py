"""Power laws: exact points are found again, noise is met by least squares, and what cannot be fitted is said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from trimtab.errors import TrimtabError
from trimtab.stats.power_law import PowerLaw, fit_power_law

SIZES = [50, 100, 200, 400, 800]


def error(law: PowerLaw, values) -> float:
    return sum((law.ceiling - law.amount * n**-law.exponent - v) ** 2 for n, v in zip(SIZES, values, strict=True))


def test_by_hand():
    # 0.8 - 2 / sqrt(n) at 100, 400, 1600
    law = fit_power_law([100, 400, 1600], [0.6, 0.7, 0.75])
    assert law.at(100) == pytest.approx(0.6, abs=1e-3)
    assert law.at(6400) == pytest.approx(0.775, abs=2e-3)
    assert law.exponent == pytest.approx(0.5, abs=0.04)


@given(
    ceiling=st.floats(0.6, 0.95), amount=st.floats(0.1, 2.0), exponent=st.floats(0.2, 1.2)
)  # fmt: skip
def test_points_of_a_law_are_met(ceiling, amount, exponent):
    values = [ceiling - amount * n**-exponent for n in SIZES]
    law = fit_power_law(SIZES, values)
    np.testing.assert_allclose([law.at(n) for n in SIZES], values, atol=2e-3)


@pytest.mark.parametrize("seed", range(4))
def test_no_other_law_is_nearer(seed):
    rng = np.random.default_rng(seed)
    values = 0.8 - 1.5 * np.array(SIZES) ** -0.6 + rng.normal(0, 0.01, 5)
    law = fit_power_law(SIZES, values)

    def loss(x):
        return error(PowerLaw(x[0], x[1], float(np.clip(x[2], 0.05, 2.0))), values)

    slow = min(
        minimize(loss, (0.8, 1.5, e), method="Nelder-Mead", options={"maxiter": 4000}).fun for e in (0.1, 0.6, 1.5)
    )
    assert error(law, values) <= slow * 1.02 + 1e-9


def test_a_falling_curve_has_a_negative_amount_and_a_ceiling_is_kept():
    assert fit_power_law(SIZES, [0.7, 0.68, 0.66, 0.65, 0.64]).amount < 0
    steep = [0.5, 0.62, 0.74, 0.86, 0.98]  # a logarithm: without a top its ceiling lies far above 1
    assert fit_power_law(SIZES, steep).ceiling > 1
    held = fit_power_law(SIZES, steep, top=1.0)
    assert held.ceiling <= 1
    assert held.at(1600) < 1


@pytest.mark.parametrize(("sizes", "values"), [([1, 2], [0, 1]), ([1, 1, 2], [0, 1, 2]), ([0, 1, 2], [0, 1, 2])])
def test_too_few_sizes(sizes, values):
    with pytest.raises(TrimtabError, match="a power law through"):
        fit_power_law(sizes, values)
