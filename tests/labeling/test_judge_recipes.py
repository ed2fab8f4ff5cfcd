"""What the bench of judge recipes reads from its measurements, and how the bench of active choice counts labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from bench.judges.material import load
from bench.judges.tables import RECIPES, tables

from trimtab.data.records import Message, Pair, Prompt, Response

BY_NAME = {recipe.name: recipe for recipe in RECIPES}


def pair(number: int, chosen: str = "longer text", rejected: str = "short", tag: str = "") -> Pair:
    tags = (tag,) if tag else ()
    return Pair(f"p{number}", Prompt("x", (Message("user", "q"),), tags), Response(chosen), Response(rejected))


def says(name: str, figures: dict[str, Any], of: Pair | None = None) -> Any:
    return BY_NAME[name].says(of or pair(0), figures)


def test_a_letter_counts_for_the_chosen_response_in_both_orders() -> None:
    name = "letter A or B, both orders, wording plain"
    # forward: A is the chosen one, .3 of .4; reversed: B is, .1 of .4: .75 + .25 - 1 = 0
    found = says(name, {"forward": [0.3, 0.1], "reverse": [0.3, 0.1]})
    assert found == pytest.approx((0.0, True, 0.4), abs=1e-12)
    assert says(name, {"forward": [0.3, 0.1], "reverse": [0.1, 0.3]}) == pytest.approx((0.5, False, 0.4), abs=1e-12)
    assert says(name, {"forward": [0.1, 0.3], "reverse": [0.3, 0.1]}).margin == pytest.approx(-0.5, abs=1e-12)


def test_the_contrast_is_a_difference_of_differences() -> None:
    figures = {"reading": [-10.0, -3.0], "opposite": [-14.0, -5.0], "tokens": [4, 1]}
    # sums: 4 against 2; means: 1 against 2
    general = "likelihood, one general pair of system messages, "
    assert says(f"{general}sum", figures).margin == 2.0
    assert says(f"{general}mean a token", figures).margin == -1.0


def test_the_response_alone_and_what_the_prompt_adds() -> None:
    figures = {"prompt": [-8.0, -3.0], "nothing": [-20.0, -5.0], "tokens": [4, 2]}
    assert says("likelihood of the response to the prompt alone, sum", figures).margin == -5.0
    assert says("likelihood of the response to the prompt alone, mean a token", figures).margin == -0.5
    assert says("likelihood with the prompt against without, sum", figures).margin == 10.0
    assert says("likelihood with the prompt against without, mean a token", figures).margin == 2.0


def test_pointwise_answers_are_compared() -> None:
    yes = next(name for name in BY_NAME if name.startswith("Yes or No") and "good" in name)
    assert says(yes, {"good": [[0.3, 0.1], [0.2, 0.2]]}) == pytest.approx((0.25, None, 0.4), abs=1e-12)
    digits = {"scale": [[0.0, 0.0, 0.0, 0.0, 0.5], [0.1, 0.0, 0.0, 0.0, 0.1]]}
    assert says("a digit from 1 to 5 for each response", digits) == pytest.approx((2.0, None, 0.35), abs=1e-12)


def test_the_table_counts_ties_half_and_only_what_was_measured() -> None:
    pairs = [pair(0, tag="honest"), pair(1, "same!", "short", "honest"), pair(2, "no", "longer", "helpful"), pair(3)]
    measured = {"p0": {"good": [[0.4, 0.1], [0.1, 0.4]], "correct": [[1, 0], [0, 1]], "scale": [[1] * 5] * 2}}
    text = tables("made up", pairs, {recipe.reads: {} for recipe in RECIPES} | {"pointwise": measured})
    rows = {line.split(" | ")[0].lstrip("| "): line.split(" | ")[1:] for line in text.splitlines() if "|" in line}
    # longer: right, tie, wrong, right: 2.5 of 4; of the honest 1.5 of 2
    longer = rows["the longer response"]
    assert (longer[0], longer[1][:5], longer[4][:5]) == ("4", "0.625", "0.750")
    assert rows["a digit from 1 to 5 for each response"][:2] == ["1", "0.500 [0.05, 0.95]"]
    assert not any(name.startswith("likelihood") for name in rows)


@pytest.mark.parametrize(("name", "count", "domains"), [("LLMBar Natural", 100, 1), ("HHH", 221, 4)])
def test_the_public_sets_are_whole(name: str, count: int, domains: int) -> None:
    from bench.judges.material import domain

    pairs = load(name)
    if pairs is None:
        pytest.skip("../shared/data is not there")
    assert len(pairs) == len({p.id for p in pairs}) == count
    assert len({domain(p) for p in pairs}) == domains
    assert not any("###" in p.chosen.text for p in pairs)


def test_labels_needed_are_read_off_rising_curves() -> None:
    pytest.importorskip("torch")
    from bench.tiny_world import active

    rounds = active.MOST // active.ROUND
    random = np.linspace(0.5, 0.5 + 0.01 * (rounds - 1), rounds)
    assert active._needed(random, random) == pytest.approx(active.AT)
    # two rounds ahead all along
    assert active._needed(random + 0.02, random) == pytest.approx(active.AT - 2 * active.ROUND)
    assert active._needed(random - 0.2, random) == active.MOST
    # one lucky round is averaged with its neighbours
    lucky = random - 0.02
    lucky[1] += 0.07
    assert active._needed(lucky, random) > active.AT


def test_the_linear_model_is_at_the_minimum_of_its_loss() -> None:
    from bench.tiny_world.linear import RIDGE, Linear

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), rng.uniform(size=60)
    w = Linear.fit(x, y).weights

    def loss(v: np.ndarray) -> float:
        total = RIDGE / 2 * float(v @ v)
        for row, label in zip(x, y, strict=True):
            z = float(row @ v)
            total -= label * -math.log1p(math.exp(-z)) + (1 - label) * -math.log1p(math.exp(z))
        return total

    for i in range(4):
        step = np.zeros(4)
        step[i] = 1e-3
        assert loss(w) < min(loss(w + step), loss(w - step))
