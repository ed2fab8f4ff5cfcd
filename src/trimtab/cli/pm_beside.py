"""What `trimtab pm eval` shows beside the score's own figures: length, and the heads by principle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.cli import output

__all__ = ["print_beside"]

_KINDS = {
    "all": "all pairs",
    "matched": "pairs of one length, within a tenth",
    "longer": "the chosen response is longer",
    "shorter": "the chosen response is shorter",
}


def print_beside(found: Mapping[str, Any]) -> None:
    """Print the tables of `trimtab.pipeline.pm_figures.figures_beside`."""
    _print_length(found["length"])
    if "principles" in found:
        _print_principles(found["principles"])


def _print_length(length: Mapping[str, Any]) -> None:
    debiased = "before" in length
    rows = [
        (_KINDS[kind], value["n"], _of(value, percent=True))
        + ((_of(length["before"]["accuracy"][kind], percent=True), _points(length["change"][kind])) if debiased else ())
        for kind, value in length["accuracy"].items()
    ]
    correlation = [_of(length["correlation"])]
    if debiased:
        correlation += [_of(length["before"]["correlation"]), _of(length["change"]["correlation"], sign=True)]
    output.emit_text("")
    output.emit_table(
        ("accuracy by length", "pairs", "now", "with length left in", "change") if debiased
        else ("accuracy by length", "pairs", "accuracy"),
        [*rows, ("correlation of score and log length within pairs", length["correlation"]["n"], *correlation)],
    )  # fmt: skip


def _print_principles(principles: Mapping[str, Mapping[str, Any]]) -> None:
    from trimtab.figures import figure

    output.emit_text("")
    output.emit_table(
        ("principle", "labels", "accuracy of its head", "of the score", "head leads by", "ece", "brier", "log loss"),
        [
            (
                output.safe(name),
                value["pairs"],
                _of(value["accuracy"], percent=True),
                _of(value["overall"], percent=True),
                _points(value["lead"]),
                *(figure(value[key]) for key in ("ece", "brier", "log_loss")),
            )
            for name, value in principles.items()
        ],
    )


def _of(value: Mapping[str, Any] | None, *, percent: bool = False, sign: bool = False) -> str:
    from trimtab.figures import with_interval

    if value is None or value["mean"] is None:
        return ""
    return with_interval(value["mean"], value["low"], value["high"], percent=percent, sign=sign)


def _points(value: Mapping[str, Any] | None) -> str:
    """A difference of two shares in percentage points."""
    if value is None:
        return ""
    return _of({key: None if value[key] is None else 100 * value[key] for key in ("mean", "low", "high")}, sign=True)
