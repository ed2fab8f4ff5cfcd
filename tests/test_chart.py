"""The charts' geometry."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab import chart
from trimtab.chart import Forest, Line, forest_chart, line_chart, thin, ticks
from trimtab.hostile import cut, visible, visible_html


def numbers(svg, name):
    """Coordinates of the polyline or polygon of a class, as floats."""
    return [
        [tuple(map(float, point.split(","))) for point in points.split()]
        for points in re.findall(rf'<poly\w+ class="{name}" points="([^"]*)"', svg)
    ]


def test_a_line_spans_the_plot_and_turns_where_the_values_do():
    (line,) = numbers(line_chart(Line([(0, 0.0), (1, 2.0), (2, 1.0)], "x")), "line")
    xs, ys = zip(*line, strict=True)
    assert (xs[0], xs[2]) == (chart.LEFT, chart.WIDTH - chart.RIGHT)
    assert xs[1] == pytest.approx((xs[0] + xs[2]) / 2)
    assert ys[2] == pytest.approx((ys[0] + ys[1]) / 2, abs=0.1)
    assert ys[1] < ys[2] < ys[0]  # the y axis of a screen points down


def test_the_healthy_band_has_the_place_of_its_values():
    svg = str(line_chart(Line([(0, 0.0), (1, 10.0)], "x", healthy=(2.5, 7.5))))
    ((_, y0), (_, y1)) = numbers(svg, "line")[0]
    top, height = map(
        float, re.search(r'class="healthy" x="44" y="([\d.]+)" width="286" height="([\d.]+)"', svg).groups()
    )
    assert top == pytest.approx(y1 + 0.25 * (y0 - y1), abs=0.2)
    assert height == pytest.approx(0.5 * (y0 - y1), abs=0.2)


def test_a_band_outside_the_values_is_not_drawn():
    assert 'class="healthy"' not in line_chart(Line([(0, 20.0), (1, 30.0)], "x", healthy=(0, 10)))


def test_dots_before_the_line_begins_are_inside_the_plot():
    svg = str(line_chart(Line([(1, 0.0), (2, 1.0)], "x", dots=[(0, 0.5), (2, 0.5)])))
    xs = [float(x) for x in re.findall(r'class="probe" cx="([\d.]+)"', svg)]
    ((first, _), *_) = numbers(svg, "line")[0]
    assert (xs[0], first) == (chart.LEFT, pytest.approx((chart.LEFT + xs[1]) / 2, abs=0.1))


def test_the_spread_is_a_standard_deviation_each_way():
    svg = line_chart(Line([(0, 1.0), (1, 1.0)], "x", spread=[(0, 0.5), (1, 0.5)]))
    (area,), (line,) = numbers(svg, "spread"), numbers(svg, "line")
    assert [y for _, y in area[:2]] == [chart.HEIGHT - chart.BOTTOM - y + chart.TOP for _, y in area[2:]]
    assert line[0][1] == pytest.approx((area[0][1] + area[2][1]) / 2, abs=0.1)


def test_a_value_that_is_not_finite_breaks_the_line_and_is_marked():
    svg = line_chart(Line([(0, 1.0), (1, 2.0), (2, math.nan), (3, 1.0), (4, math.inf), (5, 3.0)], "x"))
    assert len(numbers(svg, "line")) == 1
    assert svg.count('class="lost"') == 2
    assert line_chart(Line([(0, math.nan)], "x")) == ""


def test_a_constant_is_drawn_in_the_middle():
    svg = line_chart(Line([(0, 5.0), (9, 5.0)], "x"))
    ((_, y), _) = numbers(svg, "line")[0]
    assert y == pytest.approx((chart.TOP + chart.HEIGHT - chart.BOTTOM) / 2, abs=1)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=50))
def test_every_point_stays_inside_whatever_the_values(values):
    svg = line_chart(Line(list(enumerate(values)), "x", healthy=(None, 1.0)))
    for x, y in [point for line in numbers(svg, "line") for point in line]:
        assert chart.LEFT <= x <= chart.WIDTH - chart.RIGHT
        assert chart.TOP <= y <= chart.HEIGHT - chart.BOTTOM
    assert "nan" not in svg.replace("nan, ", "")


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000))
def test_thinning_keeps_ends_and_extremes(values):
    points = list(enumerate(values))
    kept = thin(points, 100)
    assert len(kept) <= 200
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert {min(values), max(values)} <= {y for _, y in kept}
    assert kept == sorted(kept)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2.5, 5, 7.5, 10]), (0.43, 0.51, [0.45, 0.475, 0.5]), (-1, 1, [-1, -0.5, 0, 0.5, 1]), (5, 5, [5])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high) == pytest.approx(expected)


def test_an_interval_lies_where_its_ends_are():
    svg = forest_chart(Forest(0.75, 0.5, 1.0, True), axis=(0.0, 1.0), mark=0.5, label="x")
    x1, x2 = map(float, re.search(r'class="interval strong" x1="([\d.]+)" x2="([\d.]+)"', svg).groups())
    assert (x1, x2) == (110, 214)
    assert 'cx="162.0"' in svg
    assert 'class="interval' not in forest_chart(Forest(0.75, None, None, False), axis=(0, 1), mark=0.5, label="x")


def test_a_label_is_escaped():
    svg = line_chart(Line([(0, 1.0)], '"><script>\u202e'))
    assert "<script>" not in svg
    assert r"\u202e" in svg


@given(st.text())
def test_visible_text_has_no_hidden_character_and_keeps_the_rest(text):
    shown = visible(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)
    shown.encode("utf-8")
    assert visible(shown) == shown
    assert "<" not in re.sub(r'<span class="esc">[^<]*</span>', "", visible_html(text))


def test_ordinary_text_of_any_script_is_left_alone():
    for text in ("naïve café\n\tx", "中文测试。", "नमस्ते", "می‌خواهم", "👩‍👩‍👧‍👦 ❤️", "Z\u0308\u0301"):
        assert visible(text) == text
        assert visible_html(text) == text


def test_cut():
    assert (cut("abc", 2), cut("abc", 2).total, cut("abc", 2).is_cut, cut("abc", 3).is_cut) == ("ab", 3, True, False)
    assert (cut(None, 5), cut(12, 5)) == ("", "12")
