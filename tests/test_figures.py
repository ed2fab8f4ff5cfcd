"""Figures for people."""

from __future__ import annotations

import math

import pytest

from trimtab.figures import figure, share, signed, with_interval


@pytest.mark.parametrize(
    ("x", "width", "text"),
    [(0.1234, None, "0.123"), (12.34, None, "12.3"), (1234.5, None, "1234"), (0, None, "0.00"), (0.1234, 0.14, "0.12"),
     (61.23, 12.3, "61"), (-0.0001, 0.5, "0.00"), (math.inf, None, "inf"), (math.nan, None, "nan"),
     (1e-12, None, "1.00e-12"), (-123456789, None, "-1.23e+08"), (3.0, 0.0, "3.00")],
)  # fmt: skip
def test_figures_have_the_digits_that_their_interval_supports(x, width, text):
    assert figure(x, width) == text


def test_sign():
    assert (signed(0.5), signed(-0.5), signed(0.0)) == ("+0.500", "-0.500", "0.00")


def test_shares_keep_a_decimal_at_the_ends():
    assert [share(x) for x in (0, 0.025, 0.61, 0.994, 1)] == ["0 %", "2.5 %", "61 %", "99.4 %", "100 %"]


def test_intervals():
    assert with_interval(0.1234, 0.05, 0.19, sign=True) == "+0.12 [0.05, 0.19]"
    assert with_interval(0.612, 0.551, 0.673, percent=True) == "61 % [55, 67]"
    assert with_interval(0.612, None, None, percent=True) == "61.2 %"
