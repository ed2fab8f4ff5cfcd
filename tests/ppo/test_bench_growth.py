"""The fits and plots of the benchmark of growing work."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("torch")

from bench.ppo.growth import AXES, MODELS, Fit, fit, plots, report, verdict


def test_a_slope_and_its_interval_are_those_of_a_regression_of_the_logarithms() -> None:
    statsmodels = pytest.importorskip("statsmodels.api")
    x, y = [1.0, 2.0, 4.0, 8.0, 16.0], [1.0, 2.3, 3.9, 9.1, 15.0]
    found = fit(x, y)
    reference = statsmodels.OLS(np.log(y), statsmodels.add_constant(np.log(x))).fit()
    assert found == pytest.approx((reference.params[1], *reference.conf_int()[1]), rel=1e-9)


def test_a_slope_needs_three_points() -> None:
    with pytest.raises(ValueError, match="three"):
        fit([1, 2], [1, 2])


def test_verdicts_follow_the_interval() -> None:
    assert verdict(Fit(-0.1, -0.2, 0.04)) == "no faster"
    assert verdict(Fit(0.1, 0.06, 0.2)) == "faster"
    assert verdict(Fit(0.1, 0.0, 0.2)) == "undecided"


def test_every_axis_has_more_than_four_steps_and_the_models_their_sizes() -> None:
    from bench.ppo.arithmetic import Shape

    assert all(len(axis.points) >= 5 for axis in AXES.values())
    sizes = {n: Shape.of(llama.config()).numbers for n, llama in MODELS.items()}
    assert all(abs(real / n - 1) < 0.06 for n, real in sizes.items())


def made_up(power: float) -> dict[str, dict[float, dict[str, float]]]:
    rows = {}
    for x in (4, 8, 16, 32):
        row = {"seconds": 2.0 * x**power, "flops": 1e9 * x, "bytes": 2e9, "counted_bytes": 1e9, "numbers": 1}
        rows[x] = row | {"all_seconds": [1.9 * x**power, 2.1 * x**power]}
    return {"batch": rows}


@pytest.mark.parametrize(("power", "word"), [(1.0, "no faster"), (1.2, "faster"), (0.7, "no faster")])
def test_time_that_outgrows_the_arithmetic_is_told(power: float, word: str) -> None:
    line = next(row for row in report(made_up(power)).splitlines() if "| time |" in row)
    assert line.endswith(f"| {word} |")
    assert f"| {power:.2f} [" in line
    assert f"| x{2**power:.2f} / x2.00 |" in line


def test_plots_are_svg_with_a_dashed_line_through_the_largest_point() -> None:
    root = ElementTree.fromstring(plots(made_up(1.2)))
    lines = root.findall(".//{*}polyline")
    assert len(lines) == 4
    counted, measured = lines[0], lines[1]
    assert counted.get("stroke-dasharray")
    assert measured.get("stroke-dasharray") is None
    ends = [line.get("points", "").split()[-1] for line in (counted, measured)]
    assert ends[0] == ends[1]
