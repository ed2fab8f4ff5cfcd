"""The two-head loss: what it is by hand, that its gradient is right, and that it looks at correlation only."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimtab.core.length import length_head_loss, pearson
from trimtab.core.preference import bradley_terry_loss, principle_losses
from trimtab.errors import TrimtabError

values = st.lists(st.integers(-50, 50).map(lambda x: x / 10), min_size=6, max_size=6)


def slow_pearson(x: list[float], y: list[float]) -> float:
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    top = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    below = math.fsum((a - mean_x) ** 2 for a in x) * math.fsum((b - mean_y) ** 2 for b in y)
    return top / math.sqrt(below) if below > 0 else 0.0


def test_a_correlation_by_hand():
    # x - 2 = -1, 0, 1; y - 3 = -2, 1, 1: sum of products 3, roots of 2 and 6
    got = pearson(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 4.0, 4.0]))
    assert float(got) == pytest.approx(3 / math.sqrt(12), abs=1e-7)


def test_the_two_head_loss_by_hand():
    tokens = torch.tensor([1.0, 2.0, 3.0])
    quality, length = torch.tensor([3.0, 0.0, 0.0]), torch.tensor([0.0, 4.0, 4.0])
    # r(quality) = -3 / sqrt(2 * 6), r(length) = +3 / sqrt(...) alike: .8660; cos of (1, 0) and (1, 1) = 1 / sqrt(2)
    one, other = torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1.0])
    got = length_head_loss(quality, length, tokens, one, other, 0.5, 2.0)
    r = 3 / math.sqrt(12)
    assert float(got) == pytest.approx(0.5 * (r - r) + 2 / math.sqrt(2), abs=1e-6)
    assert float(length_head_loss(quality, -length, tokens, one, other, 0.5, 0.0)) == pytest.approx(r, abs=1e-6)


@given(values, values, values)
def test_the_two_head_loss_is_what_a_slow_one_says(quality, length, tokens):
    q, n, t = (torch.tensor(x, dtype=torch.float32) for x in (quality, length, tokens))
    w, v = q[:3] + 0.1, n[:3] - 0.2
    got = float(length_head_loss(q, n, t, w, v, 0.7, 1.3))
    a, b = [x + 0.1 for x in quality[:3]], [x - 0.2 for x in length[:3]]
    below = math.fsum(x * x for x in a) * math.fsum(x * x for x in b)
    cosine = math.fsum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(below) if below > 1e-9 else 0.0
    slow = 0.7 * (abs(slow_pearson(quality, tokens)) - slow_pearson(length, tokens)) + 1.3 * abs(cosine)
    assert got == pytest.approx(slow, abs=2e-5)


@given(values, values, st.floats(0.1, 10), st.floats(-5, 5))
def test_a_correlation_knows_neither_scale_nor_level(x, y, scale, shift):
    a, b = torch.tensor(x), torch.tensor(y)
    assert float(pearson(scale * a + shift, b)) == pytest.approx(float(pearson(a, b)), abs=2e-4)
    assert float(pearson(-a, b)) == pytest.approx(-float(pearson(a, b)), abs=1e-6)
    assert abs(float(pearson(a, b))) <= 1 + 1e-6


def test_the_gradient_of_the_two_head_loss_is_that_of_differences():
    generator = torch.Generator().manual_seed(0)
    quality, length, tokens, w, v = (torch.randn(n, generator=generator) for n in (7, 7, 7, 4, 4))
    inputs = [x.clone().requires_grad_() for x in (quality, length, w, v)]
    length_head_loss(inputs[0], inputs[1], tokens, inputs[2], inputs[3], 0.8, 1.7).backward()

    def slow(parts: list[list[float]]) -> float:
        q, n, a, b = parts
        t = tokens.tolist()
        cosine = math.fsum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(
            math.fsum(x * x for x in a) * math.fsum(x * x for x in b)
        )
        return 0.8 * (abs(slow_pearson(q, t)) - slow_pearson(n, t)) + 1.7 * abs(cosine)

    at = [x.tolist() for x in (quality, length, w, v)]
    for which, found in enumerate(inputs):
        for i in range(len(at[which])):
            up, down = ([list(p) for p in at] for _ in range(2))
            up[which][i] += 1e-6
            down[which][i] -= 1e-6
            assert float(found.grad[i]) == pytest.approx((slow(up) - slow(down)) / 2e-6, abs=2e-5)


def test_where_nothing_varies_the_correlation_is_zero_and_the_gradient_finite():
    flat = torch.ones(4, requires_grad=True)
    weights = torch.zeros(3, requires_grad=True)
    loss = length_head_loss(flat, flat, torch.arange(4.0), weights, torch.ones(3))
    loss.backward()
    assert float(loss.detach()) == 0
    assert bool(torch.isfinite(flat.grad).all())
    assert bool(torch.isfinite(weights.grad).all())


@pytest.mark.parametrize("n", [0, 1])
def test_a_correlation_needs_two_values(n):
    with pytest.raises(TrimtabError, match="two values"):
        pearson(torch.ones(n), torch.ones(n))


# heads by principle


def test_a_head_learns_from_the_pairs_that_have_its_label_and_from_no_others():
    chosen = torch.tensor([[1.0, 0.0], [2.0, 5.0]], requires_grad=True)
    rejected = torch.zeros(2, 2)
    labels = torch.tensor([[1.0, 0.25], [1.0, math.nan]])
    losses = principle_losses(chosen, rejected, labels)
    # log(1 + e^-1), log(1 + e^-2), halved; the second head: log 2 of its one pair, over the two pairs of the batch
    assert losses.tolist() == pytest.approx([(0.3132617 + 0.1269280) / 2, math.log(2) / 2], abs=1e-6)
    losses.sum().backward()
    assert chosen.grad[1, 1] == 0
    assert chosen.grad[0, 1] == pytest.approx((0.5 - 0.25) / 2)


@given(st.lists(st.tuples(st.floats(-4, 4), st.floats(0, 1), st.floats(0, 3)), min_size=1, max_size=6))
def test_one_head_with_all_labels_has_the_plain_loss(rows):
    lead, p, w = (torch.tensor(x) for x in zip(*rows, strict=True))
    got = principle_losses(lead[:, None], torch.zeros(len(rows), 1), p[:, None], 0.1, w[:, None])
    assert float(got[0]) == pytest.approx(float(bradley_terry_loss(lead, 0 * lead, p, None, 0.1, w)), abs=1e-6)
