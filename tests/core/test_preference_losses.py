"""Bradley-Terry and DPO losses."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimtab.core.preference import bradley_terry_loss, dpo_loss
from trimtab.errors import TrimtabError

scores = st.floats(-10, 10, width=32)
probabilities = st.floats(0, 1, width=32)
pairs = st.lists(st.tuples(scores, scores, probabilities, st.floats(-2, 2, width=32)), min_size=1, max_size=6)
smoothings = st.floats(0, 0.49)


def columns(rows):
    return [torch.tensor(column) for column in zip(*rows, strict=True)]


def slow_bradley_terry(rows, smoothing):
    """Cross entropy through the probabilities themselves."""
    total = 0.0
    for chosen, rejected, label, margin in rows:
        p = 1 / (1 + math.exp(rejected + margin - chosen))
        q = 1 / (1 + math.exp(chosen - rejected - margin))
        smoothed = label + smoothing * (1 - 2 * label)
        total -= smoothed * math.log(p) + (1 - smoothed) * math.log(q)
    return total / len(rows)


def test_bradley_terry_by_hand() -> None:
    # ln(1 + e^-1) = .313262
    one, zero = torch.tensor([1.0]), torch.tensor([0.0])
    assert bradley_terry_loss(one, zero).item() == pytest.approx(0.313262, abs=1e-6)
    # the rejected one leads: ln(1 + e) = 1.313262; the two pairs average to .813262
    assert bradley_terry_loss(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])).item() == pytest.approx(
        0.813262, abs=1e-6
    )
    # soft label 3/4: .75 * .313262 + .25 * 1.313262 = .563262
    assert bradley_terry_loss(one, zero, torch.tensor([0.75])).item() == pytest.approx(0.563262, abs=1e-6)
    # margin 1/2: ln(1 + e^-.5) = .474077
    assert bradley_terry_loss(one, zero, margin=torch.tensor([0.5])).item() == pytest.approx(0.474077, abs=1e-6)
    # smoothing .1: .9 * .313262 + .1 * 1.313262 = .413262
    assert bradley_terry_loss(one, zero, label_smoothing=0.1).item() == pytest.approx(0.413262, abs=1e-6)
    # both: the label 3/4 becomes .9 * .75 + .1 * .25 = .7: .7 * .313262 + .3 * 1.313262 = .613262
    both = bradley_terry_loss(one, zero, torch.tensor([0.75]), label_smoothing=0.1)
    assert both.item() == pytest.approx(0.613262, abs=1e-6)


def test_dpo_by_hand() -> None:
    # .1 * ((-1 + 2) - (-3 + 2.5)) = .1 * 1.5 = .15;  ln(1 + e^-.15) = ln 1.860708 = .620957
    arguments = [torch.tensor([x]) for x in (-1.0, -3.0, -2.0, -2.5)]
    assert dpo_loss(*arguments, beta=0.1).item() == pytest.approx(0.620957, abs=1e-6)
    # ln(1 + e^.15) = .770957.   label 3/4: .620957 + .25 * .15 = .658457;  smoothing .1: .620957 + .1 * .15 = .635957
    assert dpo_loss(*arguments, beta=0.1, p_chosen=torch.tensor([0.75])).item() == pytest.approx(0.658457, abs=1e-6)
    assert dpo_loss(*arguments, beta=0.1, label_smoothing=0.1).item() == pytest.approx(0.635957, abs=1e-6)


@given(pairs, smoothings)
def test_bradley_terry_equals_a_slow_derivation(rows, smoothing) -> None:
    chosen, rejected, label, margin = columns(rows)
    loss = bradley_terry_loss(chosen, rejected, label, margin, smoothing)
    assert loss.item() == pytest.approx(slow_bradley_terry(rows, smoothing), rel=2e-6, abs=1e-6)
    hard = bradley_terry_loss(chosen, rejected, None, margin, smoothing)
    expected = slow_bradley_terry([(c, r, 1.0, m) for c, r, _, m in rows], smoothing)
    assert hard.item() == pytest.approx(expected, rel=2e-6, abs=1e-6)


@given(pairs, st.lists(st.floats(0, 5, width=32), min_size=6, max_size=6), smoothings)
def test_a_weighted_loss_is_the_weighted_sum_of_the_losses_over_all_pairs(rows, weights, smoothing) -> None:
    chosen, rejected, label, margin = columns(rows)
    weights = weights[: len(rows)]
    loss = bradley_terry_loss(chosen, rejected, label, margin, smoothing, torch.tensor(weights))
    each = [w * slow_bradley_terry([row], smoothing) for w, row in zip(weights, rows, strict=True)]
    assert loss.item() == pytest.approx(math.fsum(each) / len(rows), rel=2e-6, abs=1e-5)


@given(pairs, st.lists(st.tuples(scores, scores), min_size=6, max_size=6), st.floats(0.01, 1), smoothings)
def test_dpo_equals_a_slow_derivation(rows, references, beta, smoothing) -> None:
    chosen, rejected, label, _ = columns(rows)
    ref_chosen, ref_rejected = columns(references[: len(rows)])
    slow = [
        (beta * (c - rc), beta * (r - rr), p, 0.0)
        for (c, r, p, _), (rc, rr) in zip(rows, references[: len(rows)], strict=True)
    ]
    loss = dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta, label, smoothing)
    assert loss.item() == pytest.approx(slow_bradley_terry(slow, smoothing), rel=3e-6, abs=1e-6)


@given(pairs, smoothings, st.floats(-20, 20), st.randoms(use_true_random=False))
def test_symmetries(rows, smoothing, shift, random) -> None:
    chosen, rejected, label, margin = columns(rows)
    loss = bradley_terry_loss(chosen, rejected, label, margin, smoothing)
    # seen from the other side
    swapped = bradley_terry_loss(rejected, chosen, 1 - label, -margin, smoothing)
    torch.testing.assert_close(swapped, loss, rtol=2e-6, atol=2e-6)
    # only differences matter
    moved = bradley_terry_loss(chosen + shift, rejected + shift, label, margin, smoothing)
    torch.testing.assert_close(moved, loss, rtol=1e-5, atol=1e-5)
    random.shuffle(rows)
    torch.testing.assert_close(bradley_terry_loss(*columns(rows), smoothing), loss, rtol=2e-6, atol=2e-6)


@given(st.floats(0.05, 0.95), st.floats(-1, 1), st.sampled_from([0.0, 0.1]))
def test_the_loss_is_least_where_the_model_says_the_label(label, margin, smoothing) -> None:
    smoothed = label + smoothing * (1 - 2 * label)
    best = torch.tensor([math.log(smoothed / (1 - smoothed)) + margin], requires_grad=True)
    loss = bradley_terry_loss(best, torch.zeros(1), torch.tensor([label]), torch.tensor([margin]), smoothing)
    assert torch.autograd.grad(loss, best)[0].item() == pytest.approx(0, abs=1e-6)


def test_large_leads_stay_finite() -> None:
    lead = torch.tensor([1e4, -1e4], requires_grad=True)
    loss = bradley_terry_loss(lead, torch.zeros(2), torch.tensor([0.5, 1.0]))
    # half of 1e4 and all of 1e4, halved
    assert loss.item() == pytest.approx(7500.0)
    assert torch.autograd.grad(loss, lead)[0].tolist() == [0.25, -0.5]


def test_half_precision_is_computed_in_float32() -> None:
    # 256 - 1 is exact in float32; ln 2 has more digits than bfloat16
    same = torch.tensor([256.0], dtype=torch.bfloat16)
    assert bradley_terry_loss(same, same).item() == pytest.approx(math.log(2), rel=1e-7)
    assert dpo_loss(same, same, same, same, 0.1).item() == pytest.approx(math.log(2), rel=1e-7)


def test_no_gradient_reaches_the_reference() -> None:
    columns_ = [torch.randn(3, requires_grad=True) for _ in range(4)]
    dpo_loss(*columns_, beta=0.1).backward()
    assert [c.grad is None for c in columns_] == [False, False, True, True]
    # a step downhill makes the chosen response likelier and the rejected one less likely
    assert (columns_[0].grad < 0).all()
    assert (columns_[1].grad > 0).all()


def test_what_makes_no_sense_is_named() -> None:
    one = torch.ones(2)
    with pytest.raises(TrimtabError, match="no pairs"):
        bradley_terry_loss(torch.zeros(0), torch.zeros(0))
    for label in (1.5, -0.5, math.nan):
        with pytest.raises(TrimtabError, match=f"{label} of pair 1"):
            bradley_terry_loss(one, one, torch.tensor([0.5, label]))
    for smoothing in (-0.1, 0.5):
        with pytest.raises(TrimtabError, match="label_smoothing"):
            bradley_terry_loss(one, one, label_smoothing=smoothing)
    for weight in (-1.0, math.nan):
        with pytest.raises(TrimtabError, match="negative weight"):
            bradley_terry_loss(one, one, weight=torch.tensor([1.0, weight]))
    with pytest.raises(TrimtabError, match="beta = 0"):
        dpo_loss(one, one, one, one, beta=0)
