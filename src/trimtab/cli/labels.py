"""`trimtab labels`: how far a judge can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, Quiet, Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.data.records import CandidatePair
    from trimtab.labeling.audit import Agreement, Audit, Estimate, JudgeAudit, SliceAudit
    from trimtab.labeling.verdict_project import ProjectVerdicts

__all__ = ["app", "audit", "register"]

app = typer.Typer(help="Labels: audit the judges, move labels in and out.", no_args_is_help=False)
"""The group `labels`; other modules add their commands to it."""

_FULL_TABLES = 3
"""With more judges than this only headline and verdict line are printed of each."""
_MOST_ROWS = 20


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="labels", rich_help_panel=Panel.DATA)


@app.command("audit")
def audit(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|PROJECT",
            help="Verdicts (JSONL, JSON, CSV, parquet, label store), a project, or a run's directory.",
        ),
    ] = Path("."),
    judge: Annotated[
        list[str] | None, typer.Option("--judge", metavar="NAME", help="Only this judge; can be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap samples.")] = 1000,
    ask_null: Annotated[
        bool,
        typer.Option("--canary", help="Also ask the project's judges to compare null responses with real ones."),
    ] = False,
    canary_pairs: Annotated[int, typer.Option(min=1, help="Pairs for the canary; six calls each.")] = 50,
    settings: Settings = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Audit judges: position, length, format and other biases, consistency, agreement with references and each other.

    A verdict file has one verdict a line: pair_id, judge (or annotator), winner (1, 2, tie, null: of the pair's own
    responses), and whatever there is of order (12 or 21), gold, status, p_1, sample, template, principle, length_1,
    length_2, slice, annotator, group, prompt_id, model, generator_1, generator_2, response_id_1, response_id_2, prompt,
    response_1, response_2, cost, tokens, latency. LLMBar's, PandaLM's and MT-bench's own files are read too.
    """
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.labeling.audit import audit as measure
    from trimtab.labeling.verdicts import read_verdicts

    project = None
    if target.is_dir() or target.name == "trimtab.toml":
        from trimtab.labeling.verdict_project import project_verdicts

        project = project_verdicts(target)
        table = project.table
    else:
        table = read_verdicts(str(target))
    if ask_null and project is None:
        raise TrimtabError(
            ErrorKind.USAGE, f"--canary asks a project's judge, and {target} is a file", "give the project's directory"
        )
    if judge:
        _check_judges(judge, table.judge.names)
    found = measure(table, seed=seed, resamples=resamples)
    if project is not None and ask_null:
        found = _asked(project, found, canary_pairs, settings or [])
    if judge:
        from dataclasses import replace

        found = replace(found, judges={name: found.judges[name] for name in judge})
    if as_json:
        output.emit_json(found.as_dict())
    else:
        _print(found)


def _check_judges(wanted: list[str], known: tuple[str, ...]) -> None:
    from difflib import get_close_matches

    from trimtab.errors import ErrorKind, TrimtabError

    for name in wanted:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known[:_MOST_ROWS])}"
            raise TrimtabError(ErrorKind.USAGE, f"no verdicts of a judge {name!r}", hint)


def _asked(verdicts: ProjectVerdicts, found: Audit, pairs: int, settings: list[str]) -> Audit:
    """The audit with the answers of the project's judges to the canary."""
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.labeling.audit import canary, with_canary
    from trimtab.labeling.store import LabelStore
    from trimtab.pipeline.build import Workshop
    from trimtab.pipeline.project import Project
    from trimtab.runs.listing import list_runs

    project = Project.open(verdicts.directory, settings)
    runs = list_runs(project.runs)
    if not runs or not verdicts.pairs:
        raise TrimtabError(
            ErrorKind.USAGE, "the canary needs sampled pairs, and there are none", f"trimtab label {project.directory}"
        )
    # one pair a prompt: prompts are what is independent
    by_prompt: dict[str, CandidatePair] = {}
    for pair in verdicts.pairs:
        by_prompt.setdefault(pair.prompt.id, pair)
    chosen = list(by_prompt.values())[:pairs]
    asked: set[str] = set()
    with LabelStore(project.label_store) as store:
        for judge in Workshop(project, runs[-1]).judges():
            who = judge.identity
            name = next((n for n in (f"{who.name}/{who.model}", who.name) if n in found.judges), None)
            # of several wordings of one judge the first is asked
            if name is None or name in asked:
                continue
            asked.add(name)
            output.say(f"asking judge {name} about {len(chosen)} real responses against null ones")
            found = with_canary(found, name, canary(judge, project.constitution, chosen, store=store))
    if not asked:
        raise TrimtabError(
            ErrorKind.USAGE,
            f"none of the judges in the settings has labeled: there are verdicts of {', '.join(found.judges)}",
            f"trimtab label {project.directory}",
        )
    return found


# the report


def _print(found: Audit) -> None:
    from trimtab.labeling.audit.words import headline, not_measurable

    judges = found.judges
    for name, of_judge in judges.items():
        output.emit_text(f"{output.safe(name)}: {output.safe(headline(of_judge))}")
    output.emit_text("")
    _print_headlines("judge", judges)
    if len(judges) <= _FULL_TABLES:
        for name, of_judge in judges.items():
            _print_checks(name, of_judge)
            _print_parts(of_judge)
            _print_cost(of_judge)
    else:
        output.emit_text("\nEvery check of a judge, and its slices: --judge NAME, or --json.")
    if found.agreement is not None:
        _print_agreement(found.agreement)
    _print_pool(found)
    absent = not_measurable(found)
    if absent:
        output.emit_text("\nNot measurable from these columns")
        output.emit_table(("check", "needs"), list(absent.items()))
    for note in found.notes:
        output.say(f"note: {note}")


def _print_headlines(what: str, parts: Mapping[str, JudgeAudit] | Mapping[str, SliceAudit]) -> None:
    output.emit_table(
        (what, "verdicts", "pairs", "accuracy", "inconsistent", "first shown wins"),
        [
            (name, p.n, p.pairs, _share(p.accuracy), _share(p.inconsistent_rate), _share(p.first_share))
            for name, p in parts.items()
        ],
        right=(1, 2),
    )


def _print_checks(name: str, judge: JudgeAudit) -> None:
    from trimtab.labeling.audit.words import check_figures

    output.emit_text(f"\nChecks of {output.safe(name)} (95 % intervals over prompts; p adjusted for all checks)")
    rows: list[tuple[object, ...]] = []
    for check in judge.checks.values():
        if check.effect is not None:
            effect, p, detectable = check_figures(check)
            rows.append((check.id, check.status, effect, p, f"{check.n} {check.unit_of_n}", detectable))
    output.emit_table(("check", "status", "found", "p", "of", "could have shown"), rows)
    if judge.gold_kappa.value is not None:
        output.emit_text(f"Cohen's kappa with the reference labels: {_plain(judge.gold_kappa)}")


def _print_parts(judge: JudgeAudit) -> None:
    for what, parts in (
        ("slice", judge.slices),
        ("group", judge.groups),
        ("annotator", judge.annotators),
        ("template", judge.templates),
        ("principle", judge.principles),
    ):
        if len(parts) > 1 or (parts and what == "slice"):
            output.emit_text("")
            shown = dict(list(parts.items())[:_MOST_ROWS])
            _print_headlines(what, shown)
            if len(shown) < len(parts):
                output.emit_text(f"and {len(parts) - len(shown)} more: --json has them all")


def _print_cost(judge: JudgeAudit) -> None:
    from trimtab.figures import figure

    if judge.cost:
        output.emit_text("")
        output.emit_table(("cost", "value"), [(k, figure(v)) for k, v in judge.cost.items()])


def _print_agreement(agreement: Agreement) -> None:
    output.emit_text(f"\nAgreement of {agreement.raters} judges (a judge's verdict on a pair is its majority)")
    output.emit_table(
        ("measure", "value", "pairs"),
        [
            ("Fleiss' kappa", _plain(agreement.fleiss), agreement.fleiss.n),
            ("Krippendorff's alpha", _plain(agreement.alpha), agreement.alpha.n),
            ("Gwet's AC1", _plain(agreement.ac1), agreement.ac1.n),
        ],
        right=(2,),
    )
    pairwise = sorted(agreement.pairwise, key=lambda p: p.kappa.value if p.kappa.value is not None else 1.0)
    if pairwise:
        output.emit_text("")
        output.emit_table(
            ("judge", "and", "pairs", "equal", "Cohen's kappa", "Gwet's AC1"),
            [(p.first, p.second, p.n, _share(p.raw), _plain(p.kappa), _plain(p.ac1)) for p in pairwise[:_MOST_ROWS]],
            right=(2,),
        )
    if len(pairwise) > _MOST_ROWS:
        output.emit_text(f"the {_MOST_ROWS} least agreeing of {len(pairwise)}: --json has them all")
    if agreement.note:
        output.emit_text(agreement.note)


def _print_pool(found: Audit) -> None:
    from trimtab.figures import figure, share

    rows: list[tuple[object, ...]] = []
    for what, facts in found.pool.items():
        members: Iterable[dict[str, Any]] = facts["members"]
        listed = list(members)
        if len(listed) < 2 or facts["effective"] is None:
            continue
        largest = max(listed, key=lambda m: m.get("verdicts", m.get("shown", 0)))
        rows.append((what, len(listed), figure(facts["effective"]), largest["name"], share(facts["largest_share"])))
    if rows:
        output.emit_text("\nWho judged, and what")
        output.emit_table(("", "number", "effective number", "largest", "its share"), rows, right=(1, 2, 4))


def _share(estimate: Estimate) -> str | None:
    from trimtab.figures import with_interval

    return None if estimate.value is None else with_interval(estimate.value, estimate.low, estimate.high, percent=True)


def _plain(estimate: Estimate) -> str | None:
    from trimtab.figures import with_interval

    return None if estimate.value is None else with_interval(estimate.value, estimate.low, estimate.high)
