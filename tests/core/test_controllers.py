"""Beta: fixed, adaptive, scheduled."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.core.controllers import AdaptiveKL, FixedKL, ScheduledKL, piecewise_linear
from trimtab.errors import TrimtabError


def test_fixed_stays() -> None:
    controller = FixedKL(0.05)
    controller.update(100.0, 64)
    assert controller.beta == 0.05
    assert FixedKL(0).beta == 0.0


def test_adaptive_by_hand() -> None:
    # error 9/6 - 1 = .5, cut to .2: .1 * (1 + .2 * 256/10000) = .1 * 1.00512
    controller = AdaptiveKL(0.1, target=6, horizon=10_000)
    controller.update(9.0, 256)
    assert controller.beta == pytest.approx(0.100512, rel=1e-12)
    # error 5.4/6 - 1 = -.1, not cut: * (1 - .1 * 256/10000) = * .99744
    controller.update(5.4, 256)
    assert controller.beta == pytest.approx(0.100512 * 0.99744, rel=1e-12)
    # error -1.5 of a negative estimate, cut to -.2: * (1 - .2 * 500/10000) = * .99
    controller.update(-3.0, 500)
    assert controller.beta == pytest.approx(0.100512 * 0.99744 * 0.99, rel=1e-12)


@given(st.lists(st.floats(-5, 50), max_size=8), st.floats(0.001, 1), st.floats(0.1, 20))
def test_adaptive_equals_a_slow_derivation(kls, beta, target) -> None:
    controller = AdaptiveKL(beta, target, 1000)
    for kl in kls:
        controller.update(kl, 64)
        error = (kl - target) / target
        error = 0.2 if error > 0.2 else -0.2 if error < -0.2 else error
        beta = beta + beta * error * 64 / 1000
    assert controller.beta == pytest.approx(beta, rel=1e-12)


@given(st.floats(0.001, 1), st.floats(0.1, 20), st.floats(0, 100), st.integers(1, 512))
def test_adaptive_moves_toward_the_target_and_stays_positive(beta, target, kl, episodes) -> None:
    controller = AdaptiveKL(beta, target, 1000)
    controller.update(kl, episodes)
    assert controller.beta > 0
    assert (controller.beta - beta) * (kl - target) >= 0


def test_adaptive_steers_a_responding_policy_to_its_target() -> None:
    # a policy whose KL is 1 / beta: the fixed point is beta = 1 / target
    controller = AdaptiveKL(0.01, target=5, horizon=500)
    for _ in range(600):
        controller.update(1 / controller.beta, 64)
    assert 1 / controller.beta == pytest.approx(5, rel=1e-3)


def test_adaptive_refuses_what_could_never_work() -> None:
    for arguments in ((0, 6, 1000), (0.1, 0, 1000), (0.1, 6, 0), (math.nan, 6, 1000), (0.1, 6, math.inf)):
        with pytest.raises(TrimtabError, match="must be positive"):
            AdaptiveKL(*arguments)
    controller = AdaptiveKL(0.1, 6, 10)
    with pytest.raises(TrimtabError, match="too short for 50 responses"):
        controller.update(0.0, 50)
    with pytest.raises(TrimtabError, match="NaN"):
        controller.update(math.nan, 1)
    assert controller.beta == 0.1
    controller.update(0.0, 49)
    assert controller.beta > 0


def test_piecewise_linear_by_hand() -> None:
    at = piecewise_linear([(2, 0.1), (6, 0.3), (10, 0.0)])
    # level; halfway 2..6: .2; a quarter of 6..10: .3 - .25 * .3 = .225; level
    for step, expected in ((0, 0.1), (2, 0.1), (4, 0.2), (6, 0.3), (7, 0.225), (10, 0.0), (99, 0.0)):
        assert at(step) == pytest.approx(expected, abs=1e-15)
    assert piecewise_linear([(0, 1)])(50) == 1.0


@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1)), min_size=1, unique_by=lambda p: p[0]), st.integers(0, 60)
)
def test_piecewise_linear_equals_a_slow_derivation(points, step) -> None:
    points = sorted(points)
    before = [p for p in points if p[0] <= step]
    after = [p for p in points if p[0] >= step]
    if not before:
        expected = after[0][1]
    elif not after:
        expected = before[-1][1]
    else:
        (x0, y0), (x1, y1) = before[-1], after[0]
        expected = y0 if x0 == x1 else y0 * (x1 - step) / (x1 - x0) + y1 * (step - x0) / (x1 - x0)
    assert piecewise_linear(points)(step) == pytest.approx(expected, abs=1e-12)


def test_points_that_are_no_schedule_are_refused() -> None:
    for points in ([], [(3, 0.1), (3, 0.2)], [(3, 0.1), (1, 0.2)]):
        with pytest.raises(TrimtabError, match="no schedule"):
            piecewise_linear(points)


def test_scheduled_goes_one_step_an_update() -> None:
    for controller in (ScheduledKL([(0, 0.2), (4, 0.0)]), ScheduledKL(lambda step: 0.2 - 0.05 * step)):
        seen = []
        for _ in range(4):
            seen.append(controller.beta)
            controller.update(kl=7.0, n_episodes=64)
        assert seen == pytest.approx([0.2, 0.15, 0.1, 0.05])


def test_a_negative_beta_is_refused() -> None:
    for make in (lambda: FixedKL(-0.1), lambda: ScheduledKL(lambda _: -0.1), lambda: FixedKL(math.nan)):
        with pytest.raises(TrimtabError, match="out of range"):
            make()


def test_state_goes_through_json() -> None:
    for make in (lambda: FixedKL(0.1), lambda: AdaptiveKL(0.1, 6, 1000), lambda: ScheduledKL([(0, 0.3), (9, 0.1)])):
        first, second = make(), make()
        for kl in (3.0, 9.0):
            first.update(kl, 64)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        for controller in (first, second):
            controller.update(8.0, 64)
        assert second.beta == first.beta
        assert isinstance(first, FixedKL) or first.beta != make().beta
