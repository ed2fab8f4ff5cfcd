"""The optimiser: groups, schedule, norm, and a float64 AdamW by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trimtab.errors import TrimtabError
from trimtab.training.optim import Optimiser, parameter_groups
from trimtab.training.precision import Precision


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 2)
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.tied = self.linear.weight


def test_matrices_decay_vectors_do_not_frozen_and_tied_are_not_repeated():
    net = Net()
    groups = parameter_groups(net, 0.1)
    assert [(g["params"], g["weight_decay"]) for g in groups] == [([net.linear.weight], 0.1), ([net.linear.bias], 0.0)]


def test_nothing_to_train_and_half_precision_weights_are_refused():
    for net in (Net().requires_grad_(False), Net().to(torch.bfloat16)):
        with pytest.raises(TrimtabError, match="no float32 weights"):
            Optimiser(net, 1e-3, total_updates=1)


def test_updates_equal_adamw_in_float64_by_hand():
    net = Net()
    optimiser = Optimiser(net, 0.1, total_updates=4, weight_decay=0.5, eps=1e-3, schedule="linear", warmup_fraction=0.5)
    w, b = net.linear.weight.detach().double(), net.linear.bias.detach().double()
    state = {k: (torch.zeros_like(x), torch.zeros_like(x)) for k, x in (("w", w), ("b", b))}
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    # warm-up of 2 updates: 1/3, 2/3; then a line from 1 to 0 at update 4
    for step, rate in enumerate([0.1 / 3, 0.2 / 3, 0.1, 0.05], start=1):
        net.linear(x).square().mean().backward()
        grads = {"w": net.linear.weight.grad.double(), "b": net.linear.bias.grad.double()}
        norm = sum(g.square().sum() for g in grads.values()).sqrt()
        assert float(optimiser.gradient_norm()) == pytest.approx(float(norm), rel=1e-6)
        optimiser.scale_gradients(optimiser.gradient_norm(), 0.25)
        assert Precision().step([optimiser])
        assert optimiser.last_learning_rate == pytest.approx(rate)
        for key, decay in (("w", 0.5), ("b", 0.0)):
            value = {"w": w, "b": b}[key]
            g = grads[key] * min(1.0, 0.25 / float(norm))
            m, v = (0.9 * state[key][0] + 0.1 * g, 0.999 * state[key][1] + 0.001 * g * g)
            state[key] = m, v
            value.mul_(1 - rate * decay)
            value.sub_(rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-3))
        torch.testing.assert_close(net.linear.weight.detach().double(), w, rtol=0, atol=1e-6)
        torch.testing.assert_close(net.linear.bias.detach().double(), b, rtol=0, atol=1e-6)
        assert net.linear.weight.grad is None


def test_a_small_gradient_is_left_alone():
    net = Net()
    optimiser = Optimiser(net, 0.1, total_updates=1)
    net.linear(torch.ones(1, 3)).sum().backward()
    gradient = net.linear.weight.grad
    before, version = gradient.clone(), gradient._version
    optimiser.scale_gradients(optimiser.gradient_norm(), 1e6)
    assert torch.equal(gradient, before)
    assert gradient._version == version, "multiplied by 1"


def test_a_gradient_that_is_no_number_is_not_taken_for_a_small_one():
    net = Net()
    optimiser = Optimiser(net, 0.1, total_updates=1)
    net.linear(torch.ones(1, 3)).sum().backward()
    optimiser.scale_gradients(torch.tensor(float("nan")), 1.0)
    assert bool(net.linear.weight.grad.isnan().all())


def test_the_rate_can_be_set_while_training_goes_on():
    net = Net()
    optimiser = Optimiser(net, 0.1, total_updates=9)
    optimiser.base_learning_rate = 0.01
    net.linear(torch.ones(1, 3)).sum().backward()
    Precision().step([optimiser])
    assert optimiser.last_learning_rate == 0.01
    assert {g["lr"] for g in optimiser.torch.param_groups} == {0.01}
