"""The loss of a batch against slow float64 sums that use nothing of trimtab's, and what must hold of it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.core.preference import dpo_loss, ipo_loss
from trimtab.errors import TrimtabError

nats = st.floats(-60, 0, width=32)
pairs = st.lists(st.tuples(nats, nats, nats, nats, st.floats(0, 1, width=32)), min_size=1, max_size=6)


def columns(rows) -> list[torch.Tensor]:
    return [torch.tensor(column, dtype=torch.float32) for column in zip(*rows, strict=True)]


def test_hand_values():
    # log-ratios: chosen -10 - -11 = 1, rejected -12 - -10 = -2; lead 3, times beta .5 = 1.5
    given_ = [torch.tensor([x]) for x in (-10.0, -12.0, -11.0, -10.0)]
    win, lose = math.log(1 + math.exp(-1.5)), math.log(1 + math.exp(1.5))
    assert float(dpo_loss(*given_, 0.5)) == pytest.approx(win, rel=1e-6)
    soft = dpo_loss(*given_, 0.5, p_chosen=torch.tensor([0.75]))
    assert float(soft) == pytest.approx(0.75 * win + 0.25 * lose, rel=1e-6)
    assert float(ipo_loss(*given_, 0.5)) == pytest.approx((3 - 1) ** 2, rel=1e-6)
    assert float(ipo_loss(*given_, 0.5, p_chosen=torch.tensor([0.75]))) == pytest.approx(0.75 * 4 + 0.25 * 16, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(pairs, st.floats(0.01, 2), st.floats(0, 0.49))
def test_both_losses_are_their_slow_float64_sums(rows, beta, smoothing):
    direct = identity = 0.0
    for chosen, rejected, ref_chosen, ref_rejected, p in rows:
        lead = (chosen - ref_chosen) - (rejected - ref_rejected)
        q = p * (1 - smoothing) + (1 - p) * smoothing
        for label, sign in ((q, 1), (1 - q, -1)):
            direct += label * (max(-sign * beta * lead, 0) + math.log1p(math.exp(-abs(beta * lead))))
            identity += label * (sign * lead - 1 / (2 * beta)) ** 2
    *logprobs, p = columns(rows)
    assert float(dpo_loss(*logprobs, beta, p, smoothing)) == pytest.approx(direct / len(rows), rel=1e-4, abs=1e-5)
    assert float(ipo_loss(*logprobs, beta, p, smoothing)) == pytest.approx(identity / len(rows), rel=1e-4, abs=1e-4)


@settings(max_examples=40, deadline=None)
@given(pairs, st.floats(0.01, 2))
def test_where_policy_and_reference_are_one_the_loss_is_log_2_and_a_step_favours_the_chosen(rows, beta):
    chosen, rejected, *_ = columns(rows)
    moved = chosen.clone().requires_grad_(), rejected.clone().requires_grad_()
    loss = dpo_loss(*moved, chosen, rejected, beta)
    assert loss.item() == pytest.approx(math.log(2), rel=1e-6)
    loss.backward()
    assert (moved[0].grad < 0).all()  # descent raises it
    assert torch.equal(moved[0].grad, -moved[1].grad)
    torch.testing.assert_close(moved[0].grad, torch.full_like(chosen, -beta / 2 / len(chosen)))


@pytest.mark.parametrize("loss", [dpo_loss, ipo_loss])
@settings(max_examples=30, deadline=None)
@given(lead=st.floats(-20, 20, width=32), beta=st.floats(0.05, 1))
def test_a_label_of_one_half_is_best_met_by_no_lead(loss, lead, beta):
    zero, half = torch.zeros(1), torch.tensor([0.5])
    there = torch.tensor([lead], requires_grad=True)
    loss(there, zero, zero, zero, beta, half).backward()
    assert float(there.grad) * lead >= 0  # uphill leads away from 0
    assert float(loss(zero, zero, zero, zero, beta, half)) <= float(loss(there, zero, zero, zero, beta, half)) + 1e-6


@pytest.mark.parametrize("loss", [dpo_loss, ipo_loss])
@settings(max_examples=30, deadline=None)
@given(rows=pairs, smoothing=st.floats(0, 0.49))
def test_smoothing_a_hard_label_is_that_soft_label_and_a_turned_pair_has_the_label_turned(loss, rows, smoothing):
    chosen, rejected, ref_chosen, ref_rejected, p = columns(rows)
    soft = torch.full_like(p, 1 - smoothing)
    by_label = loss(chosen, rejected, ref_chosen, ref_rejected, 0.3, soft)
    torch.testing.assert_close(loss(chosen, rejected, ref_chosen, ref_rejected, 0.3, None, smoothing), by_label)
    turned = loss(rejected, chosen, ref_rejected, ref_chosen, 0.3, 1 - soft)
    torch.testing.assert_close(turned, by_label, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss", [dpo_loss, ipo_loss])
def test_weights_scale_pairs_and_the_reference_takes_no_gradient(loss):
    given_ = [torch.tensor(x, requires_grad=True) for x in ([-3.0, -9.0], [-4.0, -5.0], [-3.5, -6.0], [-3.0, -4.0])]
    whole = loss(*given_, 0.2, weight=torch.tensor([0.0, 2.0]))
    torch.testing.assert_close(whole, loss(*(x[1:] for x in given_), 0.2))
    whole.backward()
    assert given_[0].grad is not None
    assert given_[2].grad is None
    assert given_[3].grad is None


@pytest.mark.parametrize("loss", [dpo_loss, ipo_loss])
def test_what_makes_no_sense_is_refused(loss):
    one = torch.zeros(1)
    for broken in (
        lambda: loss(one, one, one, one, 0.0),
        lambda: loss(one, one, one, one, 0.1, torch.tensor([1.5])),
        lambda: loss(one, one, one, one, 0.1, None, 0.5),
        lambda: loss(*[torch.zeros(0)] * 4, 0.1),
        lambda: loss(one, one, one, one, 0.1, weight=-one - 1),
    ):
        with pytest.raises(TrimtabError):
            broken()
