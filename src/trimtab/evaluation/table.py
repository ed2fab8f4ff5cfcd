"""A comparison as lines of text, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trimtab.figures import figure, share, with_interval

if TYPE_CHECKING:
    from trimtab.evaluation.compare import Estimate, WinRate

__all__ = ["table"]


def table(result: WinRate) -> str:
    """The whole result, one line a measure."""
    head = ["measure", "trained", "reference", "difference", "win rate", "ties", "win rate at equal length"]
    rows = [
        [m.name, figure(m.policy), figure(m.reference), _estimate(m.difference, sign=True),
         _estimate(m.win_rate, percent=True), share(m.ties),
         "no such pair" if m.length_matched is None
         else f"{_estimate(m.length_matched, percent=True)} (n = {m.length_matched.n})"]
        for m in result.measures
    ]  # fmt: skip
    length = result.length
    difference = _estimate(length.difference, sign=True)
    rows.append(["tokens", figure(length.policy), figure(length.reference), difference, "", "", ""])
    for label, key in (("finished", "finished"), ("distinct-2", "distinct_2")):
        values = [figure(getattr(side, key)) for side in (result.policy, result.reference)]
        rows.append([label, *values, "", "", "", ""])
    left_out = f", {result.incomplete_prompts} prompts left out (one side only)" if result.incomplete_prompts else ""
    note = (
        f"{result.prompts} held-out prompts, {result.pairs} pairs{left_out}; {100 * result.level:g} % intervals, "
        f"{result.resamples} resamples of the prompts; equal length: within {100 * result.length_tolerance:g} %"
    )
    return "\n".join([*_aligned([head, *rows]), note])


def _estimate(e: Estimate, *, sign: bool = False, percent: bool = False) -> str:
    return with_interval(e.value, e.low, e.high, sign=sign, percent=percent)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
