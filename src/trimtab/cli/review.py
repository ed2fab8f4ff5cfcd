"""`trimtab review`: people compare responses blind; what their votes say, and what becomes of them."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli import output
from trimtab.cli.options import JsonOutput, Panel, ProjectDirectory, Quiet
from trimtab.cli.runs import runs_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trimtab.data.records import Prompt
    from trimtab.evaluation.review.sources import Found
    from trimtab.evaluation.review.store import ReviewStore

__all__ = ["app", "open_store", "register"]

app = typer.Typer(help="Human review: blind comparisons by people, and what they say.", no_args_is_help=False)


_CONSTITUTION = "constitution"
"""The word for the aspects that a project's constitution names."""


class From(StrEnum):
    """Which of a run's responses are compared."""

    AUTO = "auto"
    EVAL = "eval"
    PROBE = "probe"


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="review", rich_help_panel=Panel.HEALTH)
    app.command("new")(new)
    app.command("vote")(vote)
    app.command("results")(results)
    app.command("disagreements")(disagreements)
    app.command("export")(export)
    app.command("guidelines")(guidelines)


ReviewName = Annotated[
    str | None, typer.Option("--review", metavar="NAME", help="Which review, where the project has several.")
]
Without = Annotated[
    list[str] | None, typer.Option("--without", metavar="ANNOTATOR", help="Leave out their votes; can be repeated.")
]

Aspects = Annotated[
    str,
    typer.Option(
        metavar="A,B,...",
        help="What is asked beside the overall preference, as in helpful,honest,harmless; constitution: its "
        "principles, whose texts are the guidelines where no others are given.",
    ),
]
Guide = Annotated[
    Path | None, typer.Option("--guidelines", metavar="FILE", help="What annotators are to go by, a text file.")
]


def new(
    project: Annotated[Path, typer.Argument(metavar="PROJECT", help="Directory of the project.")],
    points: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN[@STEP] RUN[@STEP]", help="What is compared; without a step a run's end is meant."),
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare the responses of a file of pairs instead.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the review; default: review-1, ...")] = None,
    source: Annotated[
        From,
        typer.Option("--from", help="Responses of the evaluation or to the probe prompts; auto: the first both have."),
    ] = From.AUTO,
    limit: Annotated[int | None, typer.Option(min=1, help="Most items; drawn by prompt.")] = None,
    per_prompt: Annotated[int, typer.Option(min=1, help="Most items of one prompt.")] = 1,
    votes: Annotated[int, typer.Option("--votes", min=1, help="Annotators for each item.")] = 2,
    repeats: Annotated[float, typer.Option(help="Share of items shown again with the sides swapped.")] = 0.1,
    gold: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labeled pairs to mix in as questions with a known answer.")
    ] = None,
    gold_rate: Annotated[float, typer.Option(help="Share of what is shown that is such a question.")] = 0.1,
    aspects: Aspects = "",
    guide: Guide = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the sides and of who sees what when.")] = 0,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Make a review: pairs of responses of two points of training (RUN@STEP), or of a file.

    Responses are those that the runs have kept: nothing is sampled. Nobody who votes is told whose response is which.
    """
    from trimtab.evaluation.review.records import Plan
    from trimtab.evaluation.review.sources import chosen, gold_of_pairs
    from trimtab.evaluation.review.store import create
    from trimtab.evaluation.review.versions import read_guidelines, set_guidelines

    found = _found(project, points or [], pairs, source, per_prompt)
    items = chosen(found.items, limit, seed)
    questions = gold_of_pairs(gold) if gold is not None else []
    plan = Plan(votes, repeats, gold_rate if questions else 0.0, _aspects(project, aspects), seed=seed)
    text = read_guidelines(guide) if guide is not None else _principles(project, aspects)
    with open_store(project, make=True) as store:
        made = create(
            store, name, items, plan,
            gold=questions, systems=found.systems, source=found.source, identical=found.identical,
        )  # fmt: skip
        version = "" if text is None else set_guidelines(store, made.name, text, guide)
    for note in found.notes:
        output.say(f"note: {note}")
    if as_json:
        output.emit_json({**made.as_dict(), "guidelines": version, "notes": list(found.notes)})
        return
    output.emit_text(
        f"{made.name}: {made.items} items of {' against '.join(made.systems)} ({made.source}), "
        f"{made.plan.votes_per_item} votes each, {made.gold} gold questions"
    )
    if found.identical:
        output.say(f"{found.identical} pairs left out: both responses are the same")
    output.say(f"next: trimtab review vote {project} --annotator NAME")


def vote(
    annotator: Annotated[str, typer.Option("--annotator", metavar="NAME", help="Who votes.")],
    project: ProjectDirectory = Path("."),
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="NAME", help="A group that the annotator belongs to; can be repeated."),
    ] = None,
    review: ReviewName = None,
    quiet: Quiet = False,
) -> None:
    """Vote in the terminal, a key a vote; everything voted is kept whatever happens.

    a or 1: A is better; b or 2: B is; t or 3: a tie; x or 0: both are bad; s: skip; u: undo the last vote; r: give a
    reason with the next vote; m: show all of a long text; g: the guidelines; q: stop.
    """
    from trimtab.cli.review_vote import sit
    from trimtab.evaluation.review.store import find_review

    with open_store(project) as store:
        sit(store, find_review(store, review), annotator, group)


def results(
    project: ProjectDirectory = Path("."),
    review: ReviewName = None,
    without: Without = None,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap samples of the measures of agreement.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """What the votes say so far: win rates, agreement, each annotator, slices; with 95 % intervals over prompts."""
    from trimtab.cli.review_tables import print_results
    from trimtab.evaluation.review.tally import results as measure

    with open_store(project) as store:
        found = measure(store, review, without=without or (), resamples=resamples, seed=seed)
    if as_json:
        output.emit_json(found.as_dict())
    else:
        print_results(found)


def disagreements(
    project: ProjectDirectory = Path("."),
    review: ReviewName = None,
    without: Without = None,
    limit: Annotated[int, typer.Option(min=1, help="Most items that are listed.")] = 10,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """List the items that annotators do not agree on, the most disputed first, with votes and reasons."""
    from trimtab.cli.review_tables import disagreement_record, print_disagreements
    from trimtab.evaluation.review.tally import disagreements as find

    with open_store(project) as store:
        found = find(store, review, without=without or ())
    shown = found[:limit]
    if as_json:
        rows = [disagreement_record(one) for one in shown]
        output.emit_json({**output.listing("disagreements", rows), "truncated": len(shown) < len(found)})
    else:
        print_disagreements(shown, len(found))


def export(
    project: ProjectDirectory = Path("."),
    pairs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labeled pairs, the share of votes as soft label: JSON lines.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Verdicts of annotators, and of the project's judges on the same pairs, with what people say as "
            "reference label: for trimtab labels audit.",
        ),
    ] = None,
    review: ReviewName = None,
    without: Without = None,
    min_votes: Annotated[int, typer.Option(min=1, help="Pairs with fewer votes are left out.")] = 1,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Write the votes as preference pairs to train or evaluate on, and as reference labels to audit judges by."""
    from trimtab.data.pairs import write_pairs
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.evaluation.review.export import label_records, preference_pairs
    from trimtab.labeling.store import LabelStore
    from trimtab.runs.files import write_jsonl

    if pairs is None and labels is None:
        raise TrimtabError(ErrorKind.USAGE, "there is nothing to write", "name --pairs FILE, --labels FILE or both")
    done: dict[str, Any] = {}
    with open_store(project) as store:
        if pairs is not None:
            made = preference_pairs(store, review, min_votes=min_votes, without=without or ())
            _refuse_none(made, "voted on often enough")
            write_pairs(pairs, made)
            done["pairs"] = {"path": str(pairs), "count": len(made)}
        if labels is not None:
            judged = _directory(project) / "labels.sqlite"
            kept = LabelStore(judged) if judged.is_file() else None
            try:
                records = label_records(store, review, labels=kept, without=without or ())
            finally:
                if kept is not None:
                    kept.close()
            _refuse_none(records, "voted on")
            write_jsonl(labels, records)
            done["labels"] = {"path": str(labels), "count": len(records)}
    if as_json:
        output.emit_json(done)
    for what, facts in done.items() if not as_json else ():
        output.say(f"{facts['count']} {what} written to {facts['path']}")


def guidelines(
    project: ProjectDirectory = Path("."),
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="A text to put in force; without it the present one is shown.")
    ] = None,
    review: ReviewName = None,
    as_json: JsonOutput = False,
    quiet: Quiet = False,
) -> None:
    """Show or set what annotators go by; every vote carries the version, and results are sliced by it."""
    from trimtab.evaluation.review.versions import guidelines as versions_of
    from trimtab.evaluation.review.versions import read_guidelines, set_guidelines

    with open_store(project) as store:
        if file is not None:
            set_guidelines(store, review, read_guidelines(file), file)
        versions = versions_of(store, review)
    if as_json:
        rows = [{**asdict(v), "since": output.timestamp(v.since)} for v in versions]
        output.emit_json(output.listing("versions", rows))
        return
    if not versions:
        output.say("there are no guidelines; set them with: trimtab review guidelines PROJECT FILE")
        return
    output.emit_table(
        ("version", "since", "votes"), [(v.version, output.timestamp(v.since), v.votes) for v in versions], right=(2,)
    )
    output.emit_text("\n" + versions[-1].text)


def open_store(project: Path, *, make: bool = False) -> ReviewStore:
    """The review store of a project's directory.

    Raises:
        TrimtabError: there is no such directory, or no store in it and none is to be made.
    """
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.evaluation.review.store import STORE_NAME, ReviewStore

    path = _directory(project) / STORE_NAME
    if not make and not path.is_file():
        raise TrimtabError(
            ErrorKind.USAGE,
            f"{path}: there is no review yet",
            "make one with: trimtab review new PROJECT RUN@STEP RUN@STEP",
        )
    return ReviewStore(path)


def _directory(project: Path) -> Path:
    from trimtab.errors import ErrorKind, TrimtabError

    directory = project.parent if project.name == "trimtab.toml" else project
    if not directory.is_dir():
        raise TrimtabError(ErrorKind.USAGE, f"{project}: there is no such directory", "name a project's directory")
    return directory


def _refuse_none(made: list[Any], what: str) -> None:
    from trimtab.errors import ErrorKind, TrimtabError

    if not made:
        raise TrimtabError(ErrorKind.DATA, f"no item has been {what} yet", "vote with: trimtab review vote PROJECT")


def _found(project: Path, points: list[str], pairs: Path | None, source: From, per_prompt: int) -> Found:
    from trimtab.errors import ErrorKind, TrimtabError
    from trimtab.evaluation.review.sources import of_pairs, of_runs, point_of

    if (pairs is None) != (len(points) == 2) or (pairs is not None and points):
        raise TrimtabError(
            ErrorKind.USAGE,
            f"a review compares two points or a file of pairs, not {len(points)} points"
            f"{' and a file' if pairs else ''}",
            "as in: trimtab review new PROJECT main@300 main@0",
        )
    if pairs is not None:
        return of_pairs(pairs)
    runs = runs_directory(project)
    first, second = (point_of(text, runs) for text in points)
    return of_runs(first, second, source=source.value, prompts=_prompts(project), per_prompt=per_prompt)


def _prompts(project: Path) -> Iterable[Prompt]:
    """The prompts that the project's settings name, as far as they can be read: they carry messages and tags."""
    from trimtab.errors import TrimtabError
    from trimtab.pipeline.project import CONFIG_NAME, Project

    if not (_directory(project) / CONFIG_NAME).is_file():
        return []
    opened = Project.open(project)
    found: list[Prompt] = []
    for name in ("prompts", "held_out_prompts"):
        try:
            found += getattr(opened, name)
        except TrimtabError:
            continue  # the responses carry the texts of their prompts
    return found


def _principles(project: Path, aspects: str) -> str | None:
    """The texts of the principles that are asked about; None where they are not."""
    from trimtab.pipeline.project import Project

    if aspects.strip() != _CONSTITUTION:
        return None
    principles = Project.open(project).constitution.counted
    return "\n".join(f"{principle.id}: {principle.text.strip()}" for principle in principles)


def _aspects(project: Path, named: str) -> tuple[str, ...]:
    from trimtab.pipeline.project import Project

    if named.strip() == _CONSTITUTION:
        return tuple(principle.id for principle in Project.open(project).constitution.counted)
    return tuple(part.strip() for part in named.split(",") if part.strip())
