"""Masked statistics."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trimtab.core.masked import (
    explained_variance,
    keep,
    masked_average,
    masked_mean,
    masked_sum,
    masked_var,
    require_prefix,
    whiten,
)
from trimtab.errors import TrimtabError

NAN = math.nan
# three rows of 2, 1 and 0 tokens
X = torch.tensor([[1.0, 2.0, NAN], [4.0, NAN, NAN], [NAN, NAN, NAN]])
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


@st.composite
def masked_arrays(draw):
    """x [B, T] float32 and any mask with at least one True."""
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 5)))
    x = draw(arrays(np.float32, shape, elements=st.floats(-8, 8, width=32)))
    mask = draw(arrays(np.bool_, shape))
    mask.flat[draw(st.integers(0, mask.size - 1))] = True
    return torch.from_numpy(x), torch.from_numpy(mask)


def slow_mean_var(x, mask):
    counted = [float(x[i, j]) for i, j in np.ndindex(*x.shape) if mask[i, j]]
    mean = math.fsum(counted) / len(counted)
    return mean, math.fsum((v - mean) ** 2 for v in counted) / len(counted)


def test_mean_and_variance_by_hand() -> None:
    # (1 + 2 + 4) / 3 = 7/3;  ((-4/3)^2 + (-1/3)^2 + (5/3)^2) / 3 = (16 + 1 + 25) / 27 = 14/9, ddof 0
    assert masked_mean(X, MASK).item() == pytest.approx(7 / 3, rel=1e-6)
    assert masked_var(X, MASK).item() == pytest.approx(14 / 9, rel=1e-6)
    assert masked_sum(X, MASK).item() == 7.0


def test_rows_by_hand_and_an_empty_row_gives_zero() -> None:
    # row means 3/2, 4; row variances ((1/2)^2 + (1/2)^2) / 2 = 1/4, 0
    assert masked_mean(X, MASK, 1).tolist() == [1.5, 4.0, 0.0]
    assert masked_var(X, MASK, 1).tolist() == [0.25, 0.0, 0.0]
    assert masked_sum(X, MASK, 1).tolist() == [3.0, 4.0, 0.0]
    assert masked_mean(X, MASK, 0).tolist() == [2.5, 2.0, 0.0]
    assert masked_var(X, MASK, -1).tolist() == [0.25, 0.0, 0.0]


def test_whiten_by_hand() -> None:
    # deviations -4/3, -1/3, 5/3 over sqrt(14/9) = 1.2472191
    shifted = whiten(X, MASK)
    expected = torch.tensor([[-1.0690450, -0.2672612, 0.0], [1.3363062, 0.0, 0.0], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(shifted, expected, rtol=0, atol=5e-7)
    # the mean 7/3 comes back on the counted positions only
    kept = whiten(X, MASK, shift_mean=False)
    torch.testing.assert_close(kept, torch.where(MASK, expected + 7 / 3, 0.0), rtol=0, atol=1e-6)


def test_whiten_adds_epsilon_to_the_variance() -> None:
    # +-1e-4 has variance 1e-8; 1e-4 / sqrt(1e-8 + 1e-8) = 1 / sqrt(2)
    x = torch.tensor([[1e-4, -1e-4]])
    ones = torch.ones(1, 2, dtype=torch.bool)
    torch.testing.assert_close(whiten(x, ones), torch.tensor([[0.5**0.5, -(0.5**0.5)]]), rtol=1e-6, atol=0)


@given(masked_arrays())
def test_statistics_equal_a_slow_derivation(batch) -> None:
    x, mask = batch
    mean, var = slow_mean_var(x, mask)
    assert masked_mean(x, mask).item() == pytest.approx(mean, abs=4e-6)
    assert masked_var(x, mask).item() == pytest.approx(var, abs=4e-5)
    for shift in (True, False):
        scaled = whiten(x, mask, shift_mean=shift)
        for i, j in np.ndindex(*x.shape):
            slow = (float(x[i, j]) - mean) / math.sqrt(var + 1e-8) + (0.0 if shift else mean)
            # rounding of the mean is magnified by 1 / std
            tolerance = 4e-6 * (1 + 1 / math.sqrt(var + 1e-8))
            assert scaled[i, j].item() == pytest.approx(slow if mask[i, j] else 0.0, abs=tolerance)


@given(masked_arrays(), st.sampled_from([NAN, math.inf, 1e30, -3.0]))
def test_what_does_not_count_has_no_influence(batch, garbage) -> None:
    x, mask = batch
    dirty = torch.where(mask, x, garbage)
    wider = torch.nn.functional.pad(dirty, (0, 2, 0, 1), value=garbage)
    wider_mask = torch.nn.functional.pad(mask, (0, 2, 0, 1), value=False)
    assert torch.equal(whiten(dirty, mask), whiten(x, mask))
    assert torch.equal(masked_mean(dirty, mask, 1), masked_mean(x, mask, 1))
    for statistic in (masked_mean, masked_var):
        torch.testing.assert_close(statistic(wider, wider_mask), statistic(x, mask), rtol=2e-6, atol=2e-6)


@given(masked_arrays(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(batch, random) -> None:
    x, mask = batch
    order = list(range(len(x)))
    random.shuffle(order)
    torch.testing.assert_close(masked_mean(x[order], mask[order]), masked_mean(x, mask), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(masked_var(x[order], mask[order]), masked_var(x, mask), rtol=2e-6, atol=4e-6)


@given(st.floats(0.5, 4), st.floats(-10, 10))
def test_whitening_undoes_shift_and_scale(scale, shift) -> None:
    x = torch.tensor([[0.3, -1.2, 2.0], [0.7, 5.0, 0.0]])
    mask = torch.tensor([[True, True, True], [True, False, False]])
    torch.testing.assert_close(whiten(scale * x + shift, mask), whiten(x, mask), rtol=0, atol=1e-5)
    # without the shift of the mean only the scale is undone
    kept = whiten(scale * x, mask, shift_mean=False) - scale * masked_mean(x, mask)
    torch.testing.assert_close(keep(kept, mask), whiten(x, mask), rtol=0, atol=1e-5)


def test_nan_in_padding_stays_out_of_the_gradient() -> None:
    for function in (masked_mean, masked_sum, masked_var, lambda x, m: whiten(x, m).square().sum()):
        x = X.clone().requires_grad_()
        function(x, MASK).backward()
        assert x.grad is not None
        assert x.grad.isfinite().all(), function
        assert (x.grad[~MASK] == 0).all()


def test_everything_is_float32_inside() -> None:
    # 257 is no bfloat16 number: 256 would come out of a sum in that type
    ones = torch.ones(1, 257, dtype=torch.bfloat16)
    mask = torch.ones(1, 257, dtype=torch.bool)
    assert masked_sum(ones, mask).item() == 257.0
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        assert masked_mean(ones.to(dtype), mask).dtype == torch.float32
        assert whiten(ones.to(dtype), mask).dtype == torch.float32


def test_a_mask_that_is_all_false_is_an_error() -> None:
    nothing = torch.zeros_like(MASK)
    for function in (masked_mean, masked_var, whiten, lambda x, m: masked_average(x, m, None)):
        with pytest.raises(TrimtabError, match="nothing to average"):
            function(X, nothing)
    assert masked_sum(X, nothing).item() == 0.0
    assert masked_average(X, nothing, 3).item() == 0.0


def test_average_over_a_given_count() -> None:
    # 7 / 14, not 7 / 3
    assert masked_average(X, MASK, 14).item() == 0.5
    assert masked_average(X, MASK, torch.tensor(14)).item() == 0.5
    assert masked_average(X, MASK, None).item() == pytest.approx(7 / 3, rel=1e-6)
    with pytest.raises(TrimtabError, match="positive"):
        masked_average(X, MASK, 0)


def test_a_mask_with_a_gap_is_named() -> None:
    require_prefix(MASK)
    with pytest.raises(TrimtabError, match="row 1"):
        require_prefix(torch.tensor([[True, False], [False, True]]))


def test_explained_variance_by_hand() -> None:
    # G = 1, 2, 6: mean 3, variance (4 + 1 + 9) / 3 = 14/3.  V = 2, 2, 5: G - V = -1, 0, 1: variance 2/3. 1 - 2/14 = 6/7
    returns = torch.tensor([[1.0, 2.0, 6.0, NAN]])
    values = torch.tensor([[2.0, 2.0, 5.0, NAN]])
    mask = torch.tensor([[True, True, True, False]])
    assert explained_variance(values, returns, mask).item() == pytest.approx(6 / 7, rel=1e-6)
    assert explained_variance(returns, returns, mask).item() == 1.0
    # a constant error costs nothing: it is the variance that is explained
    assert explained_variance(returns + 1, returns, mask).item() == pytest.approx(1.0, abs=1e-6)
    assert explained_variance(torch.zeros_like(returns), returns, mask).item() == pytest.approx(0.0, abs=1e-6)


def test_explained_variance_is_undefined_for_constant_returns() -> None:
    mask = torch.ones(1, 7, dtype=torch.bool)
    assert explained_variance(torch.randn(1, 7), torch.full((1, 7), 0.1), mask).isnan()
    assert explained_variance(torch.randn(1, 7), torch.zeros(1, 7), mask).isnan()


@given(masked_arrays(), st.floats(-1, 1))
def test_explained_variance_equals_a_slow_derivation(batch, weight) -> None:
    returns, mask = batch
    _, total = slow_mean_var(returns, mask)
    values = weight * returns + 0.1 * returns.square()
    _, unexplained = slow_mean_var(returns.double() - values.double(), mask)
    if total > 1e-2:
        expected = 1 - unexplained / total
        assert explained_variance(values, returns, mask).item() == pytest.approx(expected, rel=1e-4, abs=1e-4)
