"""Every signal near one step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from made_up_diagnoses import inconclusive, log, series, sick
from trimtab.doctor.around import signals_around
from trimtab.doctor.log import Series, Unit
from trimtab.errors import ErrorKind, TrimtabError


def with_series(*made: Series):
    return replace(sick(), logs=(replace(log(), series={s.key: s for s in made}),))


def test_value_before_after_and_shift_by_hand():
    values = np.zeros(200)
    values[:10] = [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]  # median 3, median absolute deviation 1
    values[10] = 3 + 1.4826 * 4
    values[11:] = 7
    near = signals_around(with_series(series("a", "theirs", values, Unit.ONE)), 11).signals[0]
    assert (near.key, near.name, near.step, near.before, near.after) == ("a", "theirs", 11, 3, 7)
    assert near.shift == pytest.approx(4)


def test_the_most_unusual_move_comes_first():
    still, jump = np.tile([1.0, 2.0], 100), np.tile([1.0, 2.0], 100)
    jump[99] = 50
    found = signals_around(with_series(series("still", "s", still, Unit.ONE), series("jump", "j", jump, Unit.ONE)), 100)
    assert [near.key for near in found.signals] == ["jump", "still"]


def test_a_flat_past_has_no_spread_and_a_lost_value_no_shift():
    flat = np.ones(200)
    lost = np.arange(200.0)
    lost[99] = np.nan
    both = with_series(series("f", "f", flat, Unit.ONE), series("l", "l", lost, Unit.ONE))
    found = {near.key: near for near in signals_around(both, 100).signals}
    assert found["f"].shift is None
    assert found["l"].shift is None
    assert np.isnan(found["l"].value)
    assert found["l"].before == pytest.approx(93.5)


def test_the_nearest_logged_step_is_taken():
    sparse = Series("a", "a", np.array([10, 20, 40]), np.array([1.0, 2.0, 3.0]), Unit.ONE)
    found = signals_around(with_series(sparse), 28).signals[0]
    assert (found.step, found.value, found.before, found.after) == (20, 2, 1, 3)


@pytest.mark.parametrize(("diagnosis", "step", "what"), [(sick(), 201, "steps 1 to 200"), (inconclusive(), 1, "no")])
def test_a_step_that_the_log_has_not_is_a_usage_error(diagnosis, step: int, what: str):
    with pytest.raises(TrimtabError, match=what) as caught:
        signals_around(diagnosis, step)
    assert caught.value.kind == ErrorKind.USAGE
