"""`trimtab label`: the judges label the sampled pairs, within a budget; or only say what that would take."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import Again, JsonOutput, ProjectDirectory, Quiet, RunName, Settings

if TYPE_CHECKING:
    from trimtab.labeling.budget import Estimate

__all__ = ["label"]


def label(
    project: ProjectDirectory = Path("."),
    name: RunName = "main",
    settings: Settings = None,
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", metavar="MONEY", min=0, help="Spend no more, in the currency of label.input_price."),
    ] = None,
    max_calls: Annotated[
        int | None, typer.Option("--max-calls", metavar="N", min=1, help="Make no more calls, retries included.")
    ] = None,
    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            metavar="N",
            min=1,
            help="Label only N pairs, chosen in rounds by what they are expected to tell.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print calls, tokens, cost and time that are left; ask nobody.")
    ] = False,
    again: Again = False,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Let the judge label the pairs by the constitution.

    Every verdict is recorded in labels.sqlite as it comes: an interrupted command goes on where it stopped, and nothing
    is asked twice.
    """
    from trimtab.cli.stages import stage

    # before --set, which may choose otherwise
    changed = [f"label.budget_pairs={pairs}", "label.choose=active"] if pairs is not None else []
    changed += settings or []
    changed += [f"label.max_cost={max_cost}"] if max_cost is not None else []
    changed += [f"label.max_calls={max_calls}"] if max_calls is not None else []
    if not dry_run:
        stage("label", project, name, changed, again=again, as_json=as_json)
        return
    _print_estimate(project, name, changed, as_json)


def _print_estimate(project: Path, name: str, settings: list[str], as_json: bool) -> None:
    from trimtab.pipeline.build import Workshop
    from trimtab.pipeline.labels import estimate_stage
    from trimtab.pipeline.project import Project
    from trimtab.runs.manifest import check_run_name
    from trimtab.runs.run import Run

    opened = Project.open(project, settings)
    found = estimate_stage(Workshop(opened, Run.open(opened.runs / check_run_name(name))))
    rows = [_row(one) for one in found]
    total = _total(rows)
    if as_json:
        output.emit_json({"run": name, **output.listing("judges", rows), "total": total})
        return
    keys = ("judge", "questions", "recorded", "calls", "prompt_tokens", "completion_tokens", "cost", "seconds")
    shown = [*rows, total] if len(rows) > 1 else rows
    heads = ("judge", "questions", "recorded", "calls left", "prompt tokens", "completion tokens", "cost", "time")
    output.emit_table(heads, [[_cell(key, row[key]) for key in keys] for row in shown], right=range(1, len(keys)))
    output.say("Tokens and cost are at most; the time is guessed from recorded calls and the rate limits.")


def _row(one: Estimate) -> dict[str, Any]:
    identity = one.judge
    wording = f"/{identity.wording}" if identity.wording else ""
    figures = {key: value for key, value in asdict(one).items() if key != "judge"}
    return {"judge": f"{identity.name}{wording}", "model": identity.model, **figures}


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Sums; a sum is not known where a part is not."""
    total: dict[str, Any] = {"judge": "total"}
    for key in ("questions", "recorded", "calls", "prompt_tokens", "completion_tokens", "cost", "seconds"):
        values = [row[key] for row in rows]
        total[key] = None if any(value is None for value in values) else sum(values)
    return total


def _cell(key: str, value: Any) -> object:
    from trimtab.figures import figure
    from trimtab.runs.progress import duration

    if value is None or isinstance(value, str | int):
        return value
    return duration(value) if key == "seconds" else figure(value)
