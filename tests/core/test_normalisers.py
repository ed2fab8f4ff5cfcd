"""Running moments."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trimtab.core.normalisers import RunningMoments
from trimtab.errors import TrimtabError

numbers = st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=6)


def test_moments_by_hand() -> None:
    # 1, 2, 3, 7: mean 13/4; (2.25^2 + 1.25^2 + .25^2 + 3.75^2) / 4 = (5.0625 + 1.5625 + .0625 + 14.0625) / 4 = 5.1875
    moments = RunningMoments()
    moments.update(torch.tensor([1.0, 2.0]))
    moments.update(torch.tensor([3.0, 7.0]))
    assert (moments.count, moments.mean) == (4, 3.25)
    assert moments.var == pytest.approx(5.1875, rel=1e-14)
    assert moments.std == pytest.approx(math.sqrt(5.1875), rel=1e-14)
    # (1 - 3.25) / sqrt(5.1875) = -2.25 / 2.277608 = -.987879
    assert moments.normalise(torch.tensor([1.0])).item() == pytest.approx(-0.987879, abs=1e-6)
    # 2 * 2.277608 + 3.25 = 7.805217
    assert moments.denormalise(torch.tensor([2.0])).item() == pytest.approx(7.805217, abs=2e-6)


@given(st.lists(numbers, min_size=1, max_size=6))
def test_any_split_equals_a_slow_derivation_over_all(batches) -> None:
    moments = RunningMoments()
    for batch in batches:
        moments.update(torch.tensor(batch))
    every = [v for batch in batches for v in batch]
    mean = math.fsum(every) / len(every)
    assert moments.count == len(every)
    assert moments.mean == pytest.approx(mean, rel=1e-12, abs=1e-12)
    assert moments.var == pytest.approx(math.fsum((v - mean) ** 2 for v in every) / len(every), rel=1e-11, abs=1e-11)


@given(numbers, st.sampled_from([math.nan, math.inf, 1e9]))
def test_what_does_not_count_has_no_influence(batch, garbage) -> None:
    plain, padded = RunningMoments(), RunningMoments()
    plain.update(torch.tensor(batch))
    x = torch.nn.functional.pad(torch.tensor([batch]), (1, 2), value=garbage)
    mask = torch.nn.functional.pad(torch.ones(1, len(batch), dtype=torch.bool), (1, 2), value=False)
    padded.update(x, mask)
    assert padded.state_dict() == plain.state_dict()


@given(numbers, st.floats(-50, 50, width=32))
def test_normalise_and_denormalise_undo_each_other(batch, x) -> None:
    moments = RunningMoments()
    moments.update(torch.tensor([*batch, 200.0]))
    back = moments.denormalise(moments.normalise(torch.tensor([x]))).item()
    assert back == pytest.approx(x, abs=1e-4)


def test_normalised_values_have_mean_0_and_variance_1() -> None:
    x = torch.randn(4, 50, generator=torch.Generator().manual_seed(1)) * 7 + 30
    moments = RunningMoments()
    moments.update(x)
    z = moments.normalise(x)
    assert z.mean().item() == pytest.approx(0, abs=1e-5)
    assert z.var(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_a_large_mean_does_not_drown_the_variance() -> None:
    # float32 has no half at 2^23; the batches differ by 1 around 1e7, where their mean of squares is 1e14
    moments = RunningMoments()
    for value in (1e7, 1e7 + 1, 1e7, 1e7 + 1):
        moments.update(torch.tensor([value]))
    assert moments.var == pytest.approx(0.25, rel=1e-9)


def test_epsilon_is_added_to_the_variance() -> None:
    # +-1e-4 has variance 1e-8: 1e-4 / sqrt(2e-8) = 1 / sqrt(2), and back
    moments = RunningMoments()
    x = torch.tensor([1e-4, -1e-4])
    moments.update(x)
    assert moments.normalise(x)[0].item() == pytest.approx(0.5**0.5, rel=1e-6)
    assert moments.denormalise(torch.tensor([1.0])).item() == pytest.approx(math.sqrt(2e-8), rel=1e-6)


def test_nothing_changes_before_the_first_update() -> None:
    moments = RunningMoments()
    assert (moments.count, moments.mean, moments.var) == (0, 0.0, 1.0)
    x = torch.tensor([3.0, -1.0])
    torch.testing.assert_close(moments.normalise(x), x, rtol=1e-7, atol=0)


def test_state_goes_through_json() -> None:
    first, second = RunningMoments(), RunningMoments()
    first.update(torch.tensor([0.1, 0.7, 2.3]))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for moments in (first, second):
        moments.update(torch.tensor([5.5]))
    assert second.state_dict() == first.state_dict()


def test_half_precision_is_taken_in_exactly() -> None:
    moments = RunningMoments()
    moments.update(torch.ones(300, dtype=torch.bfloat16))
    moments.update(torch.zeros(100, dtype=torch.bfloat16))
    assert moments.mean == pytest.approx(0.75, rel=1e-14)
    assert moments.normalise(torch.ones(1, dtype=torch.bfloat16)).dtype == torch.float32


def test_what_would_spoil_the_statistics_is_refused() -> None:
    moments = RunningMoments()
    moments.update(torch.tensor([1.0, 2.0]))
    before = moments.state_dict()
    for bad in (math.nan, math.inf):
        with pytest.raises(TrimtabError, match="NaN or infinity"):
            moments.update(torch.tensor([1.0, bad]))
    for nothing in (
        lambda: moments.update(torch.ones(2), torch.zeros(2, dtype=torch.bool)),
        lambda: moments.update(torch.ones(0)),
    ):
        with pytest.raises(TrimtabError, match="nothing to average"):
            nothing()
    assert moments.state_dict() == before


def test_statistics_keep_no_graph() -> None:
    moments = RunningMoments()
    moments.update(torch.tensor([1.0, 2.0], requires_grad=True))
    x = torch.tensor([3.0], requires_grad=True)
    assert torch.autograd.grad(moments.normalise(x).sum(), x)[0].item() == pytest.approx(2.0, rel=1e-6)
