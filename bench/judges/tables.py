"""From measurements to recipes: which response each prefers, and tables of how often it is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from bench.judges.material import DOMAINS, domain
from bench.judges.wordings import QUESTIONS
from trimtab.data.records import Pair
from trimtab.stats.intervals import wilson

__all__ = ["RECIPES", "Recipe", "tables"]

Figures = Mapping[str, Any]

_CONTRASTS = {
    "general": "one general pair of system messages",
    "principle": "system messages of one principle",
    "after": "the contrast after the prompt",
}


class Opinion(NamedTuple):
    """Above 0: the chosen response is preferred. `flips`: the two orders name different responses; `mass`: probability
    of readable answers. None where there are none."""

    margin: float
    flips: bool | None = None
    mass: float | None = None


class Recipe(NamedTuple):
    """A name, the measurement that it reads (empty: the pair itself), and what it says."""

    name: str
    reads: str
    says: Callable[[Pair, Figures], Opinion]


def _letters(pair: Pair, f: Figures) -> Opinion:
    (a, b), (c, d) = f["forward"], f["reverse"]
    # the chosen response is A in the forward order and B in the other
    forward, reverse = a / (a + b), d / (c + d)
    return Opinion(forward + reverse - 1, (forward > 0.5) != (reverse > 0.5), (a + b + c + d) / 2)


def _contrast(pair: Pair, f: Figures, *, mean: bool) -> Opinion:
    first, second = (
        (r - o) / (n if mean else 1) for r, o, n in zip(f["reading"], f["opposite"], f["tokens"], strict=True)
    )
    return Opinion(first - second)


def _under(pair: Pair, f: Figures, *, key: str, mean: bool) -> Opinion:
    first, second = (x / (n if mean else 1) for x, n in zip(f[key], f["tokens"], strict=True))
    return Opinion(first - second)


def _gain(pair: Pair, f: Figures, *, mean: bool) -> Opinion:
    first, second = (
        (x - y) / (n if mean else 1) for x, y, n in zip(f["prompt"], f["nothing"], f["tokens"], strict=True)
    )
    return Opinion(first - second)


def _yes(pair: Pair, f: Figures, *, question: str) -> Opinion:
    (y1, n1), (y2, n2) = f[question]
    return Opinion(y1 / (y1 + n1) - y2 / (y2 + n2), None, (y1 + n1 + y2 + n2) / 2)


def _digit(pair: Pair, f: Figures) -> Opinion:
    first, second = (sum(i * p for i, p in enumerate(ps, 1)) / sum(ps) for ps in f["scale"])
    return Opinion(first - second, None, sum(map(sum, f["scale"])) / 2)


def _length(pair: Pair, f: Figures) -> Opinion:
    return Opinion(len(pair.chosen.text) - len(pair.rejected.text))


def _shorter(pair: Pair, f: Figures) -> Opinion:
    return Opinion(len(pair.rejected.text) - len(pair.chosen.text))


def _recipes() -> Iterator[Recipe]:
    yield Recipe("the longer response", "", _length)
    yield Recipe("the shorter response", "", _shorter)
    for wording in ("bare", "plain", "direct", "careful"):
        yield Recipe(f"letter A or B, both orders, wording {wording}", f"letters-{wording}", _letters)
    ways = ((True, "mean a token"), (False, "sum"))
    for name, words in _CONTRASTS.items():
        for mean, how in ways:
            yield Recipe(f"likelihood, {words}, {how}", f"likelihood-{name}", partial(_contrast, mean=mean))
    for mean, how in ways:
        says: Callable[[Pair, Figures], Opinion] = partial(_under, key="prompt", mean=mean)
        yield Recipe(f"likelihood of the response to the prompt alone, {how}", "alone", says)
        yield Recipe(f"likelihood with the prompt against without, {how}", "alone", partial(_gain, mean=mean))
    for name, question in QUESTIONS.items():
        yield Recipe(f"Yes or No to each response: {question}", "pointwise", partial(_yes, question=name))
    yield Recipe("a digit from 1 to 5 for each response", "pointwise", _digit)


RECIPES = tuple(_recipes())


def tables(of: str, pairs: Sequence[Pair], kept: Mapping[str, Mapping[str, Figures]]) -> str:
    """A line a recipe; pairs that are not measured yet are left out, and n says so."""
    domains = [d for d in DOMAINS if any(domain(p) == d for p in pairs)]
    heads = ["recipe", "n", "right [95 %]", "orders differ", "readable", *domains]
    lines = [f"\n{of}", f"| {' | '.join(heads)} |", "| --- |" + " ---: |" * (len(heads) - 1)]
    for recipe in RECIPES:
        found = [
            (domain(pair), recipe.says(pair, kept[recipe.reads][pair.id] if recipe.reads else {}))
            for pair in pairs
            if not recipe.reads or pair.id in kept[recipe.reads]
        ]
        if not found:
            continue
        opinions = [opinion for _, opinion in found]
        flips = [o.flips for o in opinions if o.flips is not None]
        masses = [o.mass for o in opinions if o.mass is not None]
        cells = [
            recipe.name,
            str(len(found)),
            _share(opinions),
            f"{sum(flips) / len(flips):.0%}" if flips else "",
            f"{sum(masses) / len(masses):.2f}" if masses else "",
            *(_share([o for name, o in found if name == d]) for d in domains),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(opinions: Sequence[Opinion]) -> str:
    """Share of right preferences, a tie being half, with Wilson's interval."""
    if not opinions:
        return ""
    x = wilson(sum((o.margin > 0) + 0.5 * (o.margin == 0) for o in opinions), len(opinions))
    return f"{x.mean:.3f} [{x.low:.2f}, {x.high:.2f}]"
