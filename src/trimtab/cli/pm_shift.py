"""`trimtab pm shift`: have the responses left what the preference model knows?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import output
from trimtab.cli.doctor import EXIT_INCONCLUSIVE, EXIT_SICK
from trimtab.cli.options import JsonOutput, Quiet, RunName, Settings

if TYPE_CHECKING:
    from trimtab.pipeline.shift import Shifts
    from trimtab.preference.shift import ShiftReport
    from trimtab.stats.intervals import Interval
    from trimtab.stats.shift import Permuted

__all__ = ["shift"]


def shift(
    target: Annotated[
        Path, typer.Argument(metavar="PROJECT|MODEL", help="A project, or a directory with a preference model.")
    ] = Path("."),
    responses: Annotated[
        str | None,
        typer.Argument(
            metavar="RESPONSES",
            help="JSON lines with prompt and response, or RUN@STEP; default: what the run's PPO and eval kept.",
        ),
    ] = None,
    name: RunName = "main",
    settings: Settings = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Pairs to compare with; default: the sample stored with the model."),
    ] = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Compare responses with the pairs that the preference model comes from, and say how right it still is there.

    Exit code: 0 the same or moved within what it knows, 3 shifted, 5 too few responses to tell.
    """
    from trimtab.pipeline.shift import open_subject, responses_of, shift_of

    subject = open_subject(target, name, settings or [])
    sets = responses_of(subject, responses)
    found = shift_of(subject, sets, reference, keep=responses is None)
    if as_json:
        output.emit_json({"path": str(target), **found.as_dict()})
    else:
        output.say(f"reference: {found.rows} responses, {found.held_out} of them held out ({found.reference})")
        _print(found)
    codes = {"sick": EXIT_SICK, "inconclusive": EXIT_INCONCLUSIVE}
    raise typer.Exit(codes.get(found.deciding.status, 0))


def _print(found: Shifts) -> None:
    output.emit_text("\n".join(_head(found.deciding)) + "\n")
    output.emit_table(
        ("responses", "n", "prompts", "AUC", "distance", "outside", "PSI score", "PSI length", "members", "accuracy"),
        [
            (
                r.label, r.responses, r.prompts, _interval(r.domain), _interval(r.distance),
                _interval(r.outside, percent=True), "-" if r.scores is None else _against(r.scores.psi),
                "-" if r.words is None else _against(r.words.psi),
                "-" if math.isnan(r.spread) else f"{r.spread:.2f}x",
                "cannot tell" if r.expected.why_not else _interval(r.expected.accuracy, percent=True),
            )
            for r in found.reports
        ],
    )  # fmt: skip
    output.emit_text(
        "AUC: telling them from the reference's, 0.5 = as alike. distance: mean percentile, 0.5 = as unseen pairs. "
        "outside: beyond their 99th.\n"
        "PSI: above 0.25 another population; in brackets what chance stays below (95 %). "
        "members: their disagreement relative to the reference's.\n"
        "accuracy: to expect on pairs of these, from held-out pairs at such distances and gaps.\n"
    )
    unread = sum(r.unread for r in found.reports)
    if unread:
        output.say(f"{unread} responses are too long for the model and were left out")


def _head(report: ShiftReport) -> list[str]:
    """The verdict and what it rests on."""
    of = f"{report.label}: {report.responses} responses to {report.prompts} prompts"
    words = {
        "shifted": f"Shifted: the responses have left what the preference model knows ({of}).",
        "moved": f"Moved: the responses differ from the reference's, in the midst of what the model knows ({of}).",
        "same": f"Not shifted ({of}).",
        "cannot tell": f"Cannot tell: too few responses ({of}; at least 20 of each).",
    }
    lines = [words[report.verdict]]
    expected = report.expected
    known = f"{_interval(expected.reference, percent=True)} on held-out pairs"
    if expected.why_not:
        lines.append(f"  accuracy to expect: cannot tell ({expected.why_not}); {known}")
    else:
        change = _interval(expected.change, percent=True, sign=True)
        accuracy = _interval(expected.accuracy, percent=True)
        apart = _interval(expected.by_distance, percent=True, sign=True)
        lines.append(f"  accuracy to expect: {accuracy}, against {known}")
        rest = (
            "the rest, that the responses resemble each other" if expected.by != "distance" else "one response a prompt"
        )
        lines.append(f"  change {change}, of which {apart} by the distances; {rest}")
    if report.scores is not None and report.scores.moved:
        lines.append(
            f"  scores: mean {report.scores.mean:.3g} against {report.scores.reference_mean:.3g}; progress raises them "
            "too, so they decide nothing"
        )
    if report.verdict == "shifted":
        lines.append("  label pairs of these responses and train the preference model on them: trimtab label, pm train")
        lines.append("  more: trimtab explain pm-distribution-shift")
    return lines


def _interval(value: Interval, *, percent: bool = False, sign: bool = False) -> str:
    from trimtab.figures import with_interval

    if not math.isfinite(value.mean):
        return "-"
    known = math.isfinite(value.low) and math.isfinite(value.high)
    low, high = (value.low, value.high) if known else (None, None)
    return with_interval(value.mean, low, high, percent=percent, sign=sign)


def _against(value: Permuted) -> str:
    return f"{value.value:.2f} ({value.floor:.2f})"
