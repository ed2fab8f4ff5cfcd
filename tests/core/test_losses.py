"""PPO's policy and value losses."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from trimtab.core.losses import policy_loss, value_loss
from trimtab.errors import TrimtabError

NAN = math.nan
# ratios 3/2, 1/2 | 1/2, 4 and advantages 1, 1 | -2, -1
NEW = torch.log(torch.tensor([[0.6, 0.2, NAN], [0.1, 0.8, NAN]]))
OLD = torch.log(torch.tensor([[0.4, 0.4, 1.0], [0.2, 0.2, NAN]]))
GAIN = torch.tensor([[1.0, 1.0, NAN], [-2.0, -1.0, 5.0]])
MASK = torch.tensor([[True, True, False], [True, True, False]])


@st.composite
def updates(draw, columns=3):
    """`columns` arrays [B, T] and a right-padded mask, some rows of it empty."""
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    lengths = draw(st.lists(st.integers(0, width), min_size=rows, max_size=rows))
    mask = torch.arange(width) < torch.tensor(lengths).unsqueeze(1)
    mask[0, 0] = True
    elements = st.floats(-2, 2, width=32)
    return *(torch.from_numpy(draw(arrays(np.float32, (rows, width), elements=elements))) for _ in range(columns)), mask


def slow_policy(new, old, gain, mask, eps, dual):
    """Case by case instead of by max and min; ties in the ratio are left out by the callers."""
    loss, clips, duals, kl, ratios = [], 0, 0, [], []
    for i, t in mask.nonzero().tolist():
        log_ratio = float(new[i, t]) - float(old[i, t])
        ratio, a = math.exp(log_ratio), float(gain[i, t])
        if a > 0 and ratio > 1 + eps:
            loss.append(-a * (1 + eps))
            clips += 1
        elif a < 0 and ratio < 1 - eps:
            loss.append(-a * (1 - eps))
            clips += 1
        elif a < 0 and dual is not None and ratio > dual:
            loss.append(-a * dual)
            duals += 1
        else:
            loss.append(-a * ratio)
        kl.append(ratio - 1 - log_ratio)
        ratios.append(ratio)
    n = len(loss)
    return math.fsum(loss) / n, clips / n, duals / n, math.fsum(kl) / n, math.fsum(ratios) / n, max(ratios)


def test_policy_loss_by_hand() -> None:
    # eps .2:  A 1, ratio 1.5: max(-1.5, -1.2) = -1.2, clipped.   A 1, ratio .5: max(-.5, -.8) = -.5
    #          A -2, ratio .5: max(1, 1.6) = 1.6, clipped.        A -1, ratio 4: max(4, 1.2) = 4
    # mean (-1.2 - .5 + 1.6 + 4) / 4 = .975
    # k3 = r - 1 - ln r: .094535, .193147, .193147, 1.613706; mean .523634.   ratios: mean 6.5 / 4, largest 4
    result = policy_loss(NEW, OLD, GAIN, MASK, 0.2)
    assert result.loss.item() == pytest.approx(0.975, abs=1e-6)
    assert result.clip_fraction.item() == 0.5
    assert result.dual_clip_fraction.item() == 0.0
    assert result.approx_kl.item() == pytest.approx(0.523634, abs=1e-6)
    assert result.ratio_mean.item() == pytest.approx(1.625, abs=1e-6)
    assert result.ratio_max.item() == pytest.approx(4.0, abs=1e-6)


def test_dual_clip_by_hand() -> None:
    # c = 3: the last of them is held at 3: (-1.2 - .5 + 1.6 + 3) / 4 = .725
    result = policy_loss(NEW, OLD, GAIN, MASK, 0.2, dual_clip=3.0)
    assert result.loss.item() == pytest.approx(0.725, abs=1e-6)
    assert result.clip_fraction.item() == 0.5
    assert result.dual_clip_fraction.item() == 0.25


@given(updates(), st.floats(0.05, 0.5), st.one_of(st.none(), st.floats(1.5, 5)))
def test_policy_loss_equals_a_slow_derivation(update, eps, dual) -> None:
    new, old, gain, mask = update
    edges = (1 - eps, 1 + eps, dual or 1 + eps)
    ratio = (new.double() - old.double()).exp()
    # at an edge the two terms are equal, and rounding decides which of them is counted
    if any(((ratio - edge).abs() < 1e-5).any() for edge in edges):
        return
    # a subnormal advantage times a ratio has no digits to compare
    gain = torch.where(gain.abs() < 1e-6, 0.0, gain)
    result = policy_loss(new, old, gain, mask, eps, dual)
    for value, expected in zip(result, slow_policy(new, old, gain, mask, eps, dual), strict=True):
        assert value.item() == pytest.approx(expected, rel=5e-6, abs=3e-6)


def test_gradient_of_the_first_minibatch_is_the_policy_gradient() -> None:
    new = OLD.clone().requires_grad_()
    result = policy_loss(new, OLD, GAIN, MASK, 0.2)
    result.loss.backward()
    # ratio 1 everywhere: loss -mean(A) = -(1 + 1 - 2 - 1) / 4, gradient -A / 4
    assert result.loss.item() == 0.25
    assert (result.clip_fraction.item(), result.approx_kl.item()) == (0.0, 0.0)
    assert (result.ratio_mean.item(), result.ratio_max.item()) == (1.0, 1.0)
    assert new.grad is not None
    assert new.grad.tolist() == [[-0.25, -0.25, 0.0], [0.5, 0.25, 0.0]]


def test_no_gradient_where_a_clip_was_chosen() -> None:
    new = NEW.clone().requires_grad_()
    policy_loss(new, OLD, GAIN, MASK, 0.2, dual_clip=3.0).loss.backward()
    # only the second token is free: d(-A ratio / 4) = -ratio / 4 = -1/8
    assert new.grad is not None
    torch.testing.assert_close(new.grad, torch.tensor([[0.0, -0.125, 0.0], [0.0, 0.0, 0.0]]), rtol=0, atol=1e-7)


def test_log_ratios_are_cut_before_the_exponential() -> None:
    mask, old, gain = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1), -torch.ones(1, 1)
    high = policy_loss(torch.full((1, 1), 100.0), old, gain, mask, 0.2)
    assert high.loss.item() == pytest.approx(math.exp(20), rel=1e-6)
    assert high.approx_kl.item() == pytest.approx(math.exp(20) - 21, rel=1e-6)
    assert policy_loss(torch.full((1, 1), -100.0), old, gain, mask, 0.2).ratio_max.item() == pytest.approx(
        math.exp(-20)
    )


def test_approx_kl_measures_with_the_samples_of_the_old_policy() -> None:
    # enumerated: the expectation of r - 1 - ln r under the old policy is KL(old || new), exactly
    old, new = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.2, 0.3, 0.5]])
    kl = math.fsum(p * math.log(p / q) for p, q in zip((0.5, 0.3, 0.2), (0.2, 0.3, 0.5), strict=True))
    counts = (old * 10).round().long().squeeze(0)
    repeated_old, repeated_new = (torch.log(x).repeat_interleave(counts, dim=1) for x in (old, new))
    mask = torch.ones_like(repeated_old, dtype=torch.bool)
    result = policy_loss(repeated_new, repeated_old, torch.zeros_like(repeated_old), mask, 0.2)
    assert result.approx_kl.item() == pytest.approx(kl, abs=1e-6)


@given(updates(), st.sampled_from([NAN, math.inf, -1e30]))
def test_padding_influences_neither_policy_loss_nor_gradient(update, garbage) -> None:
    new, old, gain, mask = update

    def run(*columns):
        leaf = columns[0].clone().requires_grad_()
        result = policy_loss(leaf, *columns[1:], mask, 0.2, 2.0)
        return [*result, torch.autograd.grad(result.loss, leaf)[0]]

    dirty = (torch.where(mask, x, garbage) for x in (new, old, gain))
    for a, b in zip(run(new, old, gain), run(*dirty), strict=True):
        assert torch.equal(a, b)


@given(updates(), st.integers(1, 3))
def test_micro_batches_add_up_to_the_minibatch(update, cut) -> None:
    new, old, gain, mask = update
    total = int(mask.sum())
    whole = new.clone().requires_grad_()
    expected = policy_loss(whole, old, gain, mask, 0.2, 2.0)
    expected.loss.backward()
    parts = new.clone().requires_grad_()
    sums = torch.zeros(5)
    for rows in (slice(0, cut), slice(cut, None)):
        if len(new[rows]):
            result = policy_loss(parts[rows], old[rows], gain[rows], mask[rows], 0.2, 2.0, denominator=total)
            result.loss.backward()
            sums += torch.stack(result[:5]).detach()
    torch.testing.assert_close(sums, torch.stack(expected[:5]).detach(), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(parts.grad, whole.grad, rtol=1e-6, atol=1e-8)


def test_value_loss_by_hand() -> None:
    # V 1, old 0, G 2: error 1; held at .2: 1.8^2 = 3.24, chosen.   V 3, old 2.9, G 0: 9, inside the range
    # V 0, old .5, G 1: error 1; held at .3: .49.    clipped (3.24 + 9 + 1) / 3 = 4.413333; plain (1 + 9 + 1) / 3 = 11/3
    values, old = torch.tensor([[1.0, 3.0], [0.0, NAN]]), torch.tensor([[0.0, 2.9], [0.5, NAN]])
    returns = torch.tensor([[2.0, 0.0], [1.0, NAN]])
    mask = torch.tensor([[True, True], [True, False]])
    clipped = value_loss(values, old, returns, mask, clip_range=0.2)
    assert clipped.loss.item() == pytest.approx(13.24 / 3, abs=2e-6)
    assert clipped.clip_fraction.item() == pytest.approx(1 / 3)
    plain = value_loss(values, old, returns, mask)
    assert plain.loss.item() == pytest.approx(11 / 3, abs=1e-6)
    assert plain.clip_fraction.item() == 0.0
    assert value_loss(values, old, returns, mask, denominator=11).loss.item() == pytest.approx(1.0, abs=1e-6)


@given(updates(), st.floats(0.1, 1))
def test_value_loss_equals_a_slow_derivation(update, clip) -> None:
    values, old, returns, mask = update
    plain, clipped, chosen, near = [], [], 0, False
    for i, t in mask.nonzero().tolist():
        v, o, g = (float(x[i, t]) for x in (values, old, returns))
        held = min(max(v, o - clip), o + clip)
        plain.append((v - g) ** 2)
        clipped.append(max((v - g) ** 2, (held - g) ** 2))
        chosen += (held - g) ** 2 > (v - g) ** 2
        near = near or (held != v and abs((held - g) ** 2 - (v - g) ** 2) < 1e-5)
    result = value_loss(values, old, returns, mask, clip)
    assert result.loss.item() == pytest.approx(math.fsum(clipped) / len(clipped), rel=2e-6, abs=2e-6)
    # where the two errors are equal rounding decides
    if not near:
        assert result.clip_fraction.item() == pytest.approx(chosen / len(clipped))
    assert value_loss(values, old, returns, mask).loss.item() == pytest.approx(
        math.fsum(plain) / len(plain), rel=2e-6, abs=2e-6
    )
    # a clip can only make it larger: it is pessimistic
    assert result.loss.item() >= value_loss(values, old, returns, mask).loss.item() - 1e-6


@given(updates(columns=2), st.floats(0.01, 3))
def test_a_value_inside_the_range_is_never_counted_as_clipped(update, clip) -> None:
    old, returns, mask = update
    values = old + 0.99 * clip * torch.sin(100 * returns)
    assert value_loss(values, old, returns, mask, clip).clip_fraction.item() == 0.0


def test_value_gradient_has_no_factor_one_half() -> None:
    values = torch.tensor([[1.0, NAN]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    value_loss(values, torch.tensor([[1.0, NAN]]), torch.tensor([[3.0, NAN]]), mask, 0.2).loss.backward()
    # 2 (1 - 3)
    assert values.grad is not None
    assert values.grad.tolist() == [[-4.0, 0.0]]


@given(updates(), st.sampled_from([NAN, math.inf, -1e30]), st.sampled_from([None, 0.5]))
def test_padding_influences_neither_value_loss_nor_gradient(update, garbage, clip) -> None:
    values, old, returns, mask = update

    def run(*columns):
        leaf = columns[0].clone().requires_grad_()
        result = value_loss(leaf, *columns[1:], mask, clip)
        return [*result, torch.autograd.grad(result.loss, leaf)[0]]

    dirty = (torch.where(mask, x, garbage) for x in (values, old, returns))
    for a, b in zip(run(values, old, returns), run(*dirty), strict=True):
        assert torch.equal(a, b)


@given(updates(), st.integers(1, 3), st.sampled_from([None, 0.5]))
def test_value_micro_batches_add_up_to_the_minibatch(update, cut, clip) -> None:
    values, old, returns, mask = update
    whole, parts = values.clone().requires_grad_(), values.clone().requires_grad_()
    expected = value_loss(whole, old, returns, mask, clip)
    expected.loss.backward()
    sums = torch.zeros(2)
    for rows in (slice(0, cut), slice(cut, None)):
        if len(values[rows]):
            result = value_loss(parts[rows], old[rows], returns[rows], mask[rows], clip, denominator=mask.sum())
            result.loss.backward()
            sums += torch.stack(result).detach()
    torch.testing.assert_close(sums, torch.stack(expected).detach(), rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(parts.grad, whole.grad, rtol=1e-6, atol=1e-8)


def test_only_the_trained_model_gets_a_gradient() -> None:
    columns = [torch.randn(2, 3, requires_grad=True) for _ in range(3)]
    mask = torch.ones(2, 3, dtype=torch.bool)
    (policy_loss(*columns, mask, 0.2).loss + value_loss(*columns, mask, 0.2).loss).backward()
    assert columns[0].grad is not None
    assert columns[1].grad is None
    assert columns[2].grad is None


def test_half_precision_is_computed_in_float32() -> None:
    # ratio e^(2^-8) and error (1 + 2^-8)^2 have more digits than bfloat16
    mask, step = torch.ones(1, 1, dtype=torch.bool), 2.0**-8
    new = torch.tensor([[-step]], dtype=torch.bfloat16)
    result = policy_loss(new, torch.zeros_like(new), torch.ones_like(new), mask, 0.2)
    assert result.loss.item() == pytest.approx(-math.exp(-step), rel=1e-7)
    value = value_loss(new, new, torch.ones_like(new), mask)
    assert value.loss.item() == pytest.approx((1 + step) ** 2, rel=1e-7)


def test_nothing_to_average_is_an_error_unless_a_denominator_is_given() -> None:
    nothing = torch.zeros_like(MASK)
    for function in (
        lambda **k: policy_loss(NEW, OLD, GAIN, nothing, 0.2, **k),
        lambda **k: value_loss(NEW, OLD, GAIN, nothing, **k),
    ):
        with pytest.raises(TrimtabError, match="nothing to average"):
            function()
        assert [x.item() for x in function(denominator=3)] == [0.0] * len(function(denominator=3))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"clip_range": 0.0}, "clip_range = 0"),
        ({"clip_range": 1.0}, "clip_range = 1"),
        ({"clip_range": 0.2, "dual_clip": 1.0}, "dual_clip = 1"),
        ({"clip_range": 0.2, "denominator": 0}, "divided by 0"),
    ],
)
def test_settings_out_of_range_are_named(arguments, named) -> None:
    with pytest.raises(TrimtabError, match=named):
        policy_loss(NEW, OLD, GAIN, MASK, **arguments)
    with pytest.raises(TrimtabError, match="value_clip_range = 0"):
        value_loss(NEW, OLD, GAIN, MASK, 0.0)
