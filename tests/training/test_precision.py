"""float32, bfloat16 and float16: what computes in what, and what an overflow does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trimtab.errors import ErrorKind, TrimtabError
from trimtab.training.optim import Optimiser
from trimtab.training.precision import Precision


def setup(dtype: str, **options):
    torch.manual_seed(0)
    net = nn.Linear(4, 2)
    return net, Optimiser(net, 0.1, total_updates=10), Precision(dtype, **options)


def backward(net, precision, factor=1.0):
    with precision.autocast():
        out = net(torch.ones(3, 4))
    precision.scale(out.float().square().mean() * factor).backward()
    return out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_computes_in_the_dtype_and_steps_the_float32_masters(dtype):
    net, optimiser, precision = setup(dtype)
    before = net.weight.detach().clone()
    assert backward(net, precision).dtype == precision.torch_dtype
    precision.unscale(optimiser)
    optimiser.gradient_norm()
    assert precision.step([optimiser])
    assert net.weight.dtype == torch.float32
    assert not torch.equal(net.weight, before)
    assert precision.skipped == 0
    assert (precision.signals() != {}) == (dtype == "float16")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_unscaled_gradients_are_those_of_float32(dtype):
    gradients = []
    for name in ("float32", dtype):
        net, optimiser, precision = setup(name)
        backward(net, precision)
        precision.unscale(optimiser)
        gradients.append(net.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_an_overflowing_float16_update_is_skipped_counted_and_halves_the_scale(bad):
    net, optimiser, precision = setup("float16", initial_scale=1024.0)
    other, second, _ = setup("float32")
    before = [p.detach().clone() for p in (*net.parameters(), *other.parameters())]
    backward(net, precision)
    backward(other, precision)
    net.weight.grad[0, 0] = bad
    for o in (optimiser, second):
        precision.unscale(o)
    # A joint norm is not finite either; scaling by it must not poison the healthy model.
    joint = torch.stack([o.gradient_norm() for o in (optimiser, second)]).norm()
    for o in (optimiser, second):
        o.scale_gradients(joint, 1.0)
    assert not precision.step([optimiser, second])
    after = [*net.parameters(), *other.parameters()]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert precision.signals() == {"precision/loss_scale": 512.0, "precision/skipped_updates": 1.0}
    assert optimiser.updates == second.updates == 0
    assert net.weight.grad is None
    backward(net, precision)
    precision.unscale(optimiser)
    assert precision.step([optimiser])
    assert precision.skipped == 1


def test_a_real_overflow_in_float16_is_found():
    net, optimiser, precision = setup("float16", initial_scale=2.0**30)
    skipped = 0
    for _ in range(40):
        backward(net, precision)
        precision.unscale(optimiser)
        skipped += not precision.step([optimiser])
    assert 0 < precision.skipped == skipped < 40


def test_the_scale_grows_back():
    net, optimiser, precision = setup("float16", initial_scale=64.0, growth_interval=2)
    for _ in range(2):
        backward(net, precision)
        precision.unscale(optimiser)
        precision.step([optimiser])
    assert precision.signals()["precision/loss_scale"] == 128.0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_without_a_scale_a_gradient_that_is_not_finite_is_an_error_and_moves_nothing(dtype):
    net, optimiser, precision = setup(dtype)
    before = net.weight.detach().clone()
    backward(net, precision, factor=float("nan"))
    with pytest.raises(TrimtabError, match="gradient norms nan: not finite") as error:
        precision.step([optimiser])
    assert error.value.kind is ErrorKind.FAILED
    assert torch.equal(net.weight, before)


def test_state_round_trip():
    net, optimiser, precision = setup("float16", initial_scale=1024.0)
    backward(net, precision)
    net.weight.grad[0, 0] = float("inf")
    precision.unscale(optimiser)
    precision.step([optimiser])
    again = Precision("float16")
    again.load_state_dict(precision.state_dict())
    assert again.signals() == precision.signals()
    assert again.skipped == 1


def test_an_unknown_dtype_is_refused():
    with pytest.raises(TrimtabError, match=r'model\.dtype = "float8"'):
        Precision("float8")
