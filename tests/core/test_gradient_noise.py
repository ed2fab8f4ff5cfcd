"""The gradient noise scale."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.core.gradient_noise import gradient_moments


def test_by_hand() -> None:
    # |G|^2 = 4, tr(S) = 12: over 2 examples 4 + 6 = 10, over 6 examples 4 + 2 = 6
    moments = gradient_moments(10**0.5, 6**0.5, 2, 6)
    assert moments.noise == pytest.approx(12)
    assert moments.signal == pytest.approx(4)


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.integers(1, 50), st.integers(1, 50))
def test_two_sizes_determine_both(signal, noise, small, more) -> None:
    large = small + more
    moments = gradient_moments((signal + noise / small) ** 0.5, (signal + noise / large) ** 0.5, small, large)
    assert moments.signal == pytest.approx(signal, abs=1e-6 * (1 + signal + noise))
    assert moments.noise == pytest.approx(noise, abs=1e-6 * (1 + signal + noise) * large)


def test_unbiased_on_gradients_drawn_at_random() -> None:
    rng = np.random.default_rng(0)
    true, deviations = np.array([1.0, -2.0, 0.5]), np.array([3.0, 1.0, 2.0])
    found = []
    for _ in range(20_000):
        examples = true + deviations * rng.standard_normal((12, 3))
        found.append(gradient_moments(*(np.linalg.norm(examples[:n].mean(0)) for n in (4, 12)), 4, 12))
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / len(found) ** 0.5
    assert abs(mean[0] - (deviations**2).sum()) < 4 * error[0]
    assert abs(mean[1] - (true**2).sum()) < 4 * error[1]


@pytest.mark.parametrize("sizes", [(0, 4), (4, 4), (5, 4)])
def test_sizes_in_another_order_are_refused(sizes) -> None:
    with pytest.raises(ValueError, match="1 <= small < large"):
        gradient_moments(1.0, 1.0, *sizes)
